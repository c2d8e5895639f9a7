"""Those who follow: a replica of the catalogue, a source whose runs begin when objects have arrived."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfm.db.ledger import Ledger
from kfm.model.catalogue import CatalogueItem
from kfm.model.errors import BackendUnavailable, KfmError
from kfm.model.settings import SourceSettings
from kfm.nodd.downstream import FanOut
from kfm.nodd.replicas import Replicator
from kfm.runs.kernel import Outcome, RunReport, RunRequest
from tests.simulation.announced.surroundings import SimReplica
from tests.simulation.scheduler import Process

if TYPE_CHECKING:
    from tests.simulation.announced.world import AnnouncedWorld

FOLLOWED, FOLLOWER = "hrrr", "forecasts"
SOURCE = SourceSettings(id=FOLLOWER, dataset="forecasts", kind="files")


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


def fan_out(world: AnnouncedWorld, store: Ledger, process: Process) -> FanOut:
    def run(request: RunRequest) -> RunReport:
        world.scheduler.point(process, "run")
        outcome: Outcome = "success"
        if world.scheduler.chances.switch:
            outcome = world.dice.choice(("success", "success", "busy", "refused"))
            if world.dice.random() < 0.1:
                raise BackendUnavailable("simulated: no run")
        if outcome != "busy":
            assert request.message_id is not None
            world.runs.add(request.message_id)
        return RunReport(
            outcome=outcome,
            word="published",
            source_id=FOLLOWER,
            dataset_id="forecasts",
            window_start_ms=0,
            window_end_ms=0,
            invocation_id=None,
            reason="simulated",
        )

    return FanOut(
        store.bursts(),
        {FOLLOWER: SOURCE}.get,
        run,
        store.now_ms,
        window_ms=world.window_ms,
        actor="sim",
    )
