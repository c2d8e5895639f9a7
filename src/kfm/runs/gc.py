"""Garbage collection: bytes that no kept version needs, listed while work goes on, removed while nothing
runs.

Removing goes in slices under the collector's lock, each short, so that runs that wait get in between. What
was listed is compared with the ledger again in each, and its age with the store. Where runs overlap without
end, new ones are held back for a while, so that a slice gets its turn, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from msgspec.structs import replace

from kfm.db.leases import COLLECTOR
from kfm.model.dataset_changes import purged
from kfm.model.dataset_names import earlier_names, present_name
from kfm.model.errors import (
    CircuitOpen,
    LimitExceeded,
    LockHeld,
    LostLease,
    StoreCorrupt,
    TargetUnavailable,
)
from kfm.model.records import (
    Justification,
    Lock,
    ObjectStat,
    Promotion,
    Record,
    Run,
    StoredObject,
    governance_entry,
)
from kfm.runs.admission import held_by
from kfm.runs.kernel import Kernel
from kfm.runs.lease import hold_scope

if TYPE_CHECKING:
    from kfm.db.dataset_changes import DatasetChangeReader
    from kfm.model.versions import Version
    from kfm.ports import CollectableObjects, CollectorLease

LEASE_MS = 10 * 60 * 1000
RENEW_MS = 5_000
GRACE_MS = 60 * 60 * 1000
COMMITS_GRACE_MS = 7 * 24 * 60 * 60 * 1000  # so long a deleted branch can be made again from its commit
OBJECTS_MAX = 200_000  # of one collection: the rest goes with the next
SLICE_MS = 30_000  # so long runs wait at most, but for the last removal of a slice
PAUSE_MS = 2_000  # between two slices: what waits begins
GAP_MS = 60_000  # so long a collection waits for a gap between runs before it asks for one
HOLD_BACK_MS = 5 * 60_000  # so long at most new runs are held back, while those in progress end
WAITING_LEASE_MS = 60_000  # of a collection that waits: renewed with each look, lapsed soon after a kill


def plan(kernel: Kernel, objects: CollectableObjects, grace_ms: int | None = None) -> Collection:
    """What would go. Reads only."""
    unreached = kernel.ledger.branch_reader().garbage(_commits_before(kernel, grace_ms))
    collection = plan_collection(
        kernel.ledger,
        objects,
        kernel.ledger.now_ms(),
        kernel.settings.limits.versions_kept,
        GRACE_MS if grace_ms is None else grace_ms,
        pins=lambda: _pins(kernel, grace_ms),
        projections=kernel.projections,
    )
    return replace(collection, commits=unreached.commits, trees=unreached.trees)


def _pins(kernel: Kernel, grace_ms: int | None) -> Iterable[str]:
    """The objects of branches, without those that no branch or tag reaches."""
    return kernel.ledger.branch_reader().objects_kept(_commits_before(kernel, grace_ms))


def _commits_before(kernel: Kernel, grace_ms: int | None) -> int:
    return kernel.ledger.now_ms() - (COMMITS_GRACE_MS if grace_ms is None else grace_ms)


def carry_out(
    kernel: Kernel,
    objects: CollectableObjects,
    *,
    actor: str,
    rationale: str,
    grace_ms: int | None = None,
    collection: Collection | None = None,
    gap_ms: int = GAP_MS,
    hold_back_ms: int = HOLD_BACK_MS,
) -> tuple[Collection, Collected]:
    """Remove what was listed, or is listed now, unless it is needed by then.

    New runs wait meanwhile, for a slice at most. Runs in progress are waited for; if they overlap for longer
    than `gap_ms`, new ones are held back, for `hold_back_ms` at most. 0: none is ever held back, and a run
    in progress is an error at first."""
    listed = plan(kernel, objects, grace_ms) if collection is None else collection
    by = Justification(actor=actor, rationale=rationale)
    kernel.progress.phase("collect", len(listed.objects))
    left, removed = listed.objects, Collected()
    for number in range(len(left) + 1):
        with _exclusively(kernel, by, gap_ms if number or hold_back_ms else 0, hold_back_ms) as held:
            if number == 0:
                _collect_first(kernel, objects, listed, held, grace_ms)
            left = _collect_slice(kernel, objects, replace(listed, objects=left), held, grace_ms)
        removed = removed.plus(held.removed)
        if not left:
            break
        kernel.clock.sleep_ms(PAUSE_MS)
    kernel.progress.done()
    return listed, removed


def _collect_first(
    kernel: Kernel, objects: CollectableObjects, listed: Collection, held: _Held, grace_ms: int | None
) -> None:
    """Everything but objects. First the commits: whatever is left of them keeps its objects."""
    swept = kernel.store.branch_store().sweep(_commits_before(kernel, grace_ms))
    held.add(Collected(commits=swept.commits, trees=swept.trees))
    held.check()
    held.add(Collected(leftovers=objects.tidy(listed.before_ms)))
    if kernel.projections:  # looked at again: runs may have published since they were listed
        kept = _needed(kernel.ledger, max(1, kernel.settings.limits.versions_kept))[1]
        versions, shared, _ = _at_targets(kernel.projections, kept, listed.before_ms)
        at_targets = replace(listed, versions=versions, shared=shared, kept=kept)
        held.add(collect_at_targets(at_targets, kernel.projections, held.check))
    unneeded = kernel.store.version_upkeep().sweep(held.fence, held.check)
    held.facts |= {"version_pages": unneeded.pages, "version_items": unneeded.items} if any(unneeded) else {}


def _collect_slice(
    kernel: Kernel, objects: CollectableObjects, listed: Collection, held: _Held, grace_ms: int | None
) -> tuple[StoredObject, ...]:
    """Remove objects for a while; those that are left."""
    if not listed.objects:
        return ()
    needed = needed_objects(kernel.ledger, kernel.settings.limits.versions_kept)
    needed |= set(_pins(kernel, grace_ms))
    garbage = tuple(one for one in listed.objects if one.sha256 not in needed)
    held.add(Collected(spared=len(listed.objects) - len(garbage)))
    over_ms, done = kernel.clock.monotonic_ms() + SLICE_MS, 0
    for some in collect_objects(replace(listed, objects=garbage), objects, held):
        held.add(some)
        done += some.objects + some.spared
        kernel.progress.advance(some.objects + some.spared)
        if kernel.clock.monotonic_ms() >= over_ms:
            break
    return garbage[done:]


class _Held:
    """The collector's lock while a slice goes on: implements `ports.CollectorLease`, and counts."""

    def __init__(self, kernel: Kernel, fence: int) -> None:
        self.fence = fence
        self.removed = Collected()
        self.facts: dict[str, Any] = {}
        self._store = kernel.store
        self._lease = hold_scope(kernel, COLLECTOR, fence, lease_ms=LEASE_MS, renew_ms=RENEW_MS)

    def check(self) -> None:
        self._lease.check()

    def confirm(self) -> None:
        if self._store.renew(COLLECTOR, self.fence, LEASE_MS) is None:
            raise LostLease(f"{COLLECTOR} has passed to another process.")

    def add(self, removed: Collected) -> None:
        self.removed = self.removed.plus(removed)


