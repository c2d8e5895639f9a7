"""Changes of datasets by people; what is withdrawn, and what has to be purged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from kfm.db import rows
from kfm.db.session import Database, Row, Session
from kfm.model.dataset_changes import (
    ApplyChange,
    ApplyResult,
    ChangeTime,
    DatasetChange,
    Purge,
    ToldChange,
    TombstonedPromotion,
    Withdrawal,
    active,
    at_version,
    tombstone,
    withdrawn_items,
)
from kfm.model.dataset_names import Rename, of_dataset
from kfm.model.records import GovernanceEntry, Lock, Promotion
from kfm.model.times import MS_MAX

if TYPE_CHECKING:
    from kfm.db.incidents import IncidentKeeper
    from kfm.db.leases import Dead
    from kfm.db.outbox import Journal
    from kfm.db.versions import StagedVersion
    from kfm.model.versions import Version
    from kfm.model.window_rules import Rewindow

    Head = Callable[[str], tuple[Promotion, Version] | None]  # the head of a dataset, with its contents

CHANGES_MAX = 10_000
_CHANGE = DatasetChange.__struct_fields__
_TIME = ChangeTime.__struct_fields__
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


def is_withdrawn(session: Session, dataset_id: str, version: StagedVersion) -> bool:
    """Would this version bring anything that may not be published? Its head holds nothing such."""
    from kfm.model.version_trees import item_from  # late: readers do not need it

    known = active(withdrawals(session, dataset_id))
    new = (item_from(digest, document) for digest, document in version.new.items.items())
    return bool(known and withdrawn_items(new, known))


class DatasetChangeReader:
    """What people have changed."""

    def __init__(self, database: Database, head: Head) -> None:
        self._database = database
        self._session: Session = database.session
        self._head = head

    def changes(self, dataset_id: str | None = None, limit: int = CHANGES_MAX) -> list[DatasetChange]:
        """The newest first."""
        found = (
            self._session.all("dataset_changes.of_dataset", dataset_id=dataset_id, row_limit=limit)
            if dataset_id
            else self._session.all("dataset_changes.list", row_limit=limit)
        )
        return [change_from(row) for row in found]

    def page(
        self,
        *,
        dataset_id: str | None = None,
        kind: str | None = None,
        before: tuple[int, str] | None = None,
        limit: int,
    ) -> list[DatasetChange]:
        """The newest first; `before`: time and id of the last one of the page before."""
        before_ms, before_id = before or (MS_MAX, "")
        found = self._session.all(
            "dataset_changes.page",
            dataset_id=dataset_id or "",
            kind=kind or "",
            before_ms=before_ms,
            before_id=before_id,
            row_limit=limit,
        )
        return [change_from(row) for row in found]

    def change(self, change_id: str) -> DatasetChange | None:
        row = self._session.one("dataset_changes.get", change_id=change_id)
        return change_from(row) if row else None

    def renames(self, dataset_id: str | None = None) -> tuple[Rename, ...]:
        """Every renaming of a dataset, or of all of them, in order."""
        found = tuple(
            renamed
            for row in self._session.all("dataset_changes.renames")
            if (renamed := _renamed(change_from(row))) is not None
        )
        return found if dataset_id is None else of_dataset(dataset_id, found)

    def window_rules(self) -> dict[str, tuple[str, str | None]]:
        """The window length on record of each source that merges, and the change that made it so."""
        return {row[0]: (row[1], row[2]) for row in self._session.all("window_rules.list")}

    def window_rule(self, source_id: str) -> tuple[str, str | None] | None:
        """The window length on record of one source, and the change that made it so; None: none is."""
        row = self._session.one("window_rules.get", source_id=source_id)
        return None if row is None else (row[0], row[1])

    def newest(self, dataset_id: str) -> tuple[int, int] | None:
        """The number of the last version that a change made, and when; None: runs made all of them."""
        row = self._session.one("dataset_changes.newest", dataset_id=dataset_id)
        return (int(row[0]), int(row[1])) if row else None

    def times(self, dataset_id: str) -> list[ChangeTime]:
        """The changes that made versions, in order."""
        found = self._session.all("dataset_changes.times", dataset_id=dataset_id)
        return [rows.converted(_TIME, row, ChangeTime) for row in found]

    def withdrawals(self, dataset_id: str | None = None) -> list[Withdrawal]:
        """All of them, also those that were lifted."""
        return withdrawals(self._session, dataset_id or "")

    def target_withdrawals(self, dataset_id: str | None = None) -> list[Withdrawal]:
        """Those from one target alone."""
        found = self._session.all("withdrawals.of_targets", dataset_id=dataset_id or "")
        return [withdrawal_from(row) for row in found]

    def purges(self, change_id: str | None = None) -> list[Purge]:
        """All of them, or those of one change."""
        found = (
            self._session.all("purges.of_change", change_id=change_id)
            if change_id
            else self._session.all("purges.list")
        )
        return [rows.converted(_PURGE, row, Purge) for row in found]

    def purges_of(self, dataset_id: str) -> list[Purge]:
        found = self._session.all("purges.of_dataset", dataset_id=dataset_id)
        return [rows.converted(_PURGE, row, Purge) for row in found]

    def unfinished_purges(self) -> list[Purge]:
        """Those that are outstanding or out of reach."""
        return [rows.converted(_PURGE, row, Purge) for row in self._session.all("purges.outstanding")]

    def shown_head(self, dataset_id: str) -> tuple[Promotion, Version] | None:
        """The head as a target shows it: with its tombstone."""
        found = self._head(dataset_id)
        if found is None:
            return None
        promotion, version = found
        known = at_version(self.withdrawals(dataset_id), promotion.sequence)
        stands = tombstone(version.dataset_id, promotion.sequence, known)
        if stands is None:
            return found
        return TombstonedPromotion(**msgspec.structs.asdict(promotion), tombstone=stands), version


class _PlannedNames(msgspec.Struct):
    old: str
    new: str


class _RenamePlan(msgspec.Struct):
    """As much of a stored plan as a renaming is known by."""

    rename: _PlannedNames


def _renamed(change: DatasetChange) -> Rename | None:
    if change.sequence is None:
        return None
    names = msgspec.json.decode(change.plan, type=_RenamePlan).rename
    return Rename(
        dataset_id=change.dataset_id,
        old=names.old,
        new=names.new,
        sequence=change.sequence,
        renamed_at_ms=change.changed_at_ms,
        reason=change.rationale,
    )


class DatasetChanges(DatasetChangeReader):
    """Applies changes, and keeps how far purges are."""

    def __init__(self, database: Database, head: Head, journal: Journal) -> None:
        super().__init__(database, head)
        self._journal = journal

    def apply(self, request: ApplyChange, dead: Dead) -> ApplyResult:
        """The version, what is withdrawn, the pause and the audit log, together or not at all."""
        change = self._staged(request)
        try:
            return self._database.write(lambda session: _apply(session, request, change, dead, self._journal))
        except _Moved as moved:
            return moved.answer

    def _staged(self, request: ApplyChange) -> _StagedChange | None:
        version = request.version
        if version is None:
            return None
        from kfm.db.versions import stage  # late: readers do not need it

        head = self._head(request.change.dataset_id) if request.withdrawal is None else None
        changed = version.changed_items(head[1]) if head is not None else []
        starts = tuple(was.window_start_ms for was, now in changed if was is not None and now is None)
        return _StagedChange(stage(version), starts)

    def hold(self, scope: str, change_id: str, worker_id: str, lease_ms: int, dead: Dead) -> int | Lock:
        """Take a dataset's lock for a purge: its fence, or the lock that blocks it."""
        from kfm.db import leases  # late: readers do not need it

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
        from kfm.db import governance  # late: readers do not need it

        kept = tuple(entries)

        def change(session: Session) -> None:
            values = msgspec.structs.asdict(replace(purge, changed_at_ms=session.now_ms()))
            del values["dataset_id"]
            session.all("purges.put", **rows.with_storable(values, ("detail",)))
            governance.append(session, kept)

        self._database.write(change)


