"""A naive model of a lakeFS repository: whole trees as dictionaries, merges path by path.

It does what lakeFS documents of branches, staging, commits, merges, reverts, tags, protection and hooks,
with the refusals that its server gives. It is no copy of it: the adapter's tests need the semantics alone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

BRANCH = re.compile(r"\w[-\w]*\Z", re.ASCII)


class Refusal(Exception):
    def __init__(self, status: int, message: str, body: dict[str, object] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = body if body is not None else {"message": message}


@dataclass(frozen=True)
class Thing:
    data: bytes
    metadata: tuple[tuple[str, str], ...] = ()

    @property
    def checksum(self) -> str:
        return hashlib.md5(self.data).hexdigest()


Tree = dict[str, Thing]


@dataclass
class Change:
    """A commit."""

    id: str
    parents: list[str]
    tree: Tree
    message: str
    metadata: dict[str, str]
    date: int
    generation: int

    def document(self) -> dict[str, object]:
        body = "".join(f"{path}\0{each.checksum}" for path, each in sorted(self.tree.items()))
        return {
            "id": self.id,
            "parents": self.parents,
            "committer": "server-user",
            "message": self.message,
            "creation_date": self.date,
            "meta_range_id": hashlib.sha256(body.encode(errors="surrogatepass")).hexdigest(),
            "metadata": self.metadata,
            "generation": self.generation,
            "version": 1,
        }


@dataclass
class Line:
    """A branch, with what is staged on it."""

    commit: str
    hidden: bool = False
    staged: dict[str, Thing | None] = field(default_factory=dict)


class Repository:
    def __init__(self, name: str = "example", default_branch: str = "main") -> None:
        self.name = name
        self.default_branch = default_branch
        self.commits: dict[str, Change] = {}
        self.branches: dict[str, Line] = {}
        self.tags: dict[str, str] = {}
        self.rules: list[str] = []
        self.clock = 1_767_225_600
        self.before_merge: Callable[[Change, str], str | None] = lambda _source, _into: None
        first = self._add([], {}, "Repository created", {})
        self.branches[default_branch] = Line(first.id)

    def _add(self, parents: list[str], tree: Tree, message: str, metadata: dict[str, str]) -> Change:
        self.clock += 1
        generation = 1 + max((self.commits[each].generation for each in parents), default=0)
        said = repr((parents, sorted(tree), message, sorted(metadata.items()), self.clock))
        made = Change(
            hashlib.sha256(said.encode()).hexdigest(),
            parents,
            tree,
            message,
            metadata,
            self.clock,
            generation,
        )
        self.commits[made.id] = made
        return made

    # --- refs ----------------------------------------------------------------------------------

    def line(self, name: str) -> Line:
        if name not in self.branches:
            raise Refusal(404, "branch not found")
        return self.branches[name]

    def find(self, ref: str) -> Change:
        if ref in self.branches:
            return self.commits[self.branches[ref].commit]
        if ref in self.tags:
            return self.commits[self.tags[ref]]
        found = [each for each in self.commits if each.startswith(ref)]
        if len(ref) < 4 or len(found) != 1:
            raise Refusal(404, "not found" if not found else "reference is ambiguous: not found")
        return self.commits[found[0]]

    def tree_at(self, ref: str) -> Tree:
        """Through a branch's name what is staged is seen, too."""
        tree = dict(self.find(ref).tree)
        if ref in self.branches:
            for path, thing in self.branches[ref].staged.items():
                if thing is None:
                    tree.pop(path, None)
                else:
                    tree[path] = thing
        return tree

    def create_branch(self, name: str, source: str, hidden: bool) -> str:
        if not BRANCH.match(name):
            raise Refusal(400, "branch id: invalid value: validation error")
        if name in self.branches:
            raise Refusal(409, "branch already exists: not unique")
        self.branches[name] = Line(self.find(source).id, hidden)
        return self.branches[name].commit

    def delete_branch(self, name: str) -> None:
        self.line(name)
        if name == self.default_branch:
            raise Refusal(400, "cannot delete repository default branch")
        del self.branches[name]

    def create_tag(self, name: str, ref: str) -> str:
        if name in self.tags:
            raise Refusal(409, "tag already exists: not unique")
        self.tags[name] = self.find(ref).id
        return self.tags[name]

    def refuse_protected(self, name: str, what: str) -> None:
        if any(fnmatchcase(name, rule) for rule in self.rules):
            raise Refusal(403, f"cannot {what} to protected branch")

    # --- staging and commits -------------------------------------------------------------------

    def stage(self, branch: str, path: str, thing: Thing | None) -> None:
        line = self.line(branch)
        self.refuse_protected(branch, "write")
        if not path or len(path.encode()) > 1024:
            raise Refusal(400, "path: invalid value: validation error")
        line.staged[path] = thing

    def commit(self, branch: str, message: str, metadata: dict[str, str], allow_empty: bool) -> Change:
        line = self.line(branch)
        self.refuse_protected(branch, "commit")
        before, after = self.commits[line.commit].tree, self.tree_at(branch)
        if before == after and not allow_empty:
            raise Refusal(400, "commit: no changes")
        made = self._add([line.commit], after, message, metadata)
        line.commit, line.staged = made.id, {}
        return made

    def log(self, ref: str, first_parent: bool) -> list[Change]:
        """Newest first, none before one that came from it."""
        start = self.find(ref)
        if first_parent:
            line = [start]
            while line[-1].parents:
                line.append(self.commits[line[-1].parents[0]])
            return line
        return sorted(
            (self.commits[each] for each in self._ancestry(start.id)), key=lambda each: -each.generation
        )

    def _ancestry(self, commit: str) -> set[str]:
        seen: set[str] = set()
        open_ = [commit]
        while open_:
            each = open_.pop()
            if each not in seen:
                seen.add(each)
                open_ += self.commits[each].parents
        return seen

    def base(self, one: str, other: str) -> Change:
        shared = self._ancestry(one) & self._ancestry(other)
        return max((self.commits[each] for each in shared), key=lambda each: (each.generation, each.id))

    # --- merges --------------------------------------------------------------------------------

    def merge(
        self,
        source: str,
        into: str,
        message: str,
        metadata: dict[str, str],
        strategy: str,
        squash: bool,
        empty: bool,
    ) -> Change:
        line, theirs = self.line(into), self.find(source)
        if line.staged:
            raise Refusal(400, f"{into}: uncommitted changes (dirty branch)")
        ours = self.commits[line.commit]
        base = self.base(theirs.id, ours.id)
        tree, conflicts = three_way(base.tree, ours.tree, theirs.tree, strategy)
        if conflicts:
            raise Refusal(409, "conflict found", {"reference": "", "message": "conflict found"})
        if tree == ours.tree and not empty:
            raise Refusal(400, "update branch: no changes")
        if refused := self.before_merge(theirs, into):
            raise Refusal(412, f"pre-merge hook aborted, run id '1': {refused}")
        parents = [ours.id] if squash else [ours.id, theirs.id]
        made = self._add(parents, tree, message, metadata)
        line.commit = made.id
        return made

    def revert(self, branch: str, ref: str, parent_number: int) -> None:
        line, undone = self.line(branch), self.find(ref)
        self.refuse_protected(branch, "commit")
        if line.staged:
            raise Refusal(400, "uncommitted changes (dirty branch)")
        if len(undone.parents) > 1 and parent_number < 1:
            raise Refusal(400, "must specify 1-based parent number for reverting merge commit")
        before = self.commits[undone.parents[max(0, parent_number - 1)]]
        ours = self.commits[line.commit]
        tree, conflicts = three_way(undone.tree, ours.tree, before.tree, "")
        if conflicts:
            raise Refusal(409, "conflict found")
        if tree == ours.tree:
            raise Refusal(400, "revert: no changes")
        line.commit = self._add([ours.id], tree, f"Revert {undone.id}", {}).id

    def diff(self, left: str, right: str, three_dot: bool) -> list[tuple[str, str]]:
        ours, theirs = self.find(left), self.find(right)
        old = self.base(ours.id, theirs.id).tree if three_dot else ours.tree
        _tree, conflicts = three_way(old, ours.tree, theirs.tree, "")
        found = []
        for path in sorted({*old, *theirs.tree}, key=str.encode):
            if old.get(path) != theirs.tree.get(path):
                kind = "added" if path not in old else "removed" if path not in theirs.tree else "changed"
                found.append((path, "conflict" if three_dot and path in conflicts else kind))
        return found


def three_way(base: Tree, ours: Tree, theirs: Tree, strategy: str) -> tuple[Tree, set[str]]:
    tree, conflicts = dict(ours), set()
    for path in {*base, *ours, *theirs}:
        was, mine, other = base.get(path), ours.get(path), theirs.get(path)
        if other in (was, mine):
            continue
        if mine != was and strategy == "dest-wins":
            continue
        if mine != was and strategy != "source-wins":
            conflicts.add(path)
        elif other is None:
            tree.pop(path, None)
        else:
            tree[path] = other
    return tree, conflicts
