"""Changes of datasets by people; what is withdrawn, and what has to be purged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from kfm.db import approvals, governance, leases, rows
from kfm.db.session import Database, Row, Session
from kfm.db.versions import MadeVersion, insert_version, placed
from kfm.model.dataset_changes import (
    ApplyChange,
    ApplyResult,
    DatasetChange,
    Purge,
    TombstonedPromotion,
    Withdrawal,
    active,
    at_version,
    tombstone,
    withdrawn_items,
)
from kfm.model.records import GovernanceEntry, Lock, Manifest, Promotion

if TYPE_CHECKING:
    from kfm.db.outbox import Journal

CHANGES_MAX = 10_000
_CHANGE = DatasetChange.__struct_fields__
_WITHDRAWAL = Withdrawal.__struct_fields__
_PURGE = Purge.__struct_fields__


def change_from(row: Row) -> DatasetChange:
    return rows.converted(_CHANGE, row, DatasetChange)


def withdrawal_from(row: Row) -> Withdrawal:
    values = dict(zip(_WITHDRAWAL, row, strict=True))
    values |= {"retires": bool(values["retires"]), "purge": bool(values["purge"])}
    return rows.converted(_WITHDRAWAL, tuple(values.values()), Withdrawal)


def withdrawals(session: Session, dataset_id: str) -> list[Withdrawal]:
    return [withdrawal_from(row) for row in session.all("withdrawals.list", dataset_id=dataset_id)]


def all_withdrawals(session: Session, dataset_id: str) -> list[Withdrawal]:
    """Also those from one target alone."""
    names = ("withdrawals.list", "withdrawals.of_targets")
    return [withdrawal_from(row) for name in names for row in session.all(name, dataset_id=dataset_id)]


def is_withdrawn(session: Session, manifest: Manifest) -> bool:
    """Does this version hold anything that may not be published?"""
    return bool(withdrawn_items(manifest.items, active(withdrawals(session, manifest.dataset_id))))


class DatasetChangeReader:
    """What people have changed."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._session: Session = database.session

    def changes(self, dataset_id: str | None = None, limit: int = CHANGES_MAX) -> list[DatasetChange]:
        """The newest first."""
        found = self._session.all("dataset_changes.list", dataset_id=dataset_id or "", row_limit=limit)
        return [change_from(row) for row in found]

    def change(self, change_id: str) -> DatasetChange | None:
        row = self._session.one("dataset_changes.get", change_id=change_id)
        return change_from(row) if row else None

    def newest(self, dataset_id: str) -> tuple[int, int] | None:
        """The number of the last version that a change made, and when; None: runs made all of them."""
        row = self._session.one("dataset_changes.newest", dataset_id=dataset_id)
        return (int(row[0]), int(row[1])) if row else None

    def withdrawals(self, dataset_id: str | None = None) -> list[Withdrawal]:
        """All of them, also those that were lifted."""
        return withdrawals(self._session, dataset_id or "")

    def target_withdrawals(self, dataset_id: str | None = None) -> list[Withdrawal]:
        """Those from one target alone."""
        found = self._session.all("withdrawals.of_targets", dataset_id=dataset_id or "")
        return [withdrawal_from(row) for row in found]

    def purges(self, change_id: str | None = None) -> list[Purge]:
        found = self._session.all("purges.list", change_id=change_id or "")
        return [rows.converted(_PURGE, row, Purge) for row in found]

    def shown_head(self, dataset_id: str) -> tuple[Promotion, Manifest] | None:
        """The head as a target shows it: with its tombstone."""
        row = self._session.one("promotions.head_with_manifest", dataset_id=dataset_id)
        if row is None:
            return None
        promotion, manifest = rows.promotion_from(row[:-1]), rows.manifest_from(row[-1])
        known = at_version(self.withdrawals(dataset_id), promotion.sequence)
        stands = tombstone(dataset_id, promotion.sequence, known)
        if stands is None:
            return promotion, manifest
        return TombstonedPromotion(**msgspec.structs.asdict(promotion), tombstone=stands), manifest


class DatasetChanges(DatasetChangeReader):
    """Applies changes, and keeps how far purges are."""

    def __init__(self, database: Database, journal: Journal) -> None:
        super().__init__(database)
        self._journal = journal

    def apply(self, request: ApplyChange, dead: leases.Dead) -> ApplyResult:
        """The version, what is withdrawn, the pause and the audit log, together or not at all."""
        try:
            return self._database.write(lambda session: _apply(session, request, dead, self._journal))
        except _Moved as moved:
            return moved.answer

    def hold(
        self, scope: str, change_id: str, worker_id: str, lease_ms: int, dead: leases.Dead
    ) -> int | Lock:
        """Take a dataset's lock for a purge: its fence, or the lock that blocks it."""

        def change(session: Session) -> int | Lock:
            now_ms = session.now_ms()
            lock = leases.lock_for_update(session, scope)
            if lock.holder is not None:
                if not leases.is_gone(lock, now_ms, dead):
                    return lock
                leases.evict(session, lock, now_ms, self._journal)
            leases.take(session, lock, lock.fence + 1, worker_id, change_id, now_ms, now_ms + lease_ms)
            return lock.fence + 1

        return self._database.write(change)

    def free(self, scope: str, fence: int) -> None:
        self._database.write(lambda session: session.all("locks.release", scope=scope, fence=fence))

    def purge_done(self, purge: Purge, entries: Iterable[GovernanceEntry] = ()) -> None:
        """How far the purge of one place is. `removed` is added to what was removed before."""
        kept = tuple(entries)

        def change(session: Session) -> None:
            values = msgspec.structs.asdict(replace(purge, changed_at_ms=session.now_ms()))
            del values["dataset_id"]
            session.all("purges.put", **rows.with_storable(values, ("detail",)))
            governance.append(session, kept)

        self._database.write(change)


