"""Attempts at pipeline runs: opened once, closed once, also for processes that died."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from kfm.db import leases, rows
from kfm.db.session import Row, Session
from kfm.model.canonical import canonical_bytes
from kfm.model.input_hash import sha256_text
from kfm.model.records import Lock, Node
from kfm.model.run_state import (
    BeginPass,
    Begun,
    EndPass,
    Graph,
    Left,
    Parent,
    PassFigures,
    PassState,
    PassTry,
    Skips,
    node_scope,
    pipeline_scope,
)
from kfm.model.runs import LineageEvent


def abandoned(session: Session, request: BeginPass, lock: Lock | None, now_ms: int) -> list[Left]:
    """What a process that is gone left open: this run's last attempt, and that of the lock's holder.

    The pass of another run has failed; one of this run goes on.
    """
    run_ids = [request.run_id]
    holder = lock.holder if lock else None
    if holder is not None and holder.run_id != request.run_id:
        run_ids.append(holder.run_id)
    found = [
        (each, leases.WORKER_DIED)
        for name in run_ids
        for each in close_left(session, name, now_ms, request.lone)
    ]
    for name in run_ids[1:] if not request.lone else ():  # of a lone node's run others may be at work
        fail_pass(session, name, leases.WORKER_DIED, now_ms)
    return found


def begun(
    session: Session, request: BeginPass, attempt: int, fence: int, left: Sequence[Left], now_ms: int
) -> None:
    session.all(
        "pass_attempts.open",
        run_id=request.run_id,
        attempt=attempt,
        pipeline_id=request.pipeline_id,
        branch=request.branch,
        node=request.lone,
        fence=fence,
        started_at_ms=now_ms,
    )
    if request.emit is not None:
        made = PassTry(request.run_id, request.pipeline_id, request.branch, attempt, now_ms, request.parent)
        post(session, request.emit(made, left), now_ms)


def ended(session: Session, request: EndPass, commit: str | None, now_ms: int) -> None:
    session.all(
        "pass_attempts.close",
        run_id=request.run_id,
        node=request.lone,
        state=request.state,
        ended_at_ms=now_ms,
    )
    if request.emit is not None:
        post(session, request.emit(commit, now_ms), now_ms)


def count(session: Session, nodes: Sequence[Node], skips: Skips | None = None) -> None:
    """Each record that is written, under the attempt that writes it."""
    if not nodes and skips is None:
        return
    outcomes = Counter(node.outcome for node in nodes)
    run_id, node = (nodes[0].run_id, nodes[0].dataset_id) if nodes else ("", "")
    if skips is not None:
        outcomes["skipped"] += len(skips.rows)
        run_id, node = skips.run_id, skips.rows[0][0] if skips.rows else ""
    session.all(
        "pass_attempts.count",
        run_id=run_id,
        node=node,
        success=outcomes["success"],
        failed=outcomes["failed"],
        partial=outcomes["partial"],
        skipped=outcomes["skipped"],
        worked_ms=sum(node.duration_ms or 0 for node in nodes),
    )


def figures_from(row: Row) -> PassFigures:
    return PassFigures(**dict(zip(PassFigures.__struct_fields__, row, strict=True)))


def post(session: Session, events: Sequence[LineageEvent], now_ms: int) -> None:
    for event in events:
        session.all(
            "outbox.post",
            event_id=event.event_id,
            topic=event.topic,
            subject=event.subject,
            body=event.body,
            recorded_at_ms=now_ms,
        )


def close_left(session: Session, run_id: str, now_ms: int, node: str = "") -> list[PassTry]:
    """Close the open attempts of a run, or of a node of it; returns them, with their governed run."""
    closed = session.all("pass_attempts.close", run_id=run_id, node=node, state="aborted", ended_at_ms=now_ms)
    if not closed:
        return []
    row = session.one("pass_attempts.parent", run_id=run_id)
    parent = Parent(*row) if row else None
    return [PassTry(*each)._replace(parent=parent) for each in closed]


def fail_pass(session: Session, run_id: str, code: str, now_ms: int) -> None:
    """Mark the pipeline run itself as failed, until it is continued."""
    session.all("passes.interrupt", run_id=run_id, ended_at_ms=now_ms, error_code=code)


def passed_over(session: Session, request: BeginPass, lock: Lock, now_ms: int) -> list[Left]:
    """Take another's lock from a holder that is gone: should it come back, it finds that it has lost."""
    if lock.holder is None:
        return []
    run_id, node = lock.holder.run_id, leases.lone_node(lock.scope)
    leases.free(session, lock, now_ms)
    if run_id == request.run_id:
        return []
    found = [(each, leases.WORKER_DIED) for each in close_left(session, run_id, now_ms, node)]
    if not node:
        fail_pass(session, run_id, leases.WORKER_DIED, now_ms)
    return found


