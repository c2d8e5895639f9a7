"""Replays of units: selected, frozen and carried out in the ledger, with a receipt for each unit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from kfm.db import governance, rows, unit_history, unit_rows
from kfm.db.approvals import approval_parameters
from kfm.db.incidents import IncidentKeeper
from kfm.db.session import Database, Row, Session
from kfm.db.unit_rows import CountChanges
from kfm.model.quarantine import Approval
from kfm.model.records import GovernanceEntry
from kfm.model.replays import (
    Chosen,
    ListedReplay,
    Receipt,
    Replay,
    ReplayPlan,
    ReplaySummary,
    Selection,
    Stepped,
)
from kfm.model.units import StoredUnit, migrated, replayed

_ENCODE = msgspec.json.Encoder().encode
_PLAN = msgspec.json.Decoder(ReplayPlan).decode
_LISTED = (*Replay.__struct_fields__, "summary")
_SUMMARY = msgspec.json.Decoder(ReplaySummary).decode
_FOREVER = 2**62
PAGE = 10_000  # units that are read at once
REPLAYED, DRIFTED = "replayed", "drifted"


class ReplayReader:
    """Read access to replays, and the units that one would select."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def select(self, selection: Selection, limit: int, after: str = "") -> list[Chosen]:
        """At most so many, behind `after`; ask for one more to see whether there are more."""
        start_ms, end_ms = selection.event_time_start_ms, selection.event_time_end_ms
        parameters: dict[str, Any] = {
            "datasets": _text(selection.datasets),
            "statuses": _text(selection.statuses),
            "error_codes": _text(selection.error_codes),
            "any_event_time": int(start_ms is None and end_ms is None),
            "event_time_start_ms": _or(start_ms, -_FOREVER),
            "event_time_end_ms": _or(end_ms, _FOREVER),
            "created_after_ms": _or(selection.created_after_ms, -_FOREVER),
            "created_before_ms": _or(selection.created_before_ms, _FOREVER),
            "attempts_max": _or(selection.attempts_max, _FOREVER),
            "after": after,
            "row_limit": limit,
        }
        stuck = bool(selection.statuses) and set(selection.statuses) <= {"failed", "quarantined"}
        name = "replays.select_stuck" if stuck else "replays.select_any"
        if selection.wal_ids:
            name = "replays.select_named"
            parameters["wal_ids"] = _text(selection.wal_ids)
        found = self._database.session.all(name, **parameters)
        told = unit_rows.addresses(self._database.session, {row[0]: row[-1] for row in found})
        return [Chosen(*(*row[:-1], told.get(row[0], row[-1]))) for row in found]

    def select_all(self, selection: Selection) -> Iterator[Chosen]:
        """All of them, read page by page."""
        after = ""
        while page := self.select(selection, PAGE, after):
            yield from page
            after = page[-1].wal_id

    def replay(self, replay_id: str) -> Replay | None:
        row = self._database.session.one("replays.get", replay_id=replay_id)
        return None if row is None else _replay(row)

    def replays(self, limit: int = 50, before: tuple[int, str] | None = None) -> list[ListedReplay]:
        """The newest first; `before`: the time and the id of the last one of the page before."""
        before_ms, after_id = before or (rows.NEVER, "")
        found = self._database.session.all(
            "replays.list", before_ms=before_ms, after_id=after_id, row_limit=limit
        )
        return [_listed(row) for row in found]

    def to_serve(self, limit: int) -> list[str]:
        """Those that services carry out now."""
        return [row[0] for row in self._database.session.all("replays.to_serve", row_limit=limit)]

    def bytes_of(self, wal_ids: Sequence[str]) -> tuple[int, int]:
        """Of how many of these units the size is known, and how much it is."""
        known = size = 0
        for start in range(0, len(wal_ids), PAGE):
            row = self._database.session.one(
                "replays.bytes", wal_ids=_text(tuple(wal_ids[start : start + PAGE]))
            )
            assert row is not None, "sums always are"
            known, size = known + row[0], size + int(row[1])
        return known, size

    def in_cell(self, dataset: str, product: str, start_ms: int, end_ms: int, limit: int) -> list[str]:
        """Units that have failed or are quarantined, of a product and a span of its data."""
        found = self._database.session.all(
            "replays.in_cell",
            dataset=dataset,
            product=product,
            start_ms=start_ms,
            end_ms=end_ms,
            row_limit=limit,
        )
        return [row[0] for row in found]

    def find(self, start: str, limit: int = 2) -> list[str]:
        """Ids that begin so."""
        found = self._database.session.all("replays.find", **rows.beginning(start), row_limit=limit)
        return [row[0] for row in found]

    def receipts(self, replay_id: str, after: str = "", limit: int = 1000) -> list[Receipt]:
        found = self._database.session.all(
            "replays.receipts", replay_id=replay_id, after=after, row_limit=limit
        )
        told = unit_rows.addresses(self._database.session, {row[0]: row[5] for row in found})
        return [Receipt(*(*row[:5], told.get(row[0], row[5]), *row[6:])) for row in found]

    def tally(self, replay_id: str) -> dict[str, int]:
        """Receipt → how many; '' are those that wait."""
        return dict(self._database.session.all("replays.tally", replay_id=replay_id))

    def since(self, replay_id: str) -> dict[str, int]:
        """Status now → how many of those that were replayed."""
        return dict(self._database.session.all("replays.since", replay_id=replay_id))

    def moved(self, replay_id: str, limit: int = 1000) -> list[str]:
        """Units without a receipt that are not as they were planned."""
        found = self._database.session.all("replays.moved_units", replay_id=replay_id, row_limit=limit)
        return [row[0] for row in found]


