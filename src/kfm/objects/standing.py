"""Run-state on branches that the ledger does not keep: what stands on a branch counts there.

A merge brings a run's records to the branch that it goes to, together with their outputs, and a revert
takes both back; the ledger has no part in either. So it is asked of the branch what its nodes made, by
whichever branch that came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from kfm.core.branching import Entry
from kfm.core.errors import BranchProtected
from kfm.core.records import Node
from kfm.objects.run_states import VersionedShelf, newest, path_of
from kfm.ports import Objects
from kfm.run_state_ports import Committing, Key


class StandingShelf(VersionedShelf):
    """Implements `run_state_ports.StandingShelf`. `bring` fetches what a branch has and the object store
    has not: another machine wrote it, or it was collected here."""

    def __init__(
        self, branches: Committing, objects: Objects, bring: Callable[[str, str], Entry], author: str = "kfm"
    ) -> None:
        super().__init__(branches, objects, author=author)
        self._bring = bring

    def _entries(self, keys: Iterable[Key], names: Iterable[str]) -> dict[Key, Entry]:
        found: dict[Key, Entry] = {}
        wanted = list(keys)
        for name in names:
            there = super()._entries([key for key in wanted if key not in found], [name])
            found |= {key: self._at_hand(name, path_of(*key), entry) for key, entry in there.items()}
        return found

    def _listed(self, branch: str, dataset_id: str | None = None) -> Iterator[tuple[Key, Entry]]:
        for key, entry in super()._listed(branch, dataset_id):
            yield key, self._at_hand(branch, path_of(*key), entry)

    def _at_hand(self, branch: str, path: str, entry: Entry) -> Entry:
        if entry.sha256 in self._cache or self._objects.size_of(entry.sha256) == entry.size:
            return entry
        return self._bring(branch, path)

    def require_open(self, branch: str) -> None:
        found = self._branches.branch(branch)
        if found is not None and found.protected:
            raise BranchProtected(
                f"`{branch}` is protected, so no pass works on it.",
                remedy=f"Work on another (`kfm branch create run/NAME --from {branch}`), and merge.",
            )

    def head(self, branch: str) -> str | None:
        found = self._branches.branch(branch)
        return found.head if found is not None else None

    def standing(self, branch: str) -> tuple[set[Key], dict[str, Node]]:
        """All records of a branch by their keys, and of each node its newest success."""
        entries = {key: entry for name in self._names(branch) for key, entry in self._listed(name)}
        best: dict[str, Node] = {}
        for entry in entries.values():
            node = self._read(entry)
            if node.outcome == "success":
                best[node.dataset_id] = newest((best.get(node.dataset_id, node), node))
        return set(entries), best

    def made(self, branch: str, dataset_id: str, inputs_hash: str, code_sha: str | None) -> Node | None:
        wanted = [
            node
            for node in self._of_node(dataset_id, self._names(branch))
            if node.outcome == "success" and (node.inputs_hash, node.code_sha) == (inputs_hash, code_sha)
        ]
        return newest(wanted) if wanted else None

    def history(self, dataset_id: str, branch: str | None, limit: int) -> list[Node]:
        found = list(self._of_node(dataset_id, self._names(branch)))
        return sorted(found, key=lambda node: (node.recorded_at_ms, node.run_id), reverse=True)[:limit]