def _begin(kernel: Kernel, gap_ms: int, hold_back_ms: int) -> int:
    """The fence of a collection, once no run is in progress. First a gap is waited for, then new runs are
    held back; both have an end."""
    store, dead, began_ms = kernel.store, kernel.liveness.is_dead, kernel.clock.monotonic_ms()
    kernel.liveness.claim(kernel.worker_id)
    waiting: int | None = None
    looks_max = 1 + (gap_ms + hold_back_ms) // PAUSE_MS
    try:
        for look in range(1, looks_max + 1):
            if waiting is not None and store.renew(COLLECTOR, waiting, WAITING_LEASE_MS) is None:
                waiting = None  # it stood still for so long that others have gone on
            found = store.begin_collection(kernel.worker_id, LEASE_MS, dead, waiting)
            if not isinstance(found, Lock):
                waiting = None
                return found
            waited_ms = kernel.clock.monotonic_ms() - began_ms
            if look == looks_max or waited_ms >= gap_ms + hold_back_ms:
                raise LockHeld(held_by(found))
            if hold_back_ms and waiting is None and waited_ms >= gap_ms:
                waiting = store.await_collection(kernel.worker_id, WAITING_LEASE_MS, dead)
            kernel.clock.sleep_ms(PAUSE_MS)
        raise AssertionError("unreachable")
    finally:
        if waiting is not None:
            store.leave_collection(waiting)


