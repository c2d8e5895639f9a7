"""Schedule states: how far each is accounted for. Steps compare and set: a scheduled time has one fate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from kfm.db import rows
from kfm.db.session import Database, Row, Session
from kfm.model.records import GovernanceEntry
from kfm.model.requests import UpdateRequest
from kfm.model.schedules import Accounting, Instant, ScheduleState

if TYPE_CHECKING:
    from kfm.db.incidents import IncidentKeeper
    from kfm.model.window_plans import Listed

_STATE = ScheduleState.__struct_fields__
_INSTANT = Instant.__struct_fields__
EARLY_MAX = 10  # jumps of a clock that may have asked for one scheduled time


class ScheduleReader:
    """Read access to schedule states and scheduled times."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def states(self) -> dict[str, ScheduleState]:
        found = [
            rows.converted(_STATE, row, ScheduleState) for row in self._database.session.all("schedules.list")
        ]
        return {state.schedule_id: state for state in found}

    def instants(self, schedule_id: str, start_ms: int, end_ms: int, limit: int = 1000) -> list[Instant]:
        """Rows that touch a span, in order."""
        found = self._database.session.all(
            "instants.list", schedule_id=schedule_id, start_ms=start_ms, end_ms=end_ms, row_limit=limit
        )
        return [_instant(row) for row in found]

    def instants_before(self, schedule_id: str, before_ms: int, limit: int) -> list[Instant]:
        """Rows that begin before a moment, the newest first."""
        found = self._database.session.all(
            "instants.before", schedule_id=schedule_id, before_ms=before_ms, row_limit=limit
        )
        return [_instant(row) for row in found]


class ScheduleStates(ScheduleReader):
    """Schedule states: accounting, pause, backfill. Each method is one transaction."""

    def __init__(self, database: Database, watch: IncidentKeeper) -> None:
        super().__init__(database)
        self._watch = watch

    def account(self, accounting: Accounting) -> bool:
        """All of it, or nothing if the state is not what was seen any more."""
        from kfm.db.requests import accept, cancel  # late: most commands only look at schedules

        def change(session: Session) -> bool:
            if not _moved(session, accounting.seen, accounting.state):
                return False
            fresh = accept(session, accounting.requests)
            early = _asked_early(session, [one for one in accounting.requests if one.request_id not in fresh])
            accept(session, list(early.values()))
            session.many("instants.insert", [_parameters(one, early) for one in accounting.instants])
            late = self._watch.late()
            for request_id, reason in accounting.cancels:
                cancel(session, request_id, reason, late)
                session.all("requests.overtaken", request_id=request_id)
            late.settle()
            return True

        return self._database.write(change)

    def set_paused(self, seen: ScheduleState | None, state: ScheduleState, entry: GovernanceEntry) -> bool:
        """Pause or resume; False if the state is not what was seen any more."""
        from kfm.db import governance  # late: readers do not need it

        def change(session: Session) -> bool:
            if not _moved(session, seen, state):
                return False
            governance.append(session, [entry])
            return True

        return self._database.write(change)

    def backfill(
        self,
        instants: Sequence[Instant],
        requests: Sequence[UpdateRequest],
        entry: GovernanceEntry,
        listed: Listed | None = None,
    ) -> list[UpdateRequest]:
        """Open requests for instants that became none; those that were new."""
        from kfm.db import governance, window_plans  # late: readers do not need them
        from kfm.db.requests import accept

        def change(session: Session) -> list[UpdateRequest]:
            fresh = accept(session, requests)
            made = [one for one in requests if one.request_id in fresh]
            chosen = [one for one in instants if one.request_id in fresh]
            session.many("instants.shorten", [_named(one) for one in chosen])
            session.many("instants.backfill", [_parameters(one) for one in chosen])
            if made:
                governance.append(session, [entry])
                if listed is not None:
                    window_plans.keep(session, *listed)
            return made

        return self._database.write(change)


def _asked_early(session: Session, known: Sequence[UpdateRequest]) -> dict[str | None, UpdateRequest]:
    """Of requests that are there already: those that a clock ahead of this time has made, each with the one
    to make in its place."""
    from kfm.db.requests import request_from
    from kfm.model.scheduled_times import asking_in_time

    found: dict[str | None, UpdateRequest] = {}
    for one in known:
        wanted = one
        for _ in range(EARLY_MAX):
            row = session.one("requests.get", request_id=wanted.request_id)
            if row is None or request_from(row).accepted_at_ms <= one.accepted_at_ms:
                break
            wanted = asking_in_time(wanted)
        if wanted is not one:
            found[one.request_id] = wanted
    return found


def _moved(session: Session, seen: ScheduleState | None, state: ScheduleState) -> bool:
    """Is the step ours? The first process to move the state has decided."""
    parameters = rows.with_storable(msgspec.structs.asdict(state), ("paused_by", "rationale"))
    if seen is None:
        return session.one("schedules.insert", **parameters) is not None
    return session.one("schedules.move", **parameters, seen_version=seen.version) is not None


def _instant(row: Row) -> Instant:
    return rows.converted(_INSTANT, row, Instant)


def _named(instant: Instant) -> dict[str, Any]:
    return {"schedule_id": instant.schedule_id, "instant_ms": instant.instant_ms}


def _parameters(
    instant: Instant, early: Mapping[str | None, UpdateRequest] = MappingProxyType({})
) -> dict[str, Any]:
    """`early`: requests that others have taken the place of."""
    values = rows.with_storable(msgspec.structs.asdict(instant), ("reason",))
    instead = early.get(instant.request_id)
    return values if instead is None else {**values, "request_id": instead.request_id}
