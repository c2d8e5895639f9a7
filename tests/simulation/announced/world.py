"""One seed's world of announced objects: pollers and workers as `kfm worker` runs them, on one ledger."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kfm.calls.breakers import BreakerAccess, SharedBreakers
from kfm.calls.guarded_clients import CircuitGuard, GuardedUpstream
from kfm.db.ledger import Ledger
from kfm.lineage.delivery import deliver_messages
from kfm.model.breaker import circuit_name
from kfm.model.errors import KfmError
from kfm.model.gates import switch_gate
from kfm.model.records import GateResult
from kfm.model.settings import Ingest, IngestPolicy
from kfm.model.units import (
    TOPIC,
    ClaimedUnit,
    ClaimRequest,
    ExchangeReport,
    IntakeBatch,
    IntakeReport,
    IntakeUnit,
    ResultBatch,
    UnitFailure,
    UnitSuccess,
)
from kfm.nodd.inspect.inspection import make_inspector
from kfm.nodd.intake import KeyCache
from kfm.nodd.poller import Poller
from kfm.nodd.worker import IngestContext, Worker
from kfm.nodd.worker_loop import WorkerLoop, WorkerTotals, due_in_ms, poll_until_stopped
from kfm.periodic import PeriodicTask
from tests.simulation.adapters import SimClock, SimDatabase, SimIds, SimRng
from tests.simulation.announced import followers, people
from tests.simulation.announced.checks import Checks
from tests.simulation.announced.feed import Feed, Thing, registry
from tests.simulation.announced.surroundings import (
    Line,
    Shelf,
    SimCollector,
    SimObjects,
    SimQueue,
)
from tests.simulation.judging import Violation
from tests.simulation.scheduler import CALM, Chances, Crashed, Process, Scheduler

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
YEAR_MS = 365 * 24 * HOUR_MS
DATASETS = ("hrrr", "nexrad-l2", "gauges")
ROUNDS_MAX = 400  # of the end, in which all that is left is done


class AnnouncedWorld:
    has_rules = False

    def __init__(self, seed: int, database: Any, chances: Chances | None = None) -> None:
        rng = self.dice = random.Random(f"announced {seed}")
        self.seed = seed
        self.database = database
        weather = chances or Chances(
            crash=rng.choice((0.0, 0.003, 0.01)),
            stall=rng.choice((0.0, 0.004, 0.01)),
            jump=rng.choice((0.0, 0.0, 0.002)),
            fail_before=rng.choice((0.0, 0.005, 0.02)),
            fail_after=rng.choice((0.0, 0.01, 0.03)),
            power_cut=rng.choice((0.0, 0.0, 0.002)),
            stall_ms=rng.choice((15_000, 60_000, 11 * MINUTE_MS)),
        )
        self.scheduler = Scheduler(seed, weather)
        self._weather = weather
        self.scheduler.on_power_cut = self._cut_power
        self.feed = Feed(seed, self.scheduler.now_ms)
        self.settings = Ingest(
            policies=tuple(self._policy(name) for name in DATASETS),
            batch=rng.choice((1, 3, 10)),
            visibility_seconds=rng.choice((5.0, 20.0)),
            safety_seconds=1.0,
        )
        self.has_look = rng.random() < 0.85
        self.outages = [
            (self.scheduler.now_ms + rng.randrange(20_000), rng.choice((5_000, 60_000, 20 * MINUTE_MS)))
            for _ in range(rng.choice((0, 0, 1, 2)))
        ]
        self.is_over = False
        self.is_governed = rng.random() < 0.4
        self.takes_time = 0.7 if self.is_governed else rng.choice((0.0, 0.1, 0.5))  # some units do
        self.collector_away = rng.choice((0.0, 0.3, 0.9))
        self.arrived: dict[str, str] = {}
        self.shelf = Shelf()
        self.downstream = ((followers.FOLLOWED, followers.FOLLOWER),) if rng.random() < 0.3 else ()
        self.window_ms = rng.choice((1_000, 60_000))
        self.project = followers.project()
        self.kernels = followers.kernels(self)
        self.is_troubled = False
        self.replicas = ("shelf",) if rng.random() < 0.4 else ()
        self.replica_away = rng.choice((0.0, 0.0, 0.5))
        self.slow = bool(self.replicas) and rng.random() < 0.3  # claims of replicas last for minutes
        self.dead_workers: dict[str, Process] = {}
        self.remote: set[str] = set()
        self._draw_clocks()
        for thing in self.feed.things.values():
            thing.versioned = self.has_look and thing.sequenced and self.clocks.random() < 0.25
        self.checks = Checks(self)
        self.lines = [Line(self, f"q{number}") for number in range(rng.choice((1, 1, 2)))]
        self.outcomes: Counter[str] = Counter()
        self._names = 0

    def _draw_clocks(self) -> None:
        """On a server the ledger has a clock of its own: workers may be far off, and it may be set far ahead
        for a while. In a file each process has the only one."""
        rng = self.clocks = random.Random(f"clocks {self.seed}")
        self.has_server = rng.random() < 0.5 and not self.downstream
        self.ahead: list[tuple[int, int, int]] = []  # from when, for how long, by how much
        if self.has_server and rng.random() < 0.6:
            start_ms = self.scheduler.now_ms + rng.randrange(5_000)
            self.ahead.append(
                (start_ms, rng.choice((2_000, 20_000)), rng.choice((HOUR_MS, YEAR_MS, YEAR_MS)))
            )

    @property
    def was_years_ahead(self) -> bool:
        return any(by_ms >= YEAR_MS for _start_ms, _lasts_ms, by_ms in self.ahead)

    def ledger_clock(self, process: Process) -> SimClock:
        return ServerClock(self, process) if self.has_server else SimClock(self.scheduler, process)

    def _policy(self, dataset: str) -> IngestPolicy:
        rng = self.dice
        return IngestPolicy(
            datasets=(dataset,),
            integrity=rng.choice(
                ("announced", "announced", "head", "magic" if dataset == "hrrr" else "head")
            ),
            reissue=rng.choice(("update", "update", "update", "ignore")),
            removal=rng.choice(("keep", "remove")),
        )

    # --- what everybody shares --------------------------------------------------------

    def go_on(self) -> None:
        """The world outside does not wait."""
        for posted in self.feed.advance(self.scheduler.now_ms):
            self.dice.choice(self.lines).put(posted)

    def away(self) -> bool:
        now_ms = self.scheduler.now_ms
        return not self.is_over and any(start <= now_ms < start + lasts for start, lasts in self.outages)

    def process_of(self, worker_id: str | None) -> Process | None:
        return self.dead_workers.get(worker_id or "")

    def is_dead(self, worker_id: str) -> bool:
        process = self.dead_workers.get(worker_id)
        return process is not None and process.dead and worker_id not in self.remote

    def dead(self) -> list[str]:
        return sorted(filter(self.is_dead, self.dead_workers))

    def worker_id(self, process: Process) -> str:
        """Of an application; its process is known by it."""
        self._names += 1
        worker_id = f"{process.name}-{self._names}"
        self.dead_workers[worker_id] = process
        return worker_id

    def _cut_power(self) -> None:
        for process in self.scheduler.processes:
            process.die()

    def store(self, process: Process) -> Ledger:
        clock = self.ledger_clock(process)
        database = SimDatabase(self.database, self.scheduler, process, clock, self.checks.on_commit)
        return Ledger(database)

    def kernel(self, process: Process) -> tuple[IngestContext, Ledger]:
        scheduler, store = self.scheduler, self.store(process)
        if self.has_server and not process.wall_offset_ms:
            process.wall_offset_ms = self.clocks.choice((0, -HOUR_MS, -HOUR_MS // 3, 25 * HOUR_MS))
        clock = SimClock(scheduler, process)
        worker_id = SimIds(f"{process.name}/{self._names}", clock).new()
        self.dead_workers[worker_id] = process
        if self.dice.random() < 0.4:
            self.remote.add(worker_id)
        breakers = SharedBreakers(BreakerAccess(store, store, lambda: self.store(process)), clock)
        objects = SimObjects(self.feed, self.away, scheduler, process)
        guarded = GuardedUpstream(
            objects, lambda provider: CircuitGuard(breakers.circuit(circuit_name(provider)), clock)
        )

        def gate(dataset: str, in_flight: bool) -> GateResult:
            return switch_gate(store.switches(), dataset, "none", in_flight)

        def circuit_open_until(provider: str) -> int | None:
            return breakers.circuit(circuit_name(provider)).due_ms(0, worker_id) or None

        kernel = IngestContext(
            settings=self.settings,
            wal=Noted(store.units(), process),  # type: ignore[arg-type]
            registry=registry(),
            clock=clock,
            rng=SimRng(self.dice),
            worker_id=worker_id,
            ingest_run_id=worker_id,
            keys=KeyCache(registry()),
            gate=gate,
            policy_epoch=store.policy_epoch,
            inspect=make_inspector(guarded, _media_type) if self.has_look else None,
            circuit_open_until=circuit_open_until,
            replicas=self.replicas,
            downstream=self.downstream,
            map_units=lambda work, units, _wait: self._spread(process, work, units),
        )
        return kernel, store

    def _spread(
        self,
        process: Process,
        work: Callable[[ClaimedUnit], UnitSuccess | UnitFailure],
        units: Iterable[ClaimedUnit],
    ) -> Iterable[UnitSuccess | UnitFailure]:
        """One after the other; some objects kill the process that looks at them."""
        for one in units:
            self.scheduler.point(process, "unit")
            if not self.is_over and self.dice.random() < self.takes_time:
                self.scheduler.sleep(process, self.dice.randrange(10, 4_000))
            thing = self.feed.things[one.object_uri]
            if thing.poison > 0:
                thing.poison -= 1
                self.scheduler.counts["poisoned"] += 1
                process.die()
                raise Crashed
            yield work(one)

    # --- processes --------------------------------------------------------------------

    def _start(self, name: str, body: Callable[[Process], None]) -> None:
        self._names += 1
        self.scheduler.spawn(f"{name}{self._names}", body)

    def _work(self, process: Process, lasts_ms: int, *, polls: bool) -> None:
        """As `kfm worker`: it ends where the ledger can't be reached, and is started again."""
        until_ms = self.scheduler.now_ms + lasts_ms
        while self.scheduler.now_ms < until_ms:
            try:
                self._service(process, until_ms, polls=polls).run_until_stopped()
            except KfmError as error:
                self.outcomes[f"worker {error.code}"] += 1
                self.scheduler.sleep(process, self.dice.choice((50, 3_000)))

    def _service(self, process: Process, until_ms: int, *, polls: bool) -> WorkerLoop:
        made, store = self.kernel(process)
        kernel = dataclasses.replace(made, stopping=lambda: self.scheduler.now_ms >= until_ms)
        wal = kernel.wal
        tasks = [
            PeriodicTask("lapsed leases", 4_000, lambda: wal.reap_units(self.dice.random(), self.dead())),
            PeriodicTask("figures", 9_000, lambda: wal.fold_counts(self.dice.choice((2, 10_000)))),
            PeriodicTask("lineage", 7_000, lambda: self._deliver(store, process)),
        ]
        if self.downstream:
            tasks.append(PeriodicTask("bursts", 5_000, followers.arrivals(self, store, process).step))
        if self.replicas:
            tasks.append(PeriodicTask("replicas", 5_000, followers.replicator(self, store, process).step))
        return WorkerLoop(
            Worker(kernel),
            kernel.clock,
            totals=WorkerTotals(),
            pollers=self._pollers(kernel, process) if polls else [],
            maintenance=[task for task in tasks if self.is_over or self.dice.random() < 0.8],
            stopping=kernel.stopping,
            rest=lambda delay_ms: self.rest(process, delay_ms),
            rate=self.dice.choice((None, None, 2.0)) if not self.is_over else None,
            due_in_ms=lambda: due_in_ms(wal),
        )

    def _pollers(self, kernel: IngestContext, process: Process) -> list[Poller]:
        return [Poller(kernel, SimQueue(line, process)) for line in self.lines]

    def _poll(self, process: Process, line: Line, lasts_ms: int) -> None:
        until_ms = self.scheduler.now_ms + lasts_ms
        kernel, _ = self.kernel(process)
        poll_until_stopped(
            Poller(kernel, SimQueue(line, process)),
            WorkerTotals(),
            wait_ms=0,
            stopping=lambda: self.scheduler.now_ms >= until_ms,
            rest=lambda delay_ms: self.rest(process, delay_ms),
        )

    def rest(self, process: Process, delay_ms: int) -> None:
        """Longer than asked for: waking up for nothing tells nothing."""
        factor = self.dice.choice((1, 60, 200) if self.slow else (1, 5, 10))
        self.scheduler.sleep(process, min(delay_ms * factor, 5 * MINUTE_MS))

    def _deliver(self, store: Ledger, process: Process) -> None:
        deliver_messages(
            store,
            lambda: SimCollector(self, process),
            SimClock(self.scheduler, process),
            topic=TOPIC,
            batch=10,
            deadline_ms=5_000,
        )

    # --- a whole life -----------------------------------------------------------------

    def live(self) -> None:
        rng = self.dice
        for _ in range(rng.randrange(1, 3)):
            lasts_ms = 20 * MINUTE_MS if self.slow else rng.choice((3_000, 15_000, 60_000))
            for _ in range(rng.randrange(15)):
                self.go_on()
            for line in self.lines:
                if rng.random() < 0.7:
                    self._start(
                        "p", lambda process, line=line, lasts=lasts_ms: self._poll(process, line, lasts)
                    )
            for _ in range(rng.randrange(1, 4)):
                polls = rng.random() < 0.4
                self._start(
                    "w",
                    lambda process, lasts=lasts_ms, polls=polls: self._work(process, lasts, polls=polls),
                )
            for _ in range(rng.randrange(1, 4) if self.slow else 0):
                self._start("c", lambda process, lasts=lasts_ms: followers.carry(self, process, lasts))
            if self.is_governed:
                self._start("g", lambda process: people.govern(self, process))
            self.scheduler.run()
        self._finish()

    def _finish(self) -> None:
        """Everything is repaired; a healthy worker does what is left."""
        self.is_over = True
        self.scheduler.chances = CALM
        self._start("governor", lambda process: people.lift(self, process))
        self.scheduler.run()
        self._settle()
        failed = self.checks.to_be_mended()
        if failed and self.dice.random() < 0.6:
            self._bring_back(failed)
        for thing in self.checks.to_be_mended():
            self.feed.happen(thing, "put", self.scheduler.now_ms, good=True)
        self._settle()
        if self.shelf.has_untold or (self.replicas and self.dice.random() < 0.1):
            self.scheduler.counts["compared"] += 1
            self._start("compare", lambda process: followers.compare(self, process))
            self.scheduler.run()
            self._settle()
        self.checks.at_the_end()

    def _bring_back(self, failed: Sequence[Thing]) -> None:
        """Two people have the same idea, some objects come back by themselves, the weather is as before."""
        self.scheduler.chances = self._weather
        for thing in failed:
            if self.dice.random() < 0.3:
                self.feed.happen(thing, "put", self.scheduler.now_ms, good=True)
        self._start("w", lambda process: self._work(process, 5_000, polls=True))
        for dataset in DATASETS:
            for _ in range(2):
                self._start("r", lambda process, dataset=dataset: people.replay(self, process, dataset))
        self.scheduler.run()
        self.scheduler.chances = CALM
        self._settle()

    def _settle(self) -> None:
        """Until nothing waits. Time passes only where it must."""
        for _ in range(ROUNDS_MAX):
            self._start("final", lambda process: self._final(process))
            self.scheduler.run()
            next_ms = self._next_ms()
            if next_ms is None:
                return
            self.checks.nothing_waits_for_years()
            # What is due and was not done waits for another time: a circuit's, or a claim's.
            now_ms = self.scheduler.now_ms
            self.scheduler.now_ms = next_ms if next_ms > now_ms else now_ms + MINUTE_MS
        raise Violation("it never settles")

    def _final(self, process: Process) -> None:
        while not self.feed.is_over:
            self.go_on()
        self._service(process, self.scheduler.now_ms + 10_000 * MINUTE_MS, polls=True).run_until_idle()

    def _next_ms(self) -> int | None:
        """When something is due again; None: all is done."""
        hidden = [copy.visible_ms for line in self.lines for copy in line.copies.values()]
        execute = self.database._connection.execute
        due = "SELECT MIN(CASE status WHEN 'pending' THEN not_before_ms ELSE lease_until_ms END) FROM units"
        ((unit_ms,),) = execute(f"{due} WHERE status IN ('pending', 'in_progress')").fetchall()
        ((message_ms,),) = execute(
            "SELECT MIN(not_before_ms) FROM outbox WHERE topic = ? AND delivered_at_ms IS NULL", (TOPIC,)
        ).fetchall()
        ((owed_ms,),) = execute("SELECT MIN(not_before_ms) FROM replica_items WHERE wanted > sent").fetchall()
        asked_ms = self.checks.starts.next_due_ms()
        ((member_ms,),) = execute("SELECT MIN(at_ms) FROM burst_members").fetchall()
        closes_ms = None if member_ms is None else member_ms + self.window_ms
        due = (*hidden, unit_ms, message_ms, owed_ms, asked_ms, closes_ms)
        return min((one for one in due if one is not None), default=None)


