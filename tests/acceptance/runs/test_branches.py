"""`kfm branch` and the collector: what people see of branches, and what is never taken from them."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest

from kfm.model.branches import Commit, NewCommit, TreeEntry
from kfm.model.errors import GateDenied, SwitchThrown
from kfm.runs.branch_merges import Merging
from tests.acceptance.runs.conftest import Inside

pytestmark = pytest.mark.req("RS-5")

Valid = Callable[[str, Any], None]
WHY = ("--rationale", "it was wrong")


def commit(project: Inside, branch: str, message: str, **contents: str | None) -> str:
    """Put bytes into the object store, and entries on the branch."""
    from kfm.app import open_app
    from kfm.config.loader import load

    with project._surroundings(), open_app(load(str(project.folder / "kfm.yml"))) as app:
        changes: dict[str, TreeEntry | None] = {}
        for path, text in contents.items():
            changes[path] = None
            if text is not None:
                staging, _ = app.objects.stage()
                staging.write(text.encode())
                digest, size = staging.commit()
                changes[path] = TreeEntry(sha256=digest, size=size)
        assert app.store is not None
        branches = app.store.branch_store()
        if branches.branch(branch) is None:
            branches.create(branch, "main" if branches.branch("main") else None)
        made = branches.commit(NewCommit(branch, changes, message=message, author="ada"))
        assert isinstance(made, Commit)
        return made.commit_id


def test_a_branch_s_life(project: Inside, valid: Valid) -> None:
    """Made, compared, merged, tagged, reverted, deleted: each step has its document."""
    assert project.kfm("branch", "list").out == "there is no branch yet\n"
    commit(project, "main", "first", a="1", b="1")
    valid("cli-branch-create", project.kfm("branch", "create", "side", "--json").document)
    commit(project, "side", "more", a="2", c="3")
    listed = project.kfm("branch", "list", "--json").document
    valid("cli-branch-list", listed)
    assert [one["name"] for one in listed["branches"]] == ["main", "side"]
    assert project.kfm("branch", "diff", "main", "side").out == "~ a\n+ c\n"
    valid("cli-branch-diff", project.kfm("branch", "diff", "main", "side", "--json").document)
    done = project.kfm("branch", "merge", "side", "--json")
    valid("cli-branch-merge", done.document)
    assert (done.code, done.document["outcome"], done.document["changed"]) == (0, "merged", 2)
    assert project.kfm("branch", "merge", "side").out.startswith("unchanged: side into main")
    valid("cli-branch-tag", project.kfm("branch", "tag", "v1", "--json").document)
    log = project.kfm("branch", "log", "--json").document
    valid("cli-branch-log", log)
    assert [one["message"] for one in log["commits"]] == ["Merge side into main", "first", ""]
    shown = project.kfm("branch", "show", "v1", "--json").document
    valid("cli-branch-show", shown)
    assert [one["path"] for one in shown["entries"]] == ["a", "b", "c"]
    reverted = project.kfm("branch", "revert", "main", *WHY, "--json")
    valid("cli-branch-revert", reverted.document)
    assert project.kfm("branch", "diff", "main", "main~2").out == "nothing differs\n"
    valid("cli-branch-delete", project.kfm("branch", "delete", "side", *WHY, "--json").document)
    told = project.kfm("audit", "list", "--json").document
    assert {"branch-revert", "branch-delete"} <= {one["kind"] for one in told["entries"]}


@pytest.mark.parametrize("words", [("side",), ("--tag", "v1")])
def test_what_was_deleted_comes_back_as_it_is_told(project: Inside, words: tuple[str, ...]) -> None:
    """The command that brings back a branch, or a tag, is printed when it goes, and does it."""
    commit(project, "main", "first", a="1")
    project.kfm("branch", "create", "side")
    project.kfm("branch", "tag", "v1")
    before = project.kfm("branch", "list").out.splitlines()
    told = project.kfm("branch", "delete", *words, *WHY).err
    again = told.partition("bring it back with: kfm ")[2].split()
    assert len(project.kfm("branch", "list").out.splitlines()) == len(before) - 1
    assert project.kfm(*again).code == 0
    names = [line.split()[:3] for line in project.kfm("branch", "list").out.splitlines()]
    assert names == [line.split()[:3] for line in before]


@pytest.mark.parametrize("words", [("revert", "main"), ("delete", "main"), ("protect", "main")])
def test_who_overrides_says_why(project: Inside, words: tuple[str, ...]) -> None:
    """Without a rationale nothing is done, and the way out is named."""
    commit(project, "main", "first", a="1")
    before = project.kfm("branch", "log", "--json").document
    ended = project.kfm("branch", *words)
    assert ended.code == 3
    assert "--rationale" in ended.err
    assert project.kfm("branch", "log", "--json").document == before


def test_conflicts_are_named_and_nothing_is_done(project: Inside, valid: Valid) -> None:
    """By path, in text and in the document; a side can be preferred."""
    commit(project, "main", "first", a="1", b="1")
    commit(project, "side", "side", a="2", b="2")
    head = commit(project, "main", "main", a="3", b="3")
    ended = project.kfm("branch", "merge", "side")
    assert ended.code == 1
    assert ended.out == "  a: both changed it\n  b: both changed it\n"
    assert "KFM630" in ended.err
    document = project.kfm("branch", "merge", "side", "--json").document
    valid("cli-branch-merge", document)
    assert [one["path"] for one in document["conflicts"]] == ["a", "b"]
    assert project.kfm("branch", "log", "--json").document["commits"][0]["commit_id"] == head
    assert project.kfm("branch", "merge", "side", "--prefer", "source").code == 0
    assert project.kfm("branch", "diff", "main", "side").out == "nothing differs\n"


def test_a_protected_branch_asks_its_gates(project: Inside, valid: Valid) -> None:
    """A rationale, and no switch in the way; a gate that refuses leaves the branch where it was."""
    head = commit(project, "main", "first", a="1")
    commit(project, "side", "side", b="1")
    valid("cli-branch-protect", project.kfm("branch", "protect", "main", *WHY, "--json").document)
    assert project.kfm("branch", "merge", "side").code == 3
    project.kfm("switch", "set", "paused", "--all", *WHY)
    ended = project.kfm("branch", "merge", "side", *WHY)
    assert (ended.code, "KFM307" in ended.err) == (3, True)
    assert project.kfm("branch", "log", "--json").document["commits"][0]["commit_id"] == head
    project.kfm("switch", "set", "running", "--all", *WHY)
    assert project.kfm("branch", "merge", "side", *WHY).code == 0
    assert [one["path"] for one in project.kfm("branch", "show", "--json").document["entries"]] == ["a", "b"]


def test_a_gate_of_one_s_own(project: Inside) -> None:
    """It sees both heads, and what moved while it looked makes it look again."""
    from kfm.app import open_app
    from kfm.config.loader import load
    from kfm.model.records import Justification
    from kfm.runs.branch_merges import switch_gate

    commit(project, "main", "first", a="1")
    commit(project, "side", "side", b="1")
    why, seen = Justification(actor="ada", rationale="ready"), []
    with project._surroundings(), open_app(load(str(project.folder / "kfm.yml"))) as app:
        assert app.store is not None
        branches = app.store.branch_store()
        branches.protect("main", True, why=why)
        merging = Merging(branches)

        @merging.before_merge
        def look(proposal: Any) -> None:
            seen.append(proposal.source_head)
            if len(seen) == 1:
                branches.commit(
                    NewCommit("side", {"c": TreeEntry(sha256="0" * 64, size=1)}, message="late", author="bob")
                )
            if len(seen) == 3:
                raise GateDenied("not today")

        done = merging.merge("side", "main", author="ada", why=why)
        assert (done.outcome, len(seen), len(set(seen))) == ("merged", 2, 2)
        assert set(dict(branches.entries("main"))) == {"a", "b", "c"}
        branches.commit(
            NewCommit("side", {"d": TreeEntry(sha256="0" * 64, size=1)}, message="more", author="bob")
        )
        before = branches.resolve("main")
        with pytest.raises(GateDenied):
            merging.merge("side", "main", author="ada", why=why)
        assert branches.resolve("main") == before
        app.set_switch("all", "stopped", rationale="stop", actor="ada")
        with pytest.raises(SwitchThrown):
            switch_gate(app.store)(branches.propose("side", "main"))


def test_the_collector_spares_what_branches_reach(project: Inside) -> None:
    """Objects of old commits stay; those of a deleted branch go, with its commits, after the grace time."""
    commit(project, "main", "first", a="once")
    commit(project, "main", "second", a="twice")
    commit(project, "side", "side", b="only there")
    old = ("--set", "limits.versions_kept=1", "--grace", "0")
    long_ago(project)
    assert project.kfm("gc", *old, "--json").document["objects"] == []
    project.kfm("branch", "delete", "side", *WHY)
    kept = project.kfm("gc", "--json").document
    assert (kept["objects"], kept["commits"]) == ([], 0), "within the grace time all of it is kept"
    planned = project.kfm("gc", *old, "--json").document
    lost = sha256(b"only there").hexdigest()
    assert [one["sha256"] for one in planned["objects"]] == [lost]
    assert (planned["commits"], planned["trees"]) == (1, 1)
    removed = project.kfm("gc", *old, "--apply", *WHY, "--json").document["removed"]
    assert (removed["objects"], removed["commits"], removed["trees"]) == (1, 1, 1)
    assert [one["path"] for one in project.kfm("branch", "show", "main~1", "--json").document["entries"]] == [
        "a"
    ]


def long_ago(project: Inside) -> None:
    """Every stored object was written a day ago."""
    import os
    import time

    then = time.time() - 86_400
    for folder, _, names in os.walk(project.folder / ".kfm" / "objects"):
        for name in names:
            os.utime(os.path.join(folder, name), (then, then))