@contextmanager
def _exclusively(kernel: Kernel, by: Justification, gap_ms: int, hold_back_ms: int) -> Iterator[_Held]:
    """The collector's lock; what was removed under it is entered in the audit log."""
    store = kernel.store
    fence = _begin(kernel, gap_ms, hold_back_ms)
    held = _Held(kernel, fence)
    is_whole = False
    try:
        yield held
        is_whole = True
    except LostLease as lost:
        raise LostLease(
            "It took so long that runs could begin meanwhile, so nothing more was removed.",
            remedy="Run `kfm gc` again.",
        ) from lost
    finally:
        removed = held.removed
        details = {"objects": removed.objects, "bytes": removed.size} | held.facts
        if removed.commits + removed.trees:
            details |= {"commits": removed.commits, "trees": removed.trees}
        if not is_whole:
            details["interrupted"] = True
        entry = governance_entry("gc", kernel.settings.environment, store.now_ms(), by, **details)
        store.end_collection(fence, entry)


RUNS_MAX = 10_000
PROMOTIONS_MAX = 1_000_000
CLOCK_MARGIN_MS = 5 * 60 * 1000  # the database's clock and the file system's may differ


class History(Protocol):
    """The reads of the ledger that collection needs."""

    def heads(self) -> list[Promotion]: ...
    def promotions(self, dataset_id: str, limit: int = 50) -> list[Promotion]: ...
    def version(self, version_id: str) -> Version | None: ...
    def runs(self, *, status: str | None = None, limit: int = 50) -> list[Run]: ...
    def change_reader(self) -> DatasetChangeReader: ...


@runtime_checkable
class VersionedTarget(Protocol):
    """A projection that keeps old versions, and can remove them."""

    name: str

    def versions(self, dataset_id: str) -> list[tuple[str, int]]: ...
    def discard(
        self, dataset_id: str, names: Iterable[str], check: Callable[[], None] = lambda: None
    ) -> list[str]: ...


@runtime_checkable
class SharingTarget(VersionedTarget, Protocol):
    """One whose versions share objects, which are removed apart from their documents."""

    def unneeded(self, dataset_id: str, kept: KeptVersions, before_ms: int) -> Iterator[ObjectStat]:
        """The objects that no kept version needs and that were put before then."""

    def sweep(
        self, dataset_id: str, kept: KeptVersions, before_ms: int, check: Callable[[], None] = lambda: None
    ) -> Iterator[ObjectStat]:
        """Remove them; tells of each."""


class Leftover(Record, frozen=True):
    """A temporary or partial file of an attempt that did not end."""

    name: str
    size: int


class OldVersion(Record, frozen=True):
    """One version that a target still holds."""

    target: str
    dataset_id: str
    name: str


class OldObjects(Record, frozen=True):
    """What versions of a dataset shared at a target, and no kept one needs."""

    target: str
    dataset_id: str
    count: int
    size: int


class Unreached(Record, frozen=True):
    """A target that could not be looked at: what is there stays."""

    target: str
    reason: str


class KeptVersions(Record, frozen=True):
    """What is kept of a dataset."""

    sequences: frozenset[int]
    blobs: frozenset[str]
    is_earlier_name: bool = False  # under which no version is published any more


