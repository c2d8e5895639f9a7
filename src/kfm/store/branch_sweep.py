"""Which commits and trees something reaches, and the end of the others.

Reached is what a branch or a tag names and all that came before it. What is not reached but young stays,
with everything under it: a branch that was deleted by mistake can be made again from its commit.
"""

from __future__ import annotations

from collections.abc import Iterator

from kfm.core.branching import Commit, Swept
from kfm.core.run_states import outputs_of
from kfm.core.trees import EMPTY
from kfm.store.branch_rows import ROOT, finder, forest
from kfm.store.session import Session

PAGE_ROWS = 1000


class Marks:
    """What is kept."""

    def __init__(self) -> None:
        self.commits: set[str] = set()
        self.trees: set[str] = {EMPTY}

    def mark(self, session: Session, before_ms: int) -> None:
        """Everything that a ref or a young commit reaches; what was marked before is not read again."""
        find, wood = finder(session), forest(session)
        waiting = [row[1] for row in session.all("branches.list")]
        waiting += [row[1] for row in session.all("tags.list")]
        waiting += [name for name, made_at_ms in _pages(session, "commits.ages") if made_at_ms >= before_ms]
        while waiting:
            commit_id = waiting.pop()
            if commit_id in self.commits:
                continue
            self.commits.add(commit_id)
            commit: Commit = find(commit_id)
            waiting += commit.parents
            wood.reach(commit.tree_id, self.trees)

    def unmarked(self, session: Session, name: str, kept: set[str], before_ms: int) -> list[str]:
        found = _pages(session, name)
        return [one for one, made_at_ms in found if one not in kept and made_at_ms < before_ms]


def garbage(session: Session, before_ms: int) -> Swept:
    marks = Marks()
    marks.mark(session, before_ms)
    return unreached(session, marks, before_ms)


def unreached(session: Session, marks: Marks, before_ms: int) -> Swept:
    return Swept(
        commits=len(marks.unmarked(session, "commits.ages", marks.commits | {ROOT.commit_id}, before_ms)),
        trees=len(marks.unmarked(session, "trees.ages", marks.trees, before_ms)),
    )


def sweep_in(session: Session, marks: Marks, before_ms: int) -> Swept:
    """Inside a transaction: look once more at what refs reach, then remove the rest.

    Nobody moves or gives names meanwhile: a commit on top of one that is about to go would hang in the air.
    """
    session.all("branches.keep_others_out")
    marks.mark(session, before_ms)
    commits = marks.unmarked(session, "commits.ages", marks.commits | {ROOT.commit_id}, before_ms)
    trees = marks.unmarked(session, "trees.ages", marks.trees, before_ms)
    # Before the trees: if one of them can't go, nothing goes.
    session.many("commits.delete", [{"commit_id": one, "before_ms": before_ms} for one in commits])
    session.many("trees.delete", [{"tree_id": one, "before_ms": before_ms} for one in trees])
    return Swept(commits=len(commits), trees=len(trees))


def objects_kept(session: Session, before_ms: int) -> Iterator[str]:
    """The objects of every tree that a sweep would leave."""
    marks = Marks()
    marks.mark(session, before_ms)
    wood = forest(session)
    for tree_id, made_at_ms in _pages(session, "trees.ages"):
        if tree_id in marks.trees or made_at_ms >= before_ms:
            node = wood.node(tree_id)
            if node.level == 0:
                yield from (row[1] for row in node.rows)
    yield from _of_nodes(session)


def _of_nodes(session: Session) -> Iterator[str]:
    """What nodes made and no commit holds yet; without it they would have to run again."""
    after = ("", "")
    while page := session.all("node_heads.outputs", branch=after[0], dataset_id=after[1], limit=PAGE_ROWS):
        for row in page:
            outputs = outputs_of(row[2])
            yield from (each.checksum.removeprefix("sha256:") for each in outputs if each.kind == "object")
        after = (page[-1][0], page[-1][1])


def _pages(session: Session, name: str) -> Iterator[tuple[str, int]]:
    after = ""
    while page := session.all(name, after_id=after, row_limit=PAGE_ROWS):
        yield from page
        after = page[-1][0]
