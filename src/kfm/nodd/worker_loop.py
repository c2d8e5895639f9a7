"""The worker loop: poll, process units, run maintenance; its threads, and how they end with no claim left."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from kfm.audit.chain import seal_all
from kfm.decoders import prepare_decoders
from kfm.lineage.collectors import RUN_DELIVERY_MS, deliver, lineage_export
from kfm.model.audit import UNITS
from kfm.model.errors import (
    BackendUnavailable,
    KfmError,
    StoreCorrupt,
    StoreTooNew,
    StoreUnsafe,
    outage_of,
)
from kfm.model.records import Record
from kfm.model.retry import backoff_ms, spread_ms
from kfm.model.retry_budgets import unit_policy
from kfm.model.units import IntakeBatch, IntakeReport
from kfm.nodd.downstream import Followers
from kfm.nodd.ingest import NoddIngest
from kfm.nodd.poller import IntakeExchange, Poller, PollReport
from kfm.nodd.unit_evidence import UnitDeliveries, deliver_events
from kfm.nodd.worker import StepReport, Worker
from kfm.periodic import PeriodicTask, repeat, run_due
from kfm.ports import Clock

if TYPE_CHECKING:
    from kfm.app import App
    from kfm.db.units import UnitReader, Units
    from kfm.ports import Queue


IDLE_MS_MAX = 1_000  # how long new work of other processes may go unseen
SHORT_POLL_MS = 200  # where no other thread works meanwhile
TOGETHER_MS = 20  # how long results wait for intake to share a transaction with
STOP_CHECK_MS = 200  # how often a wait for pollers checks whether to stop
TROUBLE_MS = 1_000
TROUBLE_MS_MAX = 30_000
LASTING = (StoreCorrupt, StoreTooNew, StoreUnsafe)  # waiting does not help
logger = logging.getLogger(__name__)
LONG_POLL_MS = 10_000
FOLDER_POLL_MS = 1_000
JOINED_S = 12.0  # a long poll ends by then
REAP_MS = 5_000
DEAD_LOOKS_MAX = 3  # at the units of a worker that died
FOLD_MS = 5_000
FOLDED = 10_000  # changes in one transaction
FOLDS_MAX = 50
DELIVER_MS = 5_000
OVERDUE_MS = 60_000
FAN_OUT_MS = 2_000
UNIT_EVENTS_MS = 1_000
SEAL_MS = 60_000
SEAL_MIN = 100


class WorkerCounts(Record, frozen=True):
    """What a worker has done since it started."""

    messages: int = 0
    ignored: int = 0
    created: int = 0
    duplicate: int = 0
    reissued: int = 0
    stale: int = 0
    reissues_ignored: int = 0
    removed: int = 0
    dead: int = 0
    succeeded: int = 0
    failed: int = 0
    put_back: int = 0
    lost: int = 0


class WorkerTotals:
    """Adds up the reports of pollers and the worker."""

    def __init__(self) -> None:
        self._sums = dict.fromkeys(WorkerCounts.__struct_fields__, 0)
        self._lock = threading.Lock()  # every queue has a thread

    def add_poll(self, report: PollReport) -> None:
        with self._lock:
            self._sums["messages"] += report.messages
            self._sums["ignored"] += report.ignored
            for name in IntakeReport.__struct_fields__:
                self._sums[name] += getattr(report.intake, name)

    def add_step(self, report: StepReport) -> None:
        with self._lock:
            for name in ("succeeded", "failed", "put_back", "lost"):
                self._sums[name] += getattr(report, name)

    @property
    def counts(self) -> WorkerCounts:
        return WorkerCounts(**self._sums)


class WorkerLoop:
    """Runs one worker, and the pollers that have no thread of their own."""

    def __init__(
        self,
        worker: Worker,
        clock: Clock,
        *,
        totals: WorkerTotals,
        pollers: Sequence[Poller] = (),
        exchange: IntakeExchange | None = None,
        maintenance: Sequence[PeriodicTask] = (),
        stopping: Callable[[], bool] = lambda: False,
        rest: Callable[[int], object],
        rate: float | None = None,
        progress: Callable[[WorkerCounts], None] = lambda _counts: None,
        due_in_ms: Callable[[], int | None] = lambda: None,
        has_input: Callable[[], bool] = lambda: False,
        unit_random: Callable[[], float] = lambda: 0.5,
    ) -> None:
        self._worker = worker
        self._clock = clock
        self._totals = totals
        self._pollers = pollers
        self._exchange = exchange  # with pollers in threads of their own
        self._maintenance = maintenance
        self._stopping = stopping
        self._rest = rest  # waits, unless the process is to stop
        self._rate = rate
        self._progress = progress
        self._due_in_ms = due_in_ms  # by the ledger's clock; None: nothing waits
        self._has_input = has_input  # a stream that has not ended is not idle, however long it is silent
        self._unit_random = unit_random  # spreads the waits of many workers
        self._next_ms = clock.monotonic_ms()  # with a rate: nothing is processed before

    # --- three modes ---------------------------------------------------------------------

    def run_once(self) -> WorkerCounts:
        """Poll each queue once, and process what is due then."""
        self._maintain(everything=True)
        self._poll_and_process(SHORT_POLL_MS)
        self._process_due()
        self._maintain(everything=True)
        return self._totals.counts

    def run_until_idle(self) -> WorkerCounts:
        """Until the queues are empty and nothing is due. What is due later is not waited for."""
        self._maintain(everything=True)
        while not self._stopping():
            messages, units = self._poll_and_process(SHORT_POLL_MS)
            units = units or self._process_due()
            self._maintain()
            if not messages and not units and not self._is_due() and not self._has_input():
                break
        self._maintain(everything=True)
        return self._totals.counts

    def run_until_stopped(self) -> WorkerCounts:
        """A ledger that is unavailable is waited for."""
        failures = 0  # of the ledger, in a row
        while not self._stopping():
            try:
                messages, units = self._poll_and_process(0)
                units = units or self._process_batch()
                self._maintain()
                idle_ms = 0 if messages or units else self._idle_ms()
                failures = 0
            except BackendUnavailable as error:
                if isinstance(error, LASTING):
                    raise
                failures += 1
                idle_ms = spread_ms(backoff_ms(TROUBLE_MS, TROUBLE_MS_MAX, failures), self._unit_random())
                logger.warning(
                    "%s The worker goes on in %d s",
                    error,
                    idle_ms // 1000,
                    extra={"code": error.code, **outage_of(error)},
                )
            if idle_ms:
                self._wait_for_work(idle_ms, in_trouble=failures > 0)
        if self._exchange is not None:
            self._exchange.close()
        self.drain()
        self._maintain(everything=True)
        return self._totals.counts

    def drain(self) -> None:
        """Finish the claimed units. Anything long starts with this, or their leases would lapse meanwhile."""
        self._record(self._worker.drain())
        while self._worker.is_busy:
            self._record(self._worker.drain())

    # --- polling -------------------------------------------------------------------------

    def _poll_and_process(self, wait_ms: int) -> tuple[int, int]:
        """How many messages there were; and how many units were processed, or claimed, with them."""
        messages = units = 0
        for poller in self._pollers:
            if not self._shares_transactions():
                polled = poller.step(wait_ms)
            else:
                received = poller.receive(wait_ms)
                if received is None:
                    continue
                step = self._worker.step(received.intake)
                polled = poller.acknowledge(received, step.intake)
                units += self._record(step)
            self._totals.add_poll(polled)
            messages += polled.messages
        if self._exchange is not None and self._shares_transactions():
            offers, processed = self._serve_offer(self._exchange)
            messages, units = messages + offers, units + processed
        return messages, units

    def _shares_transactions(self) -> bool:
        """Does intake wait for the worker's next commit? Not with a rate, where nothing is claimed ahead,
        nor behind requests upstream, which take longer than a message should wait."""
        return self._rate is None and not self._worker.reads_objects

    def _serve_offer(self, exchange: IntakeExchange) -> tuple[int, int]:
        """Take in what a poller's thread offers; that thread acknowledges it and counts it."""
        units = 0

        def take_in(intake: IntakeBatch) -> IntakeReport:
            nonlocal units
            step = self._worker.step(intake)
            units = self._record(step)
            return step.intake

        return int(exchange.serve(take_in, TOGETHER_MS if self._worker.may_wait else 0)), units

    def _wait_for_work(self, delay_ms: int, *, in_trouble: bool) -> None:
        """Nothing is due: rest, but end the rest for an offer, unless the ledger is unavailable."""
        if self._exchange is None or in_trouble or not self._shares_transactions():
            self._rest(delay_ms)
            return
        for left_ms in range(delay_ms, 0, -STOP_CHECK_MS):
            if self._stopping() or self._exchange.wait(min(left_ms, STOP_CHECK_MS)):
                return

    # --- processing ----------------------------------------------------------------------

    def _process_due(self) -> int:
        count = 0
        while not self._stopping():
            units = self._process_batch()
            if not units:
                break
            count += units
        self.drain()
        return count

    def _process_batch(self) -> int:
        if not self._keep_rate():
            return 0
        # With a rate nothing is claimed ahead: its lease would go by while it waits for its turn.
        step = self._worker.step(ahead=self._rate is None)
        ended = step.succeeded + step.failed + step.lost
        if self._rate is not None and ended:
            self._next_ms = max(self._next_ms, self._clock.monotonic_ms()) + round(ended / self._rate * 1000)
        return self._record(step)

    def _record(self, step: StepReport) -> int:
        self._totals.add_step(step)
        self._progress(self._totals.counts)
        return step.succeeded + step.failed + step.put_back + step.lost + step.claimed

    def _keep_rate(self) -> bool:
        """Wait for the rate, with maintenance meanwhile; False: stop. Idle time earns no burst later."""
        while self._rate is not None and (ahead_ms := self._next_ms - self._clock.monotonic_ms()) > 0:
            self._rest(min(ahead_ms, IDLE_MS_MAX))
            self._maintain()
            if self._stopping():
                return False
        return True

    def _idle_ms(self) -> int:
        left_ms = self._due_in_ms()
        if left_ms is None or self._worker.blocked:  # what is blocked stays due
            return IDLE_MS_MAX
        return min(IDLE_MS_MAX, max(10, left_ms))

    def _is_due(self) -> bool:
        left_ms = self._due_in_ms()
        return left_ms is not None and left_ms <= 0 and not self._worker.blocked

    def _maintain(self, *, everything: bool = False) -> None:
        for failure in run_due(self._maintenance, self._clock.monotonic_ms(), everything=everything):
            if not isinstance(failure.error, KfmError) or isinstance(failure.error, StoreTooNew):
                raise failure.error
            failure.log()


