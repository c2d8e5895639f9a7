"""Run-state whose records are stored elsewhere: a Delta table, objects on a branch, another server."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from kfm.db import branch_commits, leases, node_branches, pipeline_runs, rows, run_state
from kfm.db.branches import EmbeddedBranchReader
from kfm.db.run_state import RunStateTables
from kfm.db.session import Database, Session
from kfm.model.branches import Branch, Commit, Moved, NewCommit
from kfm.model.errors import SchemaViolation, UsageError
from kfm.model.records import Node
from kfm.model.run_state import (
    NOTHING_CHECKED,
    REVERTED,
    BeginPass,
    Begun,
    EndedPass,
    EndPass,
    Fence,
    Graph,
    Head,
    KnownNodes,
    Own,
    Skips,
    from_document,
    outputs_hash,
    outputs_text,
    shows_result_of,
    to_document,
)
from kfm.model.runs import LineageEvent
from kfm.ports import Key, RunStateBackend

if TYPE_CHECKING:
    from kfm.branches_remote.run_state_objects import RemoteBranchRunState

REVERTED_SEEN_MAX = 50  # records of a node that are looked at for a reverted one
MERGER = "run-state"  # the lock for writing to the backend


class BranchesInside(EmbeddedBranchReader):
    """Branches inside a caller's transaction: a commit here is durable if that one commits."""

    def __init__(self, session: Session, *, gated: bool = False) -> None:
        self._inside = session
        self._gated = gated

    @property
    def _session(self) -> Session:
        return self._inside

    def create(self, name: str, at: str | None = None) -> Branch:
        if at is None:
            return branch_commits.ensure_in(self._inside, name)
        return branch_commits.create_in(self._inside, name, at)

    def commit(self, new: NewCommit) -> Commit | Moved:
        before = branch_commits.held_in(self._inside, new.branch)
        done = branch_commits.commit_in(self._inside, new, gated=self._gated)
        if isinstance(done, Commit) and before.state_commit == before.head:
            branch_commits.set_state_in(self._inside, new.branch, done.commit_id)
        return done


