"""Units that another ledger kept: entered as they were, once, and never over what is known here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kfm.core import keys
from kfm.core.holding import Held
from kfm.core.records import GovernanceEntry, Unit
from kfm.store import governance, holding, rows, unit_pages, unit_rows
from kfm.store.session import Session
from kfm.store.unit_counts import Tally

EVENT = "imported"
GIVEN_UP = ("failed", "quarantined")


def bring_in(session: Session, units: Sequence[Unit], actor: str, rationale: str) -> int:
    """How many were new. Whoever held one elsewhere does not hold it here: such a lease has lapsed.

    Our catalogue has seen none of them, so none counts as done: new bytes are looked at from the start.
    """
    now_ms, tally = session.now_ms(), Tally()
    by_status: dict[str, list[Unit]] = {}
    for unit in sorted(units, key=lambda one: one.wal_id):
        by_status.setdefault(unit.status, []).append(unit)
    counts = {status: _enter(session, status, by_status[status], now_ms, tally) for status in by_status}
    created = sum(counts.values())
    if created:
        tally.write(session)
        entry = GovernanceEntry(
            kind="units-imported",
            subject="units",
            actor=actor,
            recorded_at_ms=now_ms,
            rationale=rationale,
            details={"created": created, **{name: count for name, count in counts.items() if count}},
        )
        governance.append(session, [entry])
    return created


def _enter(session: Session, status: str, units: Sequence[Unit], now_ms: int, tally: Tally) -> int:
    """Those of one status: one page of the history."""
    number = unit_pages.begin(session)
    lines = [_line(unit, now_ms, str(number)) for unit in units]
    landed = {wal_id for (wal_id,) in session.gather("units.bring_in", lines) or ()}
    ours = [unit for unit in units if unit.wal_id in landed]
    if ours:
        members = [(unit.wal_id, unit.version, unit.attempts) for unit in ours]
        unit_pages.write(session, number, EVENT, status, members, at_ms=now_ms)
    for unit in ours:
        tally.moved(unit.dataset, None, status)
        if status in GIVEN_UP:
            holding.put(session, _held(unit, now_ms))
    return len(ours)


def _line(unit: Unit, now_ms: int, trail: str) -> tuple[Any, ...]:
    """In the order of `units.bring_in`: the record's own fields in theirs."""
    values = msgspec.structs.asdict(unit)
    values["extra"] = unit_rows.extra_text(unit.extra)
    rows.with_storable(values, ("last_error_message",))
    return (*values.values(), now_ms, trail)


def _held(unit: Unit, now_ms: int) -> Held:
    """It waits for whoever looks into it; no incident, for it is no news."""
    return Held(
        held_id=keys.held_unit_id(unit.wal_id, unit.version),
        kind="quarantine" if unit.status == "quarantined" else "dead-letter",
        grain="unit",
        subject=unit.wal_id,
        dataset_id=unit.dataset,
        source_id=unit.queue,
        payload_hash=None,
        source_ids=(unit.object_uri,),
        code_sha="",
        idempotency_key=f"{unit.wal_id}/1",
        attempts=unit.attempts,
        error_classes=(),
        error_code=unit.last_error_code or "UNKNOWN",
        error_message=rows.storable(unit.last_error_message or ""),
        reason=EVENT,
        held_at_ms=now_ms,
    )
