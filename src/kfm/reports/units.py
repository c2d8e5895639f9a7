"""Units and dead letters as documents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from kfm.model.quantities import instant
from kfm.model.records import UNIT_STATUSES
from kfm.reports.lookup import SEARCHED_MAX, Sought, only

_TIMES = (
    "event_time_ms",
    "time_range_start_ms",
    "time_range_end_ms",
    "last_attempt_at_ms",
    "created_at_ms",
    "updated_at_ms",
)
HASH_PREFIX = "sha256:"
_OF_REQUEST = ("request_id", "source_id", "dataset_id", "state", "outcome", "blocked_by", "run_id")


def unit_document(unit: Any) -> dict[str, Any]:
    """Every field of a unit; times as texts."""
    found = msgspec.to_builtins(unit)
    for name in _TIMES:
        found[name.removesuffix("_ms")] = instant(found.pop(name))
    return dict(sorted(found.items()))


def stored_document(ledger: Any, stored: Any) -> dict[str, Any]:
    """A unit with its object, its history, and the requests that it led to."""
    now_ms, history = ledger.now_ms(), ledger.unit_reader().history_of(stored.unit.wal_id)
    requests = ledger.request_reader().of_unit(stored.unit.wal_id, stored.content_version)
    due_ms = max(stored.not_before_ms, stored.unit.updated_at_ms)  # since it waits, where nothing puts it off
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
            "due": instant(due_ms) if stored.unit.status == "pending" else None,
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
        "requests": [{name: getattr(one, name) for name in _OF_REQUEST} for one in requests],
    }


def unit_documents(figures: Iterable[tuple[str, str, int, int | None]]) -> dict[str, Any]:
    """(dataset, name, amount, newest time) → by dataset, and how many messages are dead."""
    datasets: dict[str, dict[str, Any]] = {}
    dead = 0
    for dataset, name, amount, high_ms in figures:
        if name.startswith("dead:"):
            dead += int(amount)
            continue
        if not dataset:
            continue
        one = datasets.setdefault(
            dataset, {"dataset": dataset, **dict.fromkeys(UNIT_STATUSES, 0), "newest": None}
        )
        if name in UNIT_STATUSES:
            one[name] = int(amount)
        elif name == "watermark":
            one["newest"] = instant(high_ms)
    return {"datasets": [datasets[name] for name in sorted(datasets)], "dead_messages": dead}


def dead_document(one: Any) -> dict[str, Any]:
    """All but the message itself."""
    return {
        "message": one.envelope_hash,
        "record": one.record_index,
        "queue": one.queue,
        "error_code": one.error_code,
        "error": one.error,
        "times": one.times,
        "first_at": instant(one.first_at_ms),
        "last_at": instant(one.last_at_ms),
        "state": one.state,
    }


def find_dead(reader: Any, wanted: str) -> list[Any]:
    """By its hash, or the beginning of it, if that is unambiguous."""
    start = wanted.lower().partition("/")[0].removeprefix(HASH_PREFIX)
    exact: list[Any] = reader.dead_message(f"{HASH_PREFIX}{start}")
    if exact:
        return exact
    every = reader.dead_messages("", "", SEARCHED_MAX)
    hashes = sorted({one.envelope_hash.removeprefix(HASH_PREFIX) for one in every})
    sought = Sought("dead message", "dead messages", lambda _start: hashes, str)
    found = only(start, [sought], "`kfm nodd dead list --all` has all.")
    whole: list[Any] = reader.dead_message(f"{HASH_PREFIX}{found}")
    return whole
