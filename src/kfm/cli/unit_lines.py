"""Units as lines for people."""

from __future__ import annotations

from typing import Any

import msgspec

from kfm.cli.output import one_line, table, utc
from kfm.core.wording import moment


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
