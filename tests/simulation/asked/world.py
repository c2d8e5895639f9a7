"""One seed's world of requests: services as `kfm serve` runs them, senders, timers, and people."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from kfm.db.ledger import Ledger
from kfm.model.errors import KfmError
from kfm.model.records import Window
from kfm.model.requests import RequestPart
from kfm.model.schedules import MissedPolicy, Schedule
from kfm.model.settings import (
    Care,
    DatasetSettings,
    Lease,
    RetrySettings,
    Rights,
    Settings,
    SourceSettings,
    Webhook,
)
from kfm.model.windows import window_of
from kfm.runs.kernel import Kernel
from kfm.service import scheduler as scheduling
from kfm.service.dispatcher import CLAIM_MS
from kfm.service.runner import KEEP_MS, ClaimedRequest, recover
from tests.simulation.adapters import SimClock, SimDatabase
from tests.simulation.asked.checks import Checks
from tests.simulation.asked.messages import Message, made, strange
from tests.simulation.asked.people import SCOPES, People
from tests.simulation.asked.upstream import SimSource, Upstream, pipeline
from tests.simulation.asking import SimulatedRuns, app_of, dispatcher
from tests.simulation.judging import require
from tests.simulation.light import LightKernels
from tests.simulation.scheduler import CALM, Chances, Process, Scheduler

SOURCES = ("rivers", "wells", "gauges")
LATE_MS = 30_000
ROUNDS = 2
DRAIN_ROUNDS_MAX = 150
MINUTE_MS = 60_000
PUBLIC = Rights(license="CC0-1.0", care=Care(label="Public", level="public"))


class AskedWorld:
    has_rules = False  # no right and no policy refuses anything here

    def __init__(self, seed: int, database: Any, chances: Chances | None = None) -> None:
        rng = self.dice = random.Random(f"asked {seed}")
        self.database = database
        weather = chances or Chances(
            crash=rng.choice((0.0, 0.004, 0.01)),
            stall=rng.choice((0.0, 0.002, 0.008)),
            jump=rng.choice((0.0, 0.0, 0.002)),
            fail_before=rng.choice((0.0, 0.005, 0.02)),
            fail_after=rng.choice((0.0, 0.01, 0.03)),
            stall_ms=rng.choice((15_000, 2 * CLAIM_MS)),
        )
        self.scheduler = Scheduler(seed, weather)
        self.scheduler.beside = self._go_on
        self.is_steady = not (weather.stall or weather.jump or weather.fail_before or weather.fail_after)
        self.is_calm = False
        self.has_heartbeat = rng.random() < 0.7
        self.long_work = rng.choice((0.0, 0.1, 0.4))
        self.work_ms_max = rng.choice((5_000, 2 * CLAIM_MS))
        self.sources = SOURCES[: rng.choice((1, 2, 2, 3))]
        self.acts = {name: rng.choice((None, None, "call", "whole")) for name in self.sources}
        self.settings = self._settings()
        self.is_troubled = True
        self.upstream = Upstream(self, seed)
        self.checks = Checks(self)
        self.told: set[str] = set()  # requests of which a sender was told that they are accepted
        self.disagree = rng.random() < 0.2  # two services have different files
        self.schedules = tuple(self._schedule(name) for name in self.sources if rng.random() < 0.5)
        self.people = People(self)
        self._kernels = LightKernels(
            self,
            seed,
            self.settings,
            upstream=lambda process, source, window, circuits: SimSource(
                self, process, source, window, circuits
            ),
            pipeline=lambda process: pipeline(self, process),
            heartbeat=self.has_heartbeat,
        )
        self._workers: dict[str, Process] = {}
        self._remote: set[str] = set()
        self._numbers = 0
        self._sent: list[Message] = []

    def _settings(self) -> Settings:
        rng = self.dice
        provider = rng.choice((None, "all.example"))
        seconds = rng.choice((3.0, 20.0))
        return Settings(
            environment="sim",
            datasets=tuple(DatasetSettings(id=name, domain="water", rights=PUBLIC) for name in self.sources),
            sources=tuple(
                SourceSettings(
                    id=name,
                    dataset=name,
                    kind="files",
                    window="PT1S",
                    output_version="1",
                    pipeline="p.py:f",
                    provider=provider,
                    idempotent=self.acts[name] != "whole",
                    webhook=Webhook(
                        secrets=("env:NEW", "env:OLD"), approval=rng.choice(("none", "none", "required"))
                    ),
                )
                for name in self.sources
            ),
            lease=Lease(seconds=seconds, heartbeat_seconds=seconds / 3),
            retry=RetrySettings(grants_per_day=rng.choice((1, 2, 12))),
        )

    def _schedule(self, name: str) -> Schedule:
        rng = self.dice
        return Schedule(
            id=f"of-{name}",
            source=name,
            every_ms=rng.choice((10_000, 45_000)),
            jitter_ms=rng.choice((0, 0, 2_000)),
            overlap=rng.choice(("skip", "queue-one", "cancel-older")),
            missed=MissedPolicy(run=rng.choice(("all", "last", "none")), cap=rng.choice((1, 3))),
        )

    # --- what everybody shares --------------------------------------------------------------

    def _go_on(self) -> None:
        """The world outside does not wait."""
        if not self.is_calm and self.dice.random() < 0.01:
            self.upstream.change(self.dice.choice(self.sources), self.dice.choice((1, 2)) * 1_000)

    def process_of(self, worker_id: str | None) -> Process | None:
        return self._workers.get(worker_id or "")

    def is_dead(self, worker_id: str) -> bool:
        """True only if surely dead: no process knows of those on other machines."""
        process = self._workers.get(worker_id)
        return process is not None and process.dead and worker_id not in self._remote

    def is_gone(self, worker_id: str) -> bool:
        """Is its process gone, whether or not that is known?"""
        process = self._workers.get(worker_id)
        return process is None or process.dead or process.done

    def store(self, process: Process) -> Ledger:
        clock = SimClock(self.scheduler, process)
        checks = self.checks
        return Ledger(
            SimDatabase(
                self.database, self.scheduler, process, clock, checks.on_commit, checks.circuits.on_look
            )
        )

    def worker_id(self, process: Process) -> str:
        self._numbers += 1
        worker_id = f"{process.name}-{self._numbers}"
        self._workers[worker_id] = process
        process.facts.setdefault("workers", set()).add(worker_id)
        if self.dice.random() < 0.3:
            self._remote.add(worker_id)
        return worker_id

    def kernel(self, process: Process) -> Kernel:
        return self._kernels.make(process, self.store(process))

    # --- who there is ------------------------------------------------------------------------

    def live(self) -> None:
        dice = self.dice
        for number in range(ROUNDS):
            for place in range(dice.choice((1, 2))):
                self._service(f"s{number}{place}", rounds=dice.choice((4, 10, 20)))
            for place in range(dice.choice((1, 2))):
                self.scheduler.spawn(f"sender{number}{place}", self._sender)
            for place in range(dice.choice((1, 2, 3))):
                self.scheduler.spawn(f"person{number}{place}", self.people.live)
            part: RequestPart = dice.choice(("retries", "bursts"))
            if dice.random() < 0.5:
                self.scheduler.spawn(f"timer{number}", lambda process, part=part: self._timer(process, part))
            self.scheduler.run()
            self.scheduler.now_ms += dice.choice((0, 5_000, 3 * CLAIM_MS, 40 * MINUTE_MS, 7 * 60 * MINUTE_MS))
        self._drain()
        self.checks.at_the_end()

    def _drain(self) -> None:
        """No more trouble; services that start now find all that is left, and end it."""
        self.scheduler.chances = CALM
        self.is_calm = True
        self.upstream.mend()
        self.scheduler.spawn("governor", self._lift)
        self.scheduler.run()
        is_looked_after = False
        for number in range(DRAIN_ROUNDS_MAX):
            self._service(f"end{number}", rounds=4, schedules=False, runners=1)
            self.scheduler.spawn(f"decider{number}", self._decide)
            self.scheduler.run()
            due_ms = self.checks.next_due_ms()
            if due_ms is None and (is_looked_after or not self.checks.starts.promised()):
                return
            is_looked_after = due_ms is None  # what was released at the last moment gets its request now
            self.scheduler.now_ms = max(self.scheduler.now_ms + 1_000, due_ms or 0)
        require(False, "every request has an end", left=self.checks.unsettled())

    def _lift(self, process: Process) -> None:
        kernel = self.kernel(process)
        for scope in SCOPES:
            self.people.set_switch(kernel, scope, "running")

    def _decide(self, process: Process) -> None:
        """A person looks at all that waits for a decision."""
        kernel = self.kernel(process)
        for _ in range(5):
            if not self.people.decide(kernel, approve=self.dice.random() < 0.7):
                return

    # --- services ------------------------------------------------------------------------------

    def _service(self, name: str, rounds: int, *, schedules: bool = True, runners: int | None = None) -> None:
        """Threads of one program: they die together."""
        held = [ClaimedRequest() for _ in range(runners or self.dice.choice((1, 2)))]
        bodies: list[tuple[str, Callable[[Process], None]]] = [
            *((f"runner{number}", self._runner(one, rounds)) for number, one in enumerate(held)),
            ("recovery", self._recovery(rounds)),
        ]
        if schedules and self.schedules:
            other = self.disagree and self.dice.random() < 0.5
            bodies.append(("schedules", self._scheduler(rounds, other)))
        kin = [self.scheduler.spawn(f"{name}.{part}", body) for part, body in bodies]
        at_work = kin[: len(held)]
        kin.append(self.scheduler.spawn(f"{name}.claims", self._keeper(held, at_work)))
        for process in kin:
            process.kin = kin

    def _runner(self, held: ClaimedRequest, rounds: int) -> Callable[[Process], None]:
        former: list[str] = []

        def work(process: Process) -> None:
            left = rounds
            while left > 0:
                left -= 1
                try:
                    kernel = self.kernel(process)
                    while former:
                        kernel.store.requests().give_back(former[-1])
                        former.pop()
                    former.append(kernel.worker_id)
                    left = self._dispatch(kernel, process, held, left)
                except KfmError:
                    self.scheduler.sleep(process, 1_000)  # and then with another application

        return work

    def _dispatch(self, kernel: Kernel, process: Process, held: ClaimedRequest, rounds: int) -> int:
        worker = self._dispatcher(kernel, process, "all", holding=held.holding)
        for left in range(rounds, 0, -1):
            request = worker.step()
            if request is not None:
                self.checks.starts.given_back(process, request.request_id, kernel.worker_id)
            elif self.is_calm:
                return 0
            else:
                self.scheduler.sleep(process, 1_000)
            if left == 1:
                return 0
        return 0

    def _dispatcher(self, kernel: Kernel, process: Process, part: RequestPart, **more: Any) -> Any:
        app = app_of(kernel, self.settings)
        process.facts["part"] = part
        runs = SimulatedRuns(app, process, self.checks.starts, self.checks.reported)
        return dispatcher(app, runs, part=part, **more)

    def _timer(self, process: Process, part: RequestPart) -> None:
        """As `kfm retry --due --watch`, and as a worker without a service."""
        for _ in range(self.dice.choice((3, 8))):
            try:
                kernel = self.kernel(process)
                recover(app_of(kernel, self.settings))
                if part == "bursts":
                    self._close(kernel)
                worker = self._dispatcher(kernel, process, part)
                while (request := worker.step()) is not None:
                    self.checks.starts.given_back(process, request.request_id, kernel.worker_id)
            except KfmError:
                pass
            self.scheduler.sleep(process, self.dice.choice((1_000, 30_000)))

    def _recovery(self, rounds: int) -> Callable[[Process], None]:
        def keep(process: Process) -> None:
            kernel = self.kernel(process)
            for _ in range(2 if self.is_calm else rounds):
                try:
                    recover(app_of(kernel, self.settings))
                    self._close(kernel)
                except KfmError:
                    pass
                self.scheduler.sleep(process, 2_000)

        return keep

    def _close(self, kernel: Kernel) -> None:
        """Arrivals become requests."""

        def period(source_id: str, at_ms: int) -> Window:
            return window_of(self.settings.source(source_id).window, "UTC", at_ms)

        kernel.store.bursts().close_due(0 if self.is_calm else 3_000, period, lambda source: source, "kfm")

    def _keeper(self, helds: list[ClaimedRequest], runners: list[Process]) -> Callable[[Process], None]:
        def keep(process: Process) -> None:
            requests = self.store(process).requests()
            while any(not one.done for one in runners):
                self.scheduler.sleep(process, KEEP_MS)
                for held in helds:
                    request = held.request
                    try:
                        if request is not None:
                            requests.renew(request, CLAIM_MS)
                    except KfmError:
                        continue

        return keep

    def _scheduler(self, rounds: int, other: bool) -> Callable[[Process], None]:
        def keep(process: Process) -> None:
            store = self.store(process)
            schedules = [
                replace(one, every_ms=7_000, jitter_ms=0) if other else one for one in self.schedules
            ]
            scheduler = scheduling.Scheduler(
                store.schedule_states(),
                store.requests(),
                schedules,
                {one.id: one for one in self.settings.sources},
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

    # --- senders ---------------------------------------------------------------------------------

    def _sender(self, process: Process) -> None:
        """Sends each message until a service answers, in batches as an intake makes them."""
        store = self.store(process)
        for _ in range(self.dice.choice((1, 2, 4))):
            batch = [self._message() for _ in range(self.dice.choice((1, 1, 3)))]
            while True:
                heard = [
                    one for each in batch if (one := each.received(self.settings, store.now_ms())) is not None
                ]
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
        message = made(self.dice, self._numbers, self.dice.choice(self.sources), now_ms)
        if self.dice.random() < 0.2:
            return strange(self.dice, message, now_ms)
        self._sent.append(message)
        return message
