"""The published tree on a real disk, with real concurrency."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from kfm.model.errors import TargetUnavailable
from kfm.objects.local import LocalObjects
from kfm.publish.targets.folder import LocalTree, sequence_of
from kfm.publish.targets.folder_builder import Linking
from kfm.system import PosixFiles, PosixWriter, SystemIds
from tests.unit.publish.stand_ins import DATASET, Database

pytestmark = pytest.mark.req("TRG-4")


class UnsyncedFiles(PosixFiles):
    """The real disk without waiting for it: this test is about other processes, not about power."""

    def create(self, path: str) -> PosixWriter:
        writer = super().create(path)
        writer.fsync = lambda: None  # type: ignore[method-assign]
        return writer

    def fsync_dir(self, path: str) -> None:
        pass


class DiskDatabase(Database):
    """Promotions whose objects stand in a real object store."""

    def __init__(self, root: Path, files: PosixFiles) -> None:
        self.store = LocalObjects(files, f"{root}/objects", SystemIds())
        super().__init__(self)  # type: ignore[arg-type]

    def add(self, data: bytes) -> None:
        staging, _ = self.store.stage()
        staging.write(data)
        staging.commit()


class Reader(threading.Thread):
    """Looks at `current` all the time and notes what is wrong."""

    def __init__(self, current: Path) -> None:
        super().__init__()
        self.current = current
        self.stop = threading.Event()
        self.problems: list[str] = []
        self.seen: set[int] = set()

    def run(self) -> None:
        newest = 0
        while not self.stop.is_set():
            try:
                target = os.readlink(self.current)
            except FileNotFoundError:
                continue
            folder = self.current.parent / target
            sequence = sequence_of(folder.name)
            if sequence < newest:
                self.problems.append(f"{sequence} after {newest}")
            newest = max(newest, sequence)
            self.seen.add(sequence)
            try:
                if (folder / "data/now.txt").read_bytes() != f"version {sequence}".encode():
                    self.problems.append(f"{sequence} has other bytes")
                for name in ("manifest.json", "collection.json", "dcat.jsonld", "data/a/same.txt"):
                    if not (folder / name).stat().st_size:
                        self.problems.append(f"{sequence}: {name} is empty")
            except FileNotFoundError as error:
                self.problems.append(f"{sequence} lacks {error.filename}")


@pytest.mark.slow
def test_a_reader_sees_whole_versions_in_order(tmp_path: Path) -> None:
    """During 1,000 promotions by two projectors a reader sees only whole versions, never an older one."""
    files = UnsyncedFiles()
    database = DiskDatabase(tmp_path, files)
    guard = threading.Lock()
    reader = Reader(tmp_path / "tree" / DATASET.id / "current")
    failures: list[BaseException] = []

    def projector() -> None:
        tree = LocalTree("tree", files, database.store, SystemIds(), f"{tmp_path}/tree")
        try:
            for _ in range(500):
                with guard:
                    promoted = database.promote()
                assert (tree.project(DATASET.id, database.head) or 0) >= promoted
        except BaseException as error:
            failures.append(error)

    reader.start()
    threads = [threading.Thread(target=projector) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reader.stop.set()
    reader.join()
    assert failures == []
    assert reader.problems == []
    assert len(reader.seen) > 20
    assert sequence_of(os.readlink(reader.current).removeprefix(".versions/")) == 1000
    assert os.listdir(tmp_path / "tree" / DATASET.id / ".tickets") == []


@pytest.mark.parametrize("linking", ["versions", "objects", "never"])
def test_linking_is_a_choice(tmp_path: Path, linking: Linking) -> None:
    """Which files share an inode is as configured: never with the object store unless asked for."""
    files = PosixFiles()
    database = DiskDatabase(tmp_path, files)
    tree = LocalTree("tree", files, database.store, SystemIds(), f"{tmp_path}/tree", linking=linking)
    for _ in range(2):
        database.promote()
        tree.project(DATASET.id, database.head)
    folder = tmp_path / "tree" / DATASET.id / ".versions"
    first, second = (folder / name / "data/a/same.txt" for name, _ in tree.versions(DATASET.id))
    stored = database.store.local_path(database.history[0][1].items()[0].assets[0].sha256)
    assert stored is not None
    assert first.samefile(second) == (linking != "never")
    assert os.path.samefile(second, stored) == (linking == "objects")


@pytest.mark.parametrize("place", ["", ".versions", ".tickets"])
def test_a_link_in_the_tree_leads_nowhere(tmp_path: Path, place: str) -> None:
    """A link in place of a dataset's folder, versions or tickets: nothing is written or removed behind it."""
    files = PosixFiles()
    database = DiskDatabase(tmp_path, files)
    tree = LocalTree("tree", files, database.store, SystemIds(), f"{tmp_path}/tree")
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "kept").mkdir(parents=True)
    link = tmp_path / "tree" / DATASET.id / place
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    database.promote()
    with pytest.raises(TargetUnavailable, match="is a link, and is not followed"):
        tree.project(DATASET.id, database.head)
    with pytest.raises(TargetUnavailable):
        tree.discard(DATASET.id, ["00000001-0123456789ab"])
    assert [str(path.relative_to(elsewhere)) for path in elsewhere.rglob("*")] == ["kept"]
    link.unlink()
    assert tree.project(DATASET.id, database.head) == 1


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EMLINK, errno.EPERM])
def test_where_links_are_refused_a_copy_serves(tmp_path: Path, number: int) -> None:
    """Another file system, too many links, links not allowed: the files are copied."""

    class Unlinkable(PosixFiles):
        def link(self, old: str, new: str) -> None:
            raise OSError(number, os.strerror(number), old)

    database = DiskDatabase(tmp_path, PosixFiles())
    tree = LocalTree("tree", Unlinkable(), database.store, SystemIds(), f"{tmp_path}/tree", linking="objects")
    for _ in range(2):
        database.promote()
        assert tree.project(DATASET.id, database.head) == len(database.history)
    current = tmp_path / "tree" / DATASET.id / "current"
    assert (current / "data/now.txt").read_bytes() == b"version 2"


