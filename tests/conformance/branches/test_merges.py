"""Merges and reverts of every kind of branches: wholly, or not at all."""

from __future__ import annotations

import pytest

from kfm.model.branches import Moved
from kfm.model.errors import RefNotFound, UsageError
from tests.conformance.branches.scene import WHY, Scene, entry

pytestmark = pytest.mark.req("RS-5")


def test_both_sides_changes_meet(scene: Scene) -> None:
    """What only one side changed is taken from it; the commit has both as parents."""
    scene.begin(a="1", b="1", c="1", d="1")
    side = scene.put("side", b="2", c=None, new="n")
    main = scene.put("main", a="2")
    done = scene.merge("side")
    assert done.outcome == "merged"
    assert done.commit is not None
    assert done.commit.parents == (main.commit_id, side.commit_id)
    assert done.changed == 3
    assert scene.shows("main", a="2", b="2", d="1", new="n")
    assert scene.shows("side", a="1", b="2", d="1", new="n")


def test_what_is_there_already_changes_nothing(scene: Scene) -> None:
    """A branch that was merged, or is behind, is not merged again."""
    scene.begin(a="1")
    scene.put("side", b="1")
    scene.merge("side")
    before = scene.branches.resolve("main")
    assert scene.merge("side").outcome == "unchanged"
    assert scene.merge("main", "main").outcome == "unchanged"
    assert scene.branches.resolve("main") == before


def test_a_merge_that_is_ahead_still_leaves_its_commit(scene: Scene) -> None:
    """The target's own line tells every merge, also one that could have been a mere step forward."""
    scene.begin(a="1")
    scene.put("side", b="1")
    done = scene.merge("side")
    assert done.commit is not None
    assert len(done.commit.parents) == 2


@pytest.mark.parametrize(
    ("main", "side", "kind"),
    [
        ({"a": "2"}, {"a": "3"}, "both-changed"),
        ({"n": "2"}, {"n": "3"}, "both-added"),
        ({"a": None}, {"a": "3"}, "deleted-changed"),
        ({"a": "2"}, {"a": None}, "changed-deleted"),
        ({"n": "2"}, {"n__m": "3"}, "file-folder"),
        ({"n__m": "2"}, {"n": "3"}, "file-folder"),
        ({"n__m__o": "2"}, {"n": "3"}, "file-folder"),
    ],
)
def test_a_conflict_is_told_by_path(
    scene: Scene, main: dict[str, str | None], side: dict[str, str | None], kind: str
) -> None:
    """And nothing at all is written, also not what would have been clear."""
    scene.begin(a="1")
    scene.put("side", other="clear", **side)
    before = scene.put("main", **main)
    done = scene.merge("side")
    if kind == "file-folder" and "files-or-folders" in scene.cannot:
        assert done.outcome == "merged"
        assert len(scene.paths("main")) == 4
        return
    assert (done.outcome, done.commit, done.conflicts_total) == ("conflict", None, 1)
    (conflict,) = done.conflicts
    assert conflict.kind == kind
    assert conflict.path in ("a", "n")
    assert scene.branches.resolve("main") == before


@pytest.mark.parametrize("same", [{"a": "2"}, {"n": "2"}, {"a": None}])
def test_the_same_on_both_sides_is_no_conflict(scene: Scene, same: dict[str, str | None]) -> None:
    """A change that both branches made is merged, whichever made it first."""
    scene.begin(a="1", z="1")
    scene.put("side", own="so that the two commits are not one, made in the same millisecond")
    scene.put("side", **same)
    scene.put("main", **same)
    after = scene.paths("main") | scene.paths("side")
    assert scene.merge("side").outcome == "merged"
    assert scene.paths("main") == after


def test_a_conflict_can_be_decided_for_one_side(scene: Scene) -> None:
    """For all paths that are in conflict, and no others."""
    scene.begin(a="1", b="1", c="1")
    scene.put("side", a="side", b=None, new="n")
    scene.put("main", a="main", b="main", c="main")
    scene.branches.create("copy", "main")
    assert scene.merge("side", "copy", "target").outcome == "merged"
    assert scene.shows("copy", a="main", b="main", c="main", new="n")
    assert scene.merge("side", "main", "source").outcome == "merged"
    assert scene.shows("main", a="side", c="main", new="n")


