"""Those who follow: a replica of the catalogue, a source whose runs begin when objects have arrived."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from kfm.db.ledger import Ledger
from kfm.model.catalogue import CatalogueItem
from kfm.model.errors import KfmError
from kfm.model.records import Found, Window
from kfm.model.requests import RequestPart
from kfm.model.settings import Care, DatasetSettings, Ingest, Lease, Rights, Settings, SourceSettings
from kfm.nodd.downstream import Followers
from kfm.nodd.replicas import Replicator
from kfm.service.runner import recover
from tests.simulation.adapters import SimDownload
from tests.simulation.announced.surroundings import SimReplica
from tests.simulation.asking import SimulatedRuns, app_of, dispatcher
from tests.simulation.light import LightKernels, found_at
from tests.simulation.scheduler import Process

if TYPE_CHECKING:
    from tests.simulation.announced.world import AnnouncedWorld

FOLLOWED, FOLLOWER = "hrrr", "forecasts"
SOURCE = SourceSettings(
    id=FOLLOWER, dataset="forecasts", kind="files", pipeline="p.py:f", output_version="1", follows=(FOLLOWED,)
)
PUBLIC = Rights(license="CC0-1.0", care=Care(label="Public", level="public"))


def replicator(world: AnnouncedWorld, store: Ledger, process: Process) -> Replicator:
    api = SimReplica(world, process)
    return Replicator(
        world.replicas[0], api, store.replicas(), store.catalogue(), shelved, lambda _figures: {}
    )


def shelved(item: CatalogueItem) -> dict[str, Any]:
    """As much of an item as the rules are about."""
    etags = tuple(asset.etag for asset in item.assets)
    return {"collection": item.collection_id, "id": item.item_id, "revision": item.revision, "etags": etags}


def carry(world: AnnouncedWorld, process: Process, lasts_ms: int) -> None:
    """A process that does nothing but see to the replica."""
    until_ms = world.scheduler.now_ms + lasts_ms
    made = replicator(world, world.store(process), process)
    while world.scheduler.now_ms < until_ms:
        try:
            made.step()
        except KfmError as error:
            world.outcomes[f"replicator {error.code}"] += 1
        world.go_on()
        world.rest(process, 1_000)


def compare(world: AnnouncedWorld, process: Process) -> None:
    """As `kfm catalogue reconcile --repair`."""
    replicator(world, world.store(process), process).compare(repair=True)


def project() -> Settings:
    """The project of which the follower is a source."""
    return Settings(
        environment="sim",
        datasets=(DatasetSettings(id="forecasts", domain="weather", rights=PUBLIC),),
        sources=(SOURCE,),
        lease=Lease(seconds=20.0),
        ingest=Ingest(coalesce_seconds=1.0),
    )


def kernels(world: AnnouncedWorld) -> LightKernels:
    return LightKernels(
        world,
        world.seed,
        world.project,
        upstream=lambda process, _source, window, _circuits: Arrived(world, process, window),
        pipeline=lambda process: forecast(world, process),
        heartbeat=world.seed % 2 == 0,
    )


class Arrived:
    """What the follower reads: as much as has arrived."""

    def __init__(self, world: AnnouncedWorld, process: Process, window: Window) -> None:
        self._world, self._process, self._window = world, process, window

    def discover(self, window: Window) -> list[Found]:
        del window
        self._world.scheduler.point(self._process, "net")
        return [self._found(self._data())]

    def _data(self) -> bytes:
        return str(self._world.checks.arrivals).encode()

    def _found(self, data: bytes) -> Found:
        return found_at(FOLLOWER, f"{self._window.start_ms}.csv", data)

    @contextmanager
    def open(self, found: Found, offset: int) -> Iterator[SimDownload]:
        del found, offset
        data = self._data()
        yield SimDownload(self._found(data), 0, data, lambda: None)


def forecast(world: AnnouncedWorld, process: Process) -> Callable[[Any], None]:
    def transform(context: Any) -> None:
        world.scheduler.point(process, "work")
        if world.scheduler.chances.switch and world.dice.random() < 0.2:
            raise TimeoutError("simulated: no answer")
        context.publisher.write_file(context.inputs[0].path, context.inputs[0].read())

    return transform


def arrivals(world: AnnouncedWorld, store: Ledger, process: Process) -> Followers:
    """As a worker without a service: arrivals become requests, and it works them off."""
    kernel = world.kernels.make(process, store)
    app = app_of(kernel, replace(world.project, ingest=Ingest(coalesce_seconds=world.window_ms / 1000)))
    app.actor = "kfm"

    def dispatch_due(part: RequestPart, stopping: Callable[[], bool], **more: Any) -> None:
        recover(app)
        runs = SimulatedRuns(app, process, world.checks.starts, lambda report: None)
        worker = dispatcher(app, runs, part=part, **more)
        process.facts["part"] = part
        while not stopping() and (request := worker.step()) is not None:
            world.checks.starts.given_back(process, request.request_id, kernel.worker_id)

    app.dispatch_due = dispatch_due
    return Followers(app, lambda: None, lambda: False, dispatches=True)
