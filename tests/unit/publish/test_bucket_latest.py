"""`latest/` in a bucket: what is found by name is the head's, soon, whatever happens on the way."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest

from kfm.model.errors import TargetUnavailable
from kfm.publish.targets.bucket_latest import COMPARED_MAX
from tests.published_bucket import ROOT, MemoryBucket, Stopped
from tests.unit.publish.stand_ins import DATASET
from tests.unit.publish.test_s3_target import World

pytestmark = pytest.mark.req("GRO-1")
LATEST = f"{ROOT}latest/"


def named(world: World) -> dict[str, bytes]:
    """What is found by name, by its name."""
    return {key.removeprefix(LATEST): data for key, data in world.stored.items() if key.startswith(LATEST)}


def files_by_name(world: World) -> dict[str, bytes]:
    start = "data/"
    return {key.removeprefix(start): data for key, data in named(world).items() if key.startswith(start)}


def test_documents_are_found_by_name() -> None:
    """The newest collection leads to every item and file, and items lead back to it; a text says that two
    versions can be met there."""
    world = World()
    for number in range(2):
        world.database.put(number)
        world.project()
    assert named(world).keys() == {"collection.json", "dcat.jsonld", "README.txt", "version.json"}
    assert world.reader.files("latest/collection.json") == world.reader.files()
    for _, item in world.reader.items("latest/collection.json"):
        (href,) = [link["href"] for link in item["links"] if link["rel"] == "collection"]
        assert href == "../../latest/collection.json"
    assert b"current.json" in named(world)["README.txt"]
    marker = json.loads(named(world)["version.json"])
    assert (marker["sequence"], marker["version_id"]) == (2, world.reader.pointer()["version_id"])


def test_files_are_found_by_name_and_only_those_that_changed_are_sent() -> None:
    """With `latest: files` each file is at its path; one that is gone from the dataset is gone there."""
    world = World(latest="files")
    world.database.put(*range(30))
    world.project()
    assert files_by_name(world) == world.reader.files()
    world.database.put(3, text="again")
    world.database.drop(4)
    bucket = MemoryBucket(world.stored)
    world.tree(bucket).project(DATASET.id, world.database.head, world.database)
    assert files_by_name(world) == world.reader.files()
    assert [key.removeprefix(LATEST) for key in bucket.puts if "/data/" in key] == ["data/usgs/0000/03.csv"]
    deleted = [one.removeprefix(f"delete {LATEST}") for one in bucket.requests if one.startswith("delete")]
    assert deleted == ["data/usgs/0000/04.csv"]


def test_without_a_history_all_are_compared() -> None:
    """A projector that does not know what is there puts every file, and removes by a listing."""
    world = World(latest="files")
    world.database.put(*range(5))
    world.project()
    world.database.drop(4)
    world.stored[f"{LATEST}data/stray.csv"] = b"?"
    world.projector().project(DATASET.id, world.database.head)
    assert files_by_name(world) == world.reader.files()


def test_a_withdrawn_dataset_is_gone_by_name() -> None:
    """No file is left, the collection leads to nothing, and the tombstone is there until it is lifted."""
    world = World(latest="files")
    world.database.put(*range(5))
    world.project()
    world.database.withdraw()
    world.project()
    assert (files_by_name(world), world.reader.files("latest/collection.json")) == ({}, {})
    assert json.loads(named(world)["withdrawn.json"])["state"] == "withdrawn"
    world.database.put(1)
    world.project()
    assert "withdrawn.json" not in named(world)
    assert files_by_name(world) == world.reader.files()


def test_the_option_can_change() -> None:
    """With the next look the folder has what it should: files come and go, and with `never` all of it."""
    world = World(latest="documents")
    world.database.put(*range(3))
    world.project()
    for latest, expected in (("files", 3), ("documents", 0), ("files", 3), ("never", 0)):
        world.latest = latest
        world.project()
        assert len(files_by_name(world)) == expected
    assert named(world) == {}
    bucket = MemoryBucket(world.stored)
    world.tree(bucket).project(DATASET.id, world.database.head, world.database)
    assert bucket.puts == []


def test_a_crash_after_a_change_of_the_option_is_made_good() -> None:
    """Killed while files come for the first time, the next projector brings those that are missing."""
    for at in range(1, 60):
        world = World(latest="documents")
        world.database.put(*range(3))
        world.project()
        world.latest = "files"
        steps = 0

        def before(request: str) -> None:
            nonlocal steps
            steps += 1
            if steps == at:  # noqa: B023
                raise Stopped

        try:
            world.project(before)
        except Stopped:
            world.database.put(0, text="again")
            world.project()
        assert files_by_name(world) == world.reader.files()
        if steps < at:
            return
    raise AssertionError("it has no end")


def crashing(at: int) -> Callable[[str], None]:
    steps = 0

    def before(request: str) -> None:
        nonlocal steps
        steps += 1
        if steps == at:
            raise Stopped

    return before


def test_any_number_of_crashes_is_made_good() -> None:
    """Versions that come, change back and go while projectors die at random: the first that lives makes what
    is found by name the head's."""
    for seed in range(40):
        rng = random.Random(seed)
        world = World(latest="files")
        world.database.put(*range(4))
        world.project()
        for _ in range(rng.randrange(1, COMPARED_MAX + 4)):
            if rng.random() < 0.3:
                world.database.drop(rng.randrange(6))
            else:
                world.database.put(rng.randrange(6), text=str(rng.randrange(2)))
            try:
                world.project(crashing(rng.randrange(1, 45)))
            except Stopped:
                continue
        world.project()
        assert files_by_name(world) == world.reader.files()


def test_a_stalled_projector_does_not_leave_older_files() -> None:
    """Wherever a projector is stopped while a newer version is shown, it ends with the newer one by name."""
    for at in range(1, 100):
        world = World(latest="files")
        world.database.put(0, 1, 2)
        world.project()
        world.database.put(0, 1, text="second")
        world.database.drop(2)
        steps = 0

        def before(request: str) -> None:
            nonlocal steps
            steps += 1
            if steps == at:  # noqa: B023
                world.database.put(0, text="third")  # noqa: B023
                world.database.put(1)  # noqa: B023 - as it was at first
                assert world.project() == 5  # noqa: B023

        world.project(before)
        assert files_by_name(world) == world.reader.files()
        assert world.reader.files("latest/collection.json") == world.reader.files()
        if steps < at:
            return
    raise AssertionError("it has no end")


def test_a_marker_that_is_not_ours_is_refused() -> None:
    """Something else of that name is not overwritten, and the error says what to move away."""
    world = World()
    world.stored[f"{LATEST}version.json"] = b"hello"
    world.database.put(0)
    with pytest.raises(TargetUnavailable, match=r"latest/version\.json is not ours"):
        world.project()


@pytest.mark.parametrize("latest", ["documents", "files"])
def test_a_slower_projector_does_not_take_the_tombstone_of_a_newer_version(latest: str) -> None:
    """It removes that of the version before; where a newer one has come in between, the newer one's is there
    in the end."""
    world = World(latest=latest)
    world.database.put(1)
    world.project()
    world.database.withdraw()
    world.project()
    world.database.put(2)  # published again: its tombstone goes
    came = []

    def another_comes(request: str) -> None:
        if request == f"delete {LATEST}withdrawn.json" and not came:
            came.append(request)
            world.database.withdraw()
            world.project()

    slow = MemoryBucket(world.stored, another_comes)
    world.tree(slow).project(DATASET.id, world.database.head, world.database)
    assert came
    assert "withdrawn.json" in named(world)
    assert json.loads(named(world)["version.json"])["sequence"] == 4