class ExternalRunStates(RunStateTables):
    """Implements `ports.RunStates` and `ports.PipelineRuns`.

    `within` gives the backend as a transaction sees it.
    """

    def __init__(
        self,
        database: Database,
        backend: RunStateBackend,
        within: Callable[[Session], RunStateBackend] | None = None,
    ) -> None:
        super().__init__(database)
        self._backend = backend
        self._within: Callable[[Session], RunStateBackend] = within or (lambda _session: backend)

    # --- reading -----------------------------------------------------------------------------

    def known(self, branch: str, run_id: str, dataset_ids: Collection[str]) -> KnownNodes:
        if not dataset_ids:
            return KnownNodes({}, {})
        heads = super().known(branch, run_id, dataset_ids).heads
        keys = {(head.run_id, dataset_id) for dataset_id, head in heads.items()}
        there = self._backend.present(keys, branch)
        own = self._backend.get([(run_id, dataset_id) for dataset_id in dataset_ids], branch)
        return KnownNodes(
            self._owned(own.values(), branch),
            {dataset_id: head for dataset_id, head in heads.items() if (head.run_id, dataset_id) in there},
        )

    def own(self, run_id: str) -> dict[str, Own]:
        branch = self._branch_of(run_id)
        return self._owned(self._backend.of_run(run_id, branch), branch)

    def made(self, branch: str, dataset_id: str, inputs_hash: str, code_sha: str | None) -> Head | None:
        node = self._backend.made(branch, dataset_id, inputs_hash, code_sha)
        return None if node is None else head_of(node)

    def was_reverted(self, branch: str, dataset_id: str, inputs_hash: str, code_sha: str | None) -> bool:
        reverted = self._backend.reverted()
        return any(
            (node.run_id, dataset_id) in reverted
            for node in (self._backend.history(dataset_id, branch, REVERTED_SEEN_MAX) if reverted else ())
            if (node.outcome, node.inputs_hash, node.code_sha) == ("success", inputs_hash, code_sha)
        )

    def one(self, run_id: str, dataset_id: str) -> Node | None:
        branch = self._branch_of(run_id)
        found = self._backend.get([(run_id, dataset_id)], branch)
        return next(self._whole(found.values(), branch), None)

    def of_run(self, run_id: str) -> Iterator[Node]:
        branch = self._branch_of(run_id)
        return self._whole(self._backend.of_run(run_id, branch), branch)

    def history(self, dataset_id: str, *, branch: str | None = None, limit: int = 50) -> list[Node]:
        return list(self._whole(self._backend.history(dataset_id, branch, limit), branch))

    def _branch_of(self, run_id: str) -> str | None:
        found = self.get(run_id)
        return found.branch if found else None

    def _whole(self, nodes: Iterable[Node], branch: str | None) -> Iterator[Node]:
        for node, maker in self._with_makers(nodes, branch):
            yield node if maker is None else _with(node, maker)

    def _owned(self, nodes: Iterable[Node], branch: str | None) -> dict[str, Own]:
        return {node.dataset_id: _own(node, maker) for node, maker in self._with_makers(nodes, branch)}

    def _with_makers(self, nodes: Iterable[Node], branch: str | None) -> Iterator[tuple[Node, Node | None]]:
        """A skipped record holds no more than who made its result; the rest is that one's."""
        kept = list(nodes)
        wanted = {
            (node.skipped_because, node.dataset_id) for node in kept if node.skipped_because is not None
        }
        makers = self._backend.get([(made_by, each) for made_by, each in wanted if made_by], branch)
        for node in kept:
            maker = makers.get((node.skipped_because or "", node.dataset_id))
            yield node, maker if maker is not None and shows_result_of(node, maker) else None

    # --- writing -----------------------------------------------------------------------------

    def record(
        self,
        fence: Fence,
        nodes: Sequence[Node] = (),
        skips: Skips | None = None,
        documents: Sequence[tuple[str, str]] = (),
        events: Sequence[LineageEvent] = (),
    ) -> bool:
        now_ms = self._database.session.now_ms()
        kept = [checked(node) for node in (*nodes, *_skipped(skips, now_ms))]
        prepared = self._backend.prepare(kept)

        def change(session: Session) -> bool:
            if not run_state.holds(session, fence):
                return False
            self._claim(session)
            for node in kept:
                if node.outcome == "success":
                    run_state.put_head(session, node)
            run_state.keep_documents(session, documents)
            pipeline_runs.count(session, nodes, skips)
            pipeline_runs.post(session, events, session.now_ms())
            self._within(session).put(prepared)  # last: what can fail by itself has not failed
            return True

        return self._database.write(change)

    def end(self, request: EndPass, skips: Skips | None = None) -> EndedPass:
        session = self._database.session
        kept = [checked(node) for node in _skipped(skips, session.now_ms())]
        loose: Mapping[Key, Node] = {}
        if request.commits and self._backend.names_commits:
            found = session.all("node_heads.loose", branch=request.branch)
            loose = self._backend.get([(row[1], row[0]) for row in found], request.branch)
        early = None if loose else self._backend.prepare(kept)

        def put(session: Session, commit: str | None) -> None:
            prepared = early
            if loose:
                named = [replace(node, output_commit=commit) for node in loose.values()]
                prepared = self._backend.prepare([*kept, *named])
            if kept or loose:
                self._within(session).put(prepared)

        return self._end(request, skips, put)

    def rows(self) -> Iterator[Node]:
        return self._backend.rows()

    def reverted(self) -> set[Key]:
        return self._backend.reverted()

    def take_back(self, keys: Collection[Key]) -> None:
        def change(session: Session) -> None:
            self._claim(session)
            self._within(session).take_back(keys)

        if keys:
            self._database.write(change)

    def move_in(self, nodes: Sequence[Node]) -> None:
        there = self._backend.get([(node.run_id, node.dataset_id) for node in nodes])
        prepared = self._backend.prepare(
            [checked(node) for node in nodes if there.get((node.run_id, node.dataset_id)) != node]
        )

        def change(session: Session) -> None:
            self._claim(session)
            self._within(session).put(prepared)

        self._database.write(change)

    def _claim(self, session: Session) -> None:
        leases.lock_for_update(session, MERGER)

    def _took_back(self, session: Session, branch: str, dataset_ids: list[str]) -> None:
        if dataset_ids:
            self._claim(session)
            self._within(session).revert(branch, dataset_ids)