class _StagedChange(NamedTuple):
    """The version on top of the head that the change names, and the beginnings of the windows whose data it
    does not have any more and that are not withdrawn."""

    version: StagedVersion
    starts_lost: tuple[int, ...]


class _Moved(Exception):
    """Roll back, and answer this."""

    def __init__(self, answer: ApplyResult) -> None:
        super().__init__(answer.answer)
        self.answer = answer


def _apply(
    session: Session,
    request: ApplyChange,
    staged: _StagedChange | None,
    dead: Dead,
    journal: Journal,
) -> ApplyResult:
    from kfm.db import approvals, governance, leases  # late: readers do not need it
    from kfm.db.versions import MadeVersion, insert_version, placed

    # In the order of admission: the collector's lock, locks by name, the policy epoch, everything else.
    now_ms, change = session.now_ms(), request.change
    collector = session.one("locks.get_for_share", scope=leases.COLLECTOR)
    assert collector is not None, "the first migration makes it"
    locks = [leases.lock_for_update(session, scope) for scope in sorted(request.scopes)]
    collecting = rows.lock_from(collector)
    head = session.one("promotions.head", dataset_id=change.dataset_id)
    base = rows.promotion_from(head).sequence if head else 0
    against = _against(session, request, (*locks, collecting), base, now_ms, dead)
    if against is not None:
        return against
    if collecting.holder is not None:
        leases.free(session, collecting, now_ms)  # should it wake up, its fence is outdated
    for lock in locks:
        if lock.holder is not None:  # gone: what it still tries is refused
            leases.evict(session, lock, now_ms, journal)
            leases.free(session, lock, now_ms)
    epoch = _epoch(session, request, now_ms)
    _expect_again(session, request, staged.starts_lost if staged is not None else ())
    if staged is not None:
        assert request.version_id is not None
        assert change.sequence == base + 1
        fence = next((one.fence for one in locks if one.scope == f"dataset:{change.dataset_id}"), 0)
        made = MadeVersion(change.dataset_id, base + 1, request.version_id, change.change_id, fence, epoch)
        if not insert_version(session, made, staged.version, now_ms):
            raise _Moved(ApplyResult(answer="head-moved"))
    _store(session, request, now_ms)
    late = journal.watch.late()
    if request.rewindow is not None:
        _rewindow(session, request.rewindow, change, late, now_ms)
    for lifted in request.lifts:
        landed = session.one(
            "withdrawals.lift", change_id=lifted, until_sequence=base + 1, lifted_by=change.change_id
        )
        if landed is None:
            raise _Moved(ApplyResult(answer="lifted"))
    if request.approval is not None:
        approvals.use(session, request.approval, change.change_id, 1, now_ms)
    if request.withdrawal is not None:
        late.withdrawn(
            session, change.dataset_id, change.change_id, request.targets, request.withdrawal.reason, now_ms
        )
        late.no_more_expected(session, request.withdrawal, now_ms)
    if request.version is not None:
        journal.dataset_changed(session, _told(session, request, head, now_ms), now_ms)
    late.settle()
    governance.append(session, [placed(entry, base + 1, epoch, now_ms) for entry in request.entries])
    return ApplyResult(answer="applied", sequence=change.sequence)


