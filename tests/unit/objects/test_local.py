"""LocalObjects on the real disk and on one that loses its power."""

from __future__ import annotations

import errno
import hashlib
import os
import random

import pytest

from kfm.model.errors import StoreCorrupt
from kfm.objects import local
from kfm.objects.local import LocalObjects, verify_object
from kfm.objects.remote import RemoteObjects
from kfm.ports import Objects
from kfm.system import PosixFiles, SystemIds
from tests.power import PowerCutFiles, PowerLost
from tests.published_bucket import MemoryBucket
from tests.stand_ins import CountedIds

BODY = bytes(range(256)) * 20


def read_all(objects: Objects, sha256: str) -> bytes:
    reader = objects.open(sha256)
    parts = []
    while data := reader.read(1000):
        parts.append(data)
    reader.close()
    return b"".join(parts)


def put(objects: Objects, body: bytes, resume_key: str | None = None) -> str:
    staging, offset = objects.stage(resume_key)
    for at in range(offset, len(body), 700):
        staging.write(body[at : at + 700])
    sha256, size = staging.commit()
    assert size == len(body)
    return sha256


@pytest.fixture
def objects(tmp_path) -> LocalObjects:
    return LocalObjects(PosixFiles(), str(tmp_path / "objects"), SystemIds())


def test_object_is_found_under_its_hash(objects, tmp_path):
    """What is committed can be read back under its SHA-256, and nothing else is left behind."""
    sha256 = put(objects, BODY)
    assert sha256 == hashlib.sha256(BODY).hexdigest()
    assert read_all(objects, sha256) == BODY
    assert list(objects.all()) == [sha256]
    assert objects.local_path(sha256) == str(tmp_path / "objects" / "sha256" / sha256[:2] / sha256[2:])
    assert list((tmp_path / "objects" / "tmp").iterdir()) == []


def test_same_bytes_twice_are_one_object(objects, tmp_path):
    """A second commit of the same bytes discards its copy."""
    first, second = put(objects, BODY), put(objects, BODY)
    assert first == second
    assert list(objects.all()) == [first]
    assert list((tmp_path / "objects" / "tmp").iterdir()) == []


def test_changed_bytes_are_noticed_when_read(objects, tmp_path):
    """An object whose bytes rotted on the disk is never handed out as if it were whole."""
    sha256 = put(objects, BODY)
    (tmp_path / "objects" / "sha256" / sha256[:2] / sha256[2:]).write_bytes(BODY[:-1] + b"?")
    with pytest.raises(StoreCorrupt):
        read_all(objects, sha256)
    with pytest.raises(StoreCorrupt):
        verify_object(objects, sha256)


@pytest.mark.req("RS-3")
@pytest.mark.parametrize("damaged", [BODY[:-1] + b"?", BODY[:100], b""], ids=["same size", "cut", "empty"])
def test_the_same_bytes_replace_what_was_damaged(objects, tmp_path, damaged):
    """An object whose bytes rotted is whole again once the same bytes come in, whatever is left of it."""
    sha256 = put(objects, BODY)
    (tmp_path / "objects" / "sha256" / sha256[:2] / sha256[2:]).write_bytes(damaged)
    assert put(objects, BODY) == sha256
    assert read_all(objects, sha256) == BODY
    assert list((tmp_path / "objects" / "tmp").iterdir()) == []


def test_the_same_bytes_keep_what_is_whole(objects, tmp_path):
    """A sound object stays the same file, which targets may share, and is fresh again."""
    sha256 = put(objects, BODY)
    path = tmp_path / "objects" / "sha256" / sha256[:2] / sha256[2:]
    os.utime(path, (0, 0))
    before = path.stat().st_ino
    put(objects, BODY)
    assert path.stat().st_ino == before
    assert path.stat().st_mtime > 0


def test_missing_object(objects):
    """Asking for an object that is not there says so; deleting it again is no error."""
    sha256 = put(objects, BODY)
    assert verify_object(objects, sha256) == len(BODY)
    objects.delete(sha256)
    objects.delete(sha256)
    assert not objects.has(sha256)
    assert objects.local_path(sha256) is None
    with pytest.raises(StoreCorrupt):
        objects.open(sha256)


@pytest.mark.parametrize("bad", ["", "../../../etc/passwd", "A" * 64, "0" * 63])
def test_only_hashes_name_objects(objects, bad):
    """Nothing but a SHA-256 can reach the file system."""
    with pytest.raises(ValueError, match="not a SHA-256"):
        objects.has(bad)


def test_what_is_not_ours_is_passed_over(objects, tmp_path):
    """A file of another program among the objects stops neither a listing nor a collection, and stays."""
    sha256 = put(objects, BODY)
    strays = [tmp_path / "objects/sha256" / name for name in (".DS_Store", "ab/notes.txt", f"{sha256[:2]}/x")]
    for stray in strays:
        stray.parent.mkdir(exist_ok=True)
        stray.write_text("?")
    assert list(objects.all()) == [one.sha256 for one in objects.stored()] == [sha256]
    assert all(stray.exists() for stray in strays)