def test_a_later_merge_starts_where_the_last_one_ended(scene: Scene) -> None:
    """What was merged once is not in conflict with what came after it."""
    scene.begin(a="1")
    scene.put("side", a="2")
    scene.merge("side")
    scene.put("main", a="3")
    scene.put("side", b="1")
    assert scene.merge("side").outcome == "merged"
    assert scene.shows("main", a="3", b="1")


def test_crossed_merges_take_only_what_is_sure(scene: Scene) -> None:
    """Two branches merged into each other have two common ancestors: disagreement is a conflict."""
    scene.begin(a="1", b="1")
    scene.put("main", a="main")
    scene.put("side", b="side")
    scene.branches.create("old-main", "main")
    scene.merge("side", "main")
    scene.merge("old-main", "side")
    assert len(scene.branches.propose("side", "main").bases) == (1 if "several-bases" in scene.cannot else 2)
    scene.put("side", a="again", n="new")
    before = scene.branches.resolve("main")
    done = scene.merge("side")
    assert done.outcome in ("merged", "conflict")
    if done.outcome == "conflict":
        assert {one.path for one in done.conflicts} == {"a"}
        assert scene.branches.resolve("main") == before
    assert scene.merge("side", "main", "source").outcome in ("merged", "unchanged")
    assert scene.shows("main", a="again", b="side", n="new")


def test_what_moved_since_the_proposal_is_not_merged(scene: Scene) -> None:
    """Of either branch: the gates have seen another state."""
    scene.begin(a="1")
    scene.put("side", b="1")
    for mover in ("main", "side"):
        proposal = scene.branches.propose("side", "main")
        scene.put(mover, **{f"by_{mover}": "x"})
        before = scene.branches.resolve("main")
        answer = scene.branches.merge(proposal, message="late", author="ada")
        assert isinstance(answer, Moved)
        assert answer.branch == mover
        assert scene.branches.resolve("main") == before


@pytest.mark.req("RS-10")
def test_a_revert_takes_back_one_commit(scene: Scene) -> None:
    """And leaves what came after it; the reason is in the audit log."""
    scene.begin(a="1", b="1")
    bad = scene.put("main", a="bad", n="new", b=None)
    scene.put("main", c="later")
    done = scene.revert(bad.commit_id)
    assert done.commit is not None
    assert scene.shows("main", a="1", b="1", c="later")
    assert done.commit.meta == {"reverts": bad.commit_id}
    (logged,) = scene.store.governance(subject="branch:main")
    assert (logged.kind, logged.rationale, logged.details["reverts"]) == (
        "branch-revert",
        WHY.rationale,
        bad.commit_id,
    )
    assert scene.revert(bad.commit_id).outcome == "unchanged"
    again = scene.revert(done.commit.commit_id)
    assert again.outcome == "merged"
    assert scene.shows("main", a="bad", n="new", c="later")


def test_a_reverted_merge_takes_back_all_that_it_brought(scene: Scene) -> None:
    """And the branch that it came from keeps it."""
    scene.begin(a="1")
    scene.put("side", b="1")
    scene.put("side", c="1")
    scene.put("main", a="2")
    merged = scene.merge("side")
    assert merged.commit is not None
    scene.revert(merged.commit.commit_id)
    assert scene.shows("main", a="2")
    assert scene.shows("side", a="1", b="1", c="1")


def test_a_revert_does_not_undo_what_came_later(scene: Scene) -> None:
    """A path that was changed again is a conflict, and nothing is written."""
    scene.begin(a="1", b="1")
    bad = scene.put("main", a="bad", b="bad")
    last = scene.put("main", a="mended")
    done = scene.revert(bad.commit_id)
    assert done.outcome == "conflict"
    assert [one.path for one in done.conflicts] == ["a"]
    assert scene.branches.resolve("main") == last
    assert scene.paths("main")["b"] == entry("bad")


def test_only_the_branch_s_own_commits_are_reverted(scene: Scene) -> None:
    """And not the beginning of all."""
    scene.begin(a="1")
    foreign = scene.put("side", b="1")
    with pytest.raises(RefNotFound):
        scene.revert(foreign.commit_id)
    with pytest.raises(UsageError):
        scene.revert("main~1")