def test_a_full_disk_leaves_the_shown_version(tmp_path: Path) -> None:
    """A target that can't be written says so; readers keep what they had, and no litter stays."""

    class Full(PosixFiles):
        def create(self, path: str):  # type: ignore[no-untyped-def]
            if "now.txt" in path:
                raise OSError(errno.ENOSPC, "No space left on device", path)
            return super().create(path)

    database = DiskDatabase(tmp_path, PosixFiles())
    database.promote()
    LocalTree("tree", PosixFiles(), database.store, SystemIds(), f"{tmp_path}/tree").project(
        DATASET.id, database.head
    )
    database.promote()
    full = LocalTree("tree", Full(), database.store, SystemIds(), f"{tmp_path}/tree")
    with pytest.raises(TargetUnavailable, match=r"The disk .* is full: .*now\.txt"):
        full.project(DATASET.id, database.head)
    root = tmp_path / "tree" / DATASET.id
    assert (root / "current/data/now.txt").read_bytes() == b"version 1"
    assert len(os.listdir(root / ".versions")) == 1
    assert os.listdir(root / ".tickets") == []


def test_the_tree_is_the_same_wherever_it_is_made(tmp_path: Path) -> None:
    """Two targets, made at different times in different places, hold the same bytes."""
    database = DiskDatabase(tmp_path, PosixFiles())
    for _ in range(2):
        database.promote()
    trees = []
    for place in ("here", "there/deeper"):
        tree = LocalTree("tree", PosixFiles(), database.store, SystemIds(), f"{tmp_path}/{place}")
        tree.project(DATASET.id, database.head)
        root = (tmp_path / place / DATASET.id / "current").resolve()
        trees.append(
            {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        )
    assert trees[0] == trees[1]
    assert all(str(tmp_path).encode() not in data for data in trees[0].values())
