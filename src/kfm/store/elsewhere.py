"""Run-state whose records and outputs stand on branches of another server.

The ledger keeps locks, passes and what it last knew of a branch's nodes. Whoever merges or reverts there
does not tell it; so each pass first compares what it knew with what stands.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from kfm.core.errors import UsageError
from kfm.core.run_states import BeginPass, Begun, EndPass, Graph, Known
from kfm.run_state_ports import StandingShelf
from kfm.store import leases, node_branches, run_states
from kfm.store.run_state_tables import RunStateTables
from kfm.store.session import Database, Session
from kfm.store.shelved import ShelvedRunStates, head_of


class RunStatesElsewhere(ShelvedRunStates):
    """Implements `ports.RunStates` and `ports.Passes`."""

    def __init__(self, database: Database, shelf: StandingShelf) -> None:
        super().__init__(database, shelf)
        self._standing = shelf

    def known(self, branch: str, run_id: str, dataset_ids: Collection[str]) -> Known:
        """What the ledger knows and still stands; of other nodes, what stands."""
        found = super().known(branch, run_id, dataset_ids)
        ledger = RunStateTables.known(self, branch, run_id, dataset_ids).heads if dataset_ids else {}
        heads = {node: head for node, head in ledger.items() if node in found.heads or head.rerun is not None}
        if missing := set(dataset_ids) - set(heads):
            _keys, best = self._standing.standing(branch)
            heads |= {node: head_of(best[node]) for node in missing & set(best)}
        return Known(found.own, heads)

    def begin(self, request: BeginPass, dead: leases.Dead) -> Begun:
        if request.from_branch is not None:
            raise UsageError(
                "A governed run is promoted in one transaction of the ledger, and its run-state can't be on"
                " another server.",
                remedy="Run the pipeline by itself (`kfm pipeline run FILE --branch run/NAME`), then merge.",
            )
        self._standing.require_open(request.branch)
        begun = super().begin(request, dead)
        if begun.held_by is None:
            self._reconcile(request.branch, request.graph)
        return begun

    def _committed(self, session: Session, request: EndPass) -> str | None:
        """Each record went onto the branch together with its outputs: nothing is left to commit."""
        del session
        return self._standing.head(request.branch)

    def _reconcile(self, branch: str, graph: Graph) -> None:
        """A node whose record is gone was reverted, and whoever reads from it runs again (unless it was
        reverted with it: then it knows what was brought back). So was one that never stood here, though
        somebody who reads from it does."""
        nodes = [node for node, _reads in graph]
        if not nodes:
            return
        heads = RunStateTables.known(self, branch, "", nodes).heads
        keys, best = self._standing.standing(branch)
        reverted = {node for node, head in heads.items() if (head.run_id, node) not in keys}
        reverted |= {each for node, reads in graph if node in best for each in reads if each not in best}

        def change(session: Session) -> None:
            for node, made in best.items():
                if node not in heads or heads[node].run_id != made.run_id:
                    run_states.put_head(session, replace(made, lakefs_branch=branch))
            for node, reads in graph:
                producer = next((each for each in reads if each in reverted), None)
                why = node_branches.reader_of(producer) if producer else ""
                if node in reverted:
                    why = "" if node in best else node_branches.REVERTED
                if why:
                    session.all("node_heads.rerun", branch=branch, dataset_id=node, rerun=why)

        self._database.write(change)
