"""Garbage collection: planned by reading, carried out while no run is under way."""

from __future__ import annotations

from kfm.admission.enter import held_by
from kfm.core.errors import LockHeld
from kfm.core.records import GovernanceEntry, Lock
from kfm.engine.kernel import Kernel
from kfm.ports import CollectableObjects
from kfm.publish.collect import Collected, Collection, collect, plan_collection

LEASE_MS = 10 * 60 * 1000
GRACE_MS = 60 * 60 * 1000


def plan(kernel: Kernel, objects: CollectableObjects, grace_ms: int = GRACE_MS) -> Collection:
    """What would go. Reads only."""
    return plan_collection(
        kernel.ledger,
        objects,
        kernel.clock.now_ms(),
        kernel.settings.limits.versions_kept,
        grace_ms,
        projections=kernel.projections,
    )


def carry_out(
    kernel: Kernel,
    objects: CollectableObjects,
    *,
    actor: str,
    rationale: str,
    grace_ms: int = GRACE_MS,
) -> tuple[Collection, Collected]:
    """Remove what no kept version needs. New runs wait meanwhile; a run in progress makes us wait."""
    store = kernel.store
    kernel.liveness.claim(kernel.worker_id)
    fence = store.begin_collection(kernel.worker_id, LEASE_MS, kernel.liveness.is_dead)
    if isinstance(fence, Lock):
        raise LockHeld(held_by(fence))
    removed = None
    try:
        collection = plan(kernel, objects, grace_ms)
        kernel.progress.phase("collect", len(collection.objects))
        removed = collect(collection, objects, kernel.projections, lambda _done: kernel.progress.advance(1))
        kernel.progress.done()
        return collection, removed
    finally:
        details = {"objects": removed.objects, "bytes": removed.size} if removed else {"interrupted": True}
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
