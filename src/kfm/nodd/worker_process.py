"""A worker process: its threads, its duties, and the end of both."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from kfm.decoders import prepare_decoders
from kfm.lineage.collectors import RUN_DELIVERY_MS, lineage_export
from kfm.model.audit import UNITS
from kfm.model.errors import KfmError
from kfm.model.records import Record
from kfm.nodd.downstream import FanOut
from kfm.nodd.ingest import NoddIngest
from kfm.nodd.poller import IntakeExchange
from kfm.nodd.unit_evidence import UnitDeliveries, deliver_events
from kfm.nodd.worker import Worker
from kfm.nodd.worker_loop import Tasks, WorkerLoop, WorkerTotals, poll_until
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


class WorkerWish(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker was asked to work."""

    mode: Literal["once", "until-idle", "until-stopped"] = "until-stopped"
    stream: Any = None  # messages one a line, instead of the queues
    intake: bool = True
    concurrency: int = 1
    rate: float | None = None
    batch: int | None = None


class WorkerReport(Record, frozen=True):
    """What it came to."""

    worker_id: str
    tasks: Tasks
    waiting: int  # pending, now or later
    blocked: dict[str, str] = {}


def run_worker(
    app: App,
    wish: WorkerWish,
    stop: threading.Event,
    show: Callable[[Tasks, float], None] = lambda _tasks, _elapsed_s: None,
) -> WorkerReport:
    place = NoddIngest(app, concurrency=wish.concurrency)
    place.settings = replace(place.settings, batch=batch_of(wish, place.settings.batch))
    app.liveness.claim(place.worker_id)
    prepare_decoders()
    crew = Crew(app, place, stop)
    try:
        kernel = place.kernel()
        worker, account = Worker(kernel), WorkerTotals()
        made = place.pollers(wish.stream) if wish.intake else []
        began_ms = app.clock.monotonic_ms()
        apart = wish.mode == "until-stopped"
        found = maintenance(app, place, stop, lambda: service.drain(), deliveries=not apart)
        hatch = IntakeExchange() if apart and made else None
        if apart:
            crew.start(made, account, hatch)
        service = WorkerLoop(
            worker,
            app.clock,
            account=account,
            pollers=[] if apart else [poller for poller, _ in made],
            hatch=hatch,
            maintenance=found,
            stopping=stop.is_set,
            rest=crew.rest,
            rate=wish.rate,
            progress=lambda tasks: show(tasks, (app.clock.monotonic_ms() - began_ms) / 1000),
            more=lambda: any(not queue.ended for _, queue in made),
            next_due_ms=lambda: min((lane.due_ms for lane in kernel.wal.lanes()), default=None),
        )
        run = {"once": service.once, "until-idle": service.until_idle}.get(wish.mode, service.until_stopped)
        tasks = run()
        counts = kernel.wal.unit_counts()
        waiting = sum(amount for (_, name), amount in counts.items() if name == "pending")
        return WorkerReport(
            worker_id=place.worker_id, tasks=tasks, waiting=waiting, blocked=dict(worker.blocked)
        )
    finally:
        stop.set()
        let_go(app, place.worker_id)
        if crew.is_gone():
            place.close()


def let_go(app: App, worker_id: str) -> None:
    """What the ledger says this worker still holds, although it ends: claimed in an answer that got lost."""
    told = lineage_export(app.settings) != "none"
    with contextlib.suppress(KfmError):  # the ledger is away: then the lease has to lapse
        app.kernel.store.units().reap_units(app.rng.unit(), worker_id.__eq__, lineage=told)


def batch_of(wish: WorkerWish, configured: int) -> int:
    """With a rate, a second's worth at most: otherwise it would be kept by bursts."""
    batch = configured if wish.batch is None else wish.batch
    return batch if wish.rate is None else max(1, min(batch, int(wish.rate)))


