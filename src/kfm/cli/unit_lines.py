"""Units as documents for programs and as lines for people."""

from __future__ import annotations

from typing import Any

import msgspec

from kfm.cli.output import instant, one_line, table, utc
from kfm.core.wording import moment

_TIMES = (
    "event_time_ms",
    "time_range_start_ms",
    "time_range_end_ms",
    "last_attempt_at_ms",
    "created_at_ms",
    "updated_at_ms",
)


def unit_document(unit: Any) -> dict[str, Any]:
    """Every field of a unit; times as texts."""
    found = msgspec.to_builtins(unit)
    for name in _TIMES:
        found[name.removesuffix("_ms")] = instant(found.pop(name))
    return dict(sorted(found.items()))


def stored_document(stored: Any, history: Any, now_ms: int) -> dict[str, Any]:
    return {
        "unit": unit_document(stored.unit),
        "object": {
            "etag": stored.etag,
            "size": stored.size,
            "version_id": stored.version_id,
            "sequencer": stored.sequencer,
            "content_version": stored.content_version,
            "done_version": stored.done_version,
            "removed": bool(stored.removed),
        },
        "budget": {
            "grants": stored.grants,
            "attempts_of_grant": stored.grant_attempts,
            "due": instant(stored.not_before_ms) if stored.unit.status == "pending" else None,
            "lease_left_ms": max(0, stored.lease_until_ms - now_ms),
            "alone": bool(stored.alone),
        },
        "history": [
            {
                "at": instant(move.at_ms),
                "event": move.event,
                "status": move.status,
                "version": move.version,
                "attempts": move.attempts,
                "worker_id": move.worker_id,
                "details": move.details,
            }
            for move in history
        ],
    }


def stored_lines(document: dict[str, Any]) -> list[str]:
    unit, budget = document["unit"], document["budget"]
    facts = [(name.replace("_", " "), _text(unit[name])) for name in unit if unit[name] not in (None, {})]
    facts += [
        (f"object {name}".replace("_", " "), _text(value))
        for name, value in document["object"].items()
        if value not in (None, False)
    ]
    if budget["due"] is not None:
        facts.append(("due", utc(budget["due"])))
    width = max(len(name) for name, _ in facts)
    rows = [
        (
            utc(move["at"]).removesuffix(" UTC"),
            move["event"],
            move["status"],
            str(move["attempts"]),
            move["worker_id"] or "-",
            _text(move["details"]) if move["details"] else "",
        )
        for move in document["history"]
    ]
    header = ("AT (UTC)", "EVENT", "STATUS", "ATTEMPT", "WORKER", "DETAILS")
    return [*(f"{name.ljust(width)}  {value}" for name, value in facts), "", *table(header, rows)]


def unit_rows(units: Any) -> list[str]:
    rows = [
        (
            moment(unit.updated_at_ms).removesuffix(" UTC"),
            unit.dataset,
            unit.status,
            str(unit.attempts),
            unit.last_error_code or "-",
            unit.wal_id,
            unit.object_uri,
        )
        for unit in units
    ]
    return table(("CHANGED (UTC)", "DATASET", "STATUS", "ATTEMPTS", "ERROR", "UNIT", "OBJECT"), rows)


def _text(value: Any) -> str:
    return one_line(value if isinstance(value, str) else msgspec.json.encode(value).decode())
