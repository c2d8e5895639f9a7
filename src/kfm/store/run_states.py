"""Run-state in tables: records, what each branch knows of its nodes, and passes.

A record and the branch's knowledge of it change in one transaction, under the lock of the pass: a
process that lost the lock changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import msgspec

from kfm.core.hashing import sha256_text
from kfm.core.node_transitions import check_summary
from kfm.core.records import Node
from kfm.core.run_states import (
    NOTHING_CHECKED,
    BeginPass,
    Begun,
    EndPass,
    Fence,
    Graph,
    Head,
    Known,
    Own,
    Pass,
    Skips,
    from_document,
    outputs_hash,
    outputs_of,
    outputs_text,
    to_document,
)
from kfm.store import joint_passes, leases, pass_tries, rows
from kfm.store.session import Row, Session

PAGE = 1000
_GRAPH = msgspec.json.Decoder(Graph)
_COUNTS = msgspec.json.Decoder(dict[str, int])
_LAST_COLUMN = itemgetter(-1)
_AS_HEAD = partial(tuple.__new__, Head)  # ten thousand at once: without a function of Python for each


# --- reading -------------------------------------------------------------------------------


def known(session: Session, branch: str, run_id: str, first: str, last: str) -> Known:
    found = session.all("node_heads.of_branch", branch=branch, first=first, last=last)
    heads = dict(zip(map(_LAST_COLUMN, found), map(_AS_HEAD, found), strict=True))
    own = {row[0]: Own(*row[1:]) for row in session.all("run_states.own", run_id=run_id)}
    return Known(own, heads)


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
    """The lock is still ours. Read for update: whoever takes it over waits for this transaction."""
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
    """The record of each node that was left alone."""
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
        return joint_passes.join(session, request, dead)
    now_ms = session.now_ms()
    fence, lock = request.fence, None
    if fence is None:
        collector = leases.lock_for_update(session, leases.COLLECTOR)
        if collector.holder is not None and not leases.is_gone(collector, now_ms, dead):
            return Begun(held_by=collector)
        lock = leases.lock_for_update(session, request.scope)
        if lock.holder is not None and not leases.is_gone(lock, now_ms, dead):
            return Begun(held_by=lock)
        alone = joint_passes.at_work(session, request, now_ms, dead)
        if alone is not None:
            return Begun(held_by=alone)
        fence = lock.fence + 1
        leases.take(
            session, lock, fence, request.worker_id, request.run_id, now_ms, now_ms + request.lease_ms
        )
    left = pass_tries.abandoned(session, request, lock, now_ms)
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
    pass_tries.begun(session, request, attempt, fence, left, now_ms)
    return Begun(fence=fence, attempt=attempt, started_at_ms=now_ms)


def end(session: Session, request: EndPass, commit: str | None) -> bool:
    if request.lone:
        return joint_passes.leave(session, request, commit)
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
        pass_tries.ended(session, request, commit, now_ms)
    if landed and request.releases:
        session.all("locks.release", scope=request.scope, fence=request.fence)
    return landed is not None
