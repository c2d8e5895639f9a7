"""Branches of every kind: names, commits, what is read back."""

from __future__ import annotations

import pytest

from kfm.model.branches import NAME_CHARS_MAX, Branch, Commit, Moved, NewCommit, TreeEntry
from kfm.model.errors import (
    BranchProtected,
    LimitExceeded,
    PathConflict,
    RefExists,
    RefNameInvalid,
    RefNotFound,
    UsageError,
)
from tests.conformance.branches.scene import WHY, Scene, entry

pytestmark = pytest.mark.req("RS-5")


def test_a_new_branch_holds_nothing(scene: Scene) -> None:
    """The first branch of all begins empty, and its first commit is its own."""
    made = scene.start()
    assert scene.paths("main") == {}
    assert scene.branches.branches() == [made]
    assert not made.protected
    assert scene.branches.branch("other") is None


def test_a_commit_is_read_back(scene: Scene) -> None:
    """Entries, message, author, time, parents and what was carried along."""
    base = scene.start().head
    made = scene.branches.commit(
        NewCommit(
            "main",
            {"a.txt": entry("a"), "folder/b.txt": entry("b")},
            message="two files\n\nand why",
            author="ada",
            expected=base,
            meta={"run_id": "r1", "counts": [1, 2]},
        )
    )
    assert isinstance(made, Commit)
    assert scene.branches.resolve("main") == made
    assert made.parents == (base,)
    assert (made.message, made.author, made.meta["run_id"]) == ("two files\n\nand why", "ada", "r1")
    assert scene.shows("main", **{"a.txt": "a", "folder/b.txt": "b"})
    head = scene.branches.branch("main")
    assert head is not None
    assert head.head == made.commit_id


def test_branches_do_not_see_each_other(scene: Scene) -> None:
    """A commit on one leaves the other where it was."""
    scene.begin(a="1")
    scene.put("side", a="2", b="new")
    assert scene.shows("main", a="1")
    assert scene.shows("side", a="2", b="new")


def test_what_changes_nothing_makes_no_commit(scene: Scene) -> None:
    """The same entries again, and the removal of what is not there, answer with the head."""
    first = scene.begin(a="1")
    assert scene.put("main", a="1") == first
    assert scene.put("main", gone=None) == first
    assert len(scene.branches.log("main")) == 2


def test_the_second_of_two_is_told(scene: Scene) -> None:
    """A writer that expects a head that has been left writes nothing and learns where the branch is."""
    first = scene.begin(a="1")
    second = scene.put("main", a="2")
    answer = scene.branches.commit(
        NewCommit("main", {"a": entry("3")}, message="late", author="bob", expected=first.commit_id)
    )
    assert answer == Moved(branch="main", expected=first.commit_id, actual=second.commit_id)
    assert scene.shows("main", a="2")


def test_a_path_is_a_file_or_a_folder(scene: Scene) -> None:
    """Both at once are refused, whichever came first; in one commit one can take the other's place."""
    scene.begin(a="1")
    if "files-or-folders" in scene.cannot:
        scene.put("main", a__b="2")
        assert scene.shows("main", a="1", a__b="2")
        return
    with pytest.raises(PathConflict, match="`a` can't be a file beside `a/b`"):
        scene.put("main", a__b="2")
    scene.put("main", a=None, a__b="2", c__d__e="3")
    with pytest.raises(PathConflict, match="`c`"):
        scene.put("main", c="4")
    with pytest.raises(PathConflict, match="`x`"):
        scene.put("main", x="1", x__y="2")
    scene.put("main", c__d__e=None, c="4")
    assert scene.shows("main", a__b="2", c="4")