def test_what_is_not_ours_in_a_bucket_is_passed_over():
    """Nor does a key of another program."""
    bucket = MemoryBucket()
    shared = RemoteObjects(bucket, "kfm")
    sha256 = put(shared, BODY)
    strays = ("kfm/sha256/README.txt", f"kfm/sha256/{sha256[:2]}/x", "kfm/sha256/")
    for stray in strays:
        bucket.put(stray, b"?")
    assert list(shared.all()) == [sha256]
    assert bucket.stored.keys() >= set(strays)


def test_sizes_of_many_cost_few_requests(monkeypatch):
    """A bucket is listed once, and those that are not there are known not to be. Of one that holds far more a
    part is listed, and only what was not in it is asked for."""
    bucket = MemoryBucket()
    shared = RemoteObjects(bucket, "kfm")
    there = {put(shared, bytes([number]) * number): number for number in range(1, 40)}
    gone = hashlib.sha256(b"gone").hexdigest()
    asked: list[str] = []
    head = bucket.head
    monkeypatch.setattr(bucket, "head", lambda key: asked.append(key) or head(key))
    assert shared.sizes_of([*there, gone]) == {**there, gone: None}
    assert asked == []
    few = dict(list(there.items())[::8])
    monkeypatch.setattr("kfm.objects.remote.LISTED_FOR_ONE", 3)
    assert shared.sizes_of([*few, gone]) == {**few, gone: None}
    assert 1 < len(asked) <= len(few) + 1


def test_abort_leaves_nothing(objects, tmp_path):
    """An aborted object leaves neither temp file nor partial."""
    staging, _ = objects.stage("key")
    staging.write(BODY)
    staging.abort()
    assert [path for path in (tmp_path / "objects").rglob("*") if path.is_file()] == []


def test_resume_goes_on_where_it_stopped(objects, tmp_path):
    """An interrupted object is finished from the kept bytes, which are gone afterwards."""
    staging, offset = objects.stage("key")
    assert offset == 0
    staging.write(BODY[:3000])
    staging.keep_partial()
    staging, offset = objects.stage("key")
    assert offset == 3000
    staging.write(BODY[3000:])
    assert staging.commit() == (hashlib.sha256(BODY).hexdigest(), len(BODY))
    assert [path for path in (tmp_path / "objects").rglob("*") if path.is_file()] == [
        tmp_path
        / "objects"
        / "sha256"
        / hashlib.sha256(BODY).hexdigest()[:2]
        / hashlib.sha256(BODY).hexdigest()[2:]
    ]


def test_resume_needs_the_same_key(objects):
    """Kept bytes of another object, or another version of it, are not mixed in."""
    staging, _ = objects.stage("etag-1")
    staging.write(b"old")
    staging.keep_partial()
    assert objects.stage("etag-2")[1] == 0
    assert objects.stage(None)[1] == 0


def test_stalled_writer_cannot_spoil_its_successor():
    """A process that stalls, is succeeded, and wakes up changes nothing of what its successor wrote."""
    disk = PowerCutFiles(random.Random(1))
    ids = CountedIds()
    stalled = LocalObjects(disk, "/o", ids, checkpoint_bytes=100)
    staging, _ = stalled.stage("key")
    staging.write(BODY[:2000])  # makes a checkpoint, then stops
    successor = LocalObjects(disk.another(), "/o", ids, checkpoint_bytes=100)
    second, offset = successor.stage("key")
    assert offset == 2000
    staging.write(b"late and wrong" * 50)
    second.write(BODY[2000:])
    sha256, _size = second.commit()
    staging.write(b"later still")
    assert read_all(successor, sha256) == BODY
    late, _ = staging.commit()  # its own object, under its own hash
    assert late != sha256
    assert read_all(successor, sha256) == BODY


def test_killed_process_leaves_a_checkpoint():
    """A download that was killed is resumed from its last checkpoint."""
    disk = PowerCutFiles(random.Random(1))
    ids = CountedIds()
    staging, _ = LocalObjects(disk, "/o", ids, checkpoint_bytes=1000).stage("key")
    for at in range(0, 3500, 500):
        staging.write(BODY[at : at + 500])
    disk.kill()
    objects = LocalObjects(disk.another(), "/o", ids)
    staging, offset = objects.stage("key")
    assert offset == 3000
    staging.write(BODY[3000:])
    assert read_all(objects, staging.commit()[0]) == BODY


def test_killed_while_resuming():
    """Kept bytes survive an attempt that was killed right after it took them over."""
    disk = PowerCutFiles(random.Random(1))
    ids = CountedIds()
    staging, _ = LocalObjects(disk, "/o", ids).stage("key")
    staging.write(BODY)
    staging.keep_partial()
    second = disk.another()
    assert LocalObjects(second, "/o", ids).stage("key")[1] == len(BODY)
    second.kill()
    assert LocalObjects(disk.another(), "/o", ids).stage("key")[1] == len(BODY)


