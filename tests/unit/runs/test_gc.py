"""Collecting: nothing goes that a kept version, a running run or a fresh stage needs."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kfm.db.version_upkeep import SweptVersions
from kfm.model.branches import Swept
from kfm.model.dataset_changes import Withdrawal
from kfm.model.dataset_names import Rename
from kfm.model.errors import LostLease, StoreCorrupt, UpstreamUnavailable
from kfm.model.records import Lock, ObjectStat, Promotion, Run
from kfm.model.versions import Version
from kfm.objects.local import LocalObjects
from kfm.objects.remote import RemoteObjects
from kfm.publish import manifest as m
from kfm.publish.targets.folder import LocalTree
from kfm.publish.targets.s3 import BucketTree
from kfm.runs import gc
from kfm.runs.gc import CLOCK_MARGIN_MS, LEASE_MS, Collected, plan_collection
from tests.power import PowerCutFiles, PowerLost
from tests.published_bucket import MemoryBucket
from tests.stand_ins import FakeClock
from tests.unit.publish.stand_ins import DATASET, CountedIds, SteppedFiles, asset, item, sha

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NOW_MS = 1000 * HOUR_MS


class TimedIds(CountedIds):
    """Ids that tell the time of their making, as real ones do."""

    now_ms = 0

    def new(self) -> str:
        digits = f"{self.now_ms:012x}"
        return f"{digits[:8]}-{digits[8:]}-{super().new()[-22:]}-{self.count:08d}"


class Ledger:
    def __init__(self) -> None:
        self.history: list[tuple[Promotion, Version]] = []
        self.running: list[Run] = []
        self.lost: set[str] = set()
        self.withdrawn: list[Withdrawal] = []
        self.renamed: list[Rename] = []

    def promote(self, *data: bytes) -> None:
        assets = [asset(f"{number}.bin", one) for number, one in enumerate(data)]
        version = m.merge(None, DATASET, item(1, *assets), "merge")
        promotion = Promotion(
            dataset_id=DATASET.id,
            sequence=len(self.history) + 1,
            version_id=version.version_id,
            run_id="r",
            fence=1,
            policy_epoch=1,
            promoted_at_ms=0,
        )
        self.history.append((promotion, version))

    def head(self) -> tuple[Promotion, Version] | None:
        return self.history[-1]

    def heads(self) -> list[Promotion]:
        return [self.history[-1][0]] if self.history else []

    def promotions(self, dataset_id: str, limit: int = 50) -> list[Promotion]:
        return [promotion for promotion, _ in reversed(self.history)][:limit]

    def version(self, version_id: str) -> Version | None:
        found = [version for promotion, version in self.history if promotion.version_id == version_id]
        return None if version_id in self.lost else found[0]

    def runs(self, *, status: str | None = None, limit: int = 50, **rest: Any) -> list[Run]:
        return self.running

    def change_reader(self) -> Any:
        return self

    def renames(self, dataset_id: str) -> tuple[Rename, ...]:
        return tuple(one for one in self.renamed if one.dataset_id == dataset_id)

    def withdrawals(self, dataset_id: str) -> list[Withdrawal]:
        return [one for one in self.withdrawn if one.dataset_id == dataset_id]


class Place:
    def __init__(self, files: PowerCutFiles | None = None) -> None:
        self.files = files or PowerCutFiles(random.Random(0))
        self.ids = TimedIds()
        self.objects = LocalObjects(self.files, "/objects", self.ids)
        self.ledger = Ledger()

    def stage(self, data: bytes, at_ms: int = 0) -> str:
        self.files.now_ms = self.ids.now_ms = at_ms
        staging, _ = self.objects.stage()
        staging.write(data)
        return staging.commit()[0]

    def collection(self, keep: int = 1, **rest: Any) -> Any:
        return plan_collection(self.ledger, self.objects, NOW_MS, keep, 24 * HOUR_MS, **rest)


class Hold:
    """A lease that holds until it is told otherwise."""

    fence = 7

    def __init__(self, check: Callable[[], None] = lambda: None) -> None:
        self.check = self.confirm = check


def collect(
    collection: gc.Collection,
    objects: Any,
    projections: Sequence[object] = (),
    check: Callable[[], None] = lambda: None,
) -> Collected:
    """All of a collection, as one slice does it."""
    done = Collected()
    for some in gc.collect_objects(collection, objects, Hold(check)):
        done = done.plus(some)
    check()
    done = done.plus(Collected(leftovers=objects.tidy(collection.before_ms)))
    return done.plus(gc.collect_at_targets(collection, projections, check))


def read(objects: Any, sha256: str) -> bytes:
    reader = objects.open(sha256)
    parts = []
    while data := reader.read(1024):
        parts.append(data)
    return b"".join(parts)


def test_what_no_kept_version_needs_goes() -> None:
    """Objects of dropped versions and of no version go; those of the kept versions stay."""
    place = Place()
    for data in (b"one", b"two", b"three", b"orphan"):
        place.stage(data)
    for data in (b"one", b"two", b"three"):
        place.ledger.promote(data)
    collection = place.collection(keep=2)
    assert {one.sha256 for one in collection.objects} == {sha(b"one"), sha(b"orphan")}
    assert collection.size == len(b"one") + len(b"orphan")
    assert set(place.objects.all()) >= {sha(b"one")}, "planning removes nothing"
    done = collect(collection, place.objects)
    assert (done.objects, done.size, done.spared) == (2, 9, 0)
    assert set(place.objects.all()) == {sha(b"two"), sha(b"three")}
    assert place.collection(keep=2).objects == ()


@given(
    st.lists(st.lists(st.binary(min_size=1, max_size=1), min_size=1, max_size=3), max_size=6),
    st.integers(-1, 7),
    st.sets(st.binary(min_size=1, max_size=1), max_size=4),
)
def test_kept_versions_stay_readable(versions: list[list[bytes]], keep: int, pins: set[bytes]) -> None:
    """Whatever the history, every file of the kept versions and every pin can be read afterwards."""
    place = Place()
    for data in {one for version in versions for one in version} | pins:
        place.stage(data)
    for version in versions:
        place.ledger.promote(*version)
    collect(place.collection(keep=keep, pins=lambda: {sha(pin) for pin in pins}), place.objects)
    kept = versions[-max(1, keep) :] if versions else []
    needed = {one for version in kept for one in version} | pins
    assert set(place.objects.all()) == {sha(one) for one in needed}
    assert all(read(place.objects, sha(one)) == one for one in needed)


def test_fresh_objects_stay() -> None:
    """What was staged within the grace period stays, whether or not anybody needs it."""
    place = Place()
    place.stage(b"old", NOW_MS - 25 * HOUR_MS)
    place.stage(b"fresh", NOW_MS - 23 * HOUR_MS)
    assert [one.sha256 for one in place.collection().objects] == [sha(b"old")]


def run(start_ms: int) -> Any:
    return type("Run", (), {"start_time_ms": start_ms})()


def test_what_a_running_run_staged_stays() -> None:
    """A run that takes longer than the grace period keeps what it has staged."""
    place = Place()
    began = NOW_MS - 100 * HOUR_MS
    place.stage(b"before", began - CLOCK_MARGIN_MS - 1)
    place.stage(b"staged", began + 1)
    place.ledger.running = [run(began)]
    assert [one.sha256 for one in place.collection().objects] == [sha(b"before")]


def test_leftovers_are_listed_and_removed() -> None:
    """Temporary files of attempts that died long ago go; those of yesterday stay."""
    place = Place()
    for at_ms in (0, NOW_MS):
        place.ids.now_ms = at_ms
        staging, _ = place.objects.stage()
        staging.write(b"half")
    collection = place.collection()
    assert [one.size for one in collection.leftovers] == [4]
    assert collect(collection, place.objects).leftovers == 1
    assert len(place.files.listdir("/objects/tmp")) == 1


def test_half_the_knowledge_is_not_enough() -> None:
    """If the manifest of a kept version can't be read, nothing is collected."""
    place = Place()
    place.stage(b"one")
    place.ledger.promote(b"one")
    place.ledger.lost = {place.ledger.history[0][0].version_id}
    with pytest.raises(StoreCorrupt):
        place.collection()


