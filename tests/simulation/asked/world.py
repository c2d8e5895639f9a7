"""One seed's world of requests: services as `kfm serve` runs them, senders, and people who cancel."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from kfm.db.ledger import Ledger
from kfm.model.errors import KfmError
from kfm.model.records import Switch
from kfm.model.schedules import MissedPolicy, Schedule
from kfm.model.settings import DatasetSettings, SourceSettings
from kfm.service import scheduler as scheduling
from kfm.service.dispatcher import CLAIM_MS, Dispatcher
from kfm.service.runner import KEEP_MS, ClaimedRequest
from tests.simulation.adapters import SimClock, SimDatabase
from tests.simulation.asked.admission import AdmittedRuns, SimulatedAdmission
from tests.simulation.asked.checks import Checks
from tests.simulation.asked.messages import Message, made, strange
from tests.simulation.scheduler import CALM, Chances, Process, Scheduler

SOURCES = ("rivers", "wells", "gauges")
LATE_MS = 30_000
ROUNDS = 3
DRAIN_ROUNDS_MAX = 80


class AskedWorld:
    def __init__(self, seed: int, database: Any, chances: Chances | None = None) -> None:
        rng = self.dice = random.Random(f"asked {seed}")
        self.database = database
        weather = chances or Chances(
            crash=rng.choice((0.0, 0.01, 0.03)),
            stall=rng.choice((0.0, 0.005, 0.02)),
            jump=rng.choice((0.0, 0.0, 0.003)),
            fail_before=rng.choice((0.0, 0.01, 0.03)),
            fail_after=rng.choice((0.0, 0.02, 0.05)),
            stall_ms=rng.choice((15_000, 2 * CLAIM_MS)),
        )
        self.scheduler = Scheduler(seed, weather)
        self.scheduler.beside = self._go_on
        self.admission = SimulatedAdmission(self)
        self.checks = Checks(self)
        self.told: set[str] = set()  # requests of which a sender was told that they are accepted
        self.cancelled: set[str] = set()  # by people
        self.disagree = rng.random() < 0.2  # two services have different files
        self.schedules = tuple(self._schedule(name) for name in SOURCES[: rng.choice((1, 2, 3))])
        self._workers: dict[str, Process] = {}
        self._remote: set[str] = set()
        self._numbers = 0
        self._sent: list[Message] = []
        self._paused_until_ms = 0

    def _schedule(self, name: str) -> Schedule:
        rng = self.dice
        return Schedule(
            id=f"of-{name}",
            source=name,
            every_ms=rng.choice((3_000, 10_000, 45_000)),
            jitter_ms=rng.choice((0, 0, 2_000)),
            overlap=rng.choice(("skip", "queue-one", "cancel-older")),
            missed=MissedPolicy(run=rng.choice(("all", "last", "none")), cap=rng.choice((1, 3, 10))),
        )

    # --- what everybody shares --------------------------------------------------------------

    def _go_on(self) -> None:
        """The world outside does not wait."""
        if self.dice.random() < 0.02:
            self.admission.upstream += 1
        if self.dice.random() < 0.001:
            self._paused_until_ms = self.scheduler.now_ms + 20_000

    def is_dead(self, worker_id: str) -> bool:
        """True only if surely dead: no process knows of those on other machines."""
        process = self._workers.get(worker_id)
        return process is not None and process.dead and worker_id not in self._remote

    def find(self, source_id: str) -> tuple[SourceSettings, DatasetSettings]:
        return SourceSettings(id=source_id, dataset=source_id, kind="files", window="PT1S"), DatasetSettings(
            id=source_id
        )

    def switches(self) -> list[Switch]:
        if self.scheduler.now_ms >= self._paused_until_ms:
            return []
        return [Switch(scope="dataset:rivers", position="paused", rationale="r", actor="a", set_at_ms=0)]

    def _store(self, process: Process) -> Ledger:
        return Ledger(self._database(process))

    def _database(self, process: Process) -> SimDatabase:
        clock = SimClock(self.scheduler, process)
        process.facts.setdefault("workers", set())
        return SimDatabase(self.database, self.scheduler, process, clock, self.checks.on_commit)

    def _worker_id(self, process: Process) -> str:
        self._numbers += 1
        worker_id = f"{process.name}-{self._numbers}"
        self._workers[worker_id] = process
        process.facts.setdefault("workers", set()).add(worker_id)
        if self.dice.random() < 0.3:
            self._remote.add(worker_id)
        return worker_id

    # --- who there is ------------------------------------------------------------------------

    def live(self) -> None:
        for number in range(ROUNDS):
            for place in range(self.dice.choice((1, 2, 3))):
                self._service(f"s{number}{place}", rounds=self.dice.choice((4, 10, 25)))
            for place in range(2):
                self.scheduler.spawn(f"sender{number}{place}", self._sender)
            self.scheduler.spawn(f"person{number}", self._person)
            self.scheduler.run()
            self.scheduler.now_ms += self.dice.choice((0, 5_000, 3 * CLAIM_MS))
        self._drain()
        self.checks.at_the_end()

    def _drain(self) -> None:
        """No more trouble; services that start now find all that is left, and end it."""
        self.scheduler.chances = CALM
        self._paused_until_ms = 0
        for number in range(DRAIN_ROUNDS_MAX):
            self.scheduler.now_ms += 60_000
            if all(one.is_settled for one in self.checks.requests().values()):
                return
            self._service(f"end{number}", rounds=6, schedules=False)
            self.scheduler.run()

    def _service(self, name: str, rounds: int, *, schedules: bool = True) -> None:
        """Threads of one program: they die together."""
        held = [ClaimedRequest() for _ in range(self.dice.choice((1, 2)))]
        bodies: list[tuple[str, Callable[[Process], None]]] = [
            *((f"runner{number}", self._runner(one, rounds)) for number, one in enumerate(held)),
            ("claims", self._keeper(held, rounds)),
        ]
        if schedules:
            other = self.disagree and self.dice.random() < 0.5
            bodies.append(("schedules", self._scheduler(rounds, other)))
        kin = [self.scheduler.spawn(f"{name}.{part}", body) for part, body in bodies]
        for process in kin:
            process.kin = kin

    def _runner(self, held: ClaimedRequest, rounds: int) -> Callable[[Process], None]:
        def work(process: Process) -> None:
            for _ in range(rounds):
                try:
                    self._dispatch(process, held, rounds)
                except KfmError:
                    self.scheduler.sleep(process, 1_000)  # and then with another application

        return work

    def _dispatch(self, process: Process, held: ClaimedRequest, rounds: int) -> None:
        store, worker_id = self._store(process), self._worker_id(process)
        runs = AdmittedRuns(self, process, worker_id, held, self._database(process), store.now_ms)
        dispatcher = Dispatcher(store.requests(), runs, worker_id, now_ms=store.now_ms, dead=self.is_dead)
        for _ in range(rounds):
            if dispatcher.step() is None:
                self.scheduler.sleep(process, 1_000)

    def _keeper(self, helds: list[ClaimedRequest], rounds: int) -> Callable[[Process], None]:
        def keep(process: Process) -> None:
            requests = self._store(process).requests()
            for _ in range(rounds):
                self.scheduler.sleep(process, KEEP_MS)
                for held in helds:
                    request = held.request
                    try:
                        renewed = requests.renew(request, CLAIM_MS) if request is not None else None
                    except KfmError:
                        continue
                    if renewed is not None:
                        held.seen(renewed)

        return keep

    def _scheduler(self, rounds: int, other: bool) -> Callable[[Process], None]:
        def keep(process: Process) -> None:
            store = self._store(process)
            schedules = [
                replace(one, every_ms=7_000, jitter_ms=0) if other else one for one in self.schedules
            ]
            scheduler = scheduling.Scheduler(
                store.schedule_states(),
                store.requests(),
                schedules,
                {name: self.find(name)[0] for name in SOURCES},
                now_ms=store.now_ms,
                late_ms=LATE_MS,
                actor="kfm",
            )
            for _ in range(rounds):
                try:
                    scheduler.step()
                except KfmError:
                    self.scheduler.sleep(process, 1_000)
                due_ms = scheduler.next_due_ms()
                rest_ms = 1_000 if due_ms is None else due_ms - store.now_ms()
                self.scheduler.sleep(process, max(10, min(5_000, rest_ms)))

        return keep

    def _sender(self, process: Process) -> None:
        """Sends each message until a service answers, in batches as an intake makes them."""
        store = self._store(process)
        for _ in range(self.dice.choice((1, 3, 6))):
            batch = [self._message() for _ in range(self.dice.choice((1, 1, 3)))]
            while True:
                heard = [one for each in batch if (one := each.received(store.now_ms())) is not None]
                try:
                    store.requests().accept(heard)
                    break
                except KfmError:
                    self.scheduler.sleep(process, 500)
            for one in heard:
                self.checks.told(one.request_id)
                self.told.add(one.request_id)
            self.scheduler.sleep(process, self.dice.choice((10, 2_000, 9_000)))

    def _message(self) -> Message:
        if self._sent and self.dice.random() < 0.2:
            return self.dice.choice(self._sent)
        self._numbers += 1
        now_ms = self.scheduler.now_ms
        message = made(self.dice, self._numbers, self.dice.choice(SOURCES), now_ms)
        if self.dice.random() < 0.2:
            return strange(self.dice, message, now_ms)
        self._sent.append(message)
        return message

    def _person(self, process: Process) -> None:
        requests = self._store(process).requests()
        for _ in range(self.dice.choice((0, 0, 3))):
            self.scheduler.sleep(process, 4_000)
            if not self.told:
                continue
            wanted = self.dice.choice(sorted(self.told))
            self.cancelled.add(wanted)
            try:
                requests.cancel(wanted, "not any more")
            except KfmError:
                continue
