"""The tree in a bucket: the pointer only moves forward, and only to what is there."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from kfm.model.errors import StoreCorrupt, TargetUnavailable, UpstreamUnavailable
from kfm.model.settings import DatasetSettings
from kfm.publish.targets import bucket_objects, s3
from kfm.publish.targets.bucket_objects import DatasetObjects
from kfm.publish.targets.s3 import BucketTree
from tests.published_bucket import (
    ROOT,
    BucketReader,
    ManyBucket,
    MemoryBucket,
    MergedDataset,
    Stopped,
    expected_files,
    plain,
)
from tests.unit.publish.stand_ins import DATASET, MemoryObjects

pytestmark = pytest.mark.req("TRG-4")


class World:
    def __init__(self, kind: type[BucketTree] = BucketTree, latest: Any = "documents") -> None:
        self.kind = kind
        self.latest = latest
        self.stored: dict[str, bytes] = {}
        self.objects = MemoryObjects()
        self.database = MergedDataset(self.objects)

    def projector(self, before: Callable[[str], None] | None = None) -> BucketTree:
        return self.tree(MemoryBucket(self.stored, before))

    def tree(self, bucket: MemoryBucket, **rest: Any) -> BucketTree:
        return self.kind("bucket", bucket, self.objects, "pub", latest=self.latest, **rest)

    def project(self, before: Callable[[str], None] | None = None) -> int | None:
        return self.projector(before).project(DATASET.id, self.database.head, self.database)

    @property
    def reader(self) -> BucketReader:
        return BucketReader.of(self.stored)

    def shown(self) -> int:
        """The sequence of the pointer; fails unless everything it leads to is there."""
        return self.reader.shown()

    def assert_shows_head(self) -> None:
        assert self.shown() == len(self.database.history)
        assert self.database.newest is not None
        assert self.reader.files() == expected_files(self.database.newest, self.objects)


class Unconditional(BucketTree):
    """The broken variant: the pointer is put whatever stands there."""

    def _point(self, there: DatasetObjects, promotion: Any, etag: str | None) -> bool:
        found = there.tagged("current.json")
        return super()._point(there, promotion, found[1] if found else None)


def stopped_once(kind: type[BucketTree], at: int) -> tuple[World, bool]:
    world = World(kind)
    world.database.put(0)
    steps = 0

    def before(request: str) -> None:
        nonlocal steps
        steps += 1
        if steps == at:
            world.database.put(0, text="again")
            assert world.project() == 2

    world.project(before)
    return world, steps >= at


def every_stop(kind: type[BucketTree]) -> list[int]:
    results = []
    for at in range(1, 500):
        world, ran = stopped_once(kind, at)
        if not ran:
            return results
        results.append(world.shown())
        if kind is BucketTree:
            latest = json.loads(world.stored[f"{ROOT}latest/version.json"])
            assert (latest["sequence"], world.reader.files("latest/collection.json")) == (
                2,
                world.reader.files(),
            )
    raise AssertionError("a projection has no end")


def test_a_stalled_projector_never_wins() -> None:
    """Wherever a projector is stopped while a newer version is shown, the newer version stays, by name as
    well."""
    results = every_stop(BucketTree)
    assert len(results) > 20
    assert set(results) == {2}


def test_the_broken_variant_is_caught() -> None:
    """The test above can fail: without the condition an older version is shown in the end."""
    assert 1 in every_stop(Unconditional)


def test_many_projectors_in_turn() -> None:
    """Nested at random, any number of projectors end with the newest version, and each sees it grow."""
    rng = random.Random(3)
    for _ in range(100):
        world = World()
        world.database.put(0)
        seen = [0]

        def nested(depth: int, world: World = world, seen: list[int] = seen) -> None:
            stop = rng.randrange(1, 25)
            steps = 0

            def before(request: str) -> None:
                nonlocal steps
                steps += 1
                seen.append(world.shown())
                if steps == stop and depth < 4:
                    world.database.put(0, text=f"text {len(world.database.history)}")
                    nested(depth + 1)

            world.project(before)

        nested(0)
        assert seen == sorted(seen)
        world.assert_shows_head()


def test_projecting_again_only_looks() -> None:
    """Projecting is idempotent: the second time two requests read and none writes."""
    world = World()
    assert world.project() is None
    world.database.put(0)
    assert world.project() == 1
    bucket = MemoryBucket(world.stored)
    assert world.tree(bucket).project(DATASET.id, world.database.head, world.database) == 1
    assert bucket.requests == [f"get {ROOT}current.json", f"get {ROOT}latest/version.json"]


# --- what is sent ------------------------------------------------------------------------


@pytest.mark.req("GRO-1")
@pytest.mark.parametrize("hours", [30, 150])
def test_what_differs_is_sent(hours: int) -> None:
    """One hour more costs its file, its item, the pages on the way and the version's own documents; what the
    shown version has is neither sent nor looked for."""
    world = World()
    world.database.put(*range(hours))
    world.project()
    world.database.put(hours)
    bucket = MemoryBucket(world.stored)
    world.tree(bucket).project(DATASET.id, world.database.head, world.database)
    world.assert_shows_head()
    kinds = [key.removeprefix(ROOT).partition("/")[0] for key in bucket.puts]
    assert (kinds.count("files"), kinds.count("items"), kinds.count("versions")) == (1, 1, 3)
    assert kinds.count("catalogue") == (4 if hours > 100 else 0)
    assert kinds.count("pages") <= 3
    assert not [one for one in bucket.requests if one.startswith(("head", "list"))]


@pytest.mark.req("GRO-1")
def test_every_kind_of_change_is_shown_whole() -> None:
    """Random histories of hours that come, change and go, across the hundred that a collection links: after
    each version readers find exactly its files."""
    for seed in range(6):
        rng = random.Random(seed)
        world = World()
        there: set[int] = set()
        for _ in range(12):
            some = [rng.randrange(200) for _ in range(rng.choice([1, 3, 60]))]
            if there and rng.random() < 0.4:
                gone = rng.sample(sorted(there), min(len(there), rng.choice([1, 2, 70])))
                world.database.drop(*gone)
                there -= set(gone)
            else:
                source = rng.choice(["usgs", "usgs", "noaa"])
                world.database.put(*set(some), text=str(rng.randrange(3)), source=source)
                there |= set(some)
            if rng.random() < 0.3:
                continue  # not shown: the next one is two away
            world.project()
            world.assert_shows_head()


@pytest.mark.req("GRO-1")
def test_what_another_database_showed_is_no_reason_to_leave_a_file_out() -> None:
    """What a database does not know is refused, and without a history everything is sent."""
    world = World()
    world.database.put(0, 1)
    world.project()
    pointer = f"{ROOT}current.json"
    world.stored = {pointer: world.stored[pointer]}
    world.database.put(0, text="again")

    class Elsewhere(MergedDataset):
        def __call__(self, sequence: int, /) -> str | None:
            return None

    with pytest.raises(TargetUnavailable, match="not of this database"):
        world.projector().project(DATASET.id, world.database.head, Elsewhere(world.objects))
    world.projector().project(DATASET.id, world.database.head)
    world.assert_shows_head()


@pytest.mark.req("GRO-1")
@pytest.mark.parametrize("damage", ["missing", "other bytes"])
@pytest.mark.parametrize("title", ["usgs", "2026", "2026-01", "2026-01-07"])
def test_a_damaged_page_is_made_again(title: str, damage: str) -> None:
    """An address is taken from a page of the shown version only if the page has the bytes that its name says:
    else what is below it is rendered and sent."""
    world = World()
    world.database.put(*range(150))
    world.project()
    world.database.put(149, text="again")
    pages = [key for key in world.stored if key.startswith(f"{ROOT}catalogue/")]
    (page,) = [key for key in pages if json.loads(world.stored[key])["title"] == title]
    if damage == "missing":
        del world.stored[page]
    else:
        world.stored[page] = world.stored[page].replace(b"../", b"../elsewhere/")
    world.project()
    world.assert_shows_head()


@pytest.mark.req("GRO-1")
def test_rights_that_change_reach_every_item() -> None:
    """Items say their dataset's rights: with others each is sent again, and no file is."""
    world = World()
    world.database.put(*range(120))
    world.project()
    assert DATASET.rights is not None
    rights = {"license": "CC-BY-4.0", "care": DATASET.rights.care}
    world.database.dataset = DatasetSettings(
        id=DATASET.id, title=DATASET.title, rights=type(DATASET.rights)(**rights)
    )
    world.database.put(119)
    bucket = MemoryBucket(world.stored)
    world.tree(bucket).project(DATASET.id, world.database.head, world.database)
    world.assert_shows_head()
    kinds = [key.removeprefix(ROOT).partition("/")[0] for key in bucket.puts]
    assert (kinds.count("items"), kinds.count("files")) == (120, 0)
    for _, item in world.reader.items(world.reader.pointer()["collection"]):
        assert item["properties"]["license"] == "CC-BY-4.0"