def stage_at(at: int) -> bool:
    """The bytes are staged again before the collector's n-th file operation. False if it has fewer."""
    disk = PowerCutFiles(random.Random(0))
    place = Place(disk)
    place.stage(b"again")
    collection = place.collection()
    steps = 0

    def before() -> None:
        nonlocal steps
        steps += 1
        if steps == at:
            place.stage(b"again", NOW_MS)

    collector = LocalObjects(SteppedFiles(disk.root, before), "/objects", place.ids)
    collect(collection, collector)
    if steps >= at:
        assert read(place.objects, sha(b"again")) == b"again"
    return steps >= at


def test_bytes_that_are_staged_again_meanwhile_stay() -> None:
    """Whenever a run stages the same bytes while they are being removed, the run finds them after."""
    reached = [at for at in range(1, 100) if stage_at(at)]
    assert len(reached) > 4


def test_a_collector_that_takes_without_looking_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: a plain delete loses bytes that were staged again."""
    monkeypatch.setattr(LocalObjects, "delete_if_older", lambda self, name, before: self.delete(name) or True)
    with pytest.raises(StoreCorrupt):
        [stage_at(at) for at in range(1, 100)]


def test_a_collector_that_dies_loses_nothing_that_is_needed() -> None:
    """Killed at any point, the power cut too, fresh bytes that it had taken away can still be read."""
    for calls in range(1, 60):
        disk = PowerCutFiles(random.Random(calls))
        place = Place(disk)
        place.stage(b"again")
        collection = place.collection()
        steps = 0
        process = SteppedFiles(disk.root)

        def before() -> None:
            nonlocal steps
            steps += 1
            if steps == 4:  # between its look and its taking
                place.stage(b"again", NOW_MS)  # noqa: B023
            if steps == calls:  # noqa: B023
                raise PowerLost

        process.before = before
        with contextlib.suppress(PowerLost):
            collect(collection, LocalObjects(process, "/objects", place.ids))
        if steps < 4:
            continue
        assert read(LocalObjects(SteppedFiles(disk.root), "/objects", TimedIds()), sha(b"again")) == b"again"
        after = disk.cut()
        assert read(LocalObjects(after, "/objects", TimedIds()), sha(b"again")) == b"again"


def test_old_versions_of_a_tree_go_with_their_objects() -> None:
    """A target's old version folders are listed and removed; what is shown stays whole."""
    place = Place()
    tree = LocalTree("tree", place.files, place.objects, place.ids, "/tree")
    for number in range(4):
        data = f"v{number}".encode()
        place.stage(data)
        place.ledger.promote(data)
        tree.project(DATASET.id, place.ledger.head)
    collection = place.collection(keep=2, projections=[tree, object()])
    assert [one.name[:8] for one in collection.versions] == ["00000001", "00000002"]
    assert collect(collection, place.objects, [tree, object()]).versions == 2
    assert [sequence for _, sequence in tree.versions(DATASET.id)] == [3, 4]
    assert tree.project(DATASET.id, place.ledger.head) == 4


