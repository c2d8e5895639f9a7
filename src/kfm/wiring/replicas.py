"""External catalogues that follow ours, as the configuration names them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kfm.core.errors import UsageError
from kfm.core.settings import Replica
from kfm.engine.replicating import Compared, Replicated, Replicator
from kfm.ingest.stac import render_collection, render_item
from kfm.sinks.stac_api import StacApi

if TYPE_CHECKING:
    from kfm.ingest.registry import Registry
    from kfm.ports import Store
    from kfm.wiring.app import App

BATCHES_MAX = 20
ALL_BATCHES = 1_000_000


class Deliveries:
    """Every replica of a configuration, served from one thread. Trouble with one is no other's."""

    def __init__(self, app: App, store: Store | None = None) -> None:
        from kfm.wiring.ingest import registry_of

        self._say = app.announce
        self._told: dict[str, str | None] = {}
        registry, ledger = registry_of(app), store or app.kernel.store
        self._made = {
            replica.name: replicator(app, replica, registry, ledger)[0]
            for replica in app.settings.ingest.replicas
        }

    def step(
        self, batches_max: int = BATCHES_MAX, stopping: Callable[[], bool] = lambda: False
    ) -> list[Replicated]:
        """One pass over all of them. The same trouble is told once."""
        results = []
        for name, made in self._made.items():
            result = made.step(batches_max, stopping)
            if result.trouble is not None and result.trouble != self._told.get(name):
                self._say(f"replica {name}: {result.trouble}")
            self._told[name] = result.trouble
            results.append(result)
        return results


def replicator(app: App, replica: Replica, registry: Registry, store: Store) -> tuple[Replicator, StacApi]:
    token = app.loaded.secret(replica.token) if replica.token is not None else None
    base_url = app.loaded.secret(replica.url).rstrip("/")
    api = StacApi(base_url, token, clock=app.clock)
    made = Replicator(
        replica.name,
        api,
        store.replicas(),
        store.catalogue(),
        lambda item: render_item(item, base_url),
        lambda figures: render_collection(registry.find(figures.collection_id), figures, base_url),
    )
    return made, api


def compare_all(
    app: App, names: tuple[str, ...], *, repair: bool, progress: Callable[[int], None]
) -> list[tuple[Compared, Replicated | None]]:
    """Compare the named replicas, or all. With `repair` what differs is delivered again."""
    from kfm.wiring.ingest import registry_of

    replicas = {one.name: one for one in app.settings.ingest.replicas}
    for name in names:
        if name not in replicas:
            raise UsageError(
                f"There is no replica `{name[:64]}`.", remedy=f"Known are: {', '.join(replicas) or 'none'}."
            )
    if not replicas:
        raise UsageError("No replica is configured.", remedy="Name one under `ingest.replicas`.")
    registry, results = registry_of(app), []
    for name in names or tuple(replicas):
        made, api = replicator(app, replicas[name], registry, app.kernel.store)
        try:
            compared = made.compare(repair=repair, progress=progress)
            delivered = made.step(batches_max=ALL_BATCHES) if repair else None
            if delivered is not None and delivered.trouble is not None:
                app.announce(f"replica {name}: {delivered.trouble}")
            results.append((compared, delivered))
        finally:
            api.close()
    return results
