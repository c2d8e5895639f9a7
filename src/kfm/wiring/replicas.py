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
    from kfm.wiring.app import App


def replicator(app: App, replica: Replica, registry: Registry) -> tuple[Replicator, StacApi]:
    token = app.loaded.secret(replica.token) if replica.token is not None else None
    api = StacApi(app.loaded.secret(replica.url), token)
    base_url = app.loaded.secret(replica.url).rstrip("/")
    made = Replicator(
        replica.name,
        api,
        app.kernel.store.replicas(),
        app.ledger.catalogue(),
        lambda item: render_item(item, base_url),
        lambda figures: render_collection(registry.find(figures.collection_id), figures, base_url),
    )
    return made, api


def deliver_all(app: App) -> list[Replicated]:
    """One pass over every replica; trouble with one is no other's."""
    from kfm.wiring.ingest import registry_of

    registry = registry_of(app)
    results = []
    for replica in app.settings.ingest.replicas:
        made, api = replicator(app, replica, registry)
        try:
            result = made.step()
        finally:
            api.close()
        if result.trouble is not None:
            app.announce(f"replica {replica.name}: {result.trouble}")
        results.append(result)
    return results


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
        made, api = replicator(app, replicas[name], registry)
        try:
            compared = made.compare(repair=repair, progress=progress)
            results.append((compared, made.step(batches_max=1_000_000) if repair else None))
        finally:
            api.close()
    return results
