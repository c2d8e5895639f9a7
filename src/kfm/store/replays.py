"""Replays in the ledger: selected there, frozen there, carried out there, with a receipt for each unit."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from kfm.core.records import GovernanceEntry, Record
from kfm.core.replays import Chosen, ReplayPlan, Selection
from kfm.core.unit_transitions import migrated, replayed
from kfm.core.wal import Stored
from kfm.store import governance, rows, unit_pages, unit_rows
from kfm.store.incidents import Watch
from kfm.store.session import Database, Row, Session
from kfm.store.unit_counts import Tally

_ENCODE = msgspec.json.Encoder().encode
_PLAN = msgspec.json.Decoder(ReplayPlan).decode
_FOREVER = 2**62
REPLAYED, DRIFTED = "replayed", "drifted"


class Replay(Record, frozen=True):
    """One replay. Field order is column order."""

    replay_id: str
    digest: str
    plan: ReplayPlan
    mode: str
    reason: str
    rationale: str
    requested_by: str
    state: Literal["running", "done"]
    created_at_ms: int
    updated_at_ms: int


class Receipt(Record, frozen=True):
    wal_id: str
    version: int  # as it was planned
    receipt: str | None  # None: not yet
    at_ms: int | None


class ReplayReader:
    """Nothing here writes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def select(self, selection: Selection, limit: int) -> list[Chosen]:
        """At most so many; ask for one more to see whether there are more."""
        session = self._database.session
        if selection.wal_ids:
            found = session.all("replays.select_named", wal_ids=_text(selection.wal_ids))
            chosen = [Chosen(*row) for row in found]
            return [one for one in chosen if _fits(one, selection)][:limit]
        stuck = set(selection.statuses) <= {"failed", "quarantined"} and bool(selection.statuses)
        start_ms, end_ms = selection.event_time_start_ms, selection.event_time_end_ms
        found = session.all(
            "replays.select_stuck" if stuck else "replays.select_any",
            datasets=_text(selection.datasets),
            statuses=_text(selection.statuses),
            error_codes=_text(selection.error_codes),
            any_event_time=int(start_ms is None and end_ms is None),
            event_time_start_ms=_or(start_ms, -_FOREVER),
            event_time_end_ms=_or(end_ms, _FOREVER),
            created_after_ms=-_FOREVER if selection.created_after_ms is None else selection.created_after_ms,
            created_before_ms=_FOREVER
            if selection.created_before_ms is None
            else selection.created_before_ms,
            attempts_max=_FOREVER if selection.attempts_max is None else selection.attempts_max,
            row_limit=limit,
        )
        return [Chosen(*row) for row in found]

    def replay(self, replay_id: str) -> Replay | None:
        row = self._database.session.one("replays.get", replay_id=replay_id)
        return None if row is None else _replay(row)

    def replays(self, limit: int = 50) -> list[Replay]:
        return [_replay(row) for row in self._database.session.all("replays.list", row_limit=limit)]

    def receipts(self, replay_id: str, after: str = "", limit: int = 1000) -> list[Receipt]:
        found = self._database.session.all(
            "replays.receipts", replay_id=replay_id, after=after, row_limit=limit
        )
        return [Receipt(*row) for row in found]

    def tally(self, replay_id: str) -> dict[str, int]:
        """Receipt → how many; '' are those that wait."""
        return dict(self._database.session.all("replays.tally", replay_id=replay_id))


