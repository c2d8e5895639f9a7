"""Trees and merges against naive models: dictionaries, and sets of ancestors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from kfm.db.branches import EmbeddedBranches
from kfm.db.queries import migrate
from kfm.db.sqlite import MemoryDatabase
from kfm.model import branches, trees
from kfm.model.branches import Commit, Merged, NewCommit, TreeEntry, make_commit
from kfm.model.records import Justification
from kfm.model.trees import EMPTY, Forest
from kfm.system import SystemClock

pytestmark = pytest.mark.req("RS-5")

PATHS = st.builds("p{}".format, st.integers(0, 120))
ENTRIES = st.builds(lambda n: TreeEntry(sha256=f"{n:064x}", size=n), st.integers(0, 3))
CHANGES = st.dictionaries(PATHS, st.none() | ENTRIES, max_size=40)


@contextmanager
def small_bodies(spread: int) -> Iterator[None]:
    """Trees of many levels with few entries."""
    with mock.patch.object(trees, "SPREAD", spread):
        yield


def applied(contents: dict[str, TreeEntry], changes: dict[str, TreeEntry | None]) -> dict[str, TreeEntry]:
    both: dict[str, TreeEntry | None] = {**contents, **changes}
    return {path: entry for path, entry in both.items() if entry is not None}


@given(st.lists(CHANGES, max_size=8), st.sampled_from([1, 3, 7]))
def test_a_tree_is_its_content(steps: list[dict[str, TreeEntry | None]], spread: int) -> None:
    """After any changes the tree reads as a dictionary would, and has the id of one that was made at once."""
    stored: dict[str, str] = {}
    root, model = EMPTY, dict[str, TreeEntry]()
    with small_bodies(spread):
        for changes in steps:
            forest = Forest(stored.__getitem__)
            before, old = root, model
            root, _ = forest.update(root, changes)
            model = applied(model, changes)
            stored |= forest.made
            reader = Forest(stored.__getitem__)
            assert list(reader.entries(root)) == sorted(model.items())
            assert Forest(stored.__getitem__).update(EMPTY, model)[0] == root
            found = {one.path: (one.before, one.after) for one in reader.diff(before, root)}
            some = {one.path for one in reader.diff(before, root, "p1")}
            assert some == {path for path in found if path.startswith("p1")}
            assert found == {
                path: (old.get(path), model.get(path))
                for path in old.keys() | model.keys()
                if old.get(path) != model.get(path)
            }


@given(st.dictionaries(PATHS, ENTRIES, max_size=60), st.randoms(use_true_random=False))
def test_the_order_of_commits_leaves_no_trace(contents: dict[str, TreeEntry], chance: object) -> None:
    """One entry at a time, in any order, with detours: the same tree."""
    stored: dict[str, str] = {}
    paths = list(contents)
    chance.shuffle(paths)  # type: ignore[attr-defined]
    with small_bodies(3):
        root = EMPTY
        for path in paths:
            for entry in (TreeEntry(sha256="f" * 64, size=9), None, contents[path]):
                forest = Forest(stored.__getitem__)
                root, _ = forest.update(root, {path: entry})
                stored |= forest.made
        assert root == Forest(stored.__getitem__).update(EMPTY, contents)[0]


def test_a_small_change_writes_few_bodies() -> None:
    """One entry among many: one body on each level."""
    contents = {f"tiles/{number:06d}": TreeEntry(sha256=f"{number:064x}", size=1) for number in range(20_000)}
    whole = Forest({}.__getitem__)
    root, _ = whole.update(EMPTY, contents)
    forest = Forest(whole.made.__getitem__)
    forest.update(root, {"tiles/010000": TreeEntry(sha256="0" * 64, size=2)})
    assert len(forest.made) <= 4 < 200 < len(whole.made)


NAMES = st.lists(st.sampled_from(["a", "b", "a.b", "c"]), min_size=1, max_size=3).map("/".join)


@given(st.sets(NAMES, max_size=6), st.sets(NAMES, max_size=6))
def test_files_and_folders_are_told_apart(first: set[str], second: set[str]) -> None:
    """A clash is found exactly where some path is a folder of another, whichever was there before."""
    entry = TreeEntry(sha256="0" * 64, size=0)
    first = {path for path in first if not any(path.startswith(f"{other}/") for other in first)}
    forest = Forest({}.__getitem__)
    before, _ = forest.update(EMPTY, dict.fromkeys(first, entry))
    after, added = forest.update(before, dict.fromkeys(second, entry))
    found, count = trees.clashes(forest, before, after, sorted(added), 100)
    every = first | second
    wrong = {path for path in every if any(other.startswith(f"{path}/") for other in every)}
    assert {path for path, _ in found} == wrong
    assert count == len(wrong)


@given(st.data())
def test_merge_bases_are_the_newest_common_ancestors(data: st.DataObject) -> None:
    """As by sets: common ancestors that are no ancestor of another common one."""
    commits: list[Commit] = []
    above: dict[str, set[str]] = {}
    for number in range(data.draw(st.integers(1, 14))):
        parents = (
            data.draw(st.lists(st.sampled_from(commits), max_size=2, unique_by=lambda c: c.commit_id))
            if commits
            else []
        )
        made = make_commit(EMPTY, parents, message=str(number), author="a", at_ms=0)
        commits.append(made)
        above[made.commit_id] = {made.commit_id}.union(*(above[parent.commit_id] for parent in parents))
    known = {one.commit_id: one for one in commits}
    left, right = data.draw(st.sampled_from(commits)), data.draw(st.sampled_from(commits))
    common = above[left.commit_id] & above[right.commit_id]
    best = {one for one in common if not any(one in above[other] - {other} for other in common)}
    found = branches.merge_bases(known.__getitem__, left, right)
    assert {one.commit_id for one in found} == best
    assert len(found) == len(best)
    assert branches.is_ancestor(known.__getitem__, left, right) == (left.commit_id in above[right.commit_id])


class Histories(RuleBasedStateMachine):
    """Branches beside a model in which each commit is a dictionary with its parents."""

    names = Bundle("names")

    @initialize(target=names)
    def begin(self) -> str:
        clock = SystemClock()
        self.database = MemoryDatabase(clock)
        migrate(self.database, "sqlite", clock.now_ms())
        self.branches = EmbeddedBranches(self.database)
        self.count = 0
        root = self.branches.create("main").head
        self.contents: dict[str, dict[str, TreeEntry]] = {root: {}}
        self.parents: dict[str, tuple[str, ...]] = {root: ()}
        self.heads = {"main": root}
        return "main"

    def above(self, commit: str) -> set[str]:
        found, waiting = set[str](), [commit]
        while waiting:
            one = waiting.pop()
            if one not in found:
                found.add(one)
                waiting += self.parents[one]
        return found

    def bases(self, left: str, right: str) -> list[str]:
        common = self.above(left) & self.above(right)
        return [one for one in common if not any(one in self.above(other) - {other} for other in common)]

    def remember(self, name: str, commit: Commit, contents: dict[str, TreeEntry]) -> None:
        self.heads[name] = commit.commit_id
        self.contents[commit.commit_id] = contents
        self.parents[commit.commit_id] = commit.parents

    @rule(target=names, origin=names)
    def branch(self, origin: str) -> str:
        self.count += 1
        name = f"b{self.count}"
        self.branches.create(name, origin)
        self.heads[name] = self.heads[origin]
        return name

    @rule(name=names, changes=st.dictionaries(PATHS, st.none() | ENTRIES, min_size=1, max_size=5))
    def commit(self, name: str, changes: dict[str, TreeEntry | None]) -> None:
        self.count += 1
        made = self.branches.commit(NewCommit(name, changes, message=str(self.count), author="a"))
        assert isinstance(made, Commit)
        contents = applied(self.contents[self.heads[name]], changes)
        if contents == self.contents[self.heads[name]]:
            assert made.commit_id == self.heads[name]
        else:
            self.remember(name, made, contents)

    def three_ways(
        self, base: dict[str, TreeEntry], ours: dict[str, TreeEntry], theirs: dict[str, TreeEntry]
    ) -> tuple[dict[str, TreeEntry], set[str]]:
        result, wrong = dict[str, TreeEntry | None](ours), set[str]()
        for path in base.keys() | ours.keys() | theirs.keys():
            was, mine, other = base.get(path), ours.get(path), theirs.get(path)
            if was != other and mine != other:
                if mine == was:
                    result[path] = other
                else:
                    wrong.add(path)
        return {path: entry for path, entry in result.items() if entry is not None}, wrong

    @rule(source=names, into=names)
    def merge(self, source: str, into: str) -> None:
        self.count += 1
        ours, theirs = self.heads[into], self.heads[source]
        bases = self.bases(ours, theirs)
        proposal = self.branches.propose(source, into)
        assert set(proposal.bases) == set(bases)
        done = self.branches.merge(proposal, message=str(self.count), author="a")
        assert isinstance(done, Merged)
        if theirs in self.above(ours):
            assert done.outcome == "unchanged"
            return
        answers = [
            self.three_ways(self.contents[b], self.contents[ours], self.contents[theirs]) for b in bases
        ]
        sure = all(answer == (answers[0][0], set()) for answer in answers)
        assert done.outcome == ("merged" if sure else "conflict")
        if done.commit is not None:
            self.remember(into, done.commit, answers[0][0])
        elif len(bases) == 1:
            assert {one.path for one in done.conflicts} == answers[0][1]

    @rule(name=names, back=st.integers(0, 3))
    def revert(self, name: str, back: int) -> None:
        self.count += 1
        line = [self.heads[name]]
        while self.parents[line[-1]]:
            line.append(self.parents[line[-1]][0])
        undone = line[min(back, len(line) - 1)]
        if not self.parents[undone]:
            return
        done = self.branches.revert(
            name, undone, message=str(self.count), author="a", why=Justification(actor="a")
        )
        assert isinstance(done, Merged)
        before = self.parents[undone][0]
        wanted, wrong = self.three_ways(self.contents[undone], self.contents[line[0]], self.contents[before])
        assert {one.path for one in done.conflicts} == wrong
        if done.outcome == "merged":
            assert done.commit is not None
            self.remember(name, done.commit, wanted)
        elif not wrong:
            assert wanted == self.contents[line[0]]

    @rule()
    def sweep(self) -> None:
        self.branches.sweep(2**50)

    @invariant()
    def every_head_reads_whole(self) -> None:
        for name, head in getattr(self, "heads", {}).items():
            assert self.branches.resolve(name).commit_id == head
            assert dict(self.branches.entries(name)) == self.contents[head]

    def teardown(self) -> None:
        if hasattr(self, "database"):
            self.database.close()


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=25, stateful_step_count=25)
