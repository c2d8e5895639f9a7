"""What must hold of schedules and requests after every commit, and at the end."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from kfm.db.requests import RequestReader
from kfm.db.schedules import ScheduleReader
from kfm.model.scheduled_times import coverage
from kfm.model.schedules import Instant, Schedule, ScheduleState
from kfm.model.settings import SourceSettings
from tests.simulation.judging import require
from tests.simulation.scheduler import Process

if TYPE_CHECKING:
    from tests.simulation.served.world import ServedWorld

EVER_MS = 2**60
ROWS_MAX = 100_000
PLACES = {"skip": 1, "queue-one": 2}


class Checks:
    def __init__(self, world: ServedWorld) -> None:
        self._world = world
        self.counts: Counter[str] = Counter()
        self._states: dict[str, ScheduleState] = {}
        self._ended: dict[str, tuple[Any, ...]] = {}

    @property
    def _schedules(self) -> ScheduleReader:
        return ScheduleReader(self._world.database)

    @property
    def _requests(self) -> RequestReader:
        return RequestReader(self._world.database)

    def on_commit(self, _process: Process) -> None:
        states = self._schedules.states()
        for schedule_id, state in states.items():
            before = self._states.get(schedule_id)
            if before == state:
                continue
            self._moved(before, state)
        self._states = states
        self._ends_stand()

    def _moved(self, before: ScheduleState | None, state: ScheduleState) -> None:
        schedule = self._world.file[state.schedule_id]
        if before is None:
            return
        require(state.version == before.version + 1, "a state moves one by one", state=state, before=before)
        require(state.cursor_ms >= before.cursor_ms, "a cursor never goes back", state=state, before=before)
        paused = before.paused_at_ms is not None and state.paused_at_ms is not None
        if paused and schedule.while_paused == "hold":
            require(state.cursor_ms == before.cursor_ms, "what is held is not decided", state=state)
        self._room(schedule)

    def _room(self, schedule: Schedule) -> None:
        """Where there is no catch-up, overlap alone decides how many may have no end."""
        if schedule.missed.run != "none" or schedule.overlap not in PLACES or self._world.disagree:
            return
        unsettled = [one for one in self._requests.unsettled_of(schedule.id) if not one.details]
        require(
            len(unsettled) <= PLACES[schedule.overlap],
            "overlap is limited",
            requests=[one.instant_ms for one in unsettled],
        )

    def _ends_stand(self) -> None:
        for one in self._requests.requests(limit=ROWS_MAX):
            if one.is_settled:
                ending = (one.state, one.outcome, one.ended_at_ms)
                held = self._ended.setdefault(one.request_id, ending)
                require(held == ending, "an end is the end", request=one, before=held)

    def at_end(self, now_ms: int) -> None:
        requests = {one.request_id: one for one in self._requests.requests(limit=ROWS_MAX)}
        for one in requests.values():
            require(one.is_settled, "every request ends", request=one)
            if one.state == "done":
                require(one.request_id in self._world.ran, "what is done was run", request=one)
            self.counts[f"request {one.outcome}"] += 1
        named: dict[str, list[Instant]] = defaultdict(list)
        for schedule_id, state in self._schedules.states().items():
            schedule = self._world.file[schedule_id]
            rows = self._schedules.instants(schedule_id, 0, EVER_MS, ROWS_MAX)
            for row in rows:
                self.counts[row.became] += 1
                if row.request_id is not None:
                    named[row.request_id].append(row)
            own = [row for row in rows if row.became != "backfilled"]
            for earlier, later in pairwise(own):
                require(earlier.last_ms < later.instant_ms, "one fate each", earlier=earlier, later=later)
            self._covered(schedule, state, rows, now_ms)
        for request_id, one in requests.items():
            require(len(named[request_id]) == 1, "a request has its instant", request=one)
        require(set(named) == set(requests), "an instant has its request")

    def _covered(self, schedule: Schedule, state: ScheduleState, rows: list[Instant], now_ms: int) -> None:
        if self._world.disagree:
            return
        source: SourceSettings = self._world.source
        found = coverage(schedule, source, rows, self._world.began_ms, now_ms, state=state, now_ms=now_ms)
        for one in found:
            require(one.fate not in ("unaccounted", "held"), "every instant is accounted for", one=one)
