"""Commits, branches and tags as rows; trees as they are loaded and stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kfm.core import branching
from kfm.core.branching import Branch, Commit, Tag
from kfm.core.errors import RefNotFound, StoreCorrupt
from kfm.core.trees import EMPTY, Forest
from kfm.store import rows
from kfm.store.session import Row, Session

# What every branch came from: nothing. So any two branches have a common ancestor.
ROOT = branching.make_commit(EMPTY, (), message="", author="kfm", at_ms=0)


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
    if branching.commit_id(tree_id, commit.parents, message, author, at_ms, commit.meta) != commit_id:
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


def forest(session: Session) -> Forest:
    def load(tree_id: str) -> str:
        row = session.one("trees.get", tree_id=tree_id)
        if row is None:
            raise StoreCorrupt(f"The tree {tree_id[:12]} is not in the database.")
        return str(row[0])

    return Forest(load)


def finder(session: Session) -> Callable[[str], Commit]:
    """Commits by id, each read once."""
    known = {ROOT.commit_id: ROOT}

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
    name, steps = branching.split_ref(ref)
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
    if branching.is_commit_prefix(name):
        if ROOT.commit_id == name:
            return name
        found = session.all("commits.beginning", low=name, high=f"{name}g")
        if len(found) > 1:
            raise RefNotFound(f"More than one commit begins with `{name}`.", remedy="Give more of its id.")
        if found:
            return str(found[0][0])
    raise RefNotFound(f"`{name[:80]}` names none.")