class Replays(ReplayReader):
    """Replays of units. Each method is one transaction."""

    def __init__(self, database: Database, watch: IncidentKeeper) -> None:
        super().__init__(database)
        self._watch = watch

    def request(
        self, plan: ReplayPlan, approval: Approval, entry: GovernanceEntry, *, rationale: str
    ) -> list[str]:
        """Freeze the plan here and ask for a second person; the units that changed since it was made."""

        def change(session: Session) -> None:
            self._freeze(session, plan, "requested", rationale, approval.requested_by)
            session.all("approvals.insert", **approval_parameters(approval))
            governance.append(session, [entry])

        return self._unless_moved(change)

    def freeze(
        self, plan: ReplayPlan, entry: GovernanceEntry, *, rationale: str, requested_by: str, name: str | None
    ) -> list[str]:
        """Keep a plan here, to be begun later; the units that changed since it was made."""

        def change(session: Session) -> None:
            known = session.one("replays.hold", replay_id=plan.replay_id)
            if known is None:
                self._freeze(session, plan, "requested", rationale, requested_by, name)
                governance.append(session, [entry])

        return self._unless_moved(change)

    def serve(
        self, replay_id: str, served: int, rate_milli: int | None, entry: GovernanceEntry | None
    ) -> bool:
        """Have services carry a replay that was begun out, or stop that; was it begun, and has no end?"""

        def change(session: Session) -> bool:
            held = session.one("replays.hold", replay_id=replay_id)
            if held is None or held[0] != "running":
                return False
            at_ms = session.now_ms()
            session.all(
                "replays.serve", replay_id=replay_id, served=served, rate_milli=rate_milli, at_ms=at_ms
            )
            if entry is not None:
                governance.append(session, [entry])
            return True

        return self._database.write(change)

    def begin(
        self, plan: ReplayPlan, *, rationale: str, requested_by: str, entry: GovernanceEntry
    ) -> list[str]:
        """Freeze the plan here, unless it was begun before; the units that changed since it was made."""

        def change(session: Session) -> None:
            if not self._freeze(session, plan, "running", rationale, requested_by):
                return  # taken up again: what moved since gets its receipt
            if plan.needs_approval:
                request_id = _approval(session, plan.replay_id, plan.digest)
                session.all(
                    "replays.use_approval",
                    replay_id=plan.replay_id,
                    request_id=request_id,
                    now_ms=session.now_ms(),
                )
            governance.append(session, [entry])

        return self._unless_moved(change)

    def _unless_moved(self, change: Callable[[Session], None]) -> list[str]:
        try:
            self._database.write(change)
        except _Moved as moved:
            return moved.units
        return []

    def _freeze(
        self,
        session: Session,
        plan: ReplayPlan,
        state: str,
        rationale: str,
        requested_by: str,
        name: str | None = None,
    ) -> bool:
        """Is it ours to begin? A second process with the same plan waits here for the first."""
        replay_id = plan.replay_id
        landed = session.one(
            "replays.insert",
            replay_id=replay_id,
            digest=plan.digest,
            plan=_ENCODE(plan).decode(),
            mode=plan.mode,
            reason=plan.reason,
            rationale=rows.storable(rationale),
            requested_by=rows.storable(requested_by),
            state=state,
            created_at_ms=session.now_ms(),
            name=name and rows.storable(name),
            summary=_ENCODE(plan.summary).decode(),
        )
        if landed is None:
            held = session.one("replays.hold", replay_id=replay_id)
            if held is None or held[0] != "requested":
                return False
        moved = _moved(session, plan)
        if moved:
            raise _Moved(moved)  # nothing of this transaction stays
        if landed is not None:
            session.bulk("replays.add_unit", [(replay_id, unit.wal_id, unit.version) for unit in plan.units])
        elif state == "running":
            session.all("replays.settle", replay_id=replay_id, state=state, at_ms=session.now_ms())
        return True

    def step(
        self,
        replay: Replay,
        limit: int,
        *,
        after: str = "",
        stopped: Collection[str] = (),
        ended: Callable[[dict[str, int], int], GovernanceEntry],
        is_served: bool = False,
    ) -> Stepped:
        """The next units behind `after`. Those of datasets that are stopped are left for later.

        One process at a time: the replay's row is held. `ended` tells the chain of the last receipt.
        `is_served`: a service does it, unless another one has since `replay` was read, or a person has
        stopped that.
        """
        replay_id = replay.replay_id

        def change(session: Session) -> Stepped:
            held = session.one("replays.hold", replay_id=replay_id)
            if held is None or held[0] != "running":
                return Stepped(looked_at=0, last=after, receipts={}, done=True)
            if is_served and (held[1] != 1 or held[2] != replay.updated_at_ms):
                return Stepped(looked_at=0, last=after, receipts={}, done=False)
            now_ms, tally, late = session.now_ms(), CountChanges(), self._watch.late()
            approval = _approval(session, replay_id, replay.digest) if replay.plan.needs_approval else None
            batch = _Batch(session, replay, approval, now_ms, tally, late)
            waiting = session.all("replays.open_units", replay_id=replay_id, after=after, row_limit=limit)
            receipts = {wal_id: batch.take(wal_id, version, stopped) for wal_id, version in waiting}
            batch.write()
            given = [(receipt, now_ms, replay_id, wal_id) for wal_id, receipt in receipts.items() if receipt]
            if given:
                session.bulk("replays.receipt", given)
            tally.write(session)
            done = not session.all("replays.open_units", replay_id=replay_id, after="", row_limit=1)
            if done:
                session.all("replays.settle", replay_id=replay_id, state="done", at_ms=now_ms)
            elif given:
                session.all("replays.touch", replay_id=replay_id, at_ms=now_ms)
            late.settle()
            if done:
                counts: dict[str, int] = dict(session.all("replays.tally", replay_id=replay_id))
                governance.append(session, [ended(counts, now_ms)])
            return Stepped(
                looked_at=len(waiting),
                last=waiting[-1][0] if waiting else after,
                receipts=_counts(receipts),
                done=done,
            )

        return self._database.write(change)


