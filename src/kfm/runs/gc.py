"""Garbage collection: bytes that no kept version needs, planned by reading, removed while nothing runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from msgspec.structs import replace

from kfm.db.leases import COLLECTOR
from kfm.model.dataset_changes import purged
from kfm.model.errors import LimitExceeded, LockHeld, LostLease, StoreCorrupt
from kfm.model.records import Justification, Lock, Manifest, Promotion, Record, Run, governance_entry
from kfm.periodic import HeldLease
from kfm.publish.manifest import blobs
from kfm.runs.admission import held_by
from kfm.runs.kernel import Kernel

if TYPE_CHECKING:
    from kfm.db.dataset_changes import DatasetChangeReader
    from kfm.objects.local import LocalObjects

LEASE_MS = 10 * 60 * 1000
RENEW_MS = 5_000
GRACE_MS = 60 * 60 * 1000
COMMITS_GRACE_MS = 7 * 24 * 60 * 60 * 1000  # so long a deleted branch can be made again from its commit


def plan(kernel: Kernel, objects: LocalObjects, grace_ms: int | None = None) -> Collection:
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
    objects: LocalObjects,
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
    lease = HeldLease(
        COLLECTOR,
        fence,
        "",
        clock=kernel.clock,
        lease_ms=LEASE_MS,
        renew_ms=RENEW_MS,
        policy_epoch=store.policy_epoch(),
        gate=lambda _ledger: None,
        store=store,
    )
    removed = None
    try:
        # First the commits: whatever is left of them keeps its objects.
        swept = store.branch_store().sweep(_commits_before(kernel, grace_ms))
        collection = plan(kernel, objects, grace_ms)
        kernel.progress.phase("collect", len(collection.objects))
        removed = collect(
            collection, objects, kernel.projections, lambda _done: kernel.progress.advance(1), lease.check
        )
        kernel.progress.done()
        removed = replace(removed, commits=swept.commits, trees=swept.trees)
        return collection, removed
    except LostLease as lost:
        raise LostLease(
            "It took so long that runs could begin meanwhile, so nothing more was removed.",
            remedy="Run `kfm gc` again.",
        ) from lost
    finally:
        details = {"objects": removed.objects, "bytes": removed.size} if removed else {"interrupted": True}
        if removed and removed.commits + removed.trees:
            details |= {"commits": removed.commits, "trees": removed.trees}
        by = Justification(actor=actor, rationale=rationale)
        entry = governance_entry("gc", kernel.settings.environment, store.now_ms(), by, **details)
        store.end_collection(fence, entry)


RUNS_MAX = 10_000
PROMOTIONS_MAX = 1_000_000
CLOCK_MARGIN_MS = 5 * 60 * 1000  # the database's clock and the file system's may differ


class History(Protocol):
    """The reads of the ledger that collection needs."""

    def heads(self) -> list[Promotion]: ...
    def promotions(self, dataset_id: str, limit: int = 50) -> list[Promotion]: ...
    def manifest(self, version_id: str) -> Manifest | None: ...
    def runs(self, *, status: str | None = None, limit: int = 50) -> list[Run]: ...
    def change_reader(self) -> DatasetChangeReader: ...


@runtime_checkable
class VersionedTarget(Protocol):
    """A projection that keeps old versions, and can remove them."""

    name: str

    def versions(self, dataset_id: str) -> list[tuple[str, int]]: ...
    def discard(self, dataset_id: str, names: Iterable[str]) -> list[str]: ...


class Garbage(Record, frozen=True):
    """One object that no version refers to."""

    sha256: str
    size: int
    modified_ms: int


class Leftover(Record, frozen=True):
    """A temporary or partial file of an attempt that did not end."""

    name: str
    size: int


class OldVersion(Record, frozen=True):
    """One version that a target still holds."""

    target: str
    dataset_id: str
    name: str


class Collection(Record, frozen=True):
    """What can go. `before_ms`: nothing that was touched since then is removed."""

    before_ms: int
    objects: tuple[Garbage, ...]
    leftovers: tuple[Leftover, ...]
    versions: tuple[OldVersion, ...]
    objects_kept: int
    commits: int = 0  # of branches, that no ref reaches
    trees: int = 0

    @property
    def size(self) -> int:
        return sum(one.size for one in self.objects) + sum(one.size for one in self.leftovers)


class Collected(Record, frozen=True):
    """What was removed."""

    objects: int
    leftovers: int
    versions: int
    size: int
    spared: int  # objects that were staged again meanwhile
    commits: int = 0
    trees: int = 0


def plan_collection(
    ledger: History,
    objects: LocalObjects,
    now_ms: int,
    keep: int,
    grace_ms: int,
    pins: Iterable[str] = (),
    projections: Sequence[object] = (),
) -> Collection:
    """Decide what can go. Reads only."""
    before_ms = _cutoff(ledger, now_ms, grace_ms)
    old = [garbage for sha256 in objects.all() if (garbage := _old(objects, sha256, before_ms))]
    # The ledger after the listing: what was promoted in between is seen to be needed.
    needed, kept = _needed(ledger, max(1, keep))
    needed |= set(pins)
    return Collection(
        before_ms=before_ms,
        objects=tuple(sorted((one for one in old if one.sha256 not in needed), key=lambda one: one.sha256)),
        leftovers=tuple(Leftover(name=name, size=size) for name, size in objects.leftovers(before_ms)),
        versions=tuple(_old_versions(projections, kept)),
        objects_kept=len(needed),
    )


def collect(
    collection: Collection,
    objects: LocalObjects,
    projections: Sequence[object] = (),
    progress: Callable[[int], None] = lambda _done: None,
    check: Callable[[], None] = lambda: None,
) -> Collected:
    """Remove what the plan names, unless it was touched since. `check` raises once we may not any more."""
    removed = []
    for done, one in enumerate(collection.objects, 1):
        check()
        if objects.delete_if_older(one.sha256, collection.before_ms):
            removed.append(one)
        progress(done)
    check()
    leftovers = objects.tidy(collection.before_ms)
    versions = 0
    for target in _targets(projections):
        mine = [one for one in collection.versions if one.target == target.name]
        for dataset_id in sorted({one.dataset_id for one in mine}):
            check()
            names = [one.name for one in mine if one.dataset_id == dataset_id]
            versions += len(target.discard(dataset_id, names))
    return Collected(
        objects=len(removed),
        leftovers=leftovers,
        versions=versions,
        size=sum(one.size for one in removed),
        spared=len(collection.objects) - len(removed),
    )


def _cutoff(ledger: History, now_ms: int, grace_ms: int) -> int:
    """Before the grace period, and before the oldest run in progress: what it staged is not named yet."""
    running = ledger.runs(status="running", limit=RUNS_MAX)
    if len(running) >= RUNS_MAX:
        raise LimitExceeded(f"More than {RUNS_MAX} runs are in progress.")
    oldest_ms = min((run.start_time_ms for run in running), default=now_ms)
    return min(now_ms - grace_ms, oldest_ms) - CLOCK_MARGIN_MS


def _old(objects: LocalObjects, sha256: str, before_ms: int) -> Garbage | None:
    modified_ms = objects.modified_ms(sha256)
    if modified_ms is None or modified_ms >= before_ms:
        return None
    return Garbage(sha256=sha256, size=objects.size(sha256), modified_ms=modified_ms)


def needed_objects(ledger: History, keep: int) -> frozenset[str]:
    """The objects that kept versions need."""
    return frozenset(_needed(ledger, max(1, keep))[0])


def _needed(ledger: History, keep: int) -> tuple[set[str], dict[str, set[int]]]:
    """The objects and, for each dataset, the sequences of the promotions that are kept: not those that were
    purged."""
    needed: set[str] = set()
    kept: dict[str, set[int]] = {}
    for head in ledger.heads():
        withdrawals = ledger.change_reader().withdrawals(head.dataset_id)
        sequences = set()
        for promotion in ledger.promotions(head.dataset_id, limit=min(keep, PROMOTIONS_MAX)):
            manifest = ledger.manifest(promotion.version_id)
            if manifest is None:  # never delete on half the knowledge
                raise StoreCorrupt(f"The manifest of {promotion.version_id} is not in the database.")
            if purged(promotion.sequence, manifest, withdrawals):
                continue
            needed |= blobs(manifest)
            sequences.add(promotion.sequence)
        kept[head.dataset_id] = sequences
    return needed, kept


def _old_versions(projections: Sequence[object], kept: dict[str, set[int]]) -> list[OldVersion]:
    found = []
    for target in _targets(projections):
        for dataset_id, sequences in sorted(kept.items()):
            found += [
                OldVersion(target=target.name, dataset_id=dataset_id, name=name)
                for name, sequence in target.versions(dataset_id)
                if sequence < min(sequences)
            ]
    return found


def _targets(projections: Sequence[object]) -> list[VersionedTarget]:
    return [target for target in projections if isinstance(target, VersionedTarget)]
