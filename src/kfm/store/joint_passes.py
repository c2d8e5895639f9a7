"""Passes whose nodes come one by one, from anywhere: each under a lock of its own, all in one run.

The run's row is begun by the first of them and ended by whichever ends last, as far as anybody knows:
as long as another node of the run is at work it is said to be running.
"""

from __future__ import annotations

import msgspec

from kfm.core.canonical import canonical_bytes
from kfm.core.hashing import sha256_text
from kfm.core.records import Lock
from kfm.core.run_states import BeginPass, Begun, EndPass, Graph, PassState, node_scope, pipeline_scope
from kfm.store import leases, pass_tries, rows
from kfm.store.session import Session

_GRAPH = msgspec.json.Decoder(Graph)


def join(session: Session, request: BeginPass, dead: leases.Dead) -> Begun:
    now_ms = session.now_ms()
    # Garbage collection, a pass over the whole pipeline, and whoever is at this very node.
    for scope in (leases.COLLECTOR, pipeline_scope(request.pipeline_id, request.branch), request.scope):
        lock = leases.lock_for_update(session, scope)
        if lock.holder is not None and not leases.is_gone(lock, now_ms, dead):
            return Begun(held_by=lock)
    fence = lock.fence + 1
    leases.take(session, lock, fence, request.worker_id, request.run_id, now_ms, now_ms + request.lease_ms)
    left = pass_tries.abandoned(session, request, lock, now_ms)
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
    pass_tries.begun(session, request, attempt, fence, left, now_ms)
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
    """The lock is known to be held: `run_states.holds` was asked in this transaction."""
    counts = {str(row[0]): int(row[1]) for row in session.all("run_states.outcomes", run_id=request.run_id)}
    counts = counts or request.counts  # the records lie elsewhere: whoever asks has counted them
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
    pass_tries.ended(session, request, commit, session.now_ms())
    session.all("locks.release", scope=request.scope, fence=request.fence)
    return landed is not None


def others_at_work(session: Session, request: EndPass) -> bool:
    held = (rows.lock_from(row) for row in session.all("locks.held"))
    return any(
        lock.holder is not None and lock.holder.run_id == request.run_id and lock.scope != request.scope
        for lock in held
    )


def at_work(session: Session, request: BeginPass, now_ms: int, dead: leases.Dead) -> Lock | None:
    """The lock of one of the pipeline's nodes that somebody runs alone right now."""
    named = "node:"
    if leases.live(session, lambda lock: lock.scope.startswith(named), now_ms, dead) is None:
        return None  # nearly always: then the names of ten thousand nodes are not put together
    scopes = {node_scope(node, request.branch) for node, _ in request.graph}
    return leases.live(session, lambda lock: lock.scope in scopes, now_ms, dead)


def _state(counts: dict[str, int], asked: PassState, others: bool) -> PassState:
    if others:
        return "running"
    if asked == "cancelled":
        return asked
    if counts.get("failed") or asked == "failed":
        return "failed"
    return "partial" if counts.get("partial") else "success"