class AgedBucket(MemoryBucket):
    """A bucket in which everything is old, but for what is named."""

    def __init__(self) -> None:
        super().__init__()
        self.fresh: set[str] = set()
        self.is_away = False

    def list(self, prefix: str) -> Iterator[ObjectStat]:
        if self.is_away:
            raise UpstreamUnavailable("no answer")
        for stat in super().list(prefix):
            yield replace(stat, modified_ms=NOW_MS if stat.key in self.fresh else 0)


class BucketPlace(Place):
    """A bucket that shows versions with one file of their own, and one that all have."""

    def __init__(self) -> None:
        super().__init__()
        self.bucket = AgedBucket()
        self.stored = self.bucket.stored
        self.tree = BucketTree("bucket", self.bucket, self.objects, "pub")
        self.stage(b"same")

    def publish(self, number: int) -> None:
        self.stage(f"v{number}".encode())
        self.ledger.promote(f"v{number}".encode(), b"same")
        self.tree.project(DATASET.id, self.ledger.head)

    def shown_files(self) -> set[bytes]:
        return {data for key, data in self.stored.items() if "/files/" in key}


@pytest.mark.req("GRO-2")
def test_old_versions_in_a_bucket_go_with_their_files() -> None:
    """Documents and files of old versions are listed and removed; what kept versions share stays."""
    place = BucketPlace()
    for number in range(4):
        place.publish(number)
    collection = place.collection(keep=2, projections=[place.tree])
    assert [one.name[:8] for one in collection.versions] == ["00000001", "00000002"]
    (shared,) = collection.shared
    assert (shared.target, shared.dataset_id) == ("bucket", DATASET.id)
    assert shared.count == 6, "of each a file, an item and a page of files"
    assert place.shown_files() == {b"v0", b"v1", b"v2", b"v3", b"same"}, "planning removes nothing"
    done = collect(collection, place.objects, [place.tree])
    assert (done.versions, done.shared) == (2, 6)
    assert done.size == len(b"v0v1") + shared.size
    assert place.shown_files() == {b"v2", b"v3", b"same"}
    assert [sequence for _, sequence in place.tree.versions(DATASET.id)] == [3, 4]
    assert place.tree.project(DATASET.id, place.ledger.head) == 4
    left = place.collection(keep=2, projections=[place.tree])
    assert (left.versions, left.shared) == ((), ())


