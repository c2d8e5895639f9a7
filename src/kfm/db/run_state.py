"""Run-state in tables: node records, branches, pipeline runs, and which store an environment uses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from kfm.db import governance, leases, node_branches, pipeline_runs, rows
from kfm.db.session import Database, Row, Session
from kfm.model.input_hash import sha256_text
from kfm.model.records import GovernanceEntry, Lock, Node
from kfm.model.run_state import (
    NOTHING_CHECKED,
    REVERTED,
    STORE_MARK,
    BeginPass,
    Begun,
    EndedPass,
    EndPass,
    Fence,
    Graph,
    Head,
    KnownNodes,
    Own,
    Pass,
    Skips,
    from_document,
    outputs_hash,
    outputs_of,
    outputs_text,
    to_document,
)
from kfm.model.runs import LineageEvent, check_summary

if TYPE_CHECKING:
    from kfm.ports import RunStates


PAGE = 1000
_GRAPH = msgspec.json.Decoder(Graph)
_COUNTS = msgspec.json.Decoder(dict[str, int])
_LAST_COLUMN = itemgetter(-1)
_AS_HEAD = partial(tuple.__new__, Head)  # ten thousand at once: without a function of Python for each


# --- reading -------------------------------------------------------------------------------


def known(session: Session, branch: str, run_id: str, first: str, last: str) -> KnownNodes:
    found = session.all("node_heads.of_branch", branch=branch, first=first, last=last)
    heads = dict(zip(map(_LAST_COLUMN, found), map(_AS_HEAD, found), strict=True))
    return KnownNodes(own(session, run_id), heads)


def own(session: Session, run_id: str) -> dict[str, Own]:
    return {row[0]: Own(*row[1:]) for row in session.all("run_states.own", run_id=run_id)}


def made(
    session: Session, branch: str, dataset_id: str, inputs_hash: str, code_sha: str | None
) -> Head | None:
    row = session.one(
        "run_states.made",
        branch=branch,
        dataset_id=dataset_id,
        inputs_hash=inputs_hash,
        code_sha=code_sha or "",
    )
    return Head(*row) if row else None


def one(session: Session, run_id: str, dataset_id: str) -> Node | None:
    row = session.one("run_states.one", run_id=run_id, dataset_id=dataset_id)
    return node_from(row) if row else None


def of_run(session: Session, run_id: str) -> Iterator[Node]:
    after = ""
    while page := session.all("run_states.of_run", run_id=run_id, after=after, limit=PAGE):
        yield from map(node_from, page)
        after = page[-1][1]


def history(session: Session, dataset_id: str, branch: str | None, limit: int) -> list[Node]:
    found = session.all(
        "run_states.history", dataset_id=dataset_id, branch=branch or "", before=2**62, limit=limit
    )
    return [node_from(row[1:]) for row in found]


def every(session: Session) -> Iterator[Node]:
    """All that there are, as they were put."""
    run_id = dataset_id = ""
    while page := session.all("run_states.page", run_id=run_id, dataset_id=dataset_id, limit=PAGE):
        yield from map(node_from, page)
        run_id, dataset_id = page[-1][:2]


def node_from(row: Row) -> Node:
    (run_id, dataset_id, branch, inputs_hash, outcome, recorded_at_ms, attempt, code_sha, because, commit,
     outputs, validation, pipeline_id, duration_ms, error_code, error_message, reason) = row  # fmt: skip
    return Node(
        run_id=run_id,
        dataset_id=dataset_id,
        lakefs_branch=branch,
        inputs_hash=inputs_hash,
        outcome=outcome,
        recorded_at_ms=recorded_at_ms,
        attempt=attempt,
        code_sha=code_sha,
        skipped_because=because,
        output_commit=commit,
        outputs=outputs_of(outputs),
        validation_summary=rows.value_of(validation) if validation else dict(NOTHING_CHECKED),
        pipeline_id=pipeline_id,
        duration_ms=duration_ms,
        error_code=error_code,
        error_message=error_message,
        reason=reason,
    )


def pass_from(row: Row) -> Pass:
    (run_id, pipeline_id, branch, state, started, worker_id, fence, attempt, ended, graph, counts, commit,
     error_code) = row  # fmt: skip
    return Pass(
        run_id=run_id,
        pipeline_id=pipeline_id,
        branch=branch,
        state=state,
        started_at_ms=started,
        worker_id=worker_id,
        fence=fence,
        attempt=attempt,
        ended_at_ms=ended,
        graph=_GRAPH.decode(graph) if graph else (),
        counts=_COUNTS.decode(counts),
        commit=commit,
        error_code=error_code,
    )


# --- writing -------------------------------------------------------------------------------


def holds(session: Session, fence: Fence) -> bool:
    """The lock is still ours. Read for update: a takeover waits for this transaction."""
    lock = leases.lock_for_update(session, fence.scope)
    return lock.fence == fence.fence and lock.holder is not None


def put(session: Session, node: Node) -> None:
    """One record, and what follows from it for its branch."""
    outputs, digest = put_record(session, node)
    if node.outcome == "success":
        put_head(session, node, outputs, digest)


def put_record(session: Session, node: Node) -> tuple[str | None, str | None]:
    """The record alone; returns its outputs as text, and their hash. A skipped one's are its maker's."""
    from_document(to_document(node))  # the schema, enforced on every write
    made = node.outcome != "skipped" or node.outputs
    outputs = outputs_text(node.outputs) if made else None
    digest = outputs_hash(node.outputs) if made else None
    parameters = _parameters(node) | {"outputs": outputs, "outputs_hash": digest}
    if node.outcome == "skipped" and node.validation_summary == NOTHING_CHECKED:
        parameters["validation"] = None
    session.all("run_states.put", **parameters)
    return outputs, digest


def put_head(session: Session, node: Node, outputs: str | None = None, digest: str | None = None) -> None:
    """What its branch knows of the node from now on."""
    session.all(
        "node_heads.put",
        branch=node.lakefs_branch,
        dataset_id=node.dataset_id,
        run_id=node.run_id,
        inputs_hash=node.inputs_hash,
        code_sha=node.code_sha,
        outputs_hash=outputs_hash(node.outputs) if digest is None else digest,
        outputs=outputs_text(node.outputs) if outputs is None else outputs,
        output_commit=node.output_commit,
    )


def restore(session: Session, branch: str, head: Head) -> None:
    """What an earlier run made is what the branch knows of the node again, and shows with its next commit."""
    session.all(
        "node_heads.put",
        branch=branch,
        dataset_id=head.dataset_id,
        run_id=head.run_id,
        inputs_hash=head.inputs_hash,
        code_sha=head.code_sha,
        outputs_hash=head.outputs_hash,
        outputs=head.outputs,
        output_commit=None,
    )


def copy_heads(session: Session, skips: Skips, now_ms: int) -> None:
    """The same, where the rows are just what the branch knows: the database copies them itself."""
    assert skips.whole is not None
    from_document(to_document(next(skipped(skips, now_ms))))
    session.all(
        "run_states.skip_heads",
        run_id=skips.run_id,
        branch=skips.branch,
        pipeline_id=skips.pipeline_id,
        recorded_at_ms=now_ms,
        reason=skips.rows[0][4],
        first=skips.whole[0],
        last=skips.whole[1],
    )


def skipped(skips: Skips, now_ms: int) -> Iterator[Node]:
    """The record of each node that was skipped."""
    for dataset_id, inputs_hash, code_sha, made_by, reason in skips.rows:
        yield Node(
            dataset_id=dataset_id,
            run_id=skips.run_id,
            lakefs_branch=skips.branch,
            inputs_hash=inputs_hash,
            validation_summary=dict(NOTHING_CHECKED),
            outcome="skipped",
            recorded_at_ms=now_ms,
            code_sha=code_sha,
            skipped_because=made_by,
            pipeline_id=skips.pipeline_id,
            reason=reason,
        )


def put_skips(session: Session, skips: Skips, now_ms: int) -> None:
    """Many at once. What all rows share is checked once, what differs by the table itself."""
    if not skips.rows:
        return
    from_document(to_document(next(skipped(skips, now_ms))))
    run_id, branch, pipeline_id = skips.run_id, skips.branch, skips.pipeline_id
    session.bulk(
        "run_states.skip",
        [
            (run_id, node, branch, inputs_hash, now_ms, code_sha, made_by, pipeline_id, reason)
            for node, inputs_hash, code_sha, made_by, reason in skips.rows
        ],
    )


def _parameters(node: Node) -> dict[str, Any]:
    check_summary(node.validation_summary)
    parameters = msgspec.structs.asdict(node)
    parameters["validation"] = rows.payload_of(parameters.pop("validation_summary"))
    return rows.with_storable(parameters, ("error_message", "reason"))


def keep_documents(session: Session, documents: Sequence[tuple[str, str]]) -> None:
    if documents:
        session.many("documents.keep", ({"hash": name, "body": body} for name, body in documents))


# --- passes --------------------------------------------------------------------------------


def begin(session: Session, request: BeginPass, dead: leases.Dead) -> Begun:
    if request.lone:
        return pipeline_runs.join(session, request, dead)
    now_ms = session.now_ms()
    fence, lock, others = request.fence, None, list[Lock]()
    if fence is not None and not holds(session, Fence(request.scope, fence)):
        return Begun(lost=True)
    if fence is None:
        collector = leases.lock_for_update(session, leases.COLLECTOR)
        if collector.holder is not None and not leases.is_gone(collector, now_ms, dead):
            return Begun(held_by=collector)
        lock = leases.lock_for_update(session, request.scope)
        if lock.holder is not None and not leases.is_gone(lock, now_ms, dead):
            return Begun(held_by=lock)
        others = pipeline_runs.alone(session, request)
        for each in others:
            if each.holder is not None and not leases.is_gone(each, now_ms, dead):
                return Begun(held_by=each)
        fence = lock.fence + 1
        leases.take(
            session, lock, fence, request.worker_id, request.run_id, now_ms, now_ms + request.lease_ms
        )
    left = [one for each in others for one in pipeline_runs.passed_over(session, request, each, now_ms)]
    left += pipeline_runs.abandoned(session, request, lock, now_ms)
    graph = msgspec.json.encode(request.graph)
    graph_hash = sha256_text(graph)
    keep_documents(session, [(graph_hash, graph.decode())])
    row = session.one(
        "passes.begin",
        run_id=request.run_id,
        pipeline_id=request.pipeline_id,
        branch=request.branch,
        fence=fence,
        worker_id=request.worker_id,
        started_at_ms=now_ms,
        graph_hash=graph_hash,
    )
    assert row is not None
    attempt = int(row[0])
    pipeline_runs.begun(session, request, attempt, fence, left, now_ms)
    return Begun(fence=fence, attempt=attempt, started_at_ms=now_ms)


def end(session: Session, request: EndPass, commit: str | None) -> bool:
    if request.lone:
        return pipeline_runs.leave(session, request, commit)
    now_ms = session.now_ms()
    landed = session.one(
        "passes.end",
        run_id=request.run_id,
        fence=request.fence,
        state=request.state,
        ended_at_ms=now_ms,
        counts=rows.text_of(request.counts),
        commit_id=commit,
        error_code=request.error_code,
    )
    if landed:
        pipeline_runs.ended(session, request, commit, now_ms)
    if landed and request.releases:
        session.all("locks.release", scope=request.scope, fence=request.fence)
    return landed is not None


class RunStateTables:
    """Implements `ports.RunStates` and `ports.PipelineRuns` in tables of the ledger."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # --- records -----------------------------------------------------------------------

    def known(self, branch: str, run_id: str, dataset_ids: Collection[str]) -> KnownNodes:
        if not dataset_ids:
            return KnownNodes({}, {})
        first, last = min(dataset_ids), max(dataset_ids)
        return known(self._database.session, branch, run_id, first, last)

    def own(self, run_id: str) -> dict[str, Own]:
        return own(self._database.session, run_id)

    def made(self, branch: str, dataset_id: str, inputs_hash: str, code_sha: str | None) -> Head | None:
        return made(self._database.session, branch, dataset_id, inputs_hash, code_sha)

    def was_reverted(self, branch: str, dataset_id: str, inputs_hash: str, code_sha: str | None) -> bool:
        found = self._database.session.one(
            "run_states.was_reverted",
            branch=branch,
            dataset_id=dataset_id,
            inputs_hash=inputs_hash,
            code_sha=code_sha or "",
        )
        return found is not None

    def record(
        self,
        fence: Fence,
        nodes: Sequence[Node] = (),
        skips: Skips | None = None,
        documents: Sequence[tuple[str, str]] = (),
        events: Sequence[LineageEvent] = (),
    ) -> bool:
        def change(session: Session) -> bool:
            if not holds(session, fence):
                return False
            for node in nodes:
                put(session, node)
            if skips is not None:
                put_skips(session, skips, session.now_ms())
            keep_documents(session, documents)
            pipeline_runs.count(session, nodes, skips)
            pipeline_runs.post(session, events, session.now_ms())
            return True

        return self._database.write(change)

    def one(self, run_id: str, dataset_id: str) -> Node | None:
        return one(self._database.session, run_id, dataset_id)

    def of_run(self, run_id: str) -> Iterator[Node]:
        return of_run(self._database.session, run_id)

    def history(self, dataset_id: str, *, branch: str | None = None, limit: int = 50) -> list[Node]:
        return history(self._database.session, dataset_id, branch, limit)

    def document(self, name: str) -> str | None:
        row = self._database.session.one("documents.get", hash=name)
        return str(row[0]) if row else None

    # --- moving from one store to another ----------------------------------------------

    def rows(self) -> Iterator[Node]:
        """All that there are, as they were put."""
        return every(self._database.session)

    def reverted(self) -> set[tuple[str, str]]:
        """Run and node of what `made` does not find any more."""
        return {(row[0], row[1]) for row in self._database.session.all("run_states.reverted")}

    def take_back(self, keys: Collection[tuple[str, str]]) -> None:
        marked = [{"run_id": run_id, "dataset_id": dataset_id} for run_id, dataset_id in keys]
        if marked:
            self._database.write(lambda session: session.many("run_states.take_back", marked))

    def move_in(self, nodes: Sequence[Node]) -> None:
        """Records from elsewhere. What branches know of them is known already."""

        def change(session: Session) -> None:
            for node in nodes:
                put_record(session, node)

        self._database.write(change)

    # --- passes ------------------------------------------------------------------------

    def begin(self, request: BeginPass, dead: leases.Dead) -> Begun:
        def change(session: Session) -> Begun:
            node_branches.require_open(session, request.branch)
            begun = begin(session, request, dead)
            if begun.held_by is None and not begun.lost:
                if request.from_branch is not None:
                    node_branches.begun(session, request.branch, request.from_branch)
                reverted = node_branches.reconcile(session, request.branch, request.graph)
                self._took_back(session, request.branch, reverted)
                begun = replace(begun, branch_head=node_branches.head_of(session, request.branch))
            return begun

        return self._database.write(change)

    def end(self, request: EndPass, skips: Skips | None = None) -> EndedPass:
        """The skipped ones, the commit on the branch and the end, together or not at all."""

        def put(session: Session, _commit: str | None) -> None:
            if skips is None:
                return
            if skips.whole and skips.whole[2] == node_branches.head_of(session, skips.branch):
                copy_heads(session, skips, session.now_ms())
            else:
                put_skips(session, skips, session.now_ms())

        return self._end(request, skips, put)

    def _end(
        self, request: EndPass, skips: Skips | None, put: Callable[[Session, str | None], None]
    ) -> EndedPass:
        def change(session: Session) -> EndedPass:
            if not holds(session, Fence(request.scope, request.fence)):
                return EndedPass(landed=False)
            if request.commits and request.policy_epoch not in (None, governance.held_epoch(session)):
                return EndedPass(landed=False, epoch_moved=True)
            self._claim(session)
            for head in skips.restored if skips is not None else ():
                restore(session, request.branch, head)
            commit = self._committed(session, request) if request.commits else None
            put(session, commit)
            if skips is not None:
                pipeline_runs.count(session, (), skips)
            return EndedPass(landed=end(session, request, commit), commit=commit)

        return self._database.write(change)

    def _committed(self, session: Session, request: EndPass) -> str | None:
        """What its nodes made, on the branch."""
        return node_branches.commit_outputs(
            session,
            request.branch,
            run_id=request.run_id,
            pipeline_id=request.pipeline_id,
            author=request.author,
        )

    def _claim(self, session: Session) -> None:
        """Lock what else a write needs; before a branch is locked, so that there is no deadlock."""

    def _took_back(self, session: Session, branch: str, dataset_ids: list[str]) -> None:
        """Called after commits of the branch were reverted; the tables know it already."""

    def get(self, run_id: str) -> Pass | None:
        row = self._database.session.one("passes.get", run_id=run_id)
        return pass_from(row) if row else None

    def any_passes(self) -> bool:
        return self._database.session.one("passes.any") is not None

    def passes(
        self, *, pipeline_id: str | None = None, branch: str | None = None, limit: int = 50
    ) -> list[Pass]:
        """Newest first, without their graphs."""
        found = self.pass_page(pipeline_id=pipeline_id, branch=branch, limit=limit)
        return [one for _, one in found]

    def pass_page(
        self,
        *,
        pipeline_id: str | None = None,
        branch: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[tuple[int, Pass]]:
        """Newest first, each with its number; `before` is that of the last one of the page before."""
        session, asked = self._database.session, {"before": before or 2**62, "limit": limit}
        if pipeline_id:
            found = session.all("passes.of_pipeline", pipeline_id=pipeline_id, branch=branch or "", **asked)
        elif branch:
            found = session.all("passes.of_branch", branch=branch, **asked)
        else:
            found = session.all("passes.list", **asked)
        return [(int(row[0]), pass_from(row[1:])) for row in found]

    # --- checksums of files --------------------------------------------------------------

    def checksums(self, first: str, last: str) -> dict[str, tuple[int, int, int, str]]:
        """path → size, modification time in ns, inode, checksum; of all paths between the two."""
        found = self._database.session.all("file_checksums.within", first=first, last=last)
        return {row[0]: (row[1], row[2], row[3], row[4]) for row in found}

    def keep_checksums(self, seen: dict[str, tuple[int, int, int, str]]) -> None:
        rows = [
            {"path": path, "size": size, "modified_ns": modified_ns, "inode": inode, "checksum": checksum}
            for path, (size, modified_ns, inode, checksum) in seen.items()
        ]
        self._database.write(lambda session: session.many("file_checksums.put", rows))


def switch(database: Database, fence: int, seen: str, value: str, entry: GovernanceEntry) -> bool:
    """Switch to the other store and release the lock; False if the lock or the mark is not ours."""

    def change(session: Session) -> bool:
        lock = leases.lock_for_update(session, leases.COLLECTOR)
        if lock.fence != fence or lock.holder is None:
            return False
        session.all("marks.ensure", name=STORE_MARK, value=seen)
        if session.one("marks.move", name=STORE_MARK, seen=seen, value=value) is None:
            return False
        session.all("locks.release", scope=leases.COLLECTOR, fence=fence)
        governance.append(session, [entry])
        return True

    return database.write(change)


def let_go(database: Database, fence: int) -> None:
    database.write(lambda session: session.all("locks.release", scope=leases.COLLECTOR, fence=fence))


def heads(session: Session) -> dict[str, list[tuple[str, str]]]:
    """Branch → (run, node) of all that it knows."""
    found: dict[str, list[tuple[str, str]]] = {}
    for (branch,) in session.all("node_heads.branches"):
        pages = node_branches.heads_of(session, branch)
        found[branch] = [(run_id, dataset_id) for page in pages for dataset_id, run_id, *_ in page]
    return found


class PlanningView:
    """As much of `ports.RunStates` as a plan asks for."""

    def __init__(self, states: RunStates, session: Session, graph: Graph) -> None:
        self._states = states
        self._session = session
        self._graph = graph
        self._reverted: Collection[str] = ()

    def known(self, branch: str, run_id: str, dataset_ids: Collection[str]) -> KnownNodes:
        known = self._states.known(branch, run_id, dataset_ids)
        reverted, readers = node_branches.foreseen(self._session, branch, self._graph)
        self._reverted = reverted
        for node, row in reverted.items():
            if row is not None:
                run, inputs_hash, code_sha, outputs_hash, outputs, _commit = row
                known.heads[node] = Head(run, inputs_hash, code_sha, outputs_hash, outputs)
            elif node in known.heads:
                known.heads[node] = known.heads[node]._replace(rerun=REVERTED)
        for node, why in readers.items():
            if node in known.heads and known.heads[node].rerun is None:
                known.heads[node] = known.heads[node]._replace(rerun=why)
        return known

    def made(self, branch: str, dataset_id: str, inputs_hash: str, code_sha: str | None) -> Head | None:
        if dataset_id in self._reverted:  # of those, only what was brought back counts
            return None
        return self._states.made(branch, dataset_id, inputs_hash, code_sha)

    def was_reverted(self, branch: str, dataset_id: str, inputs_hash: str, code_sha: str | None) -> bool:
        if dataset_id in self._reverted:
            return self._states.made(branch, dataset_id, inputs_hash, code_sha) is not None
        return self._states.was_reverted(branch, dataset_id, inputs_hash, code_sha)

    def own(self, run_id: str) -> dict[str, Own]:
        return self._states.own(run_id)
