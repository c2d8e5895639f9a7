"""The head on a branch: one commit for each version, never backwards, also if others move the branch."""

from __future__ import annotations

import pytest

from kfm.db.branches import EmbeddedBranches
from kfm.db.queries import migrate
from kfm.db.sqlite import MemoryDatabase
from kfm.model.branches import Commit, Moved, NewCommit, TreeEntry
from kfm.model.errors import StoreCorrupt, TargetUnavailable
from kfm.model.versions import edited
from kfm.publish.catalogue import documents
from kfm.publish.manifest import merge_items
from kfm.publish.targets.branch import BranchTree
from tests.stand_ins import FakeClock
from tests.unit.publish.stand_ins import DATASET, Database, MemoryObjects, asset, item

pytestmark = pytest.mark.req("UPD-6", "TRG-4")
FOLDER = f"{DATASET.id}/"


class Shelf:
    def __init__(self) -> None:
        clock = FakeClock()
        database = MemoryDatabase(clock)
        migrate(database, "sqlite", clock.now_ms())
        self.branches = EmbeddedBranches(database)
        self.objects = MemoryObjects()
        self.database = Database(self.objects)

    def target(self, branches: object | None = None) -> BranchTree:
        return BranchTree("shelf", lambda: branches or self.branches, self.objects, "published")  # type: ignore[arg-type,return-value]

    def project(self) -> int | None:
        return self.target().project(DATASET.id, self.database.head, self.database)

    def tree(self) -> dict[str, bytes]:
        entries = self.branches.entries("published")
        return {path: self.objects.stored[entry.sha256] for path, entry in entries}


def test_a_version_is_one_commit() -> None:
    """The branch has the files and documents of the head, and its log tells each version once."""
    shelf = Shelf()
    assert shelf.project() is None
    for sequence in (1, 2):
        shelf.database.promote()
        assert shelf.project() == shelf.project() == sequence
    tree = shelf.tree()
    assert tree[f"{FOLDER}data/now.txt"] == b"version 2"
    assert {f"{FOLDER}manifest.json", f"{FOLDER}collection.json", f"{FOLDER}dcat.jsonld"} < tree.keys()
    (version,) = [path for path in tree if path.startswith(f"{FOLDER}versions/")]
    assert version.startswith(f"{FOLDER}versions/00000002-")
    log = [commit for commit in shelf.branches.log("published") if commit.meta]
    assert [commit.meta["sequence"] for commit in log] == [2, 1]
    assert log[0].meta["version_id"] == shelf.database.known(2)


@pytest.mark.req("GRO-1")
def test_a_commit_has_what_differs() -> None:
    """Of a version that is known, only what changed is committed, and the branch has all of the next."""
    shelf = Shelf()
    days = [item(day, asset(f"{day}.csv", f"day {day}".encode())) for day in range(120)]
    for day in range(120):
        shelf.objects.add(f"day {day}".encode())
    shelf.objects.add(b"revised")
    first = merge_items(None, DATASET, days, "merge")
    second = edited(first, first.header, {first.items()[0].id: None})
    third = merge_items(second, DATASET, [item(7, asset("7.csv", b"revised"))], "merge")
    for version in (first, second, third):
        shelf.database.show(version)
        shelf.project()
        files = {f"data/{path}": shelf.objects.stored[sha256] for path, sha256, _ in version.files()}
        found = {path.removeprefix(FOLDER): data for path, data in shelf.tree().items()}
        assert files | dict(documents(version)) == {
            path: data for path, data in found.items() if not path.startswith("versions/")
        }
    last, before = [commit.commit_id for commit in shelf.branches.log("published")][:2]
    changed = {one.path.removeprefix(FOLDER) for one in shelf.branches.diff(before, last)}
    assert {path.partition("/")[0] for path in changed} == {"data", "items", "manifest.json", "versions"}
    assert len(changed) == 1 + 1 + 1 + 2  # the version's name is another


def test_what_else_is_on_the_branch_stays() -> None:
    """Files of others, and other datasets, are not touched."""
    shelf = Shelf()
    shelf.branches.create("published")
    kept = TreeEntry(sha256=shelf.objects.add(b"ours"), size=4)
    shelf.branches.commit(NewCommit("published", {"README.md": kept}, message="m", author="ada"))
    shelf.database.promote()
    shelf.project()
    assert shelf.tree()["README.md"] == b"ours"


class Stepped:
    """The branches, with something that happens before a commit."""

    def __init__(self, inner: EmbeddedBranches, before: list[object]) -> None:
        self._inner = inner
        self._before = before

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def commit(self, new: NewCommit) -> Commit | Moved:
        if self._before:
            self._before.pop()()  # type: ignore[operator]
        return self._inner.commit(new)


def test_a_slow_process_does_not_put_an_older_version_back() -> None:
    """Another has shown the next version meanwhile: the commit is refused, and the newest head is shown."""
    shelf = Shelf()
    shelf.database.promote()

    def overtaken() -> None:
        shelf.database.promote()
        assert shelf.project() == 2

    slow = shelf.target(Stepped(shelf.branches, [overtaken]))
    assert slow.project(DATASET.id, shelf.database.head, shelf.database.known) == 2
    assert shelf.tree()[f"{FOLDER}data/now.txt"] == b"version 2"
    numbers = [commit.meta["sequence"] for commit in shelf.branches.log("published") if commit.meta]
    assert numbers == [2]


def test_a_branch_of_another_database_is_left() -> None:
    """What this database never promoted is not replaced."""
    shelf = Shelf()
    shelf.database.promote()
    shelf.project()
    other = Database(shelf.objects, "another past")
    other.promote()
    with pytest.raises(TargetUnavailable, match="not of this database"):
        shelf.target().project(DATASET.id, other.head, other.known)


def test_a_missing_object_is_named() -> None:
    """Nothing is committed that can't be read."""
    shelf = Shelf()
    shelf.database.promote()
    head = shelf.database.head()
    assert head is not None
    shelf.objects.delete(head[1].items()[0].assets[0].sha256)
    with pytest.raises(StoreCorrupt):
        shelf.project()
    assert shelf.tree() == {}