class Replays(ReplayReader):
    """Each method is one transaction."""

    def __init__(self, database: Database, watch: Watch) -> None:
        super().__init__(database)
        self._watch = watch

    def begin(
        self, replay_id: str, plan: ReplayPlan, *, rationale: str, requested_by: str, entry: GovernanceEntry
    ) -> list[str] | None:
        """Freeze the plan here. None: done, or begun before; otherwise the units that changed since."""

        def change(session: Session) -> list[str] | None:
            moved = [unit.wal_id for unit in plan.units if _has_moved(session, unit)]
            if moved:
                return moved
            landed = session.one(
                "replays.insert",
                replay_id=replay_id,
                digest=plan.digest,
                plan=_ENCODE(plan).decode(),
                mode=plan.mode,
                reason=plan.reason,
                rationale=rows.storable(rationale),
                requested_by=rows.storable(requested_by),
                created_at_ms=session.now_ms(),
            )
            if landed is None:
                return None
            session.bulk("replays.add_unit", [(replay_id, unit.wal_id, unit.version) for unit in plan.units])
            governance.append(session, [entry])
            return None

        if self.replay(replay_id) is not None:
            return None  # taken up again: what moved since gets its receipt
        return self._database.write(change)

    def step(self, replay: Replay, limit: int, *, approval: str | None, may: Any) -> dict[str, int]:
        """The next units; receipt → how many. Where `may(dataset)` is a no, they are left for later."""

        def change(session: Session) -> dict[str, int]:
            now_ms, tally, receipts = session.now_ms(), Tally(), {}
            batch = _Batch(session, replay, approval, now_ms, tally, self._watch)
            waiting = session.all("replays.open_units", replay_id=replay.replay_id, row_limit=limit)
            for wal_id, version in waiting:
                receipt = batch.take(wal_id, version, may)
                if receipt is not None:
                    receipts[wal_id] = receipt
            batch.write()
            for wal_id, receipt in receipts.items():
                session.all(
                    "replays.receipt",
                    replay_id=replay.replay_id,
                    wal_id=wal_id,
                    receipt=receipt,
                    at_ms=now_ms,
                )
            if len(waiting) == len(receipts) and len(waiting) < limit:
                session.all("replays.settle", replay_id=replay.replay_id, state="done", at_ms=now_ms)
            tally.write(session)
            counts: dict[str, int] = {}
            for receipt in receipts.values():
                counts[receipt] = counts.get(receipt, 0) + 1
            return counts

        return self._database.write(change)


class _Batch:
    """Units that come back in one transaction: one page of history for each way."""

    def __init__(
        self,
        session: Session,
        replay: Replay,
        approval: str | None,
        now_ms: int,
        tally: Tally,
        watch: Watch,
    ) -> None:
        self._session = session
        self._watch = watch
        self._replay = replay
        self._approval = approval
        self._now_ms = now_ms
        self._tally = tally
        self._pages: dict[str, tuple[int, list[unit_pages.Member]]] = {}

    def take(self, wal_id: str, version: int, may: Any) -> str | None:
        seen = unit_rows.held(self._session, wal_id)
        if seen is None or seen.unit.version != version:
            return DRIFTED
        if not may(seen.unit.dataset):
            return None
        self._reopen(seen)
        return REPLAYED

    def _reopen(self, seen: Stored) -> None:
        unit, replay = seen.unit, self._replay
        if unit.status == "failed":
            event, moved = "replayed", replayed(unit, reason=replay.reason, now_ms=self._now_ms)
        else:
            assert self._approval is not None, "the plan said that it needs one"
            event = "migrated"
            moved = migrated(unit, reason=replay.reason, approval=self._approval, now_ms=self._now_ms)
        number, members = self._pages.setdefault(event, (unit_pages.begin(self._session), []))
        details = {"replay_id": replay.replay_id, "reason": replay.reason, "approval": self._approval}
        members.append((unit.wal_id, moved.version, moved.attempts, details))
        made = replace(
            seen,
            unit=moved,
            not_before_ms=self._now_ms,
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

    def write(self) -> None:
        for event, (number, members) in self._pages.items():
            unit_pages.write(self._session, number, event, "pending", members, at_ms=self._now_ms)


def _has_moved(session: Session, unit: Chosen) -> bool:
    seen = unit_rows.get(session, unit.wal_id)
    return seen is None or seen.unit.version != unit.version


def _replay(row: Row) -> Replay:
    values = dict(zip(Replay.__struct_fields__, row, strict=True))
    return Replay(**{**values, "plan": _PLAN(values["plan"])})


def _fits(one: Chosen, selection: Selection) -> bool:
    return (
        (not selection.datasets or one.dataset in selection.datasets)
        and (not selection.statuses or one.status in selection.statuses)
        and (not selection.error_codes or one.error_code in selection.error_codes)
        and (selection.attempts_max is None or one.attempts <= selection.attempts_max)
    )


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def _text(values: tuple[str, ...]) -> str:
    return _ENCODE(values).decode()
