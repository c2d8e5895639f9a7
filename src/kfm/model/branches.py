"""Branches, commits and tags of data as values: common ancestors, merges, reverts."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal, NamedTuple

from kfm.model.canonical import canonical_bytes
from kfm.model.errors import BranchProtected, LimitExceeded, RefNameInvalid, UsageError
from kfm.model.patterns import late
from kfm.model.records import Record

COMMIT_TAG = "commit/1"
ID_CHARS = 64
PREFIX_CHARS_MIN = 4
NAME_CHARS_MAX = 200
PATH_CHARS_MAX = 1024
MESSAGE_CHARS_MAX = 10_000
META_BYTES_MAX = 64 * 1024
CONFLICTS_SHOWN_MAX = 1_000  # more are counted, not listed

ConflictKind = Literal["both-added", "both-changed", "changed-deleted", "deleted-changed", "file-folder"]
ChangeKind = Literal["added", "changed", "removed"]
Preference = Literal["target", "source"]

_PART = r"[A-Za-z0-9_](?:[A-Za-z0-9._@+=-]*[A-Za-z0-9_@+=-])?"
_NAME = late(rf"{_PART}(?:/{_PART})*\Z")
_HEX_ID = late(r"[0-9a-f]{64}\Z")
_CONTROL = late(r"[\x00-\x09\x0b-\x1f\x7f\ud800-\udfff]")
# In paths that stand on lines of their own. Plain searches: a regular expression takes ten times as long.
_BAD_IN_LINES = tuple(
    "// | \n/ | /\n | \n\n | /./ | /../ | \n./ | \n../ | /.\n | /..\n | \n.\n | \n..\n".split(" | ")
)
_HEX = late(r"[0-9a-f]+\Z")


class TreeEntry(Record, frozen=True):
    """What a path holds: bytes of the object store, by their hash."""

    sha256: str  # 64 hex digits
    size: int


class Commit(Record, frozen=True):
    """One state of a branch and what it came from. Its id is the hash of everything else."""

    commit_id: str
    tree_id: str
    parents: tuple[str, ...]
    message: str
    author: str
    at_ms: int
    meta: dict[str, Any]
    generation: int  # 1 + the largest of its parents': an ancestor's is always smaller


class NewCommit(NamedTuple):
    """A commit to be made on a branch: entries to put and, as None, paths to remove."""

    branch: str
    changes: Mapping[str, TreeEntry | None]
    message: str
    author: str
    expected: str | None = None  # the head that the caller saw; nothing is written if it is another
    meta: Mapping[str, Any] | None = None


class Branch(Record, frozen=True):
    """A name that moves."""

    name: str
    head: str
    protected: bool
    state_commit: str | None  # the head at which run-state is known to agree with the tree
    created_at_ms: int
    moved_at_ms: int


class Tag(Record, frozen=True):
    """A name that does not move."""

    name: str
    commit_id: str
    message: str
    author: str
    at_ms: int


class PathChange(Record, frozen=True):
    """One path that differs between two trees."""

    path: str
    before: TreeEntry | None
    after: TreeEntry | None

    @property
    def kind(self) -> ChangeKind:
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"


class Conflict(Record, frozen=True):
    """One path about which two histories disagree: what the target has, what the source has."""

    path: str
    kind: ConflictKind
    base: TreeEntry | None = None
    target: TreeEntry | None = None
    source: TreeEntry | None = None
    other: str | None = None  # file-folder: the path that would have to be a file and a folder at once


class Moved(Record, frozen=True):
    """Nothing was written: the branch is not where the caller saw it."""

    branch: str
    expected: str
    actual: str


class Merged(Record, frozen=True):
    """How a merge or a revert ended. With conflicts nothing was written and there is no commit."""

    outcome: Literal["merged", "unchanged", "conflict"]
    target: str  # the branch
    commit: Commit | None
    changed: int = 0  # paths of the target that are different now
    conflicts: tuple[Conflict, ...] = ()
    conflicts_total: int = 0


class Proposal(Record, frozen=True):
    """What a gate before a merge is asked about."""

    source: str
    source_head: str
    target: str
    target_head: str
    bases: tuple[str, ...]
    policy_epoch: int  # a switch that is thrown after the gates have looked makes them look again


class Swept(Record, frozen=True):
    """How many commits and tree bodies nothing reaches any more."""

    commits: int
    trees: int


# --- names, paths, ids ---------------------------------------------------------------


def check_name(name: str) -> str:
    """The name of a branch or tag, if it can be one."""
    if len(name) > NAME_CHARS_MAX:
        raise RefNameInvalid(f"`{name[:40]}…` has {len(name)} characters; {NAME_CHARS_MAX} are the limit.")
    if not _NAME.match(name) or ".." in name or _HEX_ID.match(name):
        raise RefNameInvalid(f"`{name}` can't be the name of a branch or tag.")
    if any(part.endswith(".lock") for part in name.split("/")):
        raise RefNameInvalid(f"`{name}` ends like a lock file.")
    return name


def moved_from(held: Branch, expected: str | None) -> Moved | None:
    """How the branch moved; None if it is where the caller saw it, or the caller did not look."""
    if expected is None or expected == held.head:
        return None
    return Moved(branch=held.name, expected=expected, actual=held.head)


def refuse_protected(held: Branch, gated: bool = False) -> None:
    if held.protected and not gated:
        raise BranchProtected(f"`{held.name}` was not touched.")


def check_changes(changes: Mapping[str, TreeEntry | None]) -> None:
    """Refuse paths that are none. One search over all of them: there may be 100,000."""
    paths = list(changes)
    if not paths:
        return
    if not _are_paths(paths):
        bad = next(path for path in paths if not is_path(path))
        raise UsageError(
            f"{bad[:100]!r} can't be a path on a branch.",
            remedy="A path has parts between single slashes, none of them empty, `.` or `..`.",
        )
    for path, entry in changes.items():
        if entry is not None and (len(entry.sha256) != ID_CHARS or entry.size < 0):
            raise UsageError(f"{path}: `{entry.sha256[:80]}` is no SHA-256 of an object.")
    hashes = "".join([entry.sha256 for entry in changes.values() if entry is not None])
    if hashes and not _HEX.match(hashes):
        bad = next(path for path, entry in changes.items() if entry and not _HEX.match(entry.sha256))
        raise UsageError(f"{bad}: its SHA-256 is not written in lower-case hex.")


def is_path(path: str) -> bool:
    return _are_paths([path])


def _are_paths(paths: Sequence[str]) -> bool:
    text = "\n".join(["", *paths, ""])
    if text.count("\n") != len(paths) + 1 or max(map(len, paths)) > PATH_CHARS_MAX:
        return False
    if any(bad in text for bad in _BAD_IN_LINES):
        return False
    return "".join(paths).isprintable() or _CONTROL.search(text) is None


def is_commit_prefix(text: str) -> bool:
    return PREFIX_CHARS_MIN <= len(text) <= ID_CHARS and _HEX.match(text) is not None


def split_ref(ref: str) -> tuple[str, int]:
    """`main~2` → (`main`, 2): the commit two first parents before."""
    name, tilde, steps = ref.partition("~")
    if not tilde:
        return name, 0
    if not steps:
        return name, 1
    if not steps.isascii() or not steps.isdigit() or len(steps) > 6:
        raise RefNameInvalid(f"`{ref[:80]}`: after ~ stands how many commits to go back.")
    return name, int(steps)


def make_commit(
    tree_id: str,
    parents: Sequence[Commit],
    *,
    message: str,
    author: str,
    at_ms: int,
    meta: Mapping[str, Any] | None = None,
) -> Commit:
    """The commit with its id."""
    if len(message) > MESSAGE_CHARS_MAX:
        raise LimitExceeded(
            f"A commit's message has {len(message)} characters; the limit is {MESSAGE_CHARS_MAX}."
        )
    kept = dict(meta or {})
    if len(canonical_bytes(kept)) > META_BYTES_MAX:
        raise LimitExceeded(f"What a commit carries beside its tree is larger than {META_BYTES_MAX} bytes.")
    ids = tuple(parent.commit_id for parent in parents)
    return Commit(
        commit_id=commit_id(tree_id, ids, message, author, at_ms, kept),
        tree_id=tree_id,
        parents=ids,
        message=message,
        author=author,
        at_ms=at_ms,
        meta=kept,
        generation=1 + max((parent.generation for parent in parents), default=0),
    )


def commit_id(
    tree_id: str, parents: Sequence[str], message: str, author: str, at_ms: int, meta: Mapping[str, Any]
) -> str:
    document = {
        "kfm": COMMIT_TAG,
        "tree": tree_id,
        "parents": list(parents),
        "message": message,
        "author": author,
        "at_ms": at_ms,
        "meta": dict(meta),
    }
    return sha256(canonical_bytes(document)).hexdigest()


# --- three ways to one path ----------------------------------------------------------


class Decided(Record, frozen=True):
    """What a merge does to the target's tree, and where it can't decide."""

    changes: dict[str, TreeEntry | None]
    conflicts: tuple[Conflict, ...]
    conflicts_total: int


def decide_merge(
    ours: Sequence[Iterable[PathChange]],
    theirs: Sequence[Iterable[PathChange]],
    prefer: Preference | None = None,
) -> Decided:
    """Bring the source's changes to the target. For each common ancestor the changes of both since then.

    Of several common ancestors (two branches that were merged into each other at the same time) none is
    the right one: only what follows from each of them is done, the rest is a conflict.
    """
    rounds = [_round(mine, other) for mine, other in zip(ours, theirs, strict=True)]
    agreed = rounds[0] if len(rounds) == 1 else _agreed(rounds)
    changes: dict[str, TreeEntry | None] = {}
    conflicts: list[Conflict] = []
    total = 0
    for path, decision in agreed:
        if not isinstance(decision, Conflict):
            changes[path] = decision
        elif prefer == "source":
            changes[path] = decision.source
        elif prefer is None:
            total += 1
            if len(conflicts) < CONFLICTS_SHOWN_MAX:
                conflicts.append(decision)
    return Decided(changes=changes, conflicts=tuple(conflicts), conflicts_total=total)


Decision = TreeEntry | None | Conflict


def _round(ours: Iterable[PathChange], theirs: Iterable[PathChange]) -> Iterator[tuple[str, Decision]]:
    """Both in the order of paths; only what the target does not have already."""
    mine = iter(ours)
    own = next(mine, None)
    for change in theirs:
        while own is not None and own.path < change.path:
            own = next(mine, None)
        if own is None or own.path != change.path:
            yield change.path, change.after
        elif own.after != change.after:
            yield change.path, _conflict(change.path, change.before, own.after, change.after)


def _conflict(
    path: str, base: TreeEntry | None, target: TreeEntry | None, source: TreeEntry | None
) -> Conflict:
    kind: ConflictKind = "both-changed"
    if base is None:
        kind = "both-added"
    elif source is None:
        kind = "changed-deleted"
    elif target is None:
        kind = "deleted-changed"
    return Conflict(path=path, kind=kind, base=base, target=target, source=source)


class _Keep:
    """The target stays as it is. Beside it, None means that the path goes."""


_KEEP = _Keep()


def _agreed(rounds: Sequence[Iterator[tuple[str, Decision]]]) -> Iterator[tuple[str, Decision]]:
    """What all rounds say; where they differ, a conflict."""
    every = [dict(decisions) for decisions in rounds]
    for path in sorted(set().union(*every)):
        said: list[Decision | _Keep] = [decisions.get(path, _KEEP) for decisions in every]
        first = said[0]
        conflict = next((one for one in said if isinstance(one, Conflict)), None)
        if conflict is None and not isinstance(first, _Keep) and all(one == first for one in said):
            yield path, first
        else:
            taken = next((one for one in said if not isinstance(one, Conflict | _Keep)), None)
            yield path, conflict or Conflict(path=path, kind="both-changed", source=taken)


Find = Callable[[str], Commit]

_TARGET, _SOURCE, _STALE = 1, 2, 4
_BOTH = _TARGET | _SOURCE


def first_parents(find: Find, start: Commit) -> Iterator[Commit]:
    """A branch's own line, the newest first."""
    commit: Commit | None = start
    while commit is not None:
        yield commit
        commit = find(commit.parents[0]) if commit.parents else None


