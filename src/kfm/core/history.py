"""Walking through commits: what came from what, and where two histories part."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

from kfm.core.branching import Commit

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
