"""Garbage collection: planned by reading, carried out while no run is under way."""

from __future__ import annotations

from msgspec.structs import replace

from kfm.admission.enter import held_by
from kfm.core.errors import LockHeld
from kfm.core.records import GovernanceEntry, Lock
from kfm.engine.kernel import Kernel
from kfm.ports import CollectableObjects
from kfm.publish.collect import Collected, Collection, collect, plan_collection

LEASE_MS = 10 * 60 * 1000
GRACE_MS = 60 * 60 * 1000
COMMITS_GRACE_MS = 7 * 24 * 60 * 60 * 1000  # so long a deleted branch can be made again from its commit


def plan(kernel: Kernel, objects: CollectableObjects, grace_ms: int | None = None) -> Collection:
    """What would go. Reads only."""
    branches, before_ms = kernel.ledger.branch_reader(), _commits_before(kernel, grace_ms)
    unreached = branches.garbage(before_ms)
    collection = plan_collection(
        kernel.ledger,
        objects,
        kernel.clock.now_ms(),
        kernel.settings.limits.versions_kept,
        GRACE_MS if grace_ms is None else grace_ms,
        pins=branches.objects_kept(before_ms),  # read after the objects were listed
        projections=kernel.projections,
    )
    return replace(collection, commits=unreached.commits, trees=unreached.trees)


def _commits_before(kernel: Kernel, grace_ms: int | None) -> int:
    return kernel.ledger.now_ms() - (COMMITS_GRACE_MS if grace_ms is None else grace_ms)


def carry_out(
    kernel: Kernel,
    objects: CollectableObjects,
    *,
    actor: str,
    rationale: str,
    grace_ms: int | None = None,
) -> tuple[Collection, Collected]:
    """Remove what no kept version needs. New runs wait meanwhile; a run in progress makes us wait."""
    store = kernel.store
    kernel.liveness.claim(kernel.worker_id)
    fence = store.begin_collection(kernel.worker_id, LEASE_MS, kernel.liveness.is_dead)
    if isinstance(fence, Lock):
        raise LockHeld(held_by(fence))
    removed = None
    try:
        # First the commits: whatever is left of them keeps its objects.
        swept = store.branch_store().sweep(_commits_before(kernel, grace_ms))
        collection = plan(kernel, objects, grace_ms)
        kernel.progress.phase("collect", len(collection.objects))
        removed = collect(collection, objects, kernel.projections, lambda _done: kernel.progress.advance(1))
        kernel.progress.done()
        removed = replace(removed, commits=swept.commits, trees=swept.trees)
        return collection, removed
    finally:
        details = {"objects": removed.objects, "bytes": removed.size} if removed else {"interrupted": True}
        if removed and removed.commits + removed.trees:
            details |= {"commits": removed.commits, "trees": removed.trees}
        store.end_collection(
            fence,
            GovernanceEntry(
                kind="gc",
                subject=kernel.settings.environment,
                actor=actor,
                recorded_at_ms=store.now_ms(),
                rationale=rationale,
                details=details,
            ),
        )