class Collection(Record, frozen=True):
    """What can go. `before_ms`: nothing that was touched since then is removed."""

    before_ms: int
    objects: tuple[StoredObject, ...]
    leftovers: tuple[Leftover, ...]
    versions: tuple[OldVersion, ...]
    objects_kept: int
    commits: int = 0  # of branches, that no ref reaches
    trees: int = 0
    shared: tuple[OldObjects, ...] = ()
    unreached: tuple[Unreached, ...] = ()
    kept: dict[str, KeptVersions] = {}  # by name of a dataset
    has_more: bool = False  # objects that no collection of this size takes at once
    stored: int = 0  # bytes of all objects

    @property
    def size(self) -> int:
        parts = (self.objects, self.leftovers, self.shared)
        return sum(one.size for part in parts for one in part)


class Collected(Record, frozen=True):
    """What was removed."""

    objects: int = 0
    leftovers: int = 0
    versions: int = 0
    size: int = 0
    spared: int = 0  # objects that were staged again, or needed again, meanwhile
    commits: int = 0
    trees: int = 0
    shared: int = 0  # objects at targets

    def plus(self, other: Collected) -> Collected:
        names = self.__struct_fields__
        return Collected(**{name: getattr(self, name) + getattr(other, name) for name in names})


def plan_collection(
    ledger: History,
    objects: CollectableObjects,
    now_ms: int,
    keep: int,
    grace_ms: int,
    pins: Callable[[], Iterable[str]] = tuple,
    projections: Sequence[object] = (),
) -> Collection:
    """Decide what can go. Reads only."""
    before_ms = _cutoff(ledger, now_ms, grace_ms)
    known = needed_objects(ledger, keep) | set(pins())
    old: list[StoredObject] = []
    stored, has_more = 0, False
    for one in objects.stored():
        stored += one.size
        if one.modified_ms < before_ms and one.sha256 not in known:
            has_more = len(old) == OBJECTS_MAX
            if not has_more:
                old.append(one)
    # The ledger after the listing, too: what was promoted in between is seen to be needed.
    needed, kept = _needed(ledger, max(1, keep))
    needed |= set(pins())
    versions, shared, unreached = _at_targets(projections, kept, before_ms)
    return Collection(
        before_ms=before_ms,
        objects=tuple(sorted((one for one in old if one.sha256 not in needed), key=lambda one: one.sha256)),
        leftovers=tuple(Leftover(name=name, size=size) for name, size in objects.leftovers(before_ms)),
        versions=versions,
        objects_kept=len(needed),
        shared=shared,
        unreached=unreached,
        kept=kept,
        has_more=has_more,
        stored=stored,
    )


def collect_objects(
    collection: Collection, objects: CollectableObjects, lease: CollectorLease
) -> Iterator[Collected]:
    """Remove the objects that the plan names, some at once, unless they were staged again since."""
    sizes = {one.sha256: one.size for one in collection.objects}
    for some in objects.delete_old(list(sizes), collection.before_ms, lease):
        gone = [sizes[name] for name, went in some.items() if went]
        yield Collected(objects=len(gone), size=sum(gone), spared=len(some) - len(gone))


def collect_at_targets(
    collection: Collection, projections: Sequence[object], check: Callable[[], None]
) -> Collected:
    """Documents first: what a reader still finds is whole. A target that is away keeps what it has."""
    versions, swept = 0, []
    for target in _targets(projections):
        old = [one for one in collection.versions if one.target == target.name]
        shared = {one.dataset_id for one in collection.shared if one.target == target.name}
        for dataset_id in sorted({one.dataset_id for one in old} | shared):
            check()
            names = [one.name for one in old if one.dataset_id == dataset_id]
            with suppress(TargetUnavailable, CircuitOpen):
                versions += len(target.discard(dataset_id, names, check))
                if dataset_id in shared and isinstance(target, SharingTarget):
                    kept = collection.kept[dataset_id]
                    removed = target.sweep(dataset_id, kept, collection.before_ms, check)
                    swept.append(_summed(target.name, dataset_id, removed, (TargetUnavailable, CircuitOpen)))
    return Collected(
        versions=versions, shared=sum(one.count for one in swept), size=sum(one.size for one in swept)
    )


