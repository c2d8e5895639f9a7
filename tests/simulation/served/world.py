"""One seed's world of services: each keeps the schedules and runs requests, as `kfm serve` does."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from msgspec.structs import replace

from kfm.db.ledger import Ledger
from kfm.model.errors import Cancelled, KfmError
from kfm.model.records import GovernanceEntry, Run
from kfm.model.requests import RequestOutcome, UpdateRequest
from kfm.model.retry_budgets import RetryLimits
from kfm.model.scheduled_times import BACKFILL, backfill, request_for
from kfm.model.schedules import Instant, MissedPolicy, Schedule
from kfm.model.settings import DatasetSettings, SourceSettings
from kfm.runs.kernel import RunReport
from kfm.service.dispatcher import CLAIM_MS, DispatchedRuns, Dispatcher
from kfm.service.scheduler import Scheduler as Keeper
from tests.simulation.adapters import SimClock, SimDatabase
from tests.simulation.scheduler import CALM, Chances, Process, Scheduler
from tests.simulation.served.checks import EVER_MS, ROWS_MAX, Checks

LASTS_MS = 90_000
LATE_MS = 5_000
ROUNDS_MAX = 300


class ServedWorld:
    def __init__(self, seed: int, database: Any, chances: Chances | None = None) -> None:
        rng = self.dice = random.Random(f"served {seed}")
        self.database = database
        weather = chances or Chances(
            crash=rng.choice((0.0, 0.003, 0.01)),
            stall=rng.choice((0.0, 0.004, 0.01)),
            jump=rng.choice((0.0, 0.0, 0.002)),
            fail_before=rng.choice((0.0, 0.005, 0.02)),
            fail_after=rng.choice((0.0, 0.01, 0.03)),
            power_cut=rng.choice((0.0, 0.0, 0.002)),
            stall_ms=rng.choice((3_000, 15_000, 90_000)),
        )
        self.scheduler = Scheduler(seed, weather)
        self.scheduler.on_power_cut = self._cut_power
        self.began_ms = self.scheduler.now_ms
        self.source = SourceSettings(id="s", dataset="d", kind="files", window="PT1H")
        self.file = {f"x{number}": self._schedule(f"x{number}") for number in range(rng.choice((1, 2, 3)))}
        self.disagree = rng.random() < 0.2
        self.slow_ms = rng.choice((50, 2_000, 20_000))  # what a run takes at most
        self.ran: Counter[str] = Counter()
        self.workers: dict[str, Process] = {}
        self.outcomes: Counter[str] = Counter()
        self.checks = Checks(self)
        self._names = 0

    def _schedule(self, name: str) -> Schedule:
        rng = self.dice
        return Schedule(
            id=name,
            source="s",
            every_ms=rng.choice((1_000, 3_000, 10_000)),
            jitter_ms=rng.choice((0, 0, 700)),
            overlap=rng.choice(("skip", "queue-one", "cancel-older")),
            missed=MissedPolicy(run=rng.choice(("all", "last", "none")), within_ms=30_000, cap=3),
            while_paused=rng.choice(("hold", "drop")),
        )

    def _cut_power(self) -> None:
        for process in self.scheduler.processes:
            process.die()

    def store(self, process: Process) -> Ledger:
        clock = SimClock(self.scheduler, process)
        return Ledger(
            SimDatabase(self.database, self.scheduler, process, clock, self.checks.on_commit)  # type: ignore[arg-type]
        )

    # --- processes --------------------------------------------------------------------

    def _serve(self, process: Process, lasts_ms: int) -> None:
        until_ms = self.scheduler.now_ms + lasts_ms
        schedules = list(self.file.values())
        if self.disagree and self.dice.random() < 0.5:
            schedules = [replace(one, every_ms=(one.every_ms or 0) * 2) for one in schedules]
        while self.scheduler.now_ms < until_ms:
            try:
                self._keep(process, schedules, until_ms)
            except KfmError as error:
                self.outcomes[f"service {error.code}"] += 1
                self.scheduler.sleep(process, self.dice.choice((50, 2_000)))

    def keeper(self, store: Ledger, schedules: list[Schedule]) -> Keeper:
        return Keeper(
            store.schedule_states(),
            store.requests(),
            schedules,
            {"s": self.source},
            now_ms=store.now_ms,
            late_ms=LATE_MS,
            actor="serve",
        )

    def dispatcher(self, process: Process, store: Ledger) -> Dispatcher:
        self._names += 1
        worker_id = f"w{self._names}"
        self.workers[worker_id] = process
        runs = StubRuns(self, process, store)
        return Dispatcher(
            store.requests(),
            runs,
            worker_id,
            now_ms=store.now_ms,
            unit_random=self.dice.random,
            dead=self.is_dead,
        )

    def is_dead(self, worker_id: str) -> bool:
        process = self.workers.get(worker_id)
        return process is not None and process.dead

    def _keep(self, process: Process, schedules: list[Schedule], until_ms: int) -> None:
        store = self.store(process)
        keeper, dispatcher = self.keeper(store, schedules), self.dispatcher(process, store)
        while self.scheduler.now_ms < until_ms:
            keeper.step()
            if dispatcher.step() is None:
                self.scheduler.sleep(process, self.dice.randrange(100, 1_000))

    def _person(self, process: Process) -> None:
        """Pauses, resumes, and backfills what was let go."""
        store = self.store(process)
        for _ in range(self.dice.randrange(6)):
            self.scheduler.sleep(process, self.dice.randrange(LASTS_MS // 5))
            try:
                if self.dice.random() < 0.6:
                    self._switch(store, self.dice.choice(list(self.file)), None)
                else:
                    self._backfill(store, self.file[self.dice.choice(list(self.file))])
            except KfmError:
                self.outcomes["person failed"] += 1

    def _switch(self, store: Ledger, schedule_id: str, paused: bool | None) -> None:
        states = store.schedule_states()
        seen = states.states().get(schedule_id)
        if seen is None or (seen.paused_at_ms is not None) == paused:
            return
        at_ms = store.now_ms() if seen.paused_at_ms is None else None
        state = replace(seen, paused_at_ms=at_ms, version=seen.version + 1)
        changed = states.set_paused(seen, state, _entry("schedule-paused", schedule_id, store.now_ms()))
        self.outcomes["paused" if changed and at_ms else "not paused"] += 1

    def _backfill(self, store: Ledger, schedule: Schedule) -> None:
        states, now_ms = store.schedule_states(), store.now_ms()
        state = states.states().get(schedule.id)
        if state is None:
            return
        rows = states.instants(schedule.id, self.began_ms, EVER_MS, ROWS_MAX)
        planned = backfill(
            schedule,
            self.source,
            self.began_ms,
            now_ms,
            rows,
            only_missed=True,
            state=state,
            now_ms=now_ms,
            limit=3,
        )
        wanted = [
            replace(request_for(schedule, self.source, one.instant_ms, now_ms, "jane"), details={BACKFILL: 1})
            for one in planned
        ]
        made = [
            Instant(
                schedule_id=schedule.id,
                instant_ms=one.instant_ms or 0,
                last_ms=one.instant_ms or 0,
                became="backfilled",
                request_id=one.request_id,
            )
            for one in wanted
        ]
        if wanted:
            states.backfill(made, wanted, _entry("backfill", schedule.id, now_ms))

    # --- a life -----------------------------------------------------------------------

    def live(self) -> None:
        for number in range(self.dice.choice((1, 2, 3))):
            self.scheduler.spawn(f"serve{number}", lambda process: self._serve(process, LASTS_MS))
        self.scheduler.spawn("person", self._person)
        self.scheduler.run()
        if self.dice.random() < 0.5:  # no service is there for a while
            self.scheduler.now_ms += self.dice.choice((4_000, 60_000, 10**7))
        for _ in range(self.dice.choice((0, 1))):  # those who were killed come back
            self.scheduler.spawn("again", lambda process: self._serve(process, LASTS_MS // 3))
            self.scheduler.run()
        self.scheduler.chances = CALM
        ended: list[int] = []
        self.scheduler.spawn("last", lambda process: ended.append(self._finish(process)))
        self.scheduler.run()
        self.checks.at_end(ended[0])

    def _finish(self, process: Process) -> int:
        """All is well: everything that is left is decided and run. Until when it was."""
        store = self.store(process)
        for schedule_id in self.file:
            self._switch(store, schedule_id, False)
        cursor_ms = max([one.cursor_ms for one in store.schedule_states().states().values()], default=0)
        self.scheduler.now_ms = max(self.scheduler.now_ms, cursor_ms)  # clocks that were ahead
        keeper, dispatcher = self.keeper(store, list(self.file.values())), self.dispatcher(process, store)
        keeper.step()
        now_ms = store.now_ms()
        keeper.step()
        for _ in range(ROUNDS_MAX):
            if dispatcher.step() is None:
                if not store.requests().requests(state="open") + store.requests().requests(state="running"):
                    break
                self.scheduler.sleep(process, CLAIM_MS)
        return now_ms - LATE_MS - 1_000


class StubRuns(DispatchedRuns):
    """Runs that succeed once for each request, and take their time."""

    def __init__(self, world: ServedWorld, process: Process, store: Ledger) -> None:
        self._world = world
        self._process = process
        self._store = store

    def run(self, request: UpdateRequest, plan: Any) -> RunReport:
        del plan
        world = self._world
        world.scheduler.sleep(self._process, world.dice.randrange(10, world.slow_ms))
        now = self._store.requests().renew(request, CLAIM_MS)
        if now is not None and now.cancel is not None:
            world.outcomes["cancelled in flight"] += 1
            return _report(request, "failed", Cancelled(now.cancel))
        world.ran[request.request_id] += 1
        return _report(request, "success" if world.ran[request.request_id] == 1 else "noop", None)

    def asks_approval(self, request: UpdateRequest) -> bool:
        return False

    def asked_before(self, request: UpdateRequest) -> RequestOutcome | None:
        raise AssertionError("no request asks for it here")

    def preview(self, request: UpdateRequest) -> RunReport:
        raise AssertionError("no request asks for it here")

    def ask_approval(self, request: UpdateRequest, plan: Any) -> bool:
        raise AssertionError("no request asks for it here")

    def plan(self, request: UpdateRequest) -> Any:
        raise AssertionError("no request is bound here")

    def hopeless(self, request: UpdateRequest, run: Run) -> str | None:
        raise AssertionError("no request has a run here")

    def give_up(self, run: Run, reason: str, answer: Any) -> None:
        raise AssertionError("no request has a run here")

    def run_by_id(self, run_id: str) -> Run | None:
        return None

    def find(self, source_id: str) -> tuple[SourceSettings, DatasetSettings]:
        return self._world.source, DatasetSettings(id="d")

    def limits(self, source: SourceSettings) -> RetryLimits:
        return RetryLimits()

    def redact(self, text: str) -> str:
        return text


def _report(request: UpdateRequest, outcome: Any, error: KfmError | None) -> RunReport:
    return RunReport(
        outcome=outcome,
        word=outcome,
        source_id=request.source_id,
        dataset_id=request.dataset_id,
        window_start_ms=request.window_start_ms,
        window_end_ms=request.window_end_ms,
        invocation_id=None,
        reason=error.message if error else outcome,
        error=error,
    )


def _entry(kind: str, schedule_id: str, at_ms: int) -> GovernanceEntry:
    return GovernanceEntry(kind=kind, subject=f"schedule:{schedule_id}", actor="jane", recorded_at_ms=at_ms)