def ancestry(find: Find, start: Commit) -> Iterator[Commit]:
    """A commit and all that it came from; none before one that came from it."""
    waiting, seen = [_order(start)], {start.commit_id}
    while waiting:
        commit = find(heapq.heappop(waiting)[2])
        yield commit
        for parent in commit.parents:
            if parent not in seen:
                seen.add(parent)
                heapq.heappush(waiting, _order(find(parent)))


def is_ancestor(find: Find, old: Commit, new: Commit) -> bool:
    """Is the old one the new one, or among those that it came from?"""
    for commit in ancestry(find, new):
        if commit.commit_id == old.commit_id:
            return True
        if commit.generation < old.generation:
            return False
    return False


def merge_bases(find: Find, target: Commit, source: Commit) -> list[Commit]:
    """The newest common ancestors: those that no other common ancestor came from.

    Commits are looked at by falling generation, so all that came from one are seen before it.
    """
    flags = {target.commit_id: _TARGET}
    flags[source.commit_id] = flags.get(source.commit_id, 0) | _SOURCE
    waiting = [_order(commit) for commit in {target.commit_id: target, source.commit_id: source}.values()]
    heapq.heapify(waiting)
    live = len(waiting)  # those waiting that are not stale
    bases = []
    while live:
        commit = find(heapq.heappop(waiting)[2])
        mark = flags[commit.commit_id]
        live -= not mark & _STALE
        if mark & _BOTH == _BOTH and not mark & _STALE:
            bases.append(commit)
            mark |= _STALE  # for its parents
        for parent in commit.parents:
            known = flags.get(parent)
            flags[parent] = (known or 0) | mark
            if known is None:
                heapq.heappush(waiting, _order(find(parent)))
                live += not mark & _STALE
            elif not known & _STALE and mark & _STALE:
                live -= 1
    return bases


def _order(commit: Commit) -> tuple[int, int, str]:
    return -commit.generation, -commit.at_ms, commit.commit_id