def checked(node: Node) -> Node:
    """The schema, enforced on every write; free text as every store takes it."""
    clean: dict[str, Any] = {
        name: rows.storable(text)
        for name, text in (("error_message", node.error_message), ("reason", node.reason))
        if text is not None
    }
    from_document(to_document(node))
    try:
        clean["validation_summary"] = rows.value_of(rows.payload_of(node.validation_summary))
        node = replace(node, **clean)
        msgspec.json.encode(node)
    except (UnicodeEncodeError, msgspec.MsgspecError, TypeError) as error:
        raise SchemaViolation(f"run-state: {error}.") from None
    return node


def head_of(node: Node) -> Head:
    """What its branch knows of a node whose record this is."""
    outputs = outputs_text(node.outputs)
    return Head(node.run_id, node.inputs_hash, node.code_sha, outputs_hash(node.outputs), outputs)


def _skipped(skips: Skips | None, now_ms: int) -> Iterator[Node]:
    return iter(()) if skips is None else run_state.skipped(skips, now_ms)


def _with(node: Node, maker: Node) -> Node:
    checked_itself = node.validation_summary != NOTHING_CHECKED
    return replace(
        node,
        outputs=node.outputs or maker.outputs,
        validation_summary=node.validation_summary if checked_itself else maker.validation_summary,
        output_commit=node.output_commit or maker.output_commit,
    )


def _own(node: Node, maker: Node | None) -> Own:
    whole = node if maker is None else _with(node, maker)
    known = node.outcome != "skipped" or maker is not None or node.outputs
    return Own(
        node.outcome,
        node.inputs_hash,
        node.code_sha,
        outputs_hash(whole.outputs),
        outputs_text(whole.outputs) if known else None,
        node.attempt,
        node.skipped_because,
    )


class RemoteRunStates(ExternalRunStates):
    """Implements `ports.RunStates` and `ports.PipelineRuns`."""

    def __init__(self, database: Database, backend: RemoteBranchRunState) -> None:
        super().__init__(database, backend)
        self._remote = backend

    def known(self, branch: str, run_id: str, dataset_ids: Collection[str]) -> KnownNodes:
        """What the ledger knows and still stands; of other nodes, what stands."""
        found = super().known(branch, run_id, dataset_ids)
        ledger = RunStateTables.known(self, branch, run_id, dataset_ids).heads if dataset_ids else {}
        heads = {node: head for node, head in ledger.items() if node in found.heads or head.rerun is not None}
        if missing := set(dataset_ids) - set(heads):
            _keys, best = self._remote.records(branch)
            heads |= {node: head_of(best[node]) for node in missing & set(best)}
        return KnownNodes(found.own, heads)

    def begin(self, request: BeginPass, dead: leases.Dead) -> Begun:
        if request.from_branch is not None:
            raise UsageError(
                "A governed run is promoted in one transaction of the ledger, and its run-state can't be on"
                " another server.",
                remedy="Run the pipeline by itself (`kfm pipeline run FILE --branch run/NAME`), then merge.",
            )
        self._remote.require_open(request.branch)
        begun = super().begin(request, dead)
        if begun.held_by is None:
            self._reconcile(request.branch, request.graph)
        return begun

    def _committed(self, session: Session, request: EndPass) -> str | None:
        """Each record went onto the branch together with its outputs: nothing is left to commit."""
        del session
        return self._remote.head(request.branch)

    def _reconcile(self, branch: str, graph: Graph) -> None:
        """A node whose record is gone was reverted, and the nodes that read from it run again (unless they
        were reverted with it: then they match what was restored). The same holds for a node that has no
        record here while one that reads from it has."""
        nodes = [node for node, _reads in graph]
        if not nodes:
            return
        heads = RunStateTables.known(self, branch, "", nodes).heads
        keys, best = self._remote.records(branch)
        reverted = {node for node, head in heads.items() if (head.run_id, node) not in keys}
        reverted |= {each for node, reads in graph if node in best for each in reads if each not in best}

        def change(session: Session) -> None:
            for node, made in best.items():
                if node not in heads or heads[node][:4] != head_of(made)[:4]:
                    run_state.put_head(session, replace(made, lakefs_branch=branch))
            for node, reads in graph:
                producer = next((each for each in reads if each in reverted), None)
                why = node_branches.reader_of(producer) if producer else ""
                if node in reverted:
                    why = "" if node in best else REVERTED
                if why:
                    session.all("node_heads.rerun", branch=branch, dataset_id=node, rerun=why)

        self._database.write(change)