@pytest.mark.req("GRO-2")
def test_a_bucket_that_is_behind_keeps_its_files() -> None:
    """While the pointer shows a version older than those that are kept, a reader may need its files."""
    place = BucketPlace()
    place.publish(0)
    for number in (1, 2):  # promoted, and not shown yet
        place.stage(f"v{number}".encode())
        place.ledger.promote(f"v{number}".encode(), b"same")
    collection = place.collection(keep=1, projections=[place.tree])
    assert collection.shared == ()
    collect(collection, place.objects, [place.tree])
    assert place.shown_files() == {b"v0", b"same"}
    assert [sequence for _, sequence in place.tree.versions(DATASET.id)] == [1], "it is what readers see"


@pytest.mark.req("GRO-2")
def test_fresh_files_in_a_bucket_stay() -> None:
    """What was put within the grace period stays: a projector may be about to show it."""
    place = BucketPlace()
    for number in range(3):
        place.publish(number)
    place.bucket.fresh = {key for key in place.stored if "/files/" not in key} | {
        key for key, data in place.stored.items() if data == b"v0"
    }
    collection = place.collection(keep=1, projections=[place.tree])
    assert [(one.count, one.size) for one in collection.shared] == [(1, len(b"v1"))]


@pytest.mark.req("GRO-2")
def test_a_bucket_that_is_away_stops_nothing_else() -> None:
    """It is named with the reason; everything else is collected, and its own when it is back."""
    place = BucketPlace()
    for number in range(3):
        place.publish(number)
    place.bucket.is_away = True
    collection = place.collection(keep=1, projections=[place.tree])
    assert [(one.target, "no answer" in one.reason) for one in collection.unreached] == [("bucket", True)]
    assert collect(collection, place.objects, [place.tree]).objects == 2
    place.bucket.is_away = False
    assert [one.count for one in place.collection(keep=1, projections=[place.tree]).shared] == [6]


@pytest.mark.req("GRO-2")
def test_a_bucket_is_collected_only_while_the_lease_holds() -> None:
    """Before each removal there it is asked whether the lease still holds; documents go before files."""
    for allowed in range(100):
        place = BucketPlace()
        for number in range(3):
            place.publish(number)
        collection, before = place.collection(keep=1, projections=[place.tree]), len(place.stored)
        left = iter(range(allowed))

        def check(left: Any = left) -> None:
            if next(left, None) is None:
                raise LostLease

        lost = False
        try:
            collect(collection, place.objects, [place.tree], check=check)
        except LostLease:
            lost = True
        assert before - len(place.stored) <= allowed
        for name in {key.split("/")[3] for key in place.stored if key.endswith("/manifest.json")}:
            assert f"v{int(name[:8]) - 1}".encode() in place.shown_files(), "a manifest without its files"
        if not lost:
            break
    assert 10 < allowed < 99