def _media_type(dataset: str) -> str:
    found = registry().find(dataset)
    return found.media_type if found is not None else "application/octet-stream"


class ServerClock(SimClock):
    """The ledger's clock, which is the same for everybody."""

    def __init__(self, world: AnnouncedWorld, process: Process) -> None:
        super().__init__(world.scheduler, process)
        self._world = world

    def now_ms(self) -> int:
        now_ms, world = self._world.scheduler.now_ms, self._world
        jumps = [] if world.is_over else world.ahead
        by = sum(by_ms for start_ms, lasts_ms, by_ms in jumps if start_ms <= now_ms < start_ms + lasts_ms)
        if by:
            world.scheduler.counts["ledger ahead"] += 1
        return now_ms + by


class Noted:
    """The ledger of units; what is taken in is told to the checks once it is durable."""

    def __init__(self, units: Any, process: Process) -> None:
        self._units = units
        self._process = process

    def take_in(self, intake: IntakeBatch) -> IntakeReport:
        self._process.facts["intake"] = intake
        try:
            return self._units.take_in(intake)
        finally:
            self._process.facts.pop("intake", None)

    def exchange(
        self, finish: ResultBatch | None, claim: ClaimRequest | None, fresh: Sequence[IntakeUnit] = ()
    ) -> ExchangeReport:
        self._process.facts["intake"] = IntakeBatch(arrivals=tuple(fresh))
        try:
            return self._units.exchange(finish, claim, fresh)
        finally:
            self._process.facts.pop("intake", None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._units, name)
