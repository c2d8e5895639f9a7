"""Tombstones and purges, one promise of each target: what is withdrawn is told, what is purged is gone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kfm.db.branches import EmbeddedBranches
from kfm.db.queries import migrate
from kfm.db.sqlite import MemoryDatabase
from kfm.model.dataset_changes import TombstonedPromotion, blobs_of
from kfm.model.errors import TargetUnavailable
from kfm.model.records import Promotion
from kfm.model.versions import Version, emptied
from kfm.ports import PurgingProjection
from kfm.publish.targets.branch import BranchTree
from kfm.publish.targets.folder import LocalTree
from kfm.publish.targets.github_actions import GithubActions
from kfm.publish.targets.s3 import BucketTree
from kfm.system import PosixFiles, SystemIds
from tests.power import FolderNode
from tests.published_bucket import MemoryBucket
from tests.stand_ins import FakeClock
from tests.unit.publish.stand_ins import DATASET, CountedIds, Database, MemoryObjects, SteppedFiles

pytestmark = pytest.mark.req("DAT-5")

STANDS = {"tombstone": 1, "dataset_id": DATASET.id, "sequence": 3, "state": "withdrawn", "withdrawn": []}


class Shelf:
    """A target, and all that readers of it could find."""

    def __init__(self, kind: str) -> None:
        self.objects = MemoryObjects()
        self.database = Database(self.objects)
        self.target, self.found = getattr(self, f"_{kind}")()

    def _local(self) -> tuple[Any, Callable[[], dict[str, bytes]]]:
        root = FolderNode()
        files = SteppedFiles(root)
        return LocalTree("t", files, self.objects, CountedIds(), "/tree"), lambda: _files(files, "/tree")  # type: ignore[arg-type]

    def _github(self) -> tuple[Any, Callable[[], dict[str, bytes]]]:
        files = SteppedFiles(FolderNode())
        target = GithubActions(
            "t",
            files,
            self.objects,  # type: ignore[arg-type]
            CountedIds(),
            "/tree",
            append=lambda _path, _data: None,
            output_path=None,
            summary_path=None,
        )
        return target, lambda: _files(files, "/tree")

    def _s3(self) -> tuple[Any, Callable[[], dict[str, bytes]]]:
        bucket = MemoryBucket()
        return BucketTree("t", bucket, self.objects, "pub"), lambda: dict(bucket.stored)

    def _branch(self) -> tuple[Any, Callable[[], dict[str, bytes]]]:
        database = MemoryDatabase(FakeClock())
        migrate(database, "sqlite", 0)
        branches = EmbeddedBranches(database)

        def found() -> dict[str, bytes]:
            return {path: self.objects.stored[one.sha256] for path, one in branches.entries("published")}

        return BranchTree("t", lambda: branches, self.objects, "published"), found  # type: ignore[arg-type,return-value]

    def project(self) -> None:
        self.target.project(DATASET.id, self.database.head, self.database.known)

    def withdraw(self) -> tuple[Promotion, Version]:
        """All of it: an empty version with a tombstone."""
        last, version = self.database.history[-1]
        empty = emptied(version, DATASET.id)
        facts = msgspec.structs.asdict(last) | {
            "sequence": last.sequence + 1,
            "version_id": empty.version_id,
        }
        made = TombstonedPromotion(**facts, tombstone=STANDS), empty
        self.database.history.append(made)
        return made


def _files(files: SteppedFiles, folder: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in files.listdir(folder):
        path = f"{folder}/{name}"
        try:
            files.readlink(path)
            continue
        except OSError:
            pass
        try:
            found |= _files(files, path)
        except NotADirectoryError:
            reader = files.open(path)
            found[path] = reader.read(1 << 20)
            reader.close()
    return found


@pytest.fixture(params=["local", "github", "s3", "branch"])
def shelf(request: pytest.FixtureRequest) -> Shelf:
    made = Shelf(request.param)
    for _ in range(2):
        made.database.promote()
        made.project()
    return made


def test_a_tombstone_stands_where_data_was(shelf: Shelf) -> None:
    """The version that lacks what is withdrawn says so, beside its manifest."""
    assert not [name for name in shelf.found() if "withdrawn.json" in name]
    shelf.withdraw()
    shelf.project()
    (text,) = {data for name, data in shelf.found().items() if name.endswith("withdrawn.json")}
    assert json.loads(text) == STANDS
    before = shelf.found()
    shelf.project()
    assert shelf.found() == before


def test_a_purge_leaves_what_a_kept_version_needs(shelf: Shelf) -> None:
    """Purged versions and blobs are gone, the tombstone stays; a second time there is nothing to do."""
    target = shelf.target
    if not isinstance(target, PurgingProjection):
        return  # its history is out of reach, and the receipt says so
    (first, old), (second, new) = shelf.database.history
    shelf.withdraw()
    shelf.project()
    blobs = blobs_of((old, new))
    assert target.purge(DATASET.id, (first, second), blobs) > 0
    assert not any(
        data in (b"version 1", b"version 2", b"always the same") for data in shelf.found().values()
    )
    assert [name for name in shelf.found() if name.endswith("withdrawn.json")]
    assert target.purge(DATASET.id, (first, second), blobs) == 0


def test_a_purge_stops_where_its_lease_is_lost(shelf: Shelf) -> None:
    """What is called before each removal ends it, and what is left goes the next time."""
    target = shelf.target
    if not isinstance(target, PurgingProjection):
        return  # its history is out of reach, and the receipt says so

    def lost() -> None:
        raise InterruptedError

    gone = [one for one, _ in shelf.database.history]
    shelf.withdraw()
    shelf.project()
    before = shelf.found()
    with pytest.raises((InterruptedError, TargetUnavailable)):
        target.purge(DATASET.id, gone, (), lost)
    assert shelf.found() == before
    assert target.purge(DATASET.id, gone, ()) > 0


@pytest.mark.parametrize("set_back", [False, True])
def test_a_purge_that_could_not_remove_all_says_so(tmp_path: Path, set_back: bool) -> None:
    """While `current` is gone, or shows what is withdrawn, that version has to stay: the purge is not done.
    Once the head is shown again it goes."""
    objects = MemoryObjects()
    database = Database(objects)
    target = LocalTree("t", PosixFiles(), objects, SystemIds(), str(tmp_path))  # type: ignore[arg-type]
    database.promote()
    target.project(DATASET.id, database.head, database)
    current = tmp_path / DATASET.id / "current"
    wrong = current.readlink()
    database.promote()
    target.project(DATASET.id, database.head, database)
    current.unlink()
    if set_back:
        current.symlink_to(wrong)
    gone = (database.history[0][0],)
    with pytest.raises(TargetUnavailable, match="can't go while"):
        target.purge(DATASET.id, gone, ())
    target.project(DATASET.id, database.head, database)
    assert target.purge(DATASET.id, gone, ()) == 1
    assert b"version 1" not in [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