@pytest.mark.req("GRO-1")
def test_a_type_that_changes_is_told_with_the_same_bytes() -> None:
    """A file whose media type is corrected is put again under the same address."""
    world = World()
    world.database.put(0)
    world.project()
    world.database.put(0, media_type="application/vnd.apache.parquet")
    bucket = MemoryBucket(world.stored)
    world.tree(bucket).project(DATASET.id, world.database.head, world.database)
    (key,) = [key for key in bucket.puts if "/files/" in key]
    assert plain(bucket.told[key])["content_type"] == "application/vnd.apache.parquet"


@pytest.mark.req("GRO-1")
def test_small_objects_travel_at_once_and_large_ones_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket that takes many at once is given batches, the pointer after all of them; progress is told."""
    monkeypatch.setattr(bucket_objects, "SMALL_BYTES_MAX", 12)
    monkeypatch.setattr(bucket_objects, "BATCH_OBJECTS_MAX", 2)
    monkeypatch.setattr(s3, "SHOWN_MIN", 1)

    class Told:
        def __init__(self) -> None:
            self.total, self.sent, self.is_done = 0, 0, False

        def phase(self, name: str, total: int | None = None) -> None:
            self.total = total or 0

        def advance(self, amount: int, note: str = "") -> None:
            self.sent += amount

        def done(self) -> None:
            self.is_done = True

    world, told = World(latest="never"), Told()
    world.database.put(0, 1, 2)
    world.database.put(10)  # a longer name makes a larger file
    bucket = ManyBucket(world.stored)
    tree = world.tree(bucket, progress=told)
    assert tree.project(DATASET.id, world.database.head, world.database) == 2
    world.assert_shows_head()
    assert bucket.batches == [2, 1, 1, 2, 2, 2, 1]  # three files; a page; four items; three documents
    assert [one for one in bucket.requests if one.startswith("put_stream")] != []
    assert bucket.puts[-1] == f"{ROOT}current.json"
    assert (told.total, told.sent, told.is_done) == (8, 8, True)


@pytest.mark.req("GRO-1")
def test_objects_have_types_and_caches() -> None:
    """Each object tells what it is; all but the pointer and what is found by name may be kept for ever."""
    world = World(latest="files")
    world.database.put(*range(101))
    world.database.withdraw()
    world.database.put(*range(101))
    bucket = MemoryBucket(world.stored)
    tree = world.tree(bucket)
    for sequence in range(3):
        tree.project(DATASET.id, lambda at=sequence: world.database.history[at], world.database)  # type: ignore[misc]
    wanted = {
        "files/": ("text/csv", True),
        "items/": ("application/geo+json", True),
        "catalogue/": ("application/json", True),
        "pages/": ("application/json", True),
        "versions/": (None, True),
        "latest/data/": ("text/csv", False),
        "latest/": (None, False),
        "current.json": ("application/json", False),
    }
    seen = set()
    for key, told in bucket.told.items():
        if not key.startswith(ROOT):
            continue
        kind = next(one for one in wanted if key.removeprefix(ROOT).startswith(one))
        seen.add(kind)
        media_type, lasts = wanted[kind]
        suffix = key.rpartition(".")[2]
        by_name = {
            "json": "application/json",
            "jsonld": "application/ld+json",
            "txt": "text/plain; charset=utf-8",
        }
        facts = plain(told)
        assert facts["content_type"] == (media_type or by_name[suffix])
        assert facts["cache_control"] == ("public, max-age=31536000, immutable" if lasts else "no-cache")
        name = key.rpartition("/")[2]
        is_file = kind in ("files/", "latest/data/")
        assert facts["content_disposition"] == (f'inline; filename="{name}"' if is_file else None)
    assert seen == wanted.keys()


@pytest.mark.req("GRO-1")
def test_growth_by_hours() -> None:
    """A dataset that grows hour by hour: each of 300 versions costs a bounded number of puts, and the number
    of objects grows by the same with each hundred."""
    world = World()
    bucket = MemoryBucket(world.stored)
    tree, puts, objects = world.tree(bucket), [], []
    for number in range(300):
        world.database.put(number)
        before = len(bucket.puts)
        tree.project(DATASET.id, world.database.head, world.database)
        puts.append(len(bucket.puts) - before)
        objects.append(len(world.stored))
    world.assert_shows_head()
    assert max(puts) <= 25, "also when the pages begin"
    middle, last = objects[199] - objects[99], objects[299] - objects[199]
    assert abs(last / middle - 1) < 0.1, f"{middle} objects for a hundred versions, then {last}"


# --- trouble -----------------------------------------------------------------------------


def test_the_pointer_comes_after_all_that_it_leads_to() -> None:
    """Of a version nothing is put after the pointer but what is found by name."""
    world = World()
    world.database.put(*range(120))
    bucket = MemoryBucket(world.stored)
    world.tree(bucket).project(DATASET.id, world.database.head, world.database)
    at = bucket.puts.index(f"{ROOT}current.json")
    assert all(key.startswith(f"{ROOT}latest/") for key in bucket.puts[at + 1 :])


@pytest.mark.req("GRO-1")
@pytest.mark.parametrize("latest", ["documents", "files"])
def test_a_projector_that_dies_anywhere_leaves_whole_versions(latest: str) -> None:
    """Killed ahead of anything that it writes: readers see the version before or the new one, whole; the next
    projector completes it, by name as well."""
    for at in range(1, 200):
        world = World(latest=latest)
        world.database.put(*range(99), 101)
        world.project()
        world.database.put(7, text="again")
        world.database.drop(8)
        world.database.put(102, 103)  # now there are pages
        steps = 0

        def before(request: str) -> None:
            nonlocal steps
            steps += not request.startswith("get")
            if steps == at:  # noqa: B023
                raise Stopped

        try:
            world.project(before)
        except Stopped:
            assert world.shown() in (1, 4)
            if at % 3 == 0:  # meanwhile there is another one
                world.database.put(7, text="thrice")
            world.project()
        world.assert_shows_head()
        assert world.reader.files("latest/collection.json") == world.reader.files()
        named = {
            key.removeprefix(f"{ROOT}latest/data/"): data
            for key, data in world.stored.items()
            if key.startswith(f"{ROOT}latest/data/")
        }
        assert named == (world.reader.files() if latest == "files" else {})
        if steps < at:
            return
    raise AssertionError("a projection has no end")


def test_an_unreachable_bucket_leaves_the_promotion_alone() -> None:
    """A target that fails says so with its own error; later the same call succeeds."""
    world = World()
    world.database.put(0)

    def fail(request: str) -> None:
        if request.startswith("put ") and "/files/" in request:
            raise UpstreamUnavailable("503")

    with pytest.raises(TargetUnavailable, match="503"):
        world.project(fail)
    assert world.shown() == 0
    assert world.project() == 1


@pytest.mark.parametrize("trouble", ["lost", "damaged"])
def test_a_lost_object_is_our_fault_not_the_targets(trouble: str) -> None:
    """When the object store lacks a file or has other bytes, the error says that, and the pointer stays."""
    world = World()
    world.database.put(0)
    for digest, data in list(world.objects.stored.items()):
        if trouble == "lost":
            del world.objects.stored[digest]
        else:
            world.objects.stored[digest] = data[::-1]
    with pytest.raises(StoreCorrupt, match=DATASET.id):
        world.project()
    assert world.shown() == 0


def test_a_target_of_another_database_is_refused() -> None:
    """A pointer that is ahead of the database, or that shows another history, is not overwritten."""
    world = World()
    for number in range(2):
        world.database.put(number)
    world.project()
    other = MergedDataset(world.objects)
    other.put(0)
    with pytest.raises(TargetUnavailable, match="the database is at 1"):
        world.projector().project(DATASET.id, other.head)
    world.stored[f"{ROOT}current.json"] = b"hello"
    with pytest.raises(TargetUnavailable, match="not ours"):
        world.project()


def test_a_past_that_is_not_ours_is_never_replaced() -> None:
    """After a lost state the new one's promotions don't take the pointer over, however many there are."""
    world = World()
    for number in range(2):
        world.database.put(number)
        world.project()
    other = MergedDataset(world.objects)
    for number in range(5):
        other.put(number, text="another past")
        with pytest.raises(TargetUnavailable, match="not of this database") as refused:
            world.projector().project(DATASET.id, other.head, other)
        assert "remove its current.json" in refused.value.way_out
        assert world.shown() == 2
    world.database.put(2)
    assert world.project() == 3
    del world.stored[f"{ROOT}current.json"]  # the remedy
    assert world.projector().project(DATASET.id, other.head, other) == 5


def test_endless_conflict_ends() -> None:
    """A pointer that moves each time we look is an error after a bounded number of tries."""
    world = World()
    world.database.put(0)

    class Restless(MemoryBucket):
        def put(self, key: str, data: bytes, **conditions: Any) -> bool:
            return False if key.endswith("current.json") else super().put(key, data, **conditions)

    with pytest.raises(TargetUnavailable, match="moved"):
        world.tree(Restless(world.stored)).project(DATASET.id, world.database.head, world.database)


@pytest.mark.parametrize("ignored", ["if_match", "if_none_match"])
def test_a_store_that_ignores_conditions_is_refused(ignored: str) -> None:
    """Before the first put a store must refuse what it should; one that does not could lose the pointer."""
    world = World()
    world.database.put(0)

    class Careless(MemoryBucket):
        def put(self, key: str, data: bytes, **conditions: Any) -> bool:
            conditions.pop(ignored, None)
            return super().put(key, data, **conditions)

    for _ in range(2):  # also once the object that it is tried with is there
        with pytest.raises(TargetUnavailable, match="ignores conditions"):
            world.tree(Careless(world.stored)).project(DATASET.id, world.database.head, world.database)
    assert f"{ROOT}current.json" not in world.stored


def test_conditions_are_tried_once() -> None:
    """A process tries the store before the first version that it sends, and not again."""
    world = World()
    bucket = MemoryBucket(world.stored)
    tree = world.tree(bucket)
    for number in range(3):
        world.database.put(number)
        tree.project(DATASET.id, world.database.head, world.database)
    assert bucket.puts.count("pub/.kfm-conditional-put") == 3