class Crew:
    """Threads beside the worker's own: one for each queue, one for replicas, one for lineage."""

    def __init__(self, app: App, place: NoddIngest, stop: threading.Event) -> None:
        self._app = app
        self._place = place
        self._stop = stop
        self._threads: list[threading.Thread] = []

    def rest(self, delay_ms: int) -> None:
        self._stop.wait(delay_ms / 1000)

    def start(
        self, made: Sequence[tuple[Poller, Queue]], account: WorkerTotals, hatch: IntakeExchange | None
    ) -> None:
        app = self._app
        common = {"stopping": self._stop.is_set, "rest": self.rest}
        far = {one.name for one in app.settings.ingest.queues if one.kind == "sqs"}
        for poller, queue in made:
            wait_ms = LONG_POLL_MS if queue.name in far else FOLDER_POLL_MS
            named = {"wait_ms": wait_ms, "hatch": hatch, **common}
            self._add(f"kfm-poll-{queue.name}", poll_until, (poller, account), named)
        if app.settings.ingest.replicas:
            from kfm.nodd.replicas import Deliveries

            # A replica that is slow, or away, keeps nobody from work.
            deliveries = Deliveries(app, self._place.another_store())
            task = PeriodicTask("replicas", DELIVER_MS, lambda: deliveries.step(stopping=self._stop.is_set))
            self._add("kfm-replicas", repeat, (task,), common)
        if lineage_export(app.settings) != "none":
            events = UnitDeliveries(app, self._place.another_store())
            task = PeriodicTask("lineage of units", UNIT_EVENTS_MS, events.step)
            self._add("kfm-lineage", repeat, (task,), common)
        for thread in self._threads:
            thread.start()

    def _add(
        self, name: str, target: Callable[..., None], given: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        self._threads.append(
            threading.Thread(target=target, args=given, kwargs=named, daemon=True, name=name)
        )

    def is_gone(self) -> bool:
        """All have ended; whoever waits for an answer from afar is not waited for longer than it takes."""
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(JOINED_S)
        return not any(thread.is_alive() for thread in self._threads)


def maintenance(
    app: App,
    place: NoddIngest,
    stop: threading.Event,
    drain: Callable[[], None],
    *,
    deliveries: bool,
) -> list[PeriodicTask]:
    """What somebody has to see to while units are worked off; whichever worker comes first does.

    `deliveries`: also those that threads see to, where there are any.
    """
    wal, told = app.kernel.store.units(), lineage_export(app.settings) != "none"
    found = [PeriodicTask("bursts", FAN_OUT_MS, fan_out(app, drain).step)] if place.downstream else []
    if deliveries and place.settings.replicas:
        from kfm.nodd.replicas import ALL_BATCHES, Deliveries

        sending = Deliveries(app)
        found.append(PeriodicTask("replicas", DELIVER_MS, lambda: sending.step(ALL_BATCHES, stop.is_set)))

    def lineage() -> object:
        return deliver_events(app, deadline_ms=RUN_DELIVERY_MS)

    return [
        *found,
        PeriodicTask(
            "lapsed leases",
            REAP_MS,
            lambda: wal.reap_units(app.rng.unit(), app.liveness.is_dead, lineage=told),
        ),
        PeriodicTask("figures", FOLD_MS, lambda: fold_all(wal)),
        PeriodicTask("lineage", DELIVER_MS, lineage if deliveries else app.deliver),
        PeriodicTask("incidents", DELIVER_MS, app.tell_incidents),
        PeriodicTask("seals", SEAL_MS, lambda: app.seal(actor=app.actor, minimum=SEAL_MIN)),
        PeriodicTask("history", SEAL_MS, lambda: app.seal(actor=app.actor, minimum=SEAL_MIN, stream=UNITS)),
    ]


def fold_all(wal: Units) -> None:
    """As many changes as come between two times, and more: else they would become ever more."""
    for _ in range(FOLDS_MAX):
        if wal.fold_counts(FOLDED) < FOLDED:
            break


def fan_out(app: App, drain: Callable[[], None]) -> FanOut:
    """Runs of the sources that follow arrivals. A run may take longer than the lease of a unit lasts."""
    sources = {source.id: source for source in app.settings.sources}
    store = app.kernel.store
    return FanOut(
        store.bursts(),
        sources.get,
        app.run,
        store.now_ms,
        window_ms=round(app.settings.ingest.coalesce_seconds * 1000),
        actor=app.actor,
        before_run=drain,
    )
