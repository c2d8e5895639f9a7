"""Branches of data, as protocols: tables of the store, or a server that does the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from kfm.core.branching import (
    Branch,
    Commit,
    Entry,
    Merged,
    Moved,
    PathChange,
    Preference,
    Proposal,
    Swept,
    Tag,
    Why,
)


class BranchReader(Protocol):
    """Questions. A ref is a branch, a tag or the beginning of a commit's id, with `~N` for N commits earlier;
    RefNotFound if it names nothing."""

    def branches(self) -> list[Branch]:
        """By name."""

    def branch(self, name: str) -> Branch | None: ...
    def tags(self) -> list[Tag]: ...
    def resolve(self, ref: str) -> Commit: ...
    def log(self, ref: str, *, limit: int = 50, first_parent: bool = True) -> list[Commit]:
        """Newest first: a branch's own line, or all that it came from."""

    def entries(self, ref: str, prefix: str = "") -> Iterator[tuple[str, Entry]]:
        """In the order of paths; read as they are asked for."""

    def lookup(self, ref: str, paths: Iterable[str]) -> dict[str, Entry]:
        """Those of the paths that are there."""

    def diff(self, old: str, new: str, prefix: str = "") -> Iterator[PathChange]:
        """The paths that differ, in order; read as they are asked for."""

    def propose(self, source: str, into: str) -> Proposal:
        """What a merge would start from: both heads as they are now, and their common ancestors."""


class Branches(BranchReader, Protocol):
    """Changes. Each is one transaction, with the entry of the governance ledger that `why` asks for."""

    def create(self, name: str, at: str | None = None, *, why: Why | None = None) -> Branch:
        """At a ref; without one, a branch without entries. RefExists if the name is taken."""

    def delete(self, name: str, *, why: Why, expected: str | None = None) -> Branch | Moved: ...
    def commit(
        self,
        branch: str,
        changes: Mapping[str, Entry | None],
        *,
        message: str,
        author: str,
        expected: str | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> Commit | Moved:
        """Entries to put and, as None, paths to remove. Moved if `expected` is not the head (any more).
        What changes nothing makes no commit: the answer is the head."""

    def merge(
        self,
        proposal: Proposal,
        *,
        message: str,
        author: str,
        gated: bool = False,
        prefer: Preference | None = None,
        why: Why | None = None,
    ) -> Merged | Moved:
        """Carry out what was proposed, if both branches are still there. All of it, or nothing."""

    def revert(
        self,
        branch: str,
        ref: str,
        *,
        message: str,
        author: str,
        expected: str | None = None,
        gated: bool = False,
        prefer: Preference | None = None,
        why: Why | None = None,
    ) -> Merged | Moved:
        """Take back what one commit did."""

    def tag(self, name: str, ref: str, *, message: str, author: str, why: Why | None = None) -> Tag: ...
    def delete_tag(self, name: str, *, why: Why) -> Tag: ...
    def protect(self, name: str, on: bool, *, why: Why) -> Branch: ...


class StoredBranchReader(BranchReader, Protocol):
    """Branches whose garbage is ours to collect."""

    def garbage(self, before_ms: int) -> Swept:
        """What no ref reaches and is older. Reads only."""

    def objects_kept(self, before_ms: int) -> Iterator[str]:
        """Every object (SHA-256) of the commits that a sweep would leave; some more than once."""


class BranchStore(StoredBranchReader, Branches, Protocol):
    def sweep(self, before_ms: int) -> Swept:
        """Remove the commits and trees that no ref reaches and that are older."""