def _summed(
    target: str, dataset_id: str, objects: Iterable[ObjectStat], ends: tuple[type[Exception], ...] = ()
) -> OldObjects:
    """Counted one by one, as a listing brings them, until one of these errors ends it."""
    count = size = 0
    with suppress(*ends):
        for one in objects:
            count, size = count + 1, size + one.size
    return OldObjects(target=target, dataset_id=dataset_id, count=count, size=size)


def _cutoff(ledger: History, now_ms: int, grace_ms: int) -> int:
    """Before the grace period, and before the oldest run in progress: what it staged is not named yet."""
    running = ledger.runs(status="running", limit=RUNS_MAX)
    if len(running) >= RUNS_MAX:
        raise LimitExceeded(f"More than {RUNS_MAX} runs are in progress.")
    oldest_ms = min((run.start_time_ms for run in running), default=now_ms)
    return min(now_ms - grace_ms, oldest_ms) - CLOCK_MARGIN_MS


def needed_objects(ledger: History, keep: int) -> frozenset[str]:
    """The objects that kept versions need."""
    return frozenset(_needed(ledger, max(1, keep))[0])


def _needed(ledger: History, keep: int) -> tuple[set[str], dict[str, KeptVersions]]:
    """The objects and, for each name of a dataset, what is kept of it: not what was purged."""
    needed: set[str] = set()
    kept: dict[str, KeptVersions] = {}
    for head in ledger.heads():
        withdrawals = ledger.change_reader().withdrawals(head.dataset_id)
        removing = [one for one in withdrawals if one.purge]
        sequences, mine, seen = set(), set[str](), set[str]()
        for promotion in ledger.promotions(head.dataset_id, limit=min(keep, PROMOTIONS_MAX)):
            version = ledger.version(promotion.version_id)
            if version is None:  # never delete on half the knowledge
                raise StoreCorrupt(f"The manifest of {promotion.version_id} is not in the database.")
            if removing and purged(promotion.sequence, version, removing):
                continue
            mine.update(asset.sha256 for item in version.unseen(seen) for asset in item.assets)
            sequences.add(promotion.sequence)
        needed |= mine
        renames = ledger.change_reader().renames(head.dataset_id)
        mine_kept = KeptVersions(sequences=frozenset(sequences), blobs=frozenset(mine))
        kept |= dict.fromkeys(
            earlier_names(head.dataset_id, renames), replace(mine_kept, is_earlier_name=True)
        )
        kept[present_name(head.dataset_id, renames)] = mine_kept
    return needed, kept


def _at_targets(
    projections: Sequence[object], kept: dict[str, KeptVersions], before_ms: int
) -> tuple[tuple[OldVersion, ...], tuple[OldObjects, ...], tuple[Unreached, ...]]:
    """Versions older than those that are kept, and what only they need."""
    versions: list[OldVersion] = []
    shared: list[OldObjects] = []
    unreached = []
    for target in _targets(projections):
        try:
            for dataset_id, of_dataset in sorted(kept.items()):
                oldest = min(of_dataset.sequences, default=0)
                versions += [
                    OldVersion(target=target.name, dataset_id=dataset_id, name=name)
                    for name, sequence in target.versions(dataset_id)
                    if sequence < oldest
                ]
                if isinstance(target, SharingTarget):
                    old = target.unneeded(dataset_id, of_dataset, before_ms)
                    shared.append(_summed(target.name, dataset_id, old))
        except (TargetUnavailable, CircuitOpen) as error:
            unreached.append(Unreached(target=target.name, reason=str(error)))
    return tuple(versions), tuple(one for one in shared if one.count), tuple(unreached)


def _targets(projections: Sequence[object]) -> list[VersionedTarget]:
    return [target for target in projections if isinstance(target, VersionedTarget)]
