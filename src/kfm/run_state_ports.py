"""Where the records of nodes can be kept, other than in the ledger's own tables, as protocols."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

from kfm.branch_ports import BranchReader
from kfm.core.branching import Branch, Commit, Entry, Moved
from kfm.core.records import Node

Key = tuple[str, str]  # run, node


class Shelf(Protocol):
    """Records by (run, node), as they were put. Who may write, and when, is decided by whoever calls;
    `branch` says where to look: a shelf that does not keep them by branch needs no such word."""

    names_commits: bool  # a record can say which commit its outputs are in

    def prepare(self, nodes: Sequence[Node]) -> Any:
        """Whatever can be done before the others have to wait. Nobody can see any of it yet."""

    def put(self, prepared: Any) -> None:
        """Insert or replace: all of them or none, durable on return."""

    def get(self, keys: Collection[Key], branch: str | None = None) -> dict[Key, Node]:
        """Those that are there."""

    def present(self, keys: Collection[Key], branch: str | None = None) -> set[Key]: ...
    def of_run(self, run_id: str, branch: str | None = None) -> Iterator[Node]:
        """In the order of their ids."""

    def made(self, branch: str, dataset_id: str, inputs_hash: str, code_sha: str | None) -> Node | None:
        """The newest success with this hash and this code, unless it was reverted."""

    def history(self, dataset_id: str, branch: str | None, limit: int) -> list[Node]:
        """Newest first."""

    def revert(self, branch: str, dataset_ids: Collection[str]) -> None:
        """The successes of these nodes on this branch are not to be found by `made` any more."""

    def rows(self) -> Iterator[Node]:
        """All that there are, by run and node."""

    def reverted(self) -> set[Key]:
        """Those of them that `made` does not find any more."""

    def take_back(self, keys: Collection[Key]) -> None:
        """Mark records as reverted, one by one: another store had them so."""


class StandingShelf(Shelf, Protocol):
    """Records on branches that the ledger does not keep: what stands there is asked of them."""

    def require_open(self, branch: str) -> None:
        """BranchProtected if no pass may work there."""

    def head(self, branch: str) -> str | None:
        """Where the branch is."""

    def standing(self, branch: str) -> tuple[set[Key], dict[str, Node]]:
        """All records of a branch by their keys, and of each node its newest success."""


class Committing(BranchReader, Protocol):
    """What keeping records on a branch asks of it."""

    def create(self, name: str, at: str | None = None) -> Branch: ...
    def commit(
        self,
        branch: str,
        changes: Mapping[str, Entry | None],
        *,
        message: str,
        author: str,
        expected: str | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> Commit | Moved: ...
