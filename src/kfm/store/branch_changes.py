"""What moves branches. Each function works inside a transaction that its caller opened.

The branch's row is held first, so whoever comes second sees where the first one left it. What can't be
done is answered before anything is written; the caller may go on in the same transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kfm.core import branching, history, trees
from kfm.core.branching import (
    CONFLICTS_SHOWN_MAX,
    Branch,
    Commit,
    Conflict,
    Entry,
    Merged,
    Moved,
    Preference,
)
from kfm.core.errors import BranchProtected, PathConflict, RefExists, RefNotFound, UsageError
from kfm.store import branch_rows, rows
from kfm.store.branch_rows import ROOT, branch_from, finder, forest
from kfm.store.session import Session


def branch_in(session: Session, name: str) -> Branch | None:
    row = session.one("branches.get", name=rows.storable(name))
    return branch_from(row) if row else None


def take_part(session: Session) -> None:
    """First of all in a transaction that moves or gives names: then none of it falls into a sweep."""
    session.all("branches.take_part")


def held_in(session: Session, name: str) -> Branch:
    """The branch, which nobody else moves until this transaction ends."""
    take_part(session)
    row = session.one("branches.get_for_update", name=rows.storable(name))
    if row is None:
        raise RefNotFound(f"There is no branch `{name[:80]}`.")
    return branch_from(row)


def create_in(session: Session, name: str, at: str | None = None) -> Branch:
    """A branch at a commit; without one, at the beginning of all of them. RefExists if it is there."""
    branching.check_name(name)
    take_part(session)
    now_ms = session.now_ms()
    if at is None:
        branch_rows.put_commit(session, ROOT, now_ms)
        at = ROOT.commit_id
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
        found = branch_in(session, name)  # somebody was faster
        if found is None:
            raise
        return found


def commit_in(
    session: Session,
    branch: str,
    changes: Mapping[str, Entry | None],
    *,
    message: str,
    author: str,
    expected: str | None = None,
    meta: Mapping[str, Any] | None = None,
    gated: bool = False,
) -> Commit | Moved:
    """Put entries on a branch, and take away the paths whose entry is None.

    `expected` is the head that the caller saw: if the branch is elsewhere, nothing is written. Changes
    that change nothing make no commit: the answer is the head. A protected branch is for `gated` alone.
    """
    branching.check_changes(changes)
    held = held_in(session, branch)
    if moved := branching.moved_from(held, expected):
        return moved
    branching.refuse_protected(held, gated)
    find, wood = finder(session), forest(session)
    head = find(held.head)
    tree_id, added = wood.update(head.tree_id, changes)
    if tree_id == head.tree_id:
        return head
    wrong, count = trees.clashes(wood, head.tree_id, tree_id, sorted(added), 1)
    if wrong:
        raise PathConflict(
            f"`{wrong[0][0]}` can't be a file beside `{wrong[0][1]}` ({count} such).",
            remedy="A path is a file or a folder; remove one of them in the same commit.",
        )
    return _advance(session, held, wood, tree_id, [head], message=message, author=author, meta=meta)


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
    if moved := branching.moved_from(held, expected):
        return moved
    branching.refuse_protected(held, gated)
    if source != ROOT.commit_id and session.one("commits.hold", commit_id=source) is None:
        raise RefNotFound(f"There is no commit `{source[:80]}`.")
    find, wood = finder(session), forest(session)
    target, other = find(held.head), find(source)
    bases = history.merge_bases(find, target, other)
    if any(base.commit_id == source for base in bases):
        return Merged(outcome="unchanged", target=into, commit=target)
    decided = branching.decide_merge(
        [wood.diff(base.tree_id, target.tree_id) for base in bases],
        [wood.diff(base.tree_id, other.tree_id) for base in bases],
        prefer,
    )
    parents = [target, other]
    return _settle(session, held, wood, decided, parents, message=message, author=author, meta=meta)


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
    if moved := branching.moved_from(held, expected):
        return moved
    branching.refuse_protected(held, gated)
    find, wood = finder(session), forest(session)
    head, undone = find(held.head), find(commit_id)
    if not undone.parents:
        raise UsageError("The first commit of all can't be reverted: there is nothing before it.")
    if not history.is_ancestor(find, undone, head):
        raise RefNotFound(f"The commit {commit_id[:12]} is no part of `{branch}`.")
    before = find(undone.parents[0])
    decided = branching.decide_merge(
        [wood.diff(undone.tree_id, head.tree_id)], [wood.diff(undone.tree_id, before.tree_id)], prefer
    )
    told = {**(meta or {}), "reverts": commit_id}
    return _settle(session, held, wood, decided, [head], message=message, author=author, meta=told)


def delete_in(session: Session, name: str, *, expected: str | None = None) -> Branch | Moved:
    """Forget the name. Its commits stay as long as something reaches them, or the grace time lasts."""
    held = held_in(session, name)
    if moved := branching.moved_from(held, expected):
        return moved
    if held.protected:
        raise BranchProtected(f"`{name}` is not deleted.", remedy=f"First `kfm branch protect {name} --off`.")
    session.all("branches.delete", name=held.name, seen_head=held.head)
    return held


def set_state_in(session: Session, name: str, head: str) -> bool:
    """Note that run-state agrees with the tree at this head; False if the branch is elsewhere."""
    return session.one("branches.set_state", name=name, state_commit=head, seen_head=head) is not None


# --- inside --------------------------------------------------------------------------


def _settle(
    session: Session,
    held: Branch,
    wood: trees.Forest,
    decided: branching.Decided,
    parents: list[Commit],
    **words: Any,
) -> Merged:
    """Commit what was decided, unless there are conflicts."""
    conflicts, total = list(decided.conflicts), decided.conflicts_total
    target = parents[0]
    tree_id, added = wood.update(target.tree_id, decided.changes)
    wrong, count = trees.clashes(wood, target.tree_id, tree_id, sorted(added), CONFLICTS_SHOWN_MAX)
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
    commit = _advance(session, held, wood, tree_id, parents, **words)
    return Merged(outcome="merged", target=held.name, commit=commit, changed=len(decided.changes))


def _advance(
    session: Session,
    held: Branch,
    wood: trees.Forest,
    tree_id: str,
    parents: list[Commit],
    *,
    message: str,
    author: str,
    meta: Mapping[str, Any] | None,
) -> Commit:
    now_ms = session.now_ms()
    commit = branching.make_commit(
        tree_id,
        parents,
        message=rows.storable(message),
        author=rows.storable(author),
        at_ms=now_ms,
        meta=meta,
    )
    branch_rows.put_trees(session, wood.made.items(), now_ms)
    branch_rows.put_commit(session, commit, now_ms)
    landed = session.one(
        "branches.move", name=held.name, head=commit.commit_id, seen_head=held.head, now_ms=now_ms
    )
    assert landed is not None, "the branch's row is ours inside this transaction"
    return commit
