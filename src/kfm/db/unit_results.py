"""Ends of units: successes, failures, lapsed leases. A unit's effects and its final status land together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from kfm.db import catalogue, governance, quarantine, rows, unit_history, unit_rows
from kfm.db.catalogue import Figures
from kfm.db.fact_pages import FactPage
from kfm.db.incidents import IncidentKeeper
from kfm.db.session import Session
from kfm.db.unit_intake import TAKEN_OUT, reopened
from kfm.db.unit_rows import LOST, WATERMARK, CountChanges
from kfm.model import keys
from kfm.model.errors import IllegalTransition
from kfm.model.quarantine import QuarantineEntry
from kfm.model.records import BY_KFM, GovernanceEntry, Justification, Unit, governance_entry
from kfm.model.replays import MISMATCH
from kfm.model.requests import member_of
from kfm.model.retry import RetryPolicy
from kfm.model.retry_budgets import lapse_fate
from kfm.model.units import (
    BY_HAND,
    LEASE_EXPIRED,
    ClaimedUnit,
    ResultBatch,
    ResultReport,
    StoredUnit,
    UnitFailure,
    UnitSuccess,
    holds_lease,
    lease_lapsed,
    quarantined,
    retry_scheduled,
    unit_failed,
)

_ENCODE = msgspec.json.Encoder().encode
SUPERSEDED = "SUPERSEDED"
PROVEN = ("ok", "partial")  # whether partial will do is the policy's to say: the worker has asked it


# --- success -------------------------------------------------------------------------


class UnitResults:
    """One transaction that ends units."""

    def __init__(
        self,
        session: Session,
        finish: ResultBatch,
        watch: IncidentKeeper,
        now_ms: int,
        tally: CountChanges,
        figures: Figures | None = None,
    ) -> None:
        self._session = session
        self._figures = figures
        self._finish = finish
        self._watch = watch.late()
        self._now_ms = now_ms
        self._tally = tally
        self._entries: list[GovernanceEntry] = []  # for the chain, at the transaction's very end
        self._ended: list[unit_history.Ended] = []
        self._changed: list[tuple[str, str, int]] = []
        self._lost: list[str] = []
        self._failed: list[str] = []

    def end(self) -> ResultReport:
        session, finish = self._session, self._finish
        # In the order of their ids, as intake does, so that two at once never wait in a circle.
        done = sorted(finish.successes, key=_wal_id)
        if finish.failures:
            unit_rows.hold_all(session, [*map(_wal_id, done), *map(_wal_id, finish.failures)])
        succeeded = self._succeed(done)
        for one in sorted(finish.failures, key=_wal_id):
            self._fail(one)
        if finish.replicas:
            catalogue.want(session, finish.replicas, self._changed)
        if finish.lineage and self._ended:
            unit_history.post(session, self._ended, self._now_ms)
        return ResultReport(succeeded=tuple(succeeded), failed=tuple(self._failed), lost=tuple(self._lost))

    def close(self) -> None:
        """Incidents, then the chain: rows that many transactions want are held last."""
        self._watch.settle()
        governance.append(self._session, self._entries)

    def _succeed(self, done: Sequence[UnitSuccess]) -> list[str]:
        """The update decides whose units these still are; effects follow for those alone."""
        if not done:
            return []
        checked = [one for one in done if not one.claimed.done_version or not self._is_mismatch(one)]
        shown = self._shown(checked)
        number = unit_history.begin(self._session)
        landed = self._land(checked, f" {number}")
        ours = [one for one in checked if one.claimed.wal_id in landed]
        for one in checked:
            if one.claimed.wal_id not in landed:
                self._outrun(one)
        if ours:
            statuses = self._register(ours, number)
            self._record(ours, statuses, number)
        for wal_id in shown.keys() & landed:
            catalogue.take_out(self._session, shown[wal_id], self._now_ms)
        return [one.claimed.wal_id for one in ours]

    def _land(self, done: Sequence[UnitSuccess], trail: str) -> set[str]:
        """Ids of those that were still ours. Those that end alike, which most do, share a statement."""
        alike: dict[tuple[object, ...], list[str]] = {}
        corrected: list[UnitSuccess] = []
        for one in done:
            if _is_as_announced(one):
                alike.setdefault(self._end(one), []).append(one.claimed.wal_id)
            else:
                corrected.append(one)
        if len(alike) + bool(corrected) > 1:
            unit_rows.hold_all(self._session, [*map(_wal_id, done)])
        landed: set[str] = set()
        for (*end, version, removed), ids in alike.items():
            line = (*end, self._now_ms, trail, _ENCODE(ids).decode(), version, removed)
            landed |= unit_rows.written(self._session, "units.succeed", [line], ids, f"%{trail}")
        if corrected:
            lines, ids = [self._corrected_line(one, trail) for one in corrected], [*map(_wal_id, corrected)]
            landed |= unit_rows.written(self._session, "units.succeed_corrected", lines, ids, f"%{trail}")
        return landed

    def _end(self, one: UnitSuccess) -> tuple[object, ...]:
        """As `units.succeed` names it, and by which units share it. Most items are new; the others are
        corrected after."""
        claimed, entry = one.claimed, one.entry
        if one.provenance_status not in PROVEN:
            raise IllegalTransition(f"unit {claimed.wal_id}: provenance is {one.provenance_status}.")
        return (
            one.integrity_status,
            one.metadata_status,
            "created" if entry else "no-op",
            one.provenance_status,
            entry.collection_id if entry else None,
            claimed.content_version,
            claimed.version,
            claimed.removed,
        )

    def _corrected_line(self, one: UnitSuccess, trail: str) -> tuple[object, ...]:
        """In the order of `units.succeed_corrected`."""
        claimed, entry, content = one.claimed, one.entry, one.content
        if one.provenance_status not in PROVEN:
            raise IllegalTransition(f"unit {claimed.wal_id}: provenance is {one.provenance_status}.")
        if one.extra is not None:
            unit_rows.check_extra(one.extra)
        return (
            one.integrity_status,
            one.metadata_status,
            "created" if entry else "no-op",
            one.provenance_status,
            entry.collection_id if entry else None,
            claimed.extra if one.extra is None else one.extra,
            claimed.etag if content is None else content.etag,
            claimed.size if content is None else content.size,
            claimed.version_id if content is None else content.version_id,
            claimed.content_version,
            self._now_ms,
            one.gone,
            trail,
            claimed.wal_id,
            claimed.version,
            claimed.removed,
        )

    def _register(self, ours: Sequence[UnitSuccess], number: int) -> list[str]:
        entries = [one.entry for one in ours if one.entry is not None]
        page = FactPage(number, [(one.claimed.wal_id, one.entry.item_id) for one in ours if one.entry])
        answers = iter(catalogue.register(self._session, entries, self._now_ms, page, self._figures))
        statuses, replicated = [], bool(self._finish.replicas)
        for one in ours:
            entry = one.entry
            if entry is None:
                statuses.append("no-op")
                continue
            answer = next(answers)
            statuses.append(answer.status)
            if replicated and answer.status != "no-op":
                self._changed.append((entry.collection_id, entry.item_id, answer.revision))
            if answer.status != "created":
                wal_id = one.claimed.wal_id
                self._session.all("units.stac_status", wal_id=wal_id, stac_status=answer.status)
        return statuses

    def _shown(self, checked: Sequence[UnitSuccess]) -> dict[str, Unit]:
        """Units whose objects are gone, with the items that they name until their end is written."""
        gone = [one.claimed.wal_id for one in checked if one.gone == TAKEN_OUT and one.claimed.done_version]
        found = (unit_rows.get(self._session, wal_id) for wal_id in gone)
        return {seen.unit.wal_id: seen.unit for seen in found if seen is not None}

    def _record(self, ours: Sequence[UnitSuccess], statuses: Sequence[str], number: int) -> None:
        members: list[unit_history.Member] = []
        sums: Counter[tuple[str, int]] = Counter()
        highs: dict[str, int] = {}
        for one, status in zip(ours, statuses, strict=True):
            claimed, entry = one.claimed, one.entry
            attempts, dataset = claimed.attempts, claimed.dataset
            member = (claimed.wal_id, claimed.version + 1, attempts)
            told = {} if status == "created" else {"stac_status": status}
            if one.sha256 is not None:
                told["sha256"] = one.sha256
            members.append((*member, told) if told else member)
            sums[dataset, attempts] += 1
            high_ms = (entry.end_ms or entry.at_ms) if entry else None
            if high_ms is not None and high_ms > highs.get(dataset, high_ms - 1):
                highs[dataset] = high_ms
            if attempts > 1:
                self._watch.let_go(self._session, claimed.wal_id, self._now_ms, f"attempt {attempts}")
        if self._finish.lineage:
            self._ended += map(unit_history.of_success, ours, statuses)
        for (dataset, attempts), amount in sums.items():
            self._tally.moved(dataset, "in_progress", "succeeded", amount)
            self._tally.reached(dataset, WATERMARK, highs.get(dataset), amount)
            self._tally.add(dataset, f"attempts:{attempts}", amount)
        unit_history.write(self._session, number, "succeeded", "succeeded", members, at_ms=self._now_ms)
        self._gather(ours)

    def _gather(self, ours: Sequence[UnitSuccess]) -> None:
        """Those that a source waits for."""
        wanted = self._finish.downstream
        if not wanted:
            return
        lines = [
            (
                source_id,
                dataset,
                member_of(one.claimed.wal_id, one.claimed.content_version),
                one.entry.start_ms,
                one.entry.end_ms,
                self._now_ms,
            )
            for dataset, source_id in wanted
            for one in ours
            if one.claimed.dataset == dataset and one.entry is not None
        ]
        if lines:
            self._session.send_all("burst_members.add", lines)

    def _outrun(self, one: UnitSuccess) -> None:
        """Not ours any more; or new bytes came meanwhile, and those are to be looked at first."""
        claimed = one.claimed
        seen = unit_rows.held(self._session, claimed.wal_id)
        self._lose(claimed)
        if seen is None or seen.unit.version != claimed.version or seen.unit.status != "in_progress":
            return
        self._put_back(seen, claimed, SUPERSEDED, "New bytes were announced while it was being looked at.")

    def _lose(self, claimed: ClaimedUnit) -> None:
        self._lost.append(claimed.wal_id)
        self._tally.add(claimed.dataset, LOST)

    def _is_mismatch(self, one: UnitSuccess) -> bool:
        """The same bytes as in an earlier success must make the same item, unless a repair was approved."""
        claimed, entry = one.claimed, one.entry
        if not claimed.done_version or claimed.done_version != claimed.content_version:
            return False
        if claimed.replacing or entry is None:
            return False
        found = catalogue.differences(self._session, entry)
        if not found:
            return False
        names = ", ".join(sorted(found))
        undone = UnitFailure(
            claimed=claimed,
            error_code=MISMATCH,
            error_message=f"The same bytes made another item: {names}.",
            error_class="checksum",
            fate="quarantine",
            reason="non-retryable",
            integrity_status=one.integrity_status,
            metadata_status=one.metadata_status,
        )
        if self._fail(undone, {name: list(pair) for name, pair in found.items()}):
            self._tally.add(claimed.dataset, "mismatches")
        return True

    # --- failure ---------------------------------------------------------------------

    def _fail(self, one: UnitFailure, facts: Mapping[str, object] | None = None) -> bool:
        claimed = one.claimed
        seen = unit_rows.held(self._session, claimed.wal_id)
        if seen is None or seen.unit.version != claimed.version or seen.unit.status != "in_progress":
            self._lose(claimed)
            return False
        if seen.content_version != claimed.content_version:
            self._put_back(seen, claimed, one.error_code, one.error_message)
            self._failed.append(claimed.wal_id)
            return True
        unit = replace(
            seen.unit,
            integrity_status=one.integrity_status,
            metadata_status=one.metadata_status,
            stac_status="failed" if one.error_code == MISMATCH else seen.unit.stac_status,
        )
        first = unit_failed(
            unit,
            error_code=one.error_code,
            error_message=rows.storable(one.error_message),
            now_ms=self._now_ms,
        )
        details = {"error_code": one.error_code, "error_class": one.error_class, **(facts or {})}
        charged = seen.grant_attempts if one.charged else max(0, seen.grant_attempts - 1)
        # An approved repair stays one while its grant lasts.
        replacing = seen.replacing if one.fate == "retry" else 0
        made = replace(seen, unit=first, lease_until_ms=0, grant_attempts=charged, replacing=replacing)
        if one.charged:
            self._ended.append(unit_history.of_failure(one))
        self._settle(seen, made, one, details)
        self._failed.append(claimed.wal_id)
        return True

    def _settle(
        self, seen: StoredUnit, made: StoredUnit, one: UnitFailure, details: Mapping[str, object]
    ) -> None:
        """failed, and from there pending or quarantined, in one transaction."""
        worker_id, now_ms = seen.unit.worker_id, self._now_ms
        made = self._page(made, "failed", details, worker_id)
        dataset = seen.unit.dataset
        if one.fate == "retry":
            again = retry_scheduled(made.unit, now_ms=now_ms)
            if not one.charged:  # nothing was tried, so no attempt was opened either
                again = replace(again, attempts=made.unit.attempts)
            made = replace(made, unit=again, not_before_ms=one.not_before_ms or 0)
            made = self._page(made, "retry_scheduled", {"not_before_ms": made.not_before_ms})
        elif one.fate == "quarantine":
            ended = quarantined(
                made.unit,
                error_code=one.error_code,
                error_message=made.unit.last_error_message or "",
                now_ms=now_ms,
            )
            made = self._page(replace(made, unit=ended), "quarantined", {"reason": one.reason})
        unit_rows.put(self._session, seen, made)
        self._tally.moved(dataset, "in_progress", made.unit.status)
        if one.fate != "retry":
            self._tally.add(dataset, f"attempts:{made.unit.attempts}")
            self._hold(made, one)

    def _hold(self, made: StoredUnit, one: UnitFailure) -> None:
        """Given up: all that a replay needs, an incident, and for a quarantine an entry in the chain."""
        held = held_unit(made, one, self._now_ms)
        quarantine.hold(self._session, held)
        self._watch.gave_up(self._session, held, None, self._now_ms)
        if held.kind == "quarantine":
            self._entries.append(_entry(held, BY_KFM, self._now_ms))

    def _put_back(self, seen: StoredUnit, claimed: ClaimedUnit, code: str, message: str) -> None:
        """New bytes came while the old ones were looked at: those count from here on."""
        self._ended.append(unit_history.failed(claimed, code, message))
        failed = unit_failed(
            seen.unit, error_code=code, error_message=rows.storable(message), now_ms=self._now_ms
        )
        made = self._page(
            replace(seen, unit=failed, lease_until_ms=0), "failed", {"error_code": code}, seen.unit.worker_id
        )
        reopened(
            self._session,
            seen,
            made,
            self._now_ms,
            self._tally,
            {"content_version": made.content_version},
            self._watch,
        )

    # --- a person's decision ---------------------------------------------------------

    def quarantine(self, seen: StoredUnit, by: Justification) -> StoredUnit:
        """From pending or failed. What it was held for before is settled by that; there is no incident, since
        a person knows of it."""
        before, why = seen.unit, rows.storable(by.rationale or "")
        ended = quarantined(before, error_code=BY_HAND, error_message=why, now_ms=self._now_ms)
        made = self._page(replace(seen, unit=ended, replacing=0), "quarantined", {"reason": "by-hand"})
        unit_rows.put(self._session, seen, made)
        self._tally.moved(before.dataset, before.status, "quarantined")
        self._watch.let_go(self._session, before.wal_id, self._now_ms, by.actor)
        one = UnitFailure(
            claimed=unit_rows.claimed_of(made),
            error_code=BY_HAND,
            error_message=why,
            error_class="governance",
            fate="quarantine",
            reason="by-hand",
        )
        held = held_unit(made, one, self._now_ms)
        quarantine.hold(self._session, held)
        self._entries.append(_entry(held, by, self._now_ms, was=before.status))
        return made

    # --- lapsed leases ---------------------------------------------------------------

    def lapse(
        self,
        wal_id: str,
        unit_random: float,
        gone: Collection[str] = (),
        policy_of: Callable[[str], RetryPolicy] | None = None,
    ) -> bool:
        seen = unit_rows.held(self._session, wal_id)
        if seen is None or seen.unit.status != "in_progress":
            return False
        claimed_at_ms = seen.unit.last_attempt_at_ms or 0
        if holds_lease(seen.lease_until_ms, claimed_at_ms, self._now_ms) and seen.unit.worker_id not in gone:
            return False
        alone = bool(seen.alone)
        outlook = lapse_fate(
            alone=alone,
            grants=seen.grants,
            grant_attempts=seen.grant_attempts,
            granted_at_ms=seen.granted_at_ms,
            now_ms=self._now_ms,
            unit_random=unit_random,
            policy=policy_of(seen.unit.dataset) if policy_of is not None else None,
        )
        failed = lease_lapsed(seen.unit, now_ms=self._now_ms)
        charged = seen.grant_attempts if alone else max(0, seen.grant_attempts - 1)
        made = replace(seen, unit=failed, lease_until_ms=0, alone=1, grant_attempts=charged)
        undone = UnitFailure(
            claimed=unit_rows.claimed_of(seen),
            error_code=LEASE_EXPIRED,
            error_message="The lease lapsed.",
            error_class="lease",
            fate=outlook.fate,
            reason=outlook.reason,
            not_before_ms=outlook.not_before_ms,
        )
        self._ended.append(unit_history.of_failure(undone))
        self._settle(seen, made, undone, {"error_code": LEASE_EXPIRED})
        return True

    # --- pages -----------------------------------------------------------------------

    def _page(
        self, made: StoredUnit, event: str, details: Mapping[str, object], worker_id: str | None = None
    ) -> StoredUnit:
        number, unit = unit_history.begin(self._session), made.unit
        unit_history.write(
            self._session,
            number,
            event,
            unit.status,
            [(unit.wal_id, unit.version, unit.attempts, details)],
            at_ms=self._now_ms,
            worker_id=worker_id,
        )
        return replace(made, trail=f"{made.trail} {number}")


def _is_as_announced(one: UnitSuccess) -> bool:
    """Nothing that an inspection found changes what the announcement said."""
    return one.extra is None and one.content is None and not one.gone


def _wal_id(one: UnitSuccess | UnitFailure) -> str:
    return one.claimed.wal_id


def _entry(held: QuarantineEntry, by: Justification, now_ms: int, **facts: object) -> GovernanceEntry:
    return governance_entry(
        "quarantine",
        held.subject,
        now_ms,
        by,
        held_id=held.held_id,
        dataset_id=held.dataset_id,
        code=held.error_code,
        reason=held.reason,
        attempts=held.attempts,
        payload_hash=held.payload_hash,
        **facts,
    )


def held_unit(made: StoredUnit, one: UnitFailure, now_ms: int) -> QuarantineEntry:
    unit = made.unit
    return QuarantineEntry(
        held_id=keys.held_unit_id(unit.wal_id, unit.version),
        kind="quarantine" if one.fate == "quarantine" else "dead-letter",
        grain="unit",
        subject=unit.wal_id,
        dataset_id=unit.dataset,
        source_id=unit.queue,
        payload_hash=made.etag,
        source_ids=(unit.object_uri,),
        code_sha="",
        idempotency_key=f"{unit.wal_id}/{made.content_version}",
        attempts=unit.attempts,
        error_classes=(one.error_class,),
        error_code=one.error_code,
        error_message=rows.storable(one.error_message),
        reason=one.reason,
        held_at_ms=now_ms,
    )