def poll_until_stopped(
    poller: Poller,
    totals: WorkerTotals,
    *,
    wait_ms: int,
    stopping: Callable[[], bool],
    rest: Callable[[int], object],
    exchange: IntakeExchange | None = None,
    unit_random: Callable[[], float] = lambda: 0.5,
) -> None:
    """The body of a queue's thread. A queue that fails is polled again, after growing delays."""
    failures = 0
    while not stopping():
        try:
            report = poller.step(wait_ms) if exchange is None else _poll_and_offer(poller, exchange, wait_ms)
        except Exception as error:  # noqa: BLE001 - the end of this thread would end the intake unnoticed
            failures += 1
            text = str(error) if isinstance(error, KfmError) else f"{type(error).__name__}: {error}"
            about = {"queue": poller.queue_name, **outage_of(error)}
            logger.warning("a queue can't be read: %s", text, extra=about)
            rest(spread_ms(backoff_ms(TROUBLE_MS, TROUBLE_MS_MAX, failures), unit_random()))
            continue
        failures = 0
        totals.add_poll(report)
        if not report.messages and wait_ms == 0:
            rest(IDLE_MS_MAX)


def _poll_and_offer(poller: Poller, exchange: IntakeExchange, wait_ms: int) -> PollReport:
    """The intake becomes durable with the worker's next commit, or without it. Acknowledged here, since a
    remote queue takes its time."""
    received = poller.receive(wait_ms)
    if received is None:
        return PollReport()
    report = exchange.offer(received.intake)
    return poller.take_in(received) if report is None else poller.acknowledge(received, report)


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `kfm worker`."""

    mode: Literal["once", "until-idle", "until-stopped"] = "until-stopped"
    stream: Any = None  # messages one a line, instead of the queues
    intake: bool = True
    dispatches: bool = True  # runs the updates that follow arrivals
    concurrency: int | None = None  # None: as configured, and so for `batch`
    rate: float | None = None
    batch: int | None = None


class WorkerReport(Record, frozen=True):
    """What a worker did, and what waits when it ends."""

    worker_id: str
    tasks: WorkerCounts
    waiting: int  # pending, now or later
    blocked: dict[str, str] = {}


def run_worker(
    app: App,
    options: WorkerOptions,
    stop: threading.Event,
    show: Callable[[WorkerCounts, float], None] = lambda _counts, _elapsed_s: None,
) -> WorkerReport:
    """Work until the mode ends, or until `stop` is set: by SIGTERM, by Ctrl-C, by the service."""
    ingest = NoddIngest(app, concurrency=options.concurrency)
    ingest.settings = replace(ingest.settings, batch=batch_of(options, ingest.settings.batch))
    app.liveness.claim(ingest.worker_id)
    prepare_decoders()
    threads = WorkerThreads(app, ingest, stop)
    try:
        context = dataclasses.replace(ingest.context(), stopping=stop.is_set)
        worker, totals = Worker(context), WorkerTotals()
        pollers = ingest.pollers(options.stream) if options.intake else []
        began_ms = app.clock.monotonic_ms()
        threaded = options.mode == "until-stopped"
        tasks = maintenance(
            app, ingest, stop, lambda: loop.drain(), deliveries=not threaded, dispatches=options.dispatches
        )
        exchange = IntakeExchange() if threaded and pollers else None
        if threaded:
            threads.start(pollers, totals, exchange)
        loop = WorkerLoop(
            worker,
            app.clock,
            totals=totals,
            pollers=[] if threaded else [poller for poller, _ in pollers],
            exchange=exchange,
            maintenance=tasks,
            stopping=stop.is_set,
            rest=threads.rest,
            rate=options.rate,
            progress=lambda counts: show(counts, (app.clock.monotonic_ms() - began_ms) / 1000),
            has_input=lambda: any(not queue.ended for _, queue in pollers),
            due_in_ms=lambda: due_in_ms(context.wal),
            unit_random=app.rng.unit,
        )
        modes = {"once": loop.run_once, "until-idle": loop.run_until_idle}
        done = modes.get(options.mode, loop.run_until_stopped)()
        counts = context.wal.unit_counts()
        waiting = sum(amount for (_, name), amount in counts.items() if name == "pending")
        return WorkerReport(
            worker_id=ingest.worker_id, tasks=done, waiting=waiting, blocked=dict(worker.blocked)
        )
    finally:
        stop.set()
        release_units(app, ingest.worker_id)
        if threads.join():
            ingest.close()


def due_in_ms(wal: UnitReader) -> int | None:
    """How long until the next unit is due, by the ledger's clock; None if none waits."""
    first_ms = min((lane.due_ms for lane in wal.lanes()), default=None)
    return None if first_ms is None else first_ms - wal.now_ms()