class _Moved(Exception):
    """Roll back, and answer this."""

    def __init__(self, answer: ApplyResult) -> None:
        super().__init__(answer.answer)
        self.answer = answer


def _apply(session: Session, request: ApplyChange, dead: leases.Dead, journal: Journal) -> ApplyResult:
    # In the order of admission: the collector's lock, locks by name, the policy epoch, everything else.
    now_ms, change = session.now_ms(), request.change
    collector = session.one("locks.get_for_share", scope=leases.COLLECTOR)
    assert collector is not None, "the first migration makes it"
    locks = [leases.lock_for_update(session, scope) for scope in sorted(request.scopes)]
    for lock in (*locks, rows.lock_from(collector)):
        if lock.holder is None or leases.is_gone(lock, now_ms, dead):
            continue
        if _is_ours(session, lock, change.dataset_id):
            return ApplyResult(answer="busy", lock=lock)
    if rows.lock_from(collector).fence != request.collections:
        return ApplyResult(answer="collected")
    if not _is_approved(session, request.approval, now_ms):
        return ApplyResult(answer="not-approved")
    head = session.one("promotions.head", dataset_id=change.dataset_id)
    base = rows.promotion_from(head).sequence if head else 0
    if base != change.base_sequence:
        return ApplyResult(answer="head-moved", sequence=base)
    for lock in locks:
        if lock.holder is not None:  # gone: what it still tries is refused
            leases.evict(session, lock, now_ms, journal)
            leases.free(session, lock, now_ms)
    epoch = _epoch(session, request, now_ms)
    _expect_again(session, request)
    sequence = change.sequence
    if request.manifest is not None:
        assert request.version_id is not None
        assert sequence == base + 1
        made = MadeVersion(
            change.dataset_id, base + 1, request.version_id, change.change_id, locks[0].fence, epoch
        )
        if not insert_version(session, made, request.manifest, now_ms):
            raise _Moved(ApplyResult(answer="head-moved"))
    _store(session, request, now_ms)
    for lifted in request.lifts:
        landed = session.one(
            "withdrawals.lift", change_id=lifted, until_sequence=base + 1, lifted_by=change.change_id
        )
        if landed is None:
            raise _Moved(ApplyResult(answer="lifted"))
    if request.approval is not None:
        approvals.use(session, request.approval, change.change_id, 1, now_ms)
    if request.withdrawal is not None:
        journal.watch.withdrawn(
            session, change.dataset_id, change.change_id, request.targets, request.withdrawal.reason, now_ms
        )
        journal.watch.no_more_expected(session, request.withdrawal, now_ms)
    if request.manifest is not None:
        journal.dataset_changed(
            session, replace(change, changed_at_ms=now_ms), request.version_id or "", now_ms
        )
    governance.append(session, [placed(entry, base + 1, epoch, now_ms) for entry in request.entries])
    return ApplyResult(answer="applied", sequence=sequence)


def _is_ours(session: Session, lock: Lock, dataset_id: str) -> bool:
    """A domain's lock may be held for another dataset of it, whose run does not touch this one."""
    assert lock.holder is not None
    if not lock.scope.startswith("domain:"):
        return True
    row = session.one("runs.by_id", run_id=lock.holder.run_id)
    return row is None or rows.run_from(row).dataset_id == dataset_id


def _is_approved(session: Session, approval: tuple[str, str] | None, now_ms: int) -> bool:
    if approval is None:
        return True
    request_id, digest = approval
    found = session.one("approvals.usable_change", request_id=request_id, digest=digest, now_ms=now_ms)
    return found is not None


def _epoch(session: Session, request: ApplyChange, now_ms: int) -> int:
    """The policy epoch of the version. A pause moves it: what passed the gates before passes them again."""
    if request.pause is None:
        return governance.held_epoch(session)
    return governance.set_switch(session, replace(request.pause, set_at_ms=now_ms))


def _expect_again(session: Session, request: ApplyChange) -> None:
    """Windows that lose their data and are not withdrawn, or whose withdrawal is lifted, are looked at for
    being overdue, though their time was before."""
    dataset_id, starts = request.change.dataset_id, list[int]()
    if request.manifest is not None and request.withdrawal is None:
        head = session.one("promotions.head_with_manifest", dataset_id=dataset_id)
        shown = rows.manifest_from(head[-1]).items if head is not None else ()
        kept = {one.id for one in request.manifest.items}
        starts += [one.window_start_ms for one in shown if one.id not in kept]
    if request.lifts:
        known = withdrawals(session, dataset_id)
        starts += [one.start_ms or 0 for one in known if one.change_id in request.lifts]
    if starts:
        session.all("overdue_marks.lower_dataset", dataset_id=dataset_id, mark_ms=min(starts))


def _store(session: Session, request: ApplyChange, now_ms: int) -> None:
    change = replace(request.change, changed_at_ms=now_ms)
    values = rows.with_storable(msgspec.structs.asdict(change), ("actor", "rationale", "ticket"))
    session.all("dataset_changes.insert", **values)
    if request.withdrawal is not None:
        stored = msgspec.structs.asdict(replace(request.withdrawal, withdrawn_at_ms=now_ms))
        stored |= {"retires": int(stored["retires"]), "purge": int(stored["purge"])}
        session.all("withdrawals.insert", **rows.with_storable(stored, ("reason",)))
    for place in request.places:
        session.all(
            "purges.put",
            change_id=change.change_id,
            place=place,
            state="outstanding",
            removed=0,
            detail="",
            changed_at_ms=now_ms,
        )