class _Moved(Exception):
    """Ends a transaction in which nothing may stay."""

    def __init__(self, units: list[str]) -> None:
        super().__init__()
        self.units = units


class _Batch:
    """Units that come back in one transaction: one page of history for each way."""

    def __init__(
        self,
        session: Session,
        replay: Replay,
        approval: str | None,
        now_ms: int,
        tally: CountChanges,
        watch: IncidentKeeper,
    ) -> None:
        self._session = session
        self._watch = watch
        self._replay = replay
        self._approval = approval
        self._now_ms = now_ms
        self._tally = tally
        self._pages: dict[str, tuple[int, list[unit_history.Member]]] = {}

    def take(self, wal_id: str, version: int, stopped: Collection[str]) -> str | None:
        seen = unit_rows.held(self._session, wal_id)
        if seen is None or seen.unit.version != version:
            return DRIFTED
        if seen.unit.dataset in stopped:
            return None
        self._reopen(seen)
        return REPLAYED

    def _reopen(self, seen: StoredUnit) -> None:
        unit, replay = seen.unit, self._replay
        if unit.status == "failed":
            event, moved = "replayed", replayed(unit, reason=replay.reason, now_ms=self._now_ms)
        else:
            event = "migrated"
            moved = migrated(unit, reason=replay.reason, approval=self._approval or "", now_ms=self._now_ms)
        number, members = self._page(event)
        details = {"replay_id": replay.replay_id, "reason": replay.reason, "approval": self._approval}
        members.append((unit.wal_id, moved.version, moved.attempts, details))
        made = replace(
            seen,
            unit=moved,
            not_before_ms=0,
            grants=seen.grants + 1,
            grant_attempts=0,
            granted_at_ms=0,
            replacing=int(replay.mode == "repair-and-replace"),
            trail=f"{seen.trail} {number}",
        )
        unit_rows.put(self._session, seen, made)
        self._tally.moved(unit.dataset, unit.status, "pending")
        self._tally.add(unit.dataset, f"replays:{replay.reason}")
        self._watch.let_go(self._session, unit.wal_id, self._now_ms, f"replay {replay.replay_id}")

    def _page(self, event: str) -> tuple[int, list[unit_history.Member]]:
        if event not in self._pages:  # a number is asked for only where its page gets written
            self._pages[event] = (unit_history.begin(self._session), [])
        return self._pages[event]

    def write(self) -> None:
        for event, (number, members) in self._pages.items():
            unit_history.write(self._session, number, event, "pending", members, at_ms=self._now_ms)