class DeadWorkers:
    """Workers of this machine that are dead, for as long as they may still have units."""

    def __init__(self, dead: Callable[[], Sequence[str]]) -> None:
        self._dead = dead
        self._looks: Counter[str] = Counter()

    def recently(self) -> set[str]:
        """A claim that was on its way when its worker died may land after a look; what lands after the last
        one lapses with its lease."""
        found = {one for one in self._dead() if self._looks[one] < DEAD_LOOKS_MAX}
        self._looks.update(found)
        return found


def release_units(app: App, worker_id: str) -> None:
    """Units that the ledger still has as claimed by this worker: the answer to their claim was lost."""
    lineage = lineage_export(app.settings) != "none"
    with contextlib.suppress(KfmError):  # the ledger is unavailable: then the leases have to lapse
        app.writer.units().reap_units(
            app.rng.unit(), {worker_id}, lineage=lineage, policy_of=partial(unit_policy, app.settings)
        )


def batch_of(options: WorkerOptions, configured: int) -> int:
    """With a rate, at most a second's worth: otherwise the rate would be kept by bursts."""
    batch = configured if options.batch is None else options.batch
    return batch if options.rate is None else max(1, min(batch, int(options.rate)))


class WorkerThreads:
    """Threads beside the loop's own: one for each queue, one for replicas, one for lineage."""

    def __init__(self, app: App, ingest: NoddIngest, stop: threading.Event) -> None:
        self._app = app
        self._ingest = ingest
        self._stop = stop
        self._threads: list[threading.Thread] = []

    def rest(self, delay_ms: int) -> None:
        self._stop.wait(delay_ms / 1000)

    def start(
        self,
        pollers: Sequence[tuple[Poller, Queue]],
        totals: WorkerTotals,
        exchange: IntakeExchange | None,
    ) -> None:
        app = self._app
        common = {"stopping": self._stop.is_set, "rest": self.rest}
        remote = {one.name for one in app.settings.ingest.queues if one.kind == "sqs"}
        for poller, queue in pollers:
            wait_ms = LONG_POLL_MS if queue.name in remote else FOLDER_POLL_MS
            own = {"wait_ms": wait_ms, "exchange": exchange, "unit_random": app.rng.unit}
            self._add(f"kfm-poll-{queue.name}", poll_until_stopped, (poller, totals), own | common)
        if app.settings.ingest.replicas:
            from kfm.nodd.replicas import Deliveries

            # A slow or unavailable replica does not delay units.
            deliveries = Deliveries(app, self._ingest.another_store())
            task = PeriodicTask("replicas", DELIVER_MS, lambda: deliveries.step(stopping=self._stop.is_set))
            self._add("kfm-replicas", repeat, (task,), common)
        if lineage_export(app.settings) != "none":
            events = UnitDeliveries(app, self._ingest.another_store())
            task = PeriodicTask("lineage of units", UNIT_EVENTS_MS, events.step)
            self._add("kfm-lineage", repeat, (task,), common)
        for thread in self._threads:
            thread.start()

    def _add(
        self, name: str, target: Callable[..., None], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        run = partial(contextvars.copy_context().run, target, *args, **kwargs)
        self._threads.append(threading.Thread(target=run, daemon=True, name=name))

    def join(self) -> bool:
        """Wait for all threads, each no longer than a long poll takes. Have they all ended?"""
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(JOINED_S)
        return not any(thread.is_alive() for thread in self._threads)


def maintenance(
    app: App,
    ingest: NoddIngest,
    stop: threading.Event,
    drain: Callable[[], None],
    *,
    deliveries: bool,
    dispatches: bool,
) -> list[PeriodicTask]:
    """Periodic tasks of the ledger. Every worker has them; the first to come does the work of all.

    `deliveries`: also those of replicas and lineage of units, which otherwise have threads. `dispatches`: the
    updates that follow arrivals are run here, not by the runners of a service.
    """
    wal, died, export = (
        app.writer.units(),
        DeadWorkers(app.liveness.dead),
        lineage_export(app.settings) != "none",
    )
    followers = Followers(app, drain, stop.is_set, dispatches=dispatches)
    tasks = [PeriodicTask("arrivals", FAN_OUT_MS, followers.step)] if ingest.downstream else []
    if deliveries and ingest.settings.replicas:
        from kfm.nodd.replicas import ALL_BATCHES, Deliveries

        sending = Deliveries(app)
        tasks.append(PeriodicTask("replicas", DELIVER_MS, lambda: sending.step(ALL_BATCHES, stop.is_set)))

    if dispatches and ingest.settings.feeds:  # a service looks by itself
        turns = count()  # not at the first: what is in the queues is taken in before
        tasks.append(PeriodicTask("overdue", OVERDUE_MS, lambda: next(turns) and app.mark_overdue()))
    observer = ingest.observer
    if observer is not None:
        tasks.append(PeriodicTask("metrics", FOLD_MS, lambda: observer.totals(app.writer.unit_figures())))

    def lineage() -> object:
        return deliver_events(app, deadline_ms=RUN_DELIVERY_MS)

    return [
        *tasks,
        PeriodicTask(
            "lapsed leases",
            REAP_MS,
            lambda: wal.reap_units(
                app.rng.unit(),
                died.recently(),
                lineage=export,
                policy_of=partial(unit_policy, app.settings),
            ),
        ),
        PeriodicTask("figures", FOLD_MS, lambda: fold_counts(wal)),
        PeriodicTask("lineage", DELIVER_MS, lineage if deliveries else partial(deliver, app)),
        PeriodicTask("incidents", DELIVER_MS, app.deliver_incidents),
        PeriodicTask("seals", SEAL_MS, lambda: seal_all(app.writer, app.actor, SEAL_MIN)),
        PeriodicTask("history", SEAL_MS, lambda: seal_all(app.writer, app.actor, SEAL_MIN, UNITS)),
    ]


def fold_counts(wal: Units) -> None:
    """Fold more changes than come between two runs, or they would pile up."""
    for _ in range(FOLDS_MAX):
        if wal.fold_counts(FOLDED) < FOLDED:
            break