def test_local_objects_can_be_collected() -> None:
    """The local store has what collecting asks for."""
    objects: LocalObjects = Place().objects
    assert objects.modified_ms("0" * 64) is None
    assert objects.delete_if_older("0" * 64, NOW_MS) is False


@pytest.mark.req("UPD-8")
def test_collecting_stops_where_its_lease_is_lost() -> None:
    """Before each removal it is asked whether the lease still holds; from a no on, nothing goes."""
    place = Place()
    for data in (b"one", b"two", b"three"):
        place.stage(data)
    asked = 0

    def check() -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise LostLease

    with pytest.raises(LostLease):
        collect(place.collection(), place.objects, check=check)
    assert len(list(place.objects.all())) == 2


class HeldStore:
    """A store whose collection lease is counted, and taken away when told."""

    def __init__(self) -> None:
        self.renewals = 0
        self.is_lost = False
        self.entries: list[Any] = []

    def begin_collection(self, *_: object) -> int | Lock:
        return 7

    def end_collection(self, fence: int, entry: Any) -> None:
        self.entries.append((fence, entry.details))

    def renew(self, scope: str, fence: int, lease_ms: int) -> tuple[int, None] | None:
        assert (scope, fence, lease_ms) == ("gc", 7, LEASE_MS)
        self.renewals += 1
        return None if self.is_lost else (1, None)

    def branch_store(self) -> Any:
        return self

    def version_upkeep(self) -> Any:
        return SimpleNamespace(sweep=lambda *_: SweptVersions(0, 0))

    def sweep(self, *_: object) -> Any:
        return Swept(commits=0, trees=0)

    def policy_epoch(self) -> int:
        return 1

    def now_ms(self) -> int:
        return NOW_MS


