"""A bucket against the ledger, with the clients that the configuration names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kfm.core.errors import UsageError
from kfm.core.object_schemes import PROVIDERS
from kfm.core.records import GovernanceEntry
from kfm.engine.reconciling import Gap, Reconciled, Wish, opener, reconcile
from kfm.wiring.ingest import IngestPlace, registry_of, upstream_of

if TYPE_CHECKING:
    from kfm.wiring.app import App


def wish_for(
    bucket: str,
    *,
    dataset: str | None,
    prefixes: Sequence[str],
    from_ms: int | None,
    until_ms: int | None,
    limit: int,
) -> Wish:
    scheme, separator, name = bucket.rpartition("://")
    provider = PROVIDERS.get(scheme) if separator else "aws"
    if provider is None or not name:
        raise UsageError(f"`{bucket[:128]}` is no bucket.", remedy="Give a name, or s3://, gs:// or az://….")
    return Wish(
        provider=provider,
        bucket=name.rstrip("/"),
        prefixes=tuple(prefixes) or ("",),
        dataset=dataset,
        from_ms=from_ms,
        until_ms=until_ms,
        limit=limit,
    )


def reconcile_bucket(
    app: App,
    wish: Wish,
    found: Callable[[Gap], None],
    progress: Callable[[int], None],
    *,
    rationale: str | None = None,
) -> Reconciled:
    """Compare; with a rationale what is missing is opened, and that is on record."""
    registry, upstream = registry_of(app), upstream_of(app)
    if wish.dataset is not None and wish.dataset not in registry.names:
        raise UsageError(
            f"There is no dataset `{wish.dataset[:64]}`.", remedy="`kfm nodd datasets` lists them."
        )
    if rationale is None:
        return reconcile(
            upstream, registry.read, app.ledger.unit_reader(), wish, found=found, progress=progress
        )
    place, store = IngestPlace(app), app.kernel.store
    result = reconcile(
        upstream,
        registry.read,
        store.units(),
        wish,
        open_missing=opener(place.kernel(), store.units()),
        found=found,
        progress=progress,
    )
    entry = GovernanceEntry(
        kind="backfill",
        subject=f"{wish.provider}:{wish.bucket}",
        actor=app.actor,
        recorded_at_ms=store.now_ms(),
        rationale=app.loaded.discretion.said(rationale),
        details={
            "dataset": wish.dataset,
            "listed": result.listed,
            "missing": result.missing,
            "changed": result.changed,
            "opened": result.opened,
        },
    )
    store.append_governance([entry])
    return result
