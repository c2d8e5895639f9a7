"""Intake of announced objects: new units, new bytes of known ones, removals, dead letters, imports."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from kfm.db import catalogue, governance, quarantine, rows, unit_history, unit_rows
from kfm.db.fact_pages import FactPage
from kfm.db.incidents import IncidentKeeper
from kfm.db.session import Session
from kfm.db.unit_rows import CountChanges
from kfm.model import keys
from kfm.model.quarantine import QuarantineEntry
from kfm.model.records import Justification, Record, Unit, governance_entry
from kfm.model.units import (
    UNKNOWN,
    ClaimedUnit,
    ClaimRequest,
    Content,
    IntakeBatch,
    IntakeRemoval,
    IntakeReport,
    IntakeUnit,
    RejectedRecord,
    StoredUnit,
    Verdict,
    compare,
    compare_removal,
    migrated,
    newer,
    newest,
    replayed,
)

REISSUE = "reissue"  # the replay reason of new bytes under a known key
APPROVED_BY_POLICY = "policy:reissue"
TAKEN_OUT = 2  # removed, and its item with it
PAGED_MIN = 4  # units that arrive together; the addresses of fewer stand in their rows


def take_in(session: Session, intake: IntakeBatch, watch: IncidentKeeper) -> IntakeReport:
    if intake.arrivals:
        session.expect("unit_pages.next")
    now_ms, tally, late = session.now_ms(), CountChanges(), watch.late()
    again, _ = insert_new(session, intake.arrivals, now_ms, tally)
    created = len(intake.arrivals) - len(again)
    verdicts = [_announced_again(session, taken, now_ms, tally, late) for taken in again]
    leaving = sorted(intake.removals, key=lambda gone: gone.wal_id)
    removed = sum(_removed(session, gone, now_ms, tally, late) for gone in leaving)
    for rejected in intake.rejected:
        _bury(session, rejected, now_ms)
        tally.add("", f"dead:{rejected.error_code}")
    tally.write(session)
    late.settle()
    return IntakeReport(
        created=created,
        duplicate=verdicts.count("duplicate"),
        reissued=verdicts.count("reissued"),
        stale=verdicts.count("stale"),
        reissues_ignored=verdicts.count("ignored"),
        removed=removed,
        dead=len(intake.rejected),
    )


# --- new ones ------------------------------------------------------------------------


class ClaimableUnits(Record, frozen=True):
    """A claim that takes new units at once: the room it has, and the history pages of creation and claim."""

    claim: ClaimRequest
    worker: str  # as rows name it
    room: int
    created: int
    claimed: int


def insert_new(
    session: Session,
    taken: Sequence[IntakeUnit],
    now_ms: int,
    tally: CountChanges,
    claimable: ClaimableUnits | None = None,
) -> tuple[list[IntakeUnit], list[ClaimedUnit]]:
    """Insert those that are new, some of them claimed already.

    The others come back by id, those of one id in the order they came in.
    """
    if not taken:
        return [], []
    fresh: dict[str, IntakeUnit] = {}
    for one in taken:
        fresh.setdefault(one.unit.wal_id, one)
    landed, claimed = _insert(session, fresh, now_ms, tally, claimable)
    if len(landed) == len(taken):
        return [], claimed
    again = [one for one in taken if one.unit.wal_id not in landed or fresh[one.unit.wal_id] is not one]
    return sorted(again, key=lambda one: one.unit.wal_id), claimed


def _insert(
    session: Session,
    fresh: Mapping[str, IntakeUnit],
    now_ms: int,
    tally: CountChanges,
    claimable: ClaimableUnits | None = None,
) -> tuple[Collection[str], list[ClaimedUnit]]:
    """Ids of those that were not known before; and those of them that are claimed now."""
    number = unit_history.begin(session) if claimable is None else claimable.created
    # In the order of their ids: neighbours on disk, and two intakes at once never wait in a circle.
    order, waiting = sorted(fresh), (str(number), *_WAITING)
    paged = len(order) >= PAGED_MIN
    texts: dict[int, str] = {}  # many units share what their keys tell
    claimed: list[ClaimedUnit] = []
    lines = []
    room, lane, claim_columns = (0, None, waiting) if claimable is None else _claim_columns(claimable, now_ms)
    for wal_id in order:
        one = fresh[wal_id]
        extra = texts.get(id(one.unit.extra))
        if extra is None:
            extra = texts[id(one.unit.extra)] = unit_rows.extra_text(one.unit.extra)
        if len(claimed) < room and lane == (one.unit.dataset, one.unit.provider):
            claimed.append(_claimed(one, extra, now_ms))
            lines.append(_line(one, extra, now_ms, paged=paged) + claim_columns)
        else:
            lines.append(_line(one, extra, now_ms, paged=paged) + waiting)
    landed = unit_rows.written(session, "units.insert", lines, order, str(number), f"{number} %")
    if len(landed) < len(order):
        claimed = [one for one in claimed if one.wal_id in landed]
    members = []
    amounts: dict[str, int] = {}
    for wal_id in order:
        if wal_id in landed:
            one = fresh[wal_id]
            members.append((wal_id, 1, 0, {"etag": one.content.etag, "size": one.content.size}))
            dataset = one.unit.dataset
            amounts[dataset] = amounts.get(dataset, 0) + 1
    for dataset, amount in amounts.items():
        tally.moved(dataset, None, "pending", amount)
    if members:
        unit_history.write(session, number, "created", "pending", members, at_ms=now_ms)
        if paged:
            objects = [(wal_id, fresh[wal_id].unit.object_uri) for wal_id in order if wal_id in landed]
            FactPage(number, objects).write(session)
    return landed, claimed


# From status to ingest_run_id, as `units.insert` names them: one that waits.
_WAITING = ("pending", 1, 0, 0, 0, None, 0, None, None)


def _claim_columns(claimable: ClaimableUnits, now_ms: int) -> tuple[int, tuple[str, str], tuple[object, ...]]:
    """How many of which lane; and from trail to ingest_run_id what `units.claim` would make of them."""
    claim, lane = claimable.claim, claimable.claim.lane
    trail, lease_until_ms = f"{claimable.created} {claimable.claimed}", now_ms + claim.lease_ms
    values = (trail, "in_progress", 2, 1, 1, now_ms, now_ms, lease_until_ms)
    room = 0 if lane.alone else claimable.room
    return room, (lane.dataset, lane.provider), (*values, claimable.worker, unit_rows.run_text(claim))


def _claimed(taken: IntakeUnit, extra: str, now_ms: int) -> ClaimedUnit:
    unit, content = taken.unit, taken.content
    # By position, from the fence on: with two dozen names this would take much longer.
    return ClaimedUnit(
        unit.wal_id,
        2,
        unit.dataset,
        unit.provider,
        unit.queue,
        unit.object_uri,
        unit.event_time_ms,
        1,
        unit.replay_reason,
        extra,
        content.etag,
        content.sequencer,
        content.size,
        content.version_id,
        *(1, 0, 1, 1, now_ms),  # content and done version, grants, attempts in this one, since when
        *(0, 0, 0, 0, now_ms),  # alone, removed, unclear, replacing; when it was claimed
    )


def _line(taken: IntakeUnit, extra: str, now_ms: int, *, paged: bool) -> tuple[object, ...]:
    """In the order of `units.insert`, up to where it matters who has it."""
    unit, content = taken.unit, taken.content
    return (
        unit.wal_id,
        unit.dataset,
        "" if paged else unit.object_uri,
        unit.provider,
        unit.queue,
        unit.event_time_ms,
        unit.time_range_start_ms,
        unit.time_range_end_ms,
        now_ms,
        now_ms,
        extra,
        content.etag,
        content.sequencer,
        content.size,
        content.version_id,
        0,  # due at once, whatever the clock is set to later
        unit.replay_reason,
    )


# --- known ones ----------------------------------------------------------------------


def _announced_again(
    session: Session, taken: IntakeUnit, now_ms: int, tally: CountChanges, watch: IncidentKeeper
) -> str:
    seen = unit_rows.held(session, taken.unit.wal_id)
    assert seen is not None, "units are never deleted"
    content, dataset = taken.content, seen.unit.dataset
    verdict = compare(seen, content)
    if verdict == "duplicate":
        _advance(session, seen, _heard(seen, content))
        tally.add(dataset, "duplicates")
        return "duplicate"
    details = {"etag": content.etag, "sequencer": content.sequencer, "verdict": verdict}
    heard = _heard(seen, content)
    if verdict == "stale" or (verdict == "overtaken" and seen.removed == TAKEN_OUT):
        _put(session, seen, heard, "stale", now_ms, details)
        tally.add(dataset, "stale")
        return "stale"
    if taken.reissue == "ignore" and not _is_no_reissue(seen, verdict, content):
        present = replace(heard, removed=0) if verdict == "newer" else heard
        _put(session, seen, present, "ignored", now_ms, details)
        tally.add(dataset, "reissues_ignored")
        return "ignored"
    unit = replace(seen.unit, event_time_ms=taken.unit.event_time_ms, extra=taken.unit.extra)
    made = replace(_reissued(seen, content), unit=unit, unclear=int(verdict == "unclear"))
    if verdict == "overtaken":  # the item of an object that is gone, and stays
        made = replace(made, removed=seen.removed)
    _reopen(session, seen, made, now_ms, tally, watch)
    tally.add(dataset, "reissued")
    return "reissued"


def _is_no_reissue(seen: StoredUnit, verdict: Verdict, content: Content) -> bool:
    """An object that was taken out of the catalogue comes back into it, or never was in it; or it is in doubt
    whether there is one at all."""
    overtaken = newer(content.sequencer, seen.removal_sequencer) is False
    in_doubt = verdict == "unclear" and (bool(seen.removed) or overtaken)
    return in_doubt or seen.is_tombstone or seen.removed == TAKEN_OUT


def _reissued(seen: StoredUnit, content: Content) -> StoredUnit:
    """New bytes under a known key: the same unit with its next content version."""
    return replace(
        seen,
        etag=content.etag,
        sequencer=content.sequencer or seen.sequencer,
        size=content.size,
        version_id=content.version_id,
        content_version=seen.content_version + 1,
        removed=0,
    )


def _reopen(
    session: Session,
    seen: StoredUnit,
    made: StoredUnit,
    now_ms: int,
    tally: CountChanges,
    watch: IncidentKeeper,
    approval: str = APPROVED_BY_POLICY,
) -> None:
    """Its object is looked at again, with grants of its own."""
    details = {"etag": made.etag, "size": made.size, "content_version": made.content_version}
    if seen.unit.status == "in_progress":
        # A worker on it keeps its lease; when it ends, its result counts for the version before.
        fresh = replace(made, grants=1, grant_attempts=1, granted_at_ms=now_ms)
        _put(session, seen, fresh, "reissued", now_ms, details)
        return
    reopened(session, seen, made, now_ms, tally, details, watch, approval)


def reopened(
    session: Session,
    seen: StoredUnit,
    made: StoredUnit,
    now_ms: int,
    tally: CountChanges,
    details: Mapping[str, object],
    watch: IncidentKeeper,
    approval: str = APPROVED_BY_POLICY,
) -> None:
    """Pending again, with a grant of its own, due at once."""
    unit = made.unit
    if unit.status == "pending":
        event, moved = "reissued", replace(unit, version=unit.version + 1, updated_at_ms=now_ms)
    elif unit.status == "failed":
        event, moved = "replayed", replayed(unit, reason=REISSUE, now_ms=now_ms)
    else:
        event = "migrated"
        moved = migrated(unit, reason=REISSUE, approval=approval, now_ms=now_ms)
        details = {**details, "approval": approval}
    if seen.unit.status != "pending":
        tally.moved(unit.dataset, seen.unit.status, "pending")
        tally.add(unit.dataset, f"replays:{REISSUE}")
        watch.let_go(session, unit.wal_id, now_ms, REISSUE)
    made = replace(made, unit=moved, not_before_ms=0, grants=1, grant_attempts=0, granted_at_ms=0, alone=0)
    _put(session, seen, made, event, now_ms, details)


# --- removals ------------------------------------------------------------------------


def _removed(
    session: Session, gone: IntakeRemoval, now_ms: int, tally: CountChanges, watch: IncidentKeeper
) -> int:
    """A tombstone in the history. The item stays or goes, as the policy says."""
    seen, is_new = unit_rows.held(session, gone.wal_id), False
    if seen is None and gone.unit is not None:
        seen, is_new = _tombstone(session, gone.unit, now_ms, tally)
    if seen is None:
        return 0  # never announced: there is nothing of it here
    verdict = "gone" if is_new else compare_removal(seen, gone)
    removal = newest(gone.sequencer, seen.removal_sequencer)
    if verdict == "unclear" and seen.unit.status == "quarantined":  # only a person ends that
        unit_rows.put(session, seen, replace(seen, unclear=1, removal_sequencer=removal))
        return 0
    if verdict == "unclear":
        made = replace(_reissued(seen, seen.content), unclear=1, removal_sequencer=removal)
        _reopen(session, seen, made, now_ms, tally, watch, approval="policy:removal")
        return 0
    if verdict != "gone":
        _advance(session, seen, replace(seen, removal_sequencer=removal))
        return 0
    if gone.sequencer is None:  # in no order with others: what is announced after it has to be looked for
        removal = None
    marker = gone.version_id if removal == gone.sequencer else seen.removal_version_id
    made = replace(seen, removal_sequencer=removal, removal_version_id=marker)
    if seen.removed:
        unit_rows.put(session, seen, made)
        return 0
    made = replace(made, removed=TAKEN_OUT if gone.removing == "remove" else 1)
    if seen.unit.status != "in_progress":
        made = replace(made, unit=replace(seen.unit, version=seen.unit.version + 1, updated_at_ms=now_ms))
    _put(session, seen, made, "removed", now_ms, {"sequencer": gone.sequencer, "removing": gone.removing})
    if gone.removing == "remove" and seen.done_version:
        catalogue.take_out(session, seen.unit, now_ms)
    tally.add(seen.unit.dataset, "removed")
    return 1


def _tombstone(
    session: Session, unit: Unit, now_ms: int, tally: CountChanges
) -> tuple[StoredUnit | None, bool]:
    """A unit for a removal that overtook its announcement; False if that came at this very moment."""
    landed, _ = _insert(session, {unit.wal_id: IntakeUnit(unit, UNKNOWN)}, now_ms, tally)
    return unit_rows.held(session, unit.wal_id), unit.wal_id in landed


def _heard(seen: StoredUnit, announced: Content) -> StoredUnit:
    """How far the key has come, also where nothing else changes: older messages no longer count."""
    if announced.sequencer is None or newest(announced.sequencer, seen.sequencer) == seen.sequencer:
        return seen
    return replace(seen, sequencer=announced.sequencer, version_id=announced.version_id)


def _advance(session: Session, seen: StoredUnit, made: StoredUnit) -> None:
    """Record how far the key has come, and nothing else."""
    if made != seen:
        session.all(
            "units.advance",
            wal_id=seen.unit.wal_id,
            sequencer=made.sequencer,
            version_id=made.version_id,
            removal_sequencer=made.removal_sequencer,
        )


# --- rows ----------------------------------------------------------------------------


def _put(
    session: Session,
    seen: StoredUnit,
    made: StoredUnit,
    event: str,
    now_ms: int,
    details: Mapping[str, object],
) -> None:
    number = unit_history.begin(session)
    unit = made.unit
    unit_rows.put(session, seen, replace(made, trail=f"{made.trail} {number}"))
    member = (unit.wal_id, unit.version, unit.attempts, details)
    unit_history.write(session, number, event, unit.status, [member], at_ms=now_ms, worker_id=None)


def _bury(session: Session, rejected: RejectedRecord, now_ms: int) -> None:
    session.all(
        "dead_messages.put",
        envelope_hash=rejected.envelope_hash,
        record_index=rejected.index,
        queue=rejected.queue,
        error_code=rejected.error_code,
        error=rows.storable(rejected.error),
        body=None if rejected.body is None else rows.storable(rejected.body),
        at_ms=now_ms,
    )


EVENT = "imported"
GIVEN_UP = ("failed", "quarantined")


def bring_in(session: Session, units: Sequence[Unit], actor: str, rationale: str) -> int:
    """How many were new. A lease held elsewhere is not held here: it counts as lapsed.

    Our catalogue has seen none of them, so none counts as done: new bytes are looked at from the start.
    """
    now_ms, tally = session.now_ms(), CountChanges()
    by_status: dict[str, list[Unit]] = {}
    for unit in sorted(units, key=lambda one: one.wal_id):
        by_status.setdefault(unit.status, []).append(unit)
    counts = {status: _enter(session, status, by_status[status], now_ms, tally) for status in by_status}
    created = sum(counts.values())
    if created:
        tally.write(session)
        by = Justification(actor=actor, rationale=rationale)
        new = {name: count for name, count in counts.items() if count}
        entry = governance_entry("units-imported", "units", now_ms, by, created=created, **new)
        governance.append(session, [entry])
    return created


def _enter(session: Session, status: str, units: Sequence[Unit], now_ms: int, tally: CountChanges) -> int:
    """Those of one status: one page of the history."""
    number = unit_history.begin(session)
    lines = [_import_line(unit, str(number)) for unit in units]
    landed = {wal_id for (wal_id,) in session.gather("units.bring_in", lines) or ()}
    ours = [unit for unit in units if unit.wal_id in landed]
    if ours:
        members = [(unit.wal_id, unit.version, unit.attempts) for unit in ours]
        unit_history.write(session, number, EVENT, status, members, at_ms=now_ms)
    for unit in ours:
        tally.moved(unit.dataset, None, status)
        if status in GIVEN_UP:
            quarantine.hold(session, _held(unit, now_ms))
    return len(ours)


def _import_line(unit: Unit, trail: str) -> tuple[Any, ...]:
    """In the order of `units.bring_in`: the record's own fields in theirs."""
    values = msgspec.structs.asdict(unit)
    values["extra"] = unit_rows.extra_text(unit.extra)
    rows.with_storable(values, ("last_error_message",))
    return (*values.values(), 0, trail)


def _held(unit: Unit, now_ms: int) -> QuarantineEntry:
    """Quarantined until a person acts; no incident, for it is no news."""
    return QuarantineEntry(
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
