"""Commits, trees and tags as rows; the changes that move branches, inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from kfm.db import rows
from kfm.db.session import Row, Session
from kfm.model import branches, trees
from kfm.model.branches import (
    CONFLICTS_SHOWN_MAX,
    Branch,
    Commit,
    Conflict,
    Merged,
    Moved,
    NewCommit,
    Preference,
    Swept,
    Tag,
)
from kfm.model.errors import BranchProtected, PathConflict, RefExists, RefNotFound, StoreCorrupt, UsageError
from kfm.model.run_state import outputs_of
from kfm.model.trees import EMPTY, Forest


def branch_in(session: Session, name: str) -> Branch | None:
    row = session.one("branches.get", name=rows.storable(name))
    return branch_from(row) if row else None


def take_part(session: Session) -> None:
    """Keep sweeps away; called first in a transaction that moves or creates branches and tags."""
    session.all("branches.take_part")


def held_in(session: Session, name: str) -> Branch:
    """The branch, locked until this transaction ends."""
    take_part(session)
    row = session.one("branches.get_for_update", name=rows.storable(name))
    if row is None:
        raise RefNotFound(f"There is no branch `{name[:80]}`.")
    return branch_from(row)


def create_in(session: Session, name: str, at: str | None = None) -> Branch:
    """A branch at a commit; without one, at the beginning of all of them. RefExists if it is there."""
    branches.check_name(name)
    take_part(session)
    now_ms = session.now_ms()
    if at is None:
        put_commit(session, root_commit(), now_ms)
        at = root_commit().commit_id
    elif session.one("commits.hold", commit_id=at) is None:
        raise RefNotFound(f"There is no commit `{at[:80]}`.")
    if session.one("tags.get", name=name) is not None:
        raise RefExists(f"`{name}` is a tag.")
    if session.one("branches.insert", name=name, head=at, now_ms=now_ms) is None:
        raise RefExists(f"`{name}` is a branch.")
    made = branch_in(session, name)
    assert made is not None
    return made


def ensure_in(session: Session, name: str) -> Branch:
    """The branch; a new one without entries, if there was none."""
    try:
        return branch_in(session, name) or create_in(session, name)
    except RefExists:
        found = branch_in(session, name)  # another transaction was faster
        if found is None:
            raise
        return found


def commit_in(session: Session, new: NewCommit, *, gated: bool = False) -> Commit | Moved:
    """Put entries on a branch, and take away the paths whose entry is None.

    Changes that change nothing make no commit: the answer is the head. A protected branch is for `gated`
    alone.
    """
    branches.check_changes(new.changes)
    held = held_in(session, new.branch)
    if moved := branches.moved_from(held, new.expected):
        return moved
    branches.refuse_protected(held, gated)
    find, forest = finder(session), forest_of(session)
    head = find(held.head)
    tree_id, added = forest.update(head.tree_id, new.changes)
    if tree_id == head.tree_id:
        return head
    wrong, count = trees.clashes(forest, head.tree_id, tree_id, sorted(added), 1)
    if wrong:
        raise PathConflict(
            f"`{wrong[0][0]}` can't be a file beside `{wrong[0][1]}` ({count} such).",
            remedy="A path is a file or a folder; remove one of them in the same commit.",
        )
    return _advance(
        session, held, forest, tree_id, [head], message=new.message, author=new.author, meta=new.meta
    )


def merge_in(
    session: Session,
    source: str,
    into: str,
    *,
    message: str,
    author: str,
    expected: str | None = None,
    meta: Mapping[str, Any] | None = None,
    gated: bool = False,
    prefer: Preference | None = None,
) -> Merged | Moved:
    """Bring the commit `source` (an id) to the branch `into`, in a commit with two parents.

    With conflicts nothing is written. What the branch has already changes nothing.
    """
    held = held_in(session, into)
    if moved := branches.moved_from(held, expected):
        return moved
    branches.refuse_protected(held, gated)
    if source != root_commit().commit_id and session.one("commits.hold", commit_id=source) is None:
        raise RefNotFound(f"There is no commit `{source[:80]}`.")
    find, forest = finder(session), forest_of(session)
    target, other = find(held.head), find(source)
    bases = branches.merge_bases(find, target, other)
    if any(base.commit_id == source for base in bases):
        return Merged(outcome="unchanged", target=into, commit=target)
    decided = branches.decide_merge(
        [forest.diff(base.tree_id, target.tree_id) for base in bases],
        [forest.diff(base.tree_id, other.tree_id) for base in bases],
        prefer,
    )
    parents = [target, other]
    return _settle(session, held, forest, decided, parents, message=message, author=author, meta=meta)


def revert_in(
    session: Session,
    branch: str,
    commit_id: str,
    *,
    message: str,
    author: str,
    expected: str | None = None,
    meta: Mapping[str, Any] | None = None,
    gated: bool = False,
    prefer: Preference | None = None,
) -> Merged | Moved:
    """Take back what one commit of the branch did; of a merge, all that it brought.

    With conflicts (a later commit changed the same paths) nothing is written.
    """
    held = held_in(session, branch)
    if moved := branches.moved_from(held, expected):
        return moved
    branches.refuse_protected(held, gated)
    find, forest = finder(session), forest_of(session)
    head, undone = find(held.head), find(commit_id)
    if not undone.parents:
        raise UsageError("The first commit of all can't be reverted: there is nothing before it.")
    if not branches.is_ancestor(find, undone, head):
        raise RefNotFound(f"The commit {commit_id[:12]} is no part of `{branch}`.")
    before = find(undone.parents[0])
    decided = branches.decide_merge(
        [forest.diff(undone.tree_id, head.tree_id)], [forest.diff(undone.tree_id, before.tree_id)], prefer
    )
    marked = {**(meta or {}), "reverts": commit_id}
    return _settle(session, held, forest, decided, [head], message=message, author=author, meta=marked)


def delete_in(session: Session, name: str, *, expected: str | None = None) -> Branch | Moved:
    """Forget the name. Its commits stay as long as something reaches them, or the grace time lasts."""
    held = held_in(session, name)
    if moved := branches.moved_from(held, expected):
        return moved
    if held.protected:
        raise BranchProtected(f"`{name}` is not deleted.", remedy=f"First `kfm branch protect {name} --off`.")
    session.all("branches.delete", name=held.name, seen_head=held.head)
    return held


def set_state_in(session: Session, name: str, head: str, agreed: str | None = None) -> bool:
    """Note that run-state agrees with the tree at this head, or only did at another; False if the branch is
    elsewhere."""
    answer = session.one("branches.set_state", name=name, state_commit=agreed or head, seen_head=head)
    return answer is not None


# --- inside --------------------------------------------------------------------------


def _settle(
    session: Session,
    held: Branch,
    forest: trees.Forest,
    decided: branches.Decided,
    parents: list[Commit],
    **words: Any,
) -> Merged:
    """Commit what was decided, unless there are conflicts."""
    conflicts, total = list(decided.conflicts), decided.conflicts_total
    target = parents[0]
    tree_id, added = forest.update(target.tree_id, decided.changes)
    wrong, count = trees.clashes(forest, target.tree_id, tree_id, sorted(added), CONFLICTS_SHOWN_MAX)
    conflicts += [Conflict(path=path, kind="file-folder", other=other) for path, other in wrong]
    if total + count:
        shown = sorted(conflicts, key=lambda one: one.path)[:CONFLICTS_SHOWN_MAX]
        return Merged(
            outcome="conflict",
            target=held.name,
            commit=None,
            conflicts=tuple(shown),
            conflicts_total=total + count,
        )
    if tree_id == target.tree_id and len(parents) == 1:
        return Merged(outcome="unchanged", target=held.name, commit=target)
    commit = _advance(session, held, forest, tree_id, parents, **words)
    return Merged(outcome="merged", target=held.name, commit=commit, changed=len(decided.changes))


def _advance(
    session: Session,
    held: Branch,
    forest: trees.Forest,
    tree_id: str,
    parents: list[Commit],
    *,
    message: str,
    author: str,
    meta: Mapping[str, Any] | None,
) -> Commit:
    now_ms = session.now_ms()
    commit = branches.make_commit(
        tree_id,
        parents,
        message=rows.storable(message),
        author=rows.storable(author),
        at_ms=now_ms,
        meta=meta,
    )
    put_trees(session, forest.made.items(), now_ms)
    put_commit(session, commit, now_ms)
    landed = session.one(
        "branches.move", name=held.name, head=commit.commit_id, seen_head=held.head, now_ms=now_ms
    )
    assert landed is not None, "the branch's row is ours inside this transaction"
    return commit


@cache
def root_commit() -> Commit:
    """The empty commit that every branch began with: any two branches have a common ancestor."""
    return branches.make_commit(EMPTY, (), message="", author="kfm", at_ms=0)


def commit_from(row: Row) -> Commit:
    commit_id, tree_id, parents, message, author, at_ms, meta, generation = row
    commit = Commit(
        commit_id=commit_id,
        tree_id=tree_id,
        parents=tuple(rows.value_of(parents)),
        message=message,
        author=author,
        at_ms=at_ms,
        meta=rows.value_of(meta),
        generation=generation,
    )
    if branches.commit_id(tree_id, commit.parents, message, author, at_ms, commit.meta) != commit_id:
        raise StoreCorrupt(f"The commit {commit_id[:12]} is not what was stored under this id.")
    return commit


def branch_from(row: Row) -> Branch:
    name, head, protected, state_commit, created_at_ms, moved_at_ms = row
    return Branch(
        name=name,
        head=head,
        protected=bool(protected),
        state_commit=state_commit,
        created_at_ms=created_at_ms,
        moved_at_ms=moved_at_ms,
    )


def tag_from(row: Row) -> Tag:
    name, commit_id, message, author, at_ms = row
    return Tag(name=name, commit_id=commit_id, message=message, author=author, at_ms=at_ms)


def forest_of(session: Session) -> Forest:
    def load(tree_id: str) -> str:
        row = session.one("trees.get", tree_id=tree_id)
        if row is None:
            raise StoreCorrupt(f"The tree {tree_id[:12]} is not in the database.")
        return str(row[0])

    return Forest(load)


def finder(session: Session) -> Callable[[str], Commit]:
    """Commits by id, each read once."""
    known = {root_commit().commit_id: root_commit()}

    def find(commit_id: str) -> Commit:
        found = known.get(commit_id)
        if found is None:
            row = session.one("commits.get", commit_id=commit_id)
            if row is None:
                raise StoreCorrupt(f"The commit {commit_id[:12]} is not in the database.")
            found = known[commit_id] = commit_from(row)
        return found

    return find


def put_trees(session: Session, made: Iterable[tuple[str, str]], now_ms: int) -> None:
    session.many(
        "trees.insert",
        # In one order, so that two who store the same bodies never wait for each other in a circle.
        [{"tree_id": tree_id, "body": body, "made_at_ms": now_ms} for tree_id, body in sorted(made)],
    )


def put_commit(session: Session, commit: Commit, now_ms: int) -> None:
    session.all(
        "commits.insert",
        commit_id=commit.commit_id,
        tree_id=commit.tree_id,
        parents=rows.text_of(list(commit.parents)),
        message=commit.message,
        author=commit.author,
        at_ms=commit.at_ms,
        meta=rows.text_of(commit.meta),
        generation=commit.generation,
        made_at_ms=now_ms,
    )


def resolve(session: Session, ref: str) -> Commit:
    """The commit that a branch, a tag or the beginning of an id names."""
    name, steps = branches.split_ref(ref)
    find = finder(session)
    commit = find(_named(session, name))
    for step in range(steps):
        if not commit.parents:
            raise RefNotFound(f"`{ref}`: `{name}` has only {step} commits before it.")
        commit = find(commit.parents[0])
    return commit


def _named(session: Session, name: str) -> str:
    if row := session.one("branches.get", name=rows.storable(name)):
        return str(row[1])
    if row := session.one("tags.get", name=rows.storable(name)):
        return str(row[1])
    if branches.is_commit_prefix(name):
        if root_commit().commit_id == name:
            return name
        found = session.all("commits.beginning", low=name, high=f"{name}g")
        if len(found) > 1:
            raise RefNotFound(f"More than one commit begins with `{name}`.", remedy="Give more of its id.")
        if found:
            return str(found[0][0])
    raise RefNotFound(f"`{name[:80]}` names none.")


PAGE_ROWS = 1000


class Marks:
    """Mark phase of garbage collection: the commits and trees that are kept."""

    def __init__(self) -> None:
        self.commits: set[str] = set()
        self.trees: set[str] = {EMPTY}

    def mark(self, session: Session, before_ms: int) -> None:
        """Everything that a ref or a young commit reaches; what was marked before is not read again."""
        find, forest = finder(session), forest_of(session)
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
            forest.reach(commit.tree_id, self.trees)

    def unmarked(self, session: Session, name: str, kept: set[str], before_ms: int) -> list[str]:
        found = _pages(session, name)
        return [one for one, made_at_ms in found if one not in kept and made_at_ms < before_ms]


def garbage(session: Session, before_ms: int) -> Swept:
    marks = Marks()
    marks.mark(session, before_ms)
    return unreached(session, marks, before_ms)


def unreached(session: Session, marks: Marks, before_ms: int) -> Swept:
    kept = marks.commits | {root_commit().commit_id}
    return Swept(
        commits=len(marks.unmarked(session, "commits.ages", kept, before_ms)),
        trees=len(marks.unmarked(session, "trees.ages", marks.trees, before_ms)),
    )


def sweep_in(session: Session, marks: Marks, before_ms: int) -> Swept:
    """Inside a transaction: look once more at what refs reach, then remove the rest.

    Refs are locked meanwhile: a commit on top of one that is being removed would have no parent.
    """
    session.all("branches.keep_others_out")
    marks.mark(session, before_ms)
    commits = marks.unmarked(session, "commits.ages", marks.commits | {root_commit().commit_id}, before_ms)
    trees = marks.unmarked(session, "trees.ages", marks.trees, before_ms)
    # Before the trees: if one of them can't go, nothing goes.
    session.many("commits.delete", [{"commit_id": one, "before_ms": before_ms} for one in commits])
    session.many("trees.delete", [{"tree_id": one, "before_ms": before_ms} for one in trees])
    return Swept(commits=len(commits), trees=len(trees))


def objects_kept(session: Session, before_ms: int) -> Iterator[str]:
    """The objects of every tree that a sweep would leave."""
    marks = Marks()
    marks.mark(session, before_ms)
    forest = forest_of(session)
    for tree_id, made_at_ms in _pages(session, "trees.ages"):
        if tree_id in marks.trees or made_at_ms >= before_ms:
            node = forest.node(tree_id)
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
