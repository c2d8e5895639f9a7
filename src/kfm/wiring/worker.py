"""A worker process: its threads, its duties, and the end of both."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from kfm.core.records import Record
from kfm.core.sealing import UNITS
from kfm.engine.fanning_out import FanOut
from kfm.engine.ingesting import Worker
from kfm.engine.unit_service import Account, Duty, Tasks, UnitService, poll_until, see_to_until
from kfm.wiring.evidence import RUN_DELIVERY_MS, lineage_export
from kfm.wiring.ingest import IngestPlace
from kfm.wiring.unit_evidence import deliver_events

if TYPE_CHECKING:
    from kfm.wiring.app import App

LONG_POLL_MS = 10_000
FOLDER_POLL_MS = 1_000
JOINED_S = 12.0  # a long poll ends by then
REAP_MS = 5_000
FOLD_MS = 5_000
DELIVER_MS = 5_000
FAN_OUT_MS = 2_000
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
    place = IngestPlace(app, concurrency=wish.concurrency)
    if wish.batch is not None:
        place.settings = replace(place.settings, batch=wish.batch)
    app.liveness.claim(place.worker_id)
    threads: list[threading.Thread] = []
    try:
        kernel = place.kernel()
        worker, account = Worker(kernel), Account()
        made = place.pollers(wish.stream) if wish.intake else []
        began_ms = app.clock.monotonic_ms()
        far = {one.name for one in app.settings.ingest.queues if one.kind == "sqs"}
        if wish.mode == "until-stopped":
            threads = [
                threading.Thread(
                    target=poll_until,
                    args=(poller, account),
                    kwargs={
                        "wait_ms": LONG_POLL_MS if queue.name in far else FOLDER_POLL_MS,
                        "stopping": stop.is_set,
                        "rest": lambda delay_ms: stop.wait(delay_ms / 1000),
                        "say": app.announce,
                    },
                    daemon=True,
                    name=f"kfm-poll-{queue.name}",
                )
                for poller, queue in made
            ]
        for thread in threads:
            thread.start()
        service = UnitService(
            worker,
            app.clock,
            account=account,
            pollers=[] if threads else [poller for poller, _ in made],
            duties=duties(app, place),
            stopping=stop.is_set,
            rest=lambda delay_ms: stop.wait(delay_ms / 1000),
            rate=wish.rate,
            say=app.announce,
            progress=lambda tasks: show(tasks, (app.clock.monotonic_ms() - began_ms) / 1000),
            more=lambda: any(not getattr(queue, "ended", True) for _, queue in made),
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
        for thread in threads:
            thread.join(JOINED_S)
        if not any(thread.is_alive() for thread in threads):
            place.close()


def duties(app: App, place: IngestPlace) -> list[Duty]:
    """What somebody has to see to while units are worked off; whichever worker comes first does."""
    wal, told = app.kernel.store.units(), lineage_export(app.settings) != "none"
    found = [Duty("bursts", FAN_OUT_MS, fan_out(app).step)] if place.downstream else []
    if place.settings.replicas:
        from kfm.wiring.replicas import deliver_all

        found.append(Duty("replicas", DELIVER_MS, lambda: deliver_all(app)))
    return [
        *found,
        Duty(
            "lapsed leases",
            REAP_MS,
            lambda: wal.reap_units(app.rng.unit(), app.liveness.is_dead, lineage=told),
        ),
        Duty("figures", FOLD_MS, wal.fold_counts),
        Duty("lineage", DELIVER_MS, lambda: deliver_events(app, deadline_ms=RUN_DELIVERY_MS)),
        Duty("incidents", DELIVER_MS, app.tell_incidents),
        Duty("seals", SEAL_MS, lambda: app.seal(actor=app.actor, minimum=SEAL_MIN)),
        Duty("history", SEAL_MS, lambda: app.seal(actor=app.actor, minimum=SEAL_MIN, stream=UNITS)),
    ]


def fan_out(app: App) -> FanOut:
    """Runs of the sources that follow arrivals."""
    sources = {source.id: source for source in app.settings.sources}
    store = app.kernel.store
    return FanOut(
        store.bursts(),
        sources.get,
        app.run,
        store.now_ms,
        window_ms=round(app.settings.ingest.coalesce_seconds * 1000),
        actor=app.actor,
        say=app.announce,
    )
