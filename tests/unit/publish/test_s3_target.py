"""The tree in a bucket: the pointer only moves forward, and only to what is there."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from kfm.model.errors import StoreCorrupt, TargetUnavailable, UpstreamUnavailable
from kfm.publish.targets.s3 import BucketTree
from tests.unit.publish.stand_ins import DATASET, Database, MemoryObjects, sha

pytestmark = pytest.mark.req("TRG-4")
ROOT = f"pub/{DATASET.id}/"


class Stat:
    def __init__(self, size: int) -> None:
        self.size = size


class MemoryBucket:
    """A bucket with conditional puts. `before` is called ahead of each request."""

    def __init__(self, stored: dict[str, bytes], before: Callable[[str], None] | None = None) -> None:
        self.stored = stored
        self.before = before or (lambda request: None)
        self.requests: list[str] = []

    def _request(self, name: str, key: str) -> None:
        self.requests.append(f"{name} {key}")
        self.before(f"{name} {key}")

    def get(self, key: str) -> tuple[bytes, str] | None:
        self._request("get", key)
        data = self.stored.get(key)
        return None if data is None else (data, hashlib.md5(data).hexdigest())

    def put(self, key: str, data: bytes, *, if_match: str | None = None, if_none_match: bool = False) -> bool:
        self._request("put", key)
        there = self.stored.get(key)
        if if_none_match and there is not None:
            return False
        if if_match is not None and (there is None or hashlib.md5(there).hexdigest() != if_match):
            return False
        self.stored[key] = data
        return True

    def put_stream(self, key: str, chunks: Iterable[bytes]) -> None:
        self._request("put_stream", key)
        self.stored[key] = b"".join(chunks)

    def head(self, key: str) -> Any:
        self._request("head", key)
        return Stat(len(self.stored[key])) if key in self.stored else None


class World:
    def __init__(self, kind: type[BucketTree] = BucketTree) -> None:
        self.kind = kind
        self.stored: dict[str, bytes] = {}
        self.objects = MemoryObjects()
        self.database = Database(self.objects)

    def projector(self, before: Callable[[str], None] | None = None) -> BucketTree:
        return self.kind("bucket", MemoryBucket(self.stored, before), self.objects, "pub")  # type: ignore[arg-type]

    def shown(self) -> int:
        """The sequence of the pointer; fails unless everything it leads to is there."""
        data = self.stored.get(f"{ROOT}current.json")
        if data is None:
            return 0
        pointer = json.loads(data)
        manifest = self.stored[ROOT + pointer["manifest"]]
        assert "sha256:" + sha(manifest) == pointer["version_id"]
        assert ROOT + pointer["collection"] in self.stored
        for one in json.loads(manifest)["items"]:
            folder = pointer["collection"].removesuffix("/collection.json")
            document = json.loads(self.stored[f"{ROOT}{folder}/items/{one['id']}.json"])
            for file in document["assets"].values():
                assert file["href"].startswith("../../../blobs/")
                key = ROOT + file["href"].removeprefix("../../../")
                assert "1220" + sha(self.stored[key]) == file["file:checksum"]
        return int(pointer["sequence"])


class Unconditional(BucketTree):
    """The broken variant: the pointer is put whatever stands there."""

    def _point(self, root: str, promotion: Any, etag: str | None) -> bool:
        there = self._bucket.get(f"{root}current.json")
        return super()._point(root, promotion, there[1] if there else None)


def stopped_once(kind: type[BucketTree], at: int) -> tuple[World, bool]:
    world = World(kind)
    world.database.promote()
    steps = 0

    def before(request: str) -> None:
        nonlocal steps
        steps += 1
        if steps == at:
            world.database.promote()
            assert world.projector().project(DATASET.id, world.database.head) == 2

    world.projector(before).project(DATASET.id, world.database.head)
    return world, steps >= at


def every_stop(kind: type[BucketTree]) -> list[int]:
    results = []
    for at in range(1, 500):
        world, ran = stopped_once(kind, at)
        if not ran:
            return results
        results.append(world.shown())
    raise AssertionError("a projection has no end")


def test_a_stalled_projector_never_wins() -> None:
    """Wherever a projector is stopped while a newer version is shown, the newer version stays."""
    results = every_stop(BucketTree)
    assert len(results) > 8
    assert set(results) == {2}


def test_the_broken_variant_is_caught() -> None:
    """The test above can fail: without the condition an older version is shown in the end."""
    assert 1 in every_stop(Unconditional)


def test_many_projectors_in_turn() -> None:
    """Nested at random, any number of projectors end with the newest version, and each sees it grow."""
    rng = random.Random(3)
    for _ in range(100):
        world = World()
        world.database.promote()
        seen = [0]

        def nested(depth: int, world: World = world, seen: list[int] = seen) -> None:
            stop = rng.randrange(1, 14)
            steps = 0

            def before(request: str) -> None:
                nonlocal steps
                steps += 1
                seen.append(world.shown())
                if steps == stop and depth < 4:
                    world.database.promote()
                    nested(depth + 1)

            world.projector(before).project(DATASET.id, world.database.head)

        nested(0)
        assert seen == sorted(seen)
        assert world.shown() == len(world.database.history)


def test_projecting_again_only_looks() -> None:
    """Projecting is idempotent: the second time one request reads and none writes."""
    world = World()
    assert world.projector().project(DATASET.id, world.database.head) is None
    world.database.promote()
    assert world.projector().project(DATASET.id, world.database.head) == 1
    bucket = MemoryBucket(world.stored)
    tree = BucketTree("bucket", bucket, world.objects, "pub")  # type: ignore[arg-type]
    assert tree.project(DATASET.id, world.database.head) == 1
    assert bucket.requests == [f"get {ROOT}current.json"]


def test_a_file_is_sent_once() -> None:
    """Bytes that a bucket holds are not sent again with the next version."""
    world = World()
    for _ in range(2):
        world.database.promote()
        bucket = MemoryBucket(world.stored)
        BucketTree("bucket", bucket, world.objects, "pub").project(DATASET.id, world.database.head)  # type: ignore[arg-type]
    assert len([request for request in bucket.requests if request.startswith("put_stream")]) == 1


def test_the_pointer_comes_last() -> None:
    """Nothing is put after the pointer, so it never leads to something that is not there."""
    world = World()
    world.database.promote()
    bucket = MemoryBucket(world.stored)
    BucketTree("bucket", bucket, world.objects, "pub").project(DATASET.id, world.database.head)  # type: ignore[arg-type]
    assert bucket.requests[-1] == f"put {ROOT}current.json"


def test_an_unreachable_bucket_leaves_the_promotion_alone() -> None:
    """A target that fails says so with its own error; later the same call succeeds."""
    world = World()
    world.database.promote()

    def fail(request: str) -> None:
        if request.startswith("put_stream"):
            raise UpstreamUnavailable("503")

    with pytest.raises(TargetUnavailable, match="503"):
        world.projector(fail).project(DATASET.id, world.database.head)
    assert world.shown() == 0
    assert world.projector().project(DATASET.id, world.database.head) == 1


def test_a_lost_object_is_our_fault_not_the_targets() -> None:
    """When the object store lacks a file, the error says that, and the pointer stays."""
    world = World()
    world.database.promote()
    world.objects.stored.clear()
    with pytest.raises(StoreCorrupt, match=DATASET.id):
        world.projector().project(DATASET.id, world.database.head)
    assert world.shown() == 0


def test_a_target_of_another_database_is_refused() -> None:
    """A pointer that is ahead of the database, or that shows another history, is not overwritten."""
    world = World()
    for _ in range(2):
        world.database.promote()
    world.projector().project(DATASET.id, world.database.head)
    other = Database(world.objects)
    other.promote()
    with pytest.raises(TargetUnavailable, match="the database is at 1"):
        world.projector().project(DATASET.id, other.head)
    world.stored[f"{ROOT}current.json"] = b"hello"
    with pytest.raises(TargetUnavailable, match="not ours"):
        world.projector().project(DATASET.id, world.database.head)


def test_a_past_that_is_not_ours_is_never_replaced() -> None:
    """After a lost state the new one's promotions don't take the pointer over, however many there are."""
    world = World()
    for _ in range(2):
        world.database.promote()
        world.projector().project(DATASET.id, world.database.head, world.database.known)
    other = Database(world.objects, "another past")
    for _ in range(5):
        other.promote()
        with pytest.raises(TargetUnavailable, match="not of this database") as refused:
            world.projector().project(DATASET.id, other.head, other.known)
        assert "remove its current.json" in refused.value.way_out
        assert world.shown() == 2
    world.database.promote()
    assert world.projector().project(DATASET.id, world.database.head, world.database.known) == 3
    del world.stored[f"{ROOT}current.json"]  # the remedy
    assert world.projector().project(DATASET.id, other.head, other.known) == 5


def test_endless_conflict_ends() -> None:
    """A pointer that moves each time we look is an error after a bounded number of tries."""
    world = World()
    world.database.promote()

    class Restless(MemoryBucket):
        def put(self, key: str, data: bytes, **conditions: Any) -> bool:
            return False if key.endswith("current.json") else super().put(key, data, **conditions)

    tree = BucketTree("bucket", Restless(world.stored), world.objects, "pub")  # type: ignore[arg-type]
    with pytest.raises(TargetUnavailable, match="moved"):
        tree.project(DATASET.id, world.database.head)