@pytest.mark.req("UPD-8")
def test_a_long_collection_renews_its_lease_and_ends_when_another_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each removal takes a minute: the lease is renewed on the way; once it has passed on, what is left
    stays, and the command says so."""
    place, store, clock = Place(), HeldStore(), FakeClock()
    for number in range(30):
        place.stage(b"%02d" % number)
    monkeypatch.setattr(gc, "SLICE_MS", 3 * HOUR_MS)

    def advance(_amount: int) -> None:
        clock.sleep_ms(60_000)
        store.is_lost = store.renewals == 20

    with pytest.raises(LostLease, match="nothing more was removed"):
        gc.carry_out(
            kernel_of(place, store, clock, advance),
            place.objects,
            actor="ann",
            rationale="room",
            collection=place.collection(),
        )
    assert len(list(place.objects.all())) == 9
    assert store.entries == [(7, {"objects": 21, "bytes": 42, "interrupted": True})]


def kernel_of(place: Place, store: HeldStore, clock: FakeClock, advance: Callable[[int], None]) -> Any:
    """What collecting needs of a kernel."""
    ledger: Any = place.ledger
    ledger.now_ms, ledger.branch_reader = store.now_ms, lambda: SimpleNamespace(objects_kept=lambda _: ())
    return SimpleNamespace(
        store=store,
        ledger=ledger,
        clock=clock,
        progress=SimpleNamespace(phase=lambda *_: None, advance=advance, done=lambda: None),
        projections=(),
        liveness=SimpleNamespace(claim=lambda _: None, is_dead=lambda _: False),
        worker_id="w",
        settings=SimpleNamespace(environment="test", limits=SimpleNamespace(versions_kept=1)),
    )


@pytest.mark.req("GRO-2")
def test_runs_that_wait_get_in_between_two_slices() -> None:
    """A collection that takes longer than a slice gives its lock up, waits for the runs that began, looks
    again at what is needed, and goes on with what is left; each slice is in the audit log."""
    place, store, clock = Place(), HeldStore(), FakeClock()
    for number in range(10):
        place.stage(b"%d" % number)
    collection = place.collection()
    last = max((b"%d" % number for number in range(10)), key=sha)
    waits: list[int] = []

    def began(*_: object) -> int | Lock:
        """A run takes its turn after the first slice, for three looks, and promotes what was listed."""
        if not store.entries or len(waits) >= 3:
            return 7
        waits.append(clock.now_ms())
        if len(waits) == 3:
            place.ledger.promote(last)
        return Lock(scope="dataset:d", fence=1, holder=None, acquired_at_ms=0, lease_until_ms=2**62)

    store.begin_collection = began  # type: ignore[method-assign]
    kernel = kernel_of(place, store, clock, lambda _amount: clock.sleep_ms(11_000))
    _, removed = gc.carry_out(kernel, place.objects, actor="ann", rationale="room", collection=collection)
    assert (removed.objects, removed.spared, len(waits)) == (9, 1, 3)
    assert [read(place.objects, sha256) for sha256 in place.objects.all()] == [last]
    assert [details["objects"] for _, details in store.entries] == [3, 3, 3]


@pytest.mark.req("GRO-2")
def test_a_collection_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more objects are listed than one collection takes, but all are counted; needed ones take no room."""
    place = Place()
    place.stage(b"needed")
    place.ledger.promote(b"needed")
    for number in range(5):
        place.stage(b"%d" % number)
    monkeypatch.setattr(gc, "OBJECTS_MAX", 3)
    collection = place.collection()
    assert (len(collection.objects), collection.has_more, collection.stored) == (3, True, 11)
    collect(collection, place.objects)
    rest = place.collection()
    assert (len(rest.objects), rest.has_more) == (2, False)


# --- objects in a bucket -----------------------------------------------------------------------


class DatedBucket:
    """A bucket that knows when each object was put; `before` is called ahead of each request."""

    def __init__(self, stored: dict[str, tuple[bytes, int]] | None = None) -> None:
        self.stored: dict[str, tuple[bytes, int]] = {} if stored is None else stored
        self.now_ms = 0
        self.before: Callable[[], None] = lambda: None

    def put(self, key: str, data: bytes, **_: Any) -> bool:
        self.before()
        self.stored[key] = (data, self.now_ms)
        return True

    def head(self, key: str) -> ObjectStat | None:
        self.before()
        return self._stat(key) if key in self.stored else None

    def list(self, prefix: str) -> Any:
        self.before()
        return [self._stat(key) for key in sorted(self.stored) if key.startswith(prefix)]

    def delete(self, key: str) -> None:
        self.before()
        self.stored.pop(key, None)

    def copy(self, key: str, to: str) -> bool:
        self.before()
        if key in self.stored:
            self.stored[to] = (self.stored[key][0], self.now_ms)
        return key in self.stored

    @contextlib.contextmanager
    def read(self, key: str, **_: Any) -> Any:
        yield self._stat(key), iter([self.stored[key][0]])

    def _stat(self, key: str) -> ObjectStat:
        return ObjectStat(key=key, size=len(self.stored[key][0]), modified_ms=self.stored[key][1])


class RemotePlace(Place):
    """A place whose objects are in a bucket."""

    def __init__(self) -> None:
        super().__init__()
        self.bucket = DatedBucket()
        self.objects = RemoteObjects(self.bucket, "kfm")  # type: ignore[arg-type,assignment]

    def stage(self, data: bytes, at_ms: int = 0) -> str:
        self.bucket.now_ms = at_ms
        return super().stage(data, at_ms)

    def other_process(self) -> tuple[DatedBucket, RemoteObjects]:
        bucket = DatedBucket(self.bucket.stored)
        bucket.now_ms = NOW_MS
        return bucket, RemoteObjects(bucket, "kfm")  # type: ignore[arg-type]


