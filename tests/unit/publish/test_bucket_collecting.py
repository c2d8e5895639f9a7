"""Collecting and purging in a bucket: what no kept version leads to goes, and nothing that one does."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from msgspec.structs import replace

from kfm.model.canonical import canonical_bytes
from kfm.model.errors import TargetUnavailable
from kfm.publish.targets.bucket_layout import hash_in
from kfm.runs.gc import KeptVersions
from tests.published_bucket import ROOT, MemoryBucket, expected_files
from tests.unit.publish.stand_ins import DATASET, sha
from tests.unit.publish.test_s3_target import World

pytestmark = pytest.mark.req("GRO-2")
SHARED = ("files", "items", "catalogue", "pages", "blobs")
OLD = 2**50


class Shelf(World):
    """With one bucket, whose clock moves with each put."""

    def __init__(self, latest: str = "documents") -> None:
        super().__init__(latest=latest)
        self.bucket = MemoryBucket(self.stored)
        self.target = self.tree(self.bucket)

    def show(self) -> None:
        self.target.project(DATASET.id, self.database.head, self.database)

    def kept(self, count: int, **facts: Any) -> KeptVersions:
        some = self.database.history[-count:]
        blobs = {digest for _, version in some for _, digest, _ in version.files()}
        sequences = frozenset(promotion.sequence for promotion, _ in some)
        return KeptVersions(sequences=sequences, blobs=frozenset(blobs), **facts)

    def collect(self, count: int, before_ms: int = OLD, **facts: Any) -> int:
        kept = self.kept(count, **facts)
        oldest = min(kept.sequences)
        old = [name for name, sequence in self.target.versions(DATASET.id) if sequence < oldest]
        self.target.discard(DATASET.id, old)
        return sum(1 for _ in self.target.sweep(DATASET.id, kept, before_ms))

    def shared(self) -> set[str]:
        keys = (key.removeprefix(ROOT) for key in self.stored)
        return {key for key in keys if key.partition("/")[0] in SHARED}

    def assert_whole(self, *sequences: int) -> None:
        """These versions are here with all of their files."""
        for promotion, version in self.database.history:
            if promotion.sequence in sequences:
                folder = f"versions/{promotion.sequence:08d}-{promotion.version_id[7:19]}"
                found = self.reader.files(f"{folder}/collection.json")
                assert found == expected_files(version, self.objects)
                assert self.reader.tree(f"{folder}/manifest.json").keys() == found.keys()


def test_what_kept_versions_lead_to_stays_and_the_rest_goes() -> None:
    """After collecting, the bucket has just what it would have if only the kept versions had been shown."""
    for seed in range(5):
        rng = random.Random(seed)
        world, alone = Shelf(), Shelf()
        world.database.put(*range(110))
        world.show()
        for _ in range(6):
            world.database.put(rng.randrange(120), text=str(rng.randrange(3)))
            if rng.random() < 0.3:
                world.database.drop(rng.randrange(110))
            world.show()
        keep = rng.randrange(1, 4)
        kept_here = [one for one, _ in world.database.history[-keep:]]
        shown = {sequence for _, sequence in world.target.versions(DATASET.id)}
        world.collect(keep)
        alone.objects = world.objects
        alone.target = alone.tree(alone.bucket)
        for promotion, version in world.database.history[-keep:]:
            if promotion.sequence in shown:
                alone.target.project(DATASET.id, lambda one=(promotion, version): one)  # type: ignore[misc]
        assert world.shared() == alone.shared()
        world.assert_whole(*({one.sequence for one in kept_here} & shown))
        assert world.collect(keep) == 0


def test_planning_removes_nothing() -> None:
    """What would go is told one by one, and is there afterwards."""
    world = Shelf()
    for number in range(4):
        world.database.put(0, text=str(number))
        world.show()
    before = dict(world.stored)
    planned = list(world.target.unneeded(DATASET.id, world.kept(1), OLD))
    assert world.stored == before
    assert {one.key.partition("/")[0] for one in planned} == {"files", "items", "pages"}
    assert all(one.size == len(world.stored[ROOT + one.key]) for one in planned)
    assert world.collect(1) == len(planned) == 9
    world.assert_whole(4)


def test_young_objects_stay() -> None:
    """What was put within the grace time stays: a projector may be about to show it."""
    world = Shelf()
    for number in range(3):
        world.database.put(0, text=str(number))
        world.show()
        if number == 0:
            early_ms = world.bucket.now_ms + 1
    gone = [one.key for one in world.target.unneeded(DATASET.id, world.kept(1), early_ms)]
    assert [key.partition("/")[0] for key in gone] == ["files", "items", "pages"]
    assert hash_in(gone[0]) == sha(b"0 usgs 0\n")


def test_a_bucket_that_is_behind_keeps_what_it_has() -> None:
    """While the pointer shows a version older than those that are kept, nothing goes; while it shows an older
    one than the newest, items and pages stay."""
    world = Shelf()
    for number in range(3):
        world.database.put(0, text=str(number))
        world.show()
    for number in range(3, 5):  # promoted, and not shown yet
        world.database.put(0, text=str(number))
    before = world.shared()
    assert world.collect(1) == 0
    assert world.shared() == before
    assert world.collect(3) == 2  # the files of the two oldest
    assert {key.partition("/")[0] for key in before - world.shared()} == {"files"}
    world.show()
    world.collect(1)
    world.assert_whole(5)


def test_a_projector_at_work_finds_what_it_sent() -> None:
    """Wherever a collector of everything comes in while a promoted version is being shown, the version is
    whole in the end."""
    for at in range(1, 60):
        world = Shelf()
        for number in range(3):
            world.database.put(*range(105 if number == 0 else 2), text=str(number))
            world.show()
        world.database.promote(world.database.history[0][1])  # back to what only an old version has
        steps = 0

        def before(request: str) -> None:
            nonlocal steps
            steps += 1
            if steps == at:  # noqa: B023
                world.collect(1)  # noqa: B023

        tree = world.tree(MemoryBucket(world.stored, before))
        tree.project(DATASET.id, world.database.head, world.database)
        world.assert_shows_head()
        if steps < at:
            return
    raise AssertionError("it has no end")


def test_a_page_that_is_missing_stops_collecting() -> None:
    """Nothing is removed on half the knowledge: the error names the object."""
    world = Shelf()
    for number in range(2):
        world.database.put(*range(105), text=str(number))
        world.show()
    kept = world.kept(1)
    (page,) = [key for key in shown_pages(world) if json.loads(world.stored[key])["title"] == "2026"]
    del world.stored[page]
    before = {key for key in world.shared() if not key.startswith("files/")}
    with pytest.raises(TargetUnavailable, match=page.removeprefix(ROOT)):
        list(world.target.sweep(DATASET.id, kept, OLD))
    assert {key for key in world.shared() if not key.startswith("files/")} == before


def shown_pages(world: Shelf) -> set[str]:
    """The pages that the shown version leads to."""
    found, waiting = set[str](), [world.reader.pointer()["collection"]]
    while waiting:
        key = waiting.pop()
        for link in json.loads(world.stored[ROOT + key])["links"]:
            if link["rel"] == "child":
                at = "catalogue/" + link["href"].rpartition("/")[2]
                found.add(ROOT + at)
                waiting.append(at)
    return found


def test_a_lost_lease_ends_it() -> None:
    """What is called before each removal ends the sweep, and the rest goes the next time."""
    world = Shelf()
    for number in range(4):
        world.database.put(0, text=str(number))
        world.show()
    calls = 0

    def lost() -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        list(world.target.sweep(DATASET.id, world.kept(1), OLD, lost))
    assert world.collect(1) == 6


def test_what_is_shared_goes_from_an_earlier_name() -> None:
    """A dataset that goes by another name leaves a tombstone: nothing else is needed there."""
    world = Shelf()
    world.database.put(*range(3))
    world.show()
    world.database.withdraw()
    world.show()
    world.database.put(0)  # under the new name
    there = {one.key.partition("/")[0] for one in world.target.unneeded(DATASET.id, world.kept(1), OLD)}
    assert there == {"files"}, "a version may be on its way, which needs items"
    assert world.collect(1, is_earlier_name=True) == 2 + 3 + 1
    assert world.collect(1, is_earlier_name=True) == 0
    assert [key.partition("/")[0] for key in sorted(world.shared())] == ["files", "pages"]


# --- the layout of before ------------------------------------------------------------------


def old_layout(world: Shelf, sequence: int) -> None:
    """Show a version as it was published before."""
    promotion, version = world.database.history[sequence - 1]
    folder = f"versions/{sequence:08d}-{promotion.version_id[7:19]}"
    for item in version.items():
        for asset in item.assets:
            digest = asset.sha256
            world.bucket.put(f"{ROOT}blobs/sha256/{digest[:2]}/{digest[2:]}", world.objects.stored[digest])
        world.bucket.put(f"{ROOT}{folder}/items/{item.id}.json", b"{}")
    links = [{"rel": "item", "href": f"./items/{item.id}.json"} for item in version.items()]
    world.bucket.put(f"{ROOT}{folder}/manifest.json", b"".join(version.pieces()))
    world.bucket.put(f"{ROOT}{folder}/collection.json", canonical_bytes({"links": links}))
    pointer = {
        "pointer": 1,
        "dataset_id": DATASET.id,
        "sequence": sequence,
        "version_id": promotion.version_id,
        "manifest": f"{folder}/manifest.json",
        "collection": f"{folder}/collection.json",
    }
    world.bucket.put(f"{ROOT}current.json", canonical_bytes(pointer))


@pytest.mark.req("GRO-1")
def test_the_next_version_is_made_in_the_new_layout() -> None:
    """What was shown before an upgrade stays; the next version sends everything once under its new name, and
    collecting removes the old names when their versions are not kept any more."""
    world = Shelf()
    world.database.put(*range(3))
    world.database.whole_form()
    first, version = world.database.history[1]
    world.database.history = [(replace(first, sequence=1), version)]
    old_layout(world, 1)
    world.show()
    assert "layout" not in world.reader.pointer(), "nothing is done for a version that is shown already"
    world.database.put(3)
    world.show()
    world.assert_shows_head()
    assert len([key for key in world.shared() if key.startswith("files/")]) == 4
    assert len([key for key in world.shared() if key.startswith("blobs/")]) == 3
    assert world.collect(2) == 0, "both are kept"
    world.database.put(0, text="again")
    world.show()
    assert world.collect(2) == 3, "the first one is not kept any more"
    assert not [key for key in world.stored if "/blobs/" in key or "/versions/00000001" in key]
    world.assert_whole(2, 3)


@pytest.mark.req("GRO-1")
def test_a_version_of_before_that_is_shown_again_keeps_its_form() -> None:
    """Its manifest lists all files and hashes to its id; what it leads to is in the new layout, and stays."""
    world = Shelf(latest="files")
    world.database.put(*range(105))
    world.show()
    world.database.whole_form()
    world.show()
    world.assert_shows_head()
    world.database.put(1, text="again")
    world.show()
    world.assert_shows_head()
    world.collect(2)
    world.assert_shows_head()
    assert world.reader.files("versions/" + world.target.versions(DATASET.id)[0][0] + "/collection.json")


# --- purging -----------------------------------------------------------------------------


def purged_scene(latest: str = "files") -> tuple[Shelf, list[Any], set[str]]:
    """Two versions hold what is withdrawn; a version before and the shown one do not."""
    world = Shelf(latest)
    world.database.put(*range(105))
    world.show()
    world.database.put(200, text="secret")
    world.show()
    world.database.put(3, text="corrected")
    world.show()
    world.database.drop(200)
    world.show()
    gone = [one for one, _ in world.database.history[1:3]]
    return world, gone, {sha(b"secret usgs 200\n")}


@pytest.mark.req("DAT-5")
def test_a_purge_removes_all_that_tells_of_it() -> None:
    """Files, items, pages and documents of purged versions are gone from every place; kept versions are
    whole. A second time there is nothing to do."""
    world, gone, blobs = purged_scene()
    world.stored[f"{ROOT}latest/data/usgs/0008/08.csv"] = b"secret usgs 200\n"  # a late put
    assert world.target.purge(DATASET.id, gone, blobs) > 8
    left = [key for key, data in world.stored.items() if b"secret" in data or b"0008/08" in data]
    assert left == []
    assert not [key for key in world.stored if "20260109" in key]
    assert [sequence for _, sequence in world.target.versions(DATASET.id)] == [1, 4]
    world.assert_whole(1, 4)
    assert world.target.purge(DATASET.id, gone, blobs) == 0
    assert world.collect(4) == 0, "nothing was left over"


@pytest.mark.req("DAT-5")
def test_a_purge_that_is_interrupted_is_completed() -> None:
    """Ended before any removal, the next one removes the rest; kept versions are whole at any time."""
    for at in range(1, 60):
        world, gone, blobs = purged_scene("documents")
        calls = 0

        def lost() -> None:
            nonlocal calls
            calls += 1
            if calls == at:  # noqa: B023
                raise InterruptedError

        try:
            world.target.purge(DATASET.id, gone, blobs, lost)
        except (InterruptedError, TargetUnavailable):
            world.assert_whole(1, 4)
            world.target.purge(DATASET.id, gone, blobs)
        assert not [key for key, data in world.stored.items() if b"secret" in data or "20260109" in key]
        world.assert_whole(1, 4)
        if calls < at:
            return
    raise AssertionError("it has no end")


@pytest.mark.req("DAT-5")
def test_a_purge_leaves_a_projector_at_work_its_objects() -> None:
    """What a newer version has sent already, and no document leads to yet, stays."""
    world, gone, blobs = purged_scene("documents")
    world.database.put(300)
    done = False

    def before(request: str) -> None:
        nonlocal done
        if "/versions/" in request and request.startswith("put") and not done:
            done = True
            world.target.purge(DATASET.id, gone, blobs)

    other = MemoryBucket(world.stored, before)
    other.now_ms, other.ages = world.bucket.now_ms, world.bucket.ages
    world.tree(other).project(DATASET.id, world.database.head, world.database)
    assert done
    world.assert_shows_head()


@pytest.mark.req("DAT-5")
def test_a_purge_finds_what_documents_no_longer_lead_to() -> None:
    """Versions whose documents were collected before: their items and pages go as well."""
    world, gone, blobs = purged_scene("documents")
    names = [name for name, sequence in world.target.versions(DATASET.id) if sequence in (2, 3)]
    world.target.discard(DATASET.id, names)
    assert [key for key in world.stored if "20260109" in key]
    world.target.purge(DATASET.id, gone, blobs)
    assert not [key for key, data in world.stored.items() if b"secret" in data or "20260109" in key]
    world.assert_whole(1, 4)