def _moved(session: Session, plan: ReplayPlan) -> list[str]:
    wal_ids = _text(tuple(unit.wal_id for unit in plan.units))
    now = {row[0]: (row[1], row[2]) for row in session.all("replays.versions", wal_ids=wal_ids)}
    return [unit.wal_id for unit in plan.units if now.get(unit.wal_id) != (unit.version, unit.status)]


def _approval(session: Session, replay_id: str, digest: str) -> str:
    """Held from here to the end of the transaction."""
    found = session.one("replays.agreed", replay_id=replay_id, digest=digest, now_ms=session.now_ms())
    if found is None:
        from kfm.model.errors import NotApproved

        raise NotApproved(f"The replay {replay_id} has no approval, or it has lapsed.")
    return str(found[0])


def _counts(receipts: dict[str, str | None]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for receipt in receipts.values():
        if receipt is not None:
            counts[receipt] = counts.get(receipt, 0) + 1
    return counts


def _replay(row: Row) -> Replay:
    values = dict(zip(Replay.__struct_fields__, row, strict=True))
    return Replay(**{**values, "plan": _PLAN(values["plan"])})


def _listed(row: Row) -> ListedReplay:
    values = dict(zip(_LISTED, row, strict=True))
    plan, summary = values.pop("plan"), values["summary"]
    kept = _SUMMARY(summary) if summary is not None else _PLAN(plan).summary
    return ListedReplay(**{**values, "summary": kept})


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def _text(values: tuple[str, ...]) -> str:
    return _ENCODE(values).decode()