@pytest.mark.req("GRO-2")
def test_objects_in_a_bucket_go_as_files_do() -> None:
    """What no kept version needs goes; what is needed, fresh or staged again meanwhile stays; nothing else is
    left in the bucket."""
    place = RemotePlace()
    for data in (b"old", b"head", b"again"):
        place.stage(data)
    place.stage(b"fresh", NOW_MS)
    place.ledger.promote(b"head")
    collection = place.collection()
    assert [one.sha256 for one in collection.objects] == sorted((sha(b"old"), sha(b"again")))
    place.stage(b"again", NOW_MS)
    done = collect(collection, place.objects)
    assert (done.objects, done.spared, done.size) == (1, 1, 3)
    assert sorted(place.objects.all()) == sorted(map(sha, (b"head", b"again", b"fresh")))
    assert len(place.bucket.stored) == 3


def stalled(at: int, *, dies: bool, break_it: Callable[[RemoteObjects], None]) -> bool:
    """Before its n-th request the collector stalls, or is killed, its lease ends, and a run stages the bytes
    that it is about to remove. False if it makes fewer requests."""
    place = RemotePlace()
    place.stage(b"again")
    collection = place.collection()
    bucket, collector = place.other_process()
    break_it(collector)
    steps, is_lost = 0, False

    def before() -> None:
        nonlocal steps, is_lost
        steps += 1
        if steps == at:
            is_lost = True
            place.stage(b"again", NOW_MS)
        if dies and steps > at:
            raise PowerLost

    def check() -> None:
        if is_lost:
            raise LostLease

    bucket.before = before
    with contextlib.suppress(LostLease, PowerLost):
        collect(collection, collector, check=check)
    if is_lost:
        assert read(place.objects, sha(b"again")) == b"again"
        assert read(place.objects, sha(b"again")) == b"again"
    return is_lost


@pytest.mark.req("GRO-2")
@pytest.mark.parametrize("dies", [False, True])
def test_bytes_that_are_staged_while_a_collector_of_a_bucket_stalls_stay(dies: bool) -> None:
    """At whatever request it stalls or dies: the run that has staged the same bytes finds them after."""
    reached = [at for at in range(1, 50) if stalled(at, dies=dies, break_it=lambda _: None)]
    assert len(reached) >= 4


@pytest.mark.req("GRO-2")
def test_a_collector_of_a_bucket_that_only_deletes_is_caught() -> None:
    """The test above can fail: without its copies a collector that stalls loses what was staged again."""

    def break_it(collector: RemoteObjects) -> None:
        bucket: Any = collector._bucket
        bucket.copy = lambda *_: False

    with pytest.raises(StoreCorrupt):
        [stalled(at, dies=False, break_it=break_it) for at in range(1, 50)]


@pytest.mark.req("GRO-2")
def test_copies_of_a_collector_that_died_go_back_after_a_day() -> None:
    """Until then one that only stalled may want them; afterwards they are objects again, and judged again.
    A purge takes them away with their object."""
    place = RemotePlace()
    sha256 = place.stage(b"taken")
    bucket, collector = place.other_process()
    collection = place.collection()
    deleted = bucket.delete

    def killed(key: str) -> None:
        deleted(key)
        raise PowerLost

    bucket.delete = killed  # type: ignore[method-assign]
    bucket.now_ms = 0
    with pytest.raises(PowerLost):
        collect(collection, collector)
    copy = f"kfm/taken/{sha256}/7"
    del place.bucket.stored[f"kfm/sha256/{sha256[:2]}/{sha256[2:]}"]
    assert place.objects.leftovers(DAY_MS) == []
    assert place.objects.leftovers(DAY_MS + 1) == [(copy.removeprefix("kfm/"), 5)]
    assert place.objects.tidy(DAY_MS + 1) == 1
    assert copy not in place.bucket.stored
    assert read(place.objects, sha256) == b"taken"
    place.bucket.stored[copy] = (b"taken", 0)
    place.objects.delete(sha256)
    assert place.bucket.stored == {}