def _told(session: Session, request: ApplyChange, head: Row | None, now_ms: int) -> ToldChange:
    change = request.change
    came_from = [rows.promotion_from(head).version_id] if head is not None else []
    if change.to_sequence is not None:
        row = session.one("promotions.at", dataset_id=change.dataset_id, sequence=change.to_sequence)
        came_from += [rows.promotion_from(row).version_id] if row is not None else []
    return ToldChange(
        change=replace(change, changed_at_ms=now_ms),
        version_id=request.version_id or "",
        came_from=tuple(dict.fromkeys(came_from)),
        withdrawal=request.withdrawal,
        lifts=request.lifts,
    )


def _against(
    session: Session,
    request: ApplyChange,
    locks: Sequence[Lock],
    base: int,
    now_ms: int,
    dead: Dead,
) -> ApplyResult | None:
    """What has changed since the plan was made; None: nothing. The collector's lock is the last."""
    from kfm.db import leases  # late: readers do not need it

    change = request.change
    for lock in locks:
        if lock.holder is None or leases.is_gone(lock, now_ms, dead):
            continue
        if _is_ours(session, lock, change.dataset_id):
            return ApplyResult(answer="busy", lock=lock)
    if locks[-1].fence != request.collections:
        return ApplyResult(answer="collected")
    if not _is_approved(session, request.approval, now_ms):
        return ApplyResult(answer="not-approved")
    if base != change.base_sequence:
        return ApplyResult(answer="head-moved", sequence=base)
    if request.new_name is not None and _is_taken(session, request.new_name, change.dataset_id):
        return ApplyResult(answer="name-taken")
    return None


def _rewindow(
    session: Session, wanted: Rewindow, change: DatasetChange, watch: IncidentKeeper, now_ms: int
) -> None:
    """The length that counts from now on; what waits for windows of the earlier one ends, and the expectation
    goes on as far back as it reached."""
    landed = session.one(
        "window_rules.replace",
        source_id=wanted.source_id,
        window_length=wanted.new,
        old_length=wanted.old or wanted.new,
        change_id=change.change_id,
    )
    if landed is None:
        raise _Moved(ApplyResult(answer="rewindowed"))
    session.all(
        "expectations.carry",
        source_id=wanted.source_id,
        rule=wanted.expected_before,
        new_rule=wanted.expected_after,
    )
    if wanted.look_from_ms is not None:
        session.all("overdue_marks.lower", source_id=wanted.source_id, mark_ms=wanted.look_from_ms)
    from kfm.db import requests  # late: readers do not need it

    for request_id in wanted.cancels:
        requests.cancel(session, request_id, f"Windows are {wanted.new} long now.", watch)
    watch.rewindowed(session, change.dataset_id, wanted, now_ms)


def _is_taken(session: Session, name: str, dataset_id: str) -> bool:
    """Do readers know another dataset by this name, now or from before?"""
    if name != dataset_id and session.one("promotions.head", dataset_id=name) is not None:
        return True
    changes = [change_from(row) for row in session.all("dataset_changes.renames")]
    known = (one for one in map(_renamed, changes) if one is not None)
    return any(name in (one.old, one.new) and one.dataset_id != dataset_id for one in known)


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
    from kfm.db import governance  # late: readers do not need it

    if request.pause is None:
        return governance.held_epoch(session)
    return governance.set_switch(session, replace(request.pause, set_at_ms=now_ms))


def _expect_again(session: Session, request: ApplyChange, starts_lost: tuple[int, ...]) -> None:
    """Windows that lose their data and are not withdrawn, or whose withdrawal is lifted, are looked at for
    being overdue, though their time was before."""
    dataset_id, starts = request.change.dataset_id, [*starts_lost]
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
