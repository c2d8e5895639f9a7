"""A worker process: its threads, its maintenance, and how both end."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from kfm.audit.chain import seal_all
from kfm.decoders import prepare_decoders
from kfm.lineage.collectors import RUN_DELIVERY_MS, deliver, lineage_export
from kfm.model.audit import UNITS
from kfm.model.errors import KfmError
from kfm.model.records import Record
from kfm.nodd.downstream import FanOut
from kfm.nodd.ingest import NoddIngest
from kfm.nodd.poller import IntakeExchange
from kfm.nodd.unit_evidence import UnitDeliveries, deliver_events
from kfm.nodd.worker import Worker
from kfm.nodd.worker_loop import WorkerCounts, WorkerLoop, WorkerTotals, poll_until_stopped
from kfm.periodic import PeriodicTask, repeat

if TYPE_CHECKING:
    from kfm.app import App
    from kfm.db.units import Units
    from kfm.nodd.poller import Poller
    from kfm.ports import Queue

LONG_POLL_MS = 10_000
FOLDER_POLL_MS = 1_000
JOINED_S = 12.0  # a long poll ends by then
REAP_MS = 5_000
FOLD_MS = 5_000
FOLDED = 10_000  # changes in one transaction
FOLDS_MAX = 50
DELIVER_MS = 5_000
FAN_OUT_MS = 2_000
UNIT_EVENTS_MS = 1_000
SEAL_MS = 60_000
SEAL_MIN = 100


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `kfm worker`."""

    mode: Literal["once", "until-idle", "until-stopped"] = "until-stopped"
    stream: Any = None  # messages one a line, instead of the queues
    intake: bool = True
    concurrency: int = 1
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
        context = ingest.context()
        worker, totals = Worker(context), WorkerTotals()
        pollers = ingest.pollers(options.stream) if options.intake else []
        began_ms = app.clock.monotonic_ms()
        threaded = options.mode == "until-stopped"
        tasks = maintenance(app, ingest, stop, lambda: loop.drain(), deliveries=not threaded)
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
            next_due_ms=lambda: min((lane.due_ms for lane in context.wal.lanes()), default=None),
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


def release_units(app: App, worker_id: str) -> None:
    """Units that the ledger still has as claimed by this worker: the answer to their claim was lost."""
    lineage = lineage_export(app.settings) != "none"
    with contextlib.suppress(KfmError):  # the ledger is unavailable: then the leases have to lapse
        app.writer.units().reap_units(app.rng.unit(), worker_id.__eq__, lineage=lineage)


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
            named = {"wait_ms": wait_ms, "exchange": exchange, **common}
            self._add(f"kfm-poll-{queue.name}", poll_until_stopped, (poller, totals), named)
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
        self._threads.append(
            threading.Thread(target=target, args=args, kwargs=kwargs, daemon=True, name=name)
        )

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
) -> list[PeriodicTask]:
    """Periodic tasks of the ledger. Every worker has them; the first to come does the work.

    `deliveries`: also those of replicas and lineage of units, which otherwise have threads.
    """
    wal, export = app.writer.units(), lineage_export(app.settings) != "none"
    tasks = [PeriodicTask("bursts", FAN_OUT_MS, fan_out(app, drain).step)] if ingest.downstream else []
    if deliveries and ingest.settings.replicas:
        from kfm.nodd.replicas import ALL_BATCHES, Deliveries

        sending = Deliveries(app)
        tasks.append(PeriodicTask("replicas", DELIVER_MS, lambda: sending.step(ALL_BATCHES, stop.is_set)))

    def lineage() -> object:
        return deliver_events(app, deadline_ms=RUN_DELIVERY_MS)

    return [
        *tasks,
        PeriodicTask(
            "lapsed leases",
            REAP_MS,
            lambda: wal.reap_units(app.rng.unit(), app.liveness.is_dead, lineage=export),
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


def fan_out(app: App, drain: Callable[[], None]) -> FanOut:
    """Runs of the sources that follow arrivals. A run may take longer than the lease of a unit lasts."""
    sources = {source.id: source for source in app.settings.sources}
    store = app.writer
    return FanOut(
        store.bursts(),
        sources.get,
        app.run,
        store.now_ms,
        window_ms=round(app.settings.ingest.coalesce_seconds * 1000),
        actor=app.actor,
        before_run=drain,
    )