@pytest.mark.parametrize(
    "path", ["", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a\nb", "a\0b", "x" * 1025, "a\ud800"]
)
def test_a_path_that_is_none_is_refused(scene: Scene, path: str) -> None:
    """Nothing is written, also not the good ones beside it."""
    first = scene.begin(a="1")
    with pytest.raises(UsageError, match="can't be a path"):
        scene.branches.commit(
            NewCommit("main", {"good": entry("g"), path: entry("b")}, message="", author="ada")
        )
    assert scene.branches.resolve("main") == first


@pytest.mark.parametrize("path", ["...", "a/.hidden", "..a", "a..b", "ä/ö ü", "a\u2028b", "-", "😀"])
def test_unusual_paths_are_kept(scene: Scene, path: str) -> None:
    """Paths that differ in any character are kept apart, unaltered."""
    scene.start()
    scene.branches.commit(NewCommit("main", {path: entry("b")}, message="", author="ada"))
    assert scene.paths("main") == {path: entry("b")}


@pytest.mark.parametrize("sha256", ["", "ab", "A" * 64, "g" * 64, "0" * 63])
def test_what_is_no_hash_is_refused(scene: Scene, sha256: str) -> None:
    """An entry names bytes by their SHA-256 in lower-case hex."""
    scene.start()
    with pytest.raises(UsageError, match="SHA-256"):
        scene.branches.commit(
            NewCommit("main", {"a": TreeEntry(sha256=sha256, size=1)}, message="", author="ada")
        )


@pytest.mark.parametrize(
    "name",
    ["", "-x", ".x", "x.", "a..b", "a//b", "/a", "a/", "a b", "a~1", "a^", "a:b", "x.lock", "a/b.lock/c",
     "é", "a\nb", "a\n", "x" * (NAME_CHARS_MAX + 1), "0" * 64],
)  # fmt: skip
def test_a_name_that_could_mislead_is_refused(scene: Scene, name: str) -> None:
    """For branches and for tags."""
    scene.start()
    with pytest.raises(RefNameInvalid):
        scene.branches.create(name, "main")
    with pytest.raises(RefNameInvalid):
        scene.branches.tag(name, "main", message="", author="ada")
    assert len(scene.branches.branches()) == 1


def test_a_name_is_given_once(scene: Scene) -> None:
    """To a branch or to a tag."""
    scene.begin(a="1")
    scene.branches.tag("v1", "main", message="first", author="ada")
    for taken in ("side", "v1"):
        with pytest.raises(RefExists):
            scene.branches.create(taken, "main")
        with pytest.raises(RefExists):
            scene.branches.tag(taken, "main", message="", author="ada")


def test_refs(scene: Scene) -> None:
    """A branch, a tag, the beginning of an id, and steps back from each."""
    first = scene.begin(a="1")
    second = scene.put("main", a="2")
    scene.branches.tag("v1", "main~1", message="first", author="ada")
    for ref in ("v1", "main~", "main~1", first.commit_id, first.commit_id[:10], f"{second.commit_id[:20]}~1"):
        assert scene.branches.resolve(ref) == first, ref
    for ref in ("nothing", "main~9", "abcdef0123", first.commit_id[:3], "", "a\0b"):
        with pytest.raises(RefNotFound):
            scene.branches.resolve(ref)
    with pytest.raises(RefNameInvalid):
        scene.branches.resolve("main~x")


def test_a_tag_stays(scene: Scene) -> None:
    """Wherever its branch goes; taken away it is gone, with the reason kept."""
    scene.begin(a="1")
    scene.branches.tag("v1", "main", message="first", author="ada", why=WHY)
    scene.put("main", a="2")
    assert scene.shows("v1", a="1")
    (tag,) = scene.branches.tags()
    words = ("", "") if "tag-words" in scene.cannot else ("first", "ada")
    assert (tag.name, tag.message, tag.author) == ("v1", *words)
    scene.branches.delete_tag("v1", why=WHY)
    assert scene.branches.tags() == []
    with pytest.raises(RefNotFound):
        scene.branches.delete_tag("v1", why=WHY)
    kinds = [one.kind for one in scene.store.governance(subject="tag:v1")]
    assert kinds == ["tag-delete", "tag-create"]


def test_a_deleted_branch_can_be_made_again(scene: Scene) -> None:
    """From its commit; the deletion is in the audit log, in the same transaction."""
    scene.begin(a="1")
    kept = scene.put("side", b="2")
    gone = scene.branches.delete("side", why=WHY)
    assert isinstance(gone, Branch)
    assert scene.branches.branch("side") is None
    scene.branches.create("again", kept.commit_id[:12])
    assert scene.shows("again", a="1", b="2")
    (logged,) = scene.store.governance(subject="branch:side")
    assert (logged.kind, logged.actor, logged.rationale) == (
        "branch-delete",
        WHY.actor,
        WHY.rationale,
    )
    assert logged.details["head"] == kept.commit_id


def test_entries_by_prefix(scene: Scene) -> None:
    """In order, and only what begins with it."""
    scene.begin(a="0", tiles__1="1", tiles__2="2", tiles_x="3", z="4")
    assert [path for path, _ in scene.branches.entries("main")] == ["a", "tiles/1", "tiles/2", "tiles_x", "z"]
    assert [path for path, _ in scene.branches.entries("main", "tiles/")] == ["tiles/1", "tiles/2"]
    assert list(scene.branches.entries("main", "none")) == []
    assert scene.branches.lookup("main", ["z", "tiles", "tiles/2"]) == {
        "z": entry("4"),
        "tiles/2": entry("2"),
    }


def test_a_diff_tells_what_differs(scene: Scene) -> None:
    """Added, changed, removed, by path."""
    scene.begin(a="1", b="1", c="1")
    scene.put("side", a=None, b="2", d="1")
    found = list(scene.branches.diff("main", "side"))
    assert [(one.path, one.kind) for one in found] == [("a", "removed"), ("b", "changed"), ("d", "added")]
    assert [one.path for one in scene.branches.diff("main", "side", "b")] == ["b"]
    assert list(scene.branches.diff("main", "main")) == []


def test_a_large_tree_is_read_as_it_was_written(scene: Scene) -> None:
    """Also where it takes many bodies, and after a change in the midst of them."""
    scene.start()
    wanted = {f"tiles/{number % 7}/{number:05d}": entry(str(number)) for number in range(scene.many)}
    scene.branches.commit(NewCommit("main", wanted, message="all", author="ada"))
    assert scene.paths("main") == wanted
    scene.branches.commit(
        NewCommit("main", {"tiles/3/00003": None, "tiles/8": entry("x")}, message="", author="ada")
    )
    found = [(one.path, one.kind) for one in scene.branches.diff("main~1", "main")]
    assert found == [("tiles/3/00003", "removed"), ("tiles/8", "added")]
    assert [path for path, _ in scene.branches.entries("main")] == sorted(
        {*wanted, "tiles/8"} - {"tiles/3/00003"}
    )


def test_the_log_is_the_branch_s_own_line(scene: Scene) -> None:
    """Newest first; with all parents it also tells what was merged, none before one that came from it."""
    scene.begin(a="1")
    scene.put("side", "on the side", b="1")
    scene.put("main", "on main", c="1")
    scene.merge("side")
    assert [one.message for one in scene.branches.log("main")] == [
        "merge side",
        "on main",
        "first",
        scene.beginning,
    ]
    every = scene.branches.log("main", first_parent=False)
    assert sorted(one.message for one in every) == sorted(
        [scene.beginning, "first", "merge side", "on main", "on the side"]
    )
    for place, one in enumerate(every):
        assert not {later.commit_id for later in every[: place + 1]} & set(one.parents)
    assert len(scene.branches.log("main", limit=2)) == 2


def test_a_protected_branch_changes_only_through_gates(scene: Scene) -> None:
    """Commit, merge, revert and deletion are refused without; nothing is written."""
    first = scene.begin(a="1")
    scene.put("side", b="1")
    assert scene.branches.protect("main", True, why=WHY).protected
    with pytest.raises(BranchProtected):
        scene.put("main", a="2")
    with pytest.raises(BranchProtected):
        scene.merge("side")
    with pytest.raises(BranchProtected):
        scene.revert("main")
    with pytest.raises(BranchProtected):
        scene.branches.delete("main", why=WHY)
    assert scene.branches.resolve("main") == first
    proposal = scene.branches.propose("side", "main")
    scene.branches.merge(proposal, message="gated", author="ada", gated=True, why=WHY)
    assert scene.shows("main", a="1", b="1")
    scene.branches.protect("main", False, why=WHY)
    scene.put("main", a="2")
    kinds = [one.kind for one in scene.store.governance(subject="branch:main")]
    assert kinds == ["branch-unprotect", "branch-merge", "branch-protect"]


def test_what_is_beyond_measure_is_refused(scene: Scene) -> None:
    """Messages and what a commit carries have limits."""
    scene.start()
    with pytest.raises(LimitExceeded):
        scene.branches.commit(NewCommit("main", {"a": entry("1")}, message="x" * 10_001, author="ada"))
    with pytest.raises(LimitExceeded):
        scene.branches.commit(
            NewCommit("main", {"a": entry("1")}, message="", author="ada", meta={"x": "y" * 70_000})
        )
    assert scene.paths("main") == {}