def test_damaged_partial_is_ignored(objects, tmp_path):
    """A partial that is shorter than it claims is dropped and the object begun anew."""
    staging, _ = objects.stage("key")
    staging.write(BODY)
    staging.keep_partial()
    [partial] = (tmp_path / "objects" / "partial").rglob("*.*")
    partial.write_bytes(b"short")
    assert put(objects, BODY, "key") == hashlib.sha256(BODY).hexdigest()


def test_partials_are_bounded(objects, tmp_path, monkeypatch):
    """Interrupted downloads can't fill the disk with names: the oldest go first."""
    monkeypatch.setattr(local, "PARTIAL_KEYS_MAX", 3)
    for number in range(6):
        staging, _ = objects.stage(f"key-{number}")
        staging.write(b"x" * (number + 1))
        staging.keep_partial()
    assert len(list((tmp_path / "objects" / "partial").rglob("*.*"))) == 3
    assert objects.stage("key-0")[1] == 0
    assert objects.stage("key-5")[1] == 6


def test_tidy_removes_only_the_old(objects, tmp_path):
    """Leftovers of dead processes are removed by the age in their name; finished objects stay."""
    sha256 = put(objects, BODY)
    staging, _ = objects.stage("key")
    staging.write(BODY)
    assert objects.tidy(before_ms=0) == 0
    assert objects.tidy(before_ms=1 << 50) == 1
    assert list((tmp_path / "objects" / "tmp").iterdir()) == []
    assert objects.has(sha256)


# --- power ---------------------------------------------------------------------------


def scenario(files: PowerCutFiles, ids: CountedIds, committed: list[bytes]) -> None:
    """Objects old and new, equal ones, kept partials, resumption, deletion."""
    objects = LocalObjects(files, "/state/objects", ids, checkpoint_bytes=900)
    bodies = [BODY, b"small", BODY[::-1], BODY, b""]
    for number, body in enumerate(bodies):
        key = f"key-{number}"
        staging, offset = objects.stage(key)
        for at in range(offset, len(body) // 2, 700):
            staging.write(body[at : min(at + 700, len(body) // 2)])
        staging.keep_partial()
        put(objects, body, key)
        committed.append(body)


@pytest.mark.parametrize("seed", range(6))
def test_power_cut_at_any_point(seed):
    """After a power cut at any call, what stands under a hash has it, and what was committed stands."""
    whole = PowerCutFiles(random.Random(seed))
    scenario(whole, CountedIds(), [])
    for calls in range(1, whole.calls + 1, 3 if seed else 1):
        files = PowerCutFiles(random.Random(seed * 10_000 + calls))
        files.die_after(calls)
        ids, committed = CountedIds(), []
        with pytest.raises(PowerLost):
            scenario(files, ids, committed)
            raise PowerLost
        after = files.cut()
        survivors = LocalObjects(after, "/state/objects", ids)
        for sha256 in survivors.all():
            assert hashlib.sha256(read_all(survivors, sha256)).hexdigest() == sha256
        for body in committed:
            assert read_all(survivors, hashlib.sha256(body).hexdigest()) == body
        scenario(after, ids, [])  # and what was left behind blocks nothing
        for body in (BODY, b"small", BODY[::-1], b""):
            assert read_all(survivors, hashlib.sha256(body).hexdigest()) == body


class DiesAfterItsRename(PowerCutFiles):
    """Dies where a finished object has its name, and the name is not yet durable."""

    def fsync_dir(self, path: str) -> None:
        if len(path.rpartition("/")[2]) == 2:
            self.kill()
        super().fsync_dir(path)


def test_one_finds_what_another_did_not_finish():
    """A commit that finds the object already there makes it durable itself, trusting no other process."""
    for seed in range(40):
        ids = CountedIds()
        disk = DiesAfterItsRename(random.Random(seed))
        with pytest.raises(PowerLost):
            put(LocalObjects(disk, "/o", ids), BODY)
        sha256 = put(LocalObjects(disk.another(), "/o", ids), BODY)
        assert LocalObjects(disk.cut(), "/o", ids).has(sha256)


class LinklessFiles(PosixFiles):
    """A disk that knows no hard links."""

    def link(self, old: str, new: str) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), new)


def test_what_a_collector_took_away_comes_back_without_hard_links(tmp_path) -> None:
    """A collector that died with an object in its hands loses nothing, also where nothing can be linked."""
    objects = LocalObjects(LinklessFiles(), str(tmp_path / "objects"), SystemIds())
    sha256 = put(objects, BODY)
    key = f"{objects.path('sha256')}/{sha256[:2]}/{sha256[2:]}"
    os.rename(key, objects.path(f"tmp/{SystemIds().new()}.{sha256}"))
    assert not objects.has(sha256)
    assert read_all(objects, sha256) == BODY
    assert objects.has(sha256)