_GRAPH = msgspec.json.Decoder(Graph)


def join(session: Session, request: BeginPass, dead: leases.Dead) -> Begun:
    now_ms = session.now_ms()
    # Garbage collection, a run of the whole pipeline, and any run of this very node.
    _, whole, lock = locks = [
        leases.lock_for_update(session, scope)
        for scope in (leases.COLLECTOR, pipeline_scope(request.pipeline_id, request.branch), request.scope)
    ]
    for each in locks:
        if each.holder is not None and not leases.is_gone(each, now_ms, dead):
            return Begun(held_by=each)
    fence = lock.fence + 1
    leases.take(session, lock, fence, request.worker_id, request.run_id, now_ms, now_ms + request.lease_ms)
    left = [*passed_over(session, request, whole, now_ms), *abandoned(session, request, lock, now_ms)]
    row = session.one(
        "passes.join",
        run_id=request.run_id,
        pipeline_id=request.pipeline_id,
        branch=request.branch,
        fence=fence,
        worker_id=request.worker_id,
        started_at_ms=now_ms,
        graph_hash="",
    )
    assert row is not None
    _add_to_graph(session, request, str(row[1]))
    attempt = int(row[0])
    begun(session, request, attempt, fence, left, now_ms)
    return Begun(fence=fence, attempt=attempt, started_at_ms=now_ms)


def _add_to_graph(session: Session, request: BeginPass, known_hash: str) -> None:
    known = session.one("documents.get", hash=known_hash)
    graph = dict(_GRAPH.decode(known[0])) if known else {}
    if known and all(graph.get(node) == reads for node, reads in request.graph):
        return
    body = canonical_bytes(msgspec.to_builtins(tuple((graph | dict(request.graph)).items())))
    graph_hash = sha256_text(body)
    session.all("documents.keep", hash=graph_hash, body=body.decode())
    session.all("passes.redraw", run_id=request.run_id, graph_hash=graph_hash)


def leave(session: Session, request: EndPass, commit: str | None) -> bool:
    """End a node's part in a shared run. The lock is known to be held: `run_state.holds` was asked in this
    transaction."""
    counts = {str(row[0]): int(row[1]) for row in session.all("run_states.outcomes", run_id=request.run_id)}
    counts = counts or request.counts  # the records lie elsewhere: the caller has counted them
    state = _state(counts, request.state, others_at_work(session, request))
    landed = session.one(
        "passes.leave",
        run_id=request.run_id,
        state=state,
        ended_at_ms=None if state == "running" else session.now_ms(),
        counts=rows.text_of(counts),
        commit_id=commit,
        error_code=request.error_code,
    )
    ended(session, request, commit, session.now_ms())
    session.all("locks.release", scope=request.scope, fence=request.fence)
    return landed is not None


def others_at_work(session: Session, request: EndPass) -> bool:
    held = (rows.lock_from(row) for row in session.all("locks.held"))
    return any(
        lock.holder is not None and lock.holder.run_id == request.run_id and lock.scope != request.scope
        for lock in held
    )


def alone(session: Session, request: BeginPass) -> list[Lock]:
    """The locks of nodes of the pipeline that are being run on their own."""
    held = [rows.lock_from(row) for row in session.all("locks.held")]
    if not any(lock.scope.startswith("node:") for lock in held):
        return []  # nearly always: then the names of ten thousand nodes are not put together
    scopes = {node_scope(node, request.branch) for node, _ in request.graph}
    return [leases.lock_for_update(session, lock.scope) for lock in held if lock.scope in scopes]


def _state(counts: dict[str, int], asked: PassState, others: bool) -> PassState:
    if others:
        return "running"
    if asked == "cancelled":
        return asked
    if counts.get("failed") or asked == "failed":
        return "failed"
    return "partial" if counts.get("partial") else "success"
