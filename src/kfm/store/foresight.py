"""What a pass would know when it begins, told without beginning it: for plans, which write nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from kfm.core.run_states import Graph, Head, Known
from kfm.store import node_branches
from kfm.store.session import Session

if TYPE_CHECKING:
    from kfm.core.records import Node
    from kfm.ports import RunStates


class Foresight:
    """As much of `ports.RunStates` as a plan asks for."""

    def __init__(self, states: RunStates, session: Session, graph: Graph) -> None:
        self._states = states
        self._session = session
        self._graph = graph
        self._reverted: Collection[str] = ()

    def known(self, branch: str, run_id: str, dataset_ids: Collection[str]) -> Known:
        known = self._states.known(branch, run_id, dataset_ids)
        reverted, readers = node_branches.foreseen(self._session, branch, self._graph)
        self._reverted = reverted
        for node, row in reverted.items():
            if row is not None:
                run, inputs_hash, code_sha, outputs_hash, outputs, _commit = row
                known.heads[node] = Head(run, inputs_hash, code_sha, outputs_hash, outputs)
            elif node in known.heads:
                known.heads[node] = known.heads[node]._replace(rerun=node_branches.REVERTED)
        for node, why in readers.items():
            if node in known.heads and known.heads[node].rerun is None:
                known.heads[node] = known.heads[node]._replace(rerun=why)
        return known

    def made(self, branch: str, dataset_id: str, inputs_hash: str, code_sha: str | None) -> Head | None:
        if dataset_id in self._reverted:  # of those, only what was brought back counts
            return None
        return self._states.made(branch, dataset_id, inputs_hash, code_sha)

    def of_run(self, run_id: str) -> Iterator[Node]:
        return self._states.of_run(run_id)
