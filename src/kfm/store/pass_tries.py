"""Attempts at passes: opened once, closed once, each record counted in the transaction that writes it.

An attempt whose process died is closed by the next one to begin: of the same run, or of the run that
takes over the lock. So each has one start and one end, whoever tells the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kfm.core.evidence import Testimony
from kfm.core.passes import Left, PassFigures, PassTry
from kfm.core.records import Lock, Node
from kfm.core.run_states import BeginPass, EndPass, Skips
from kfm.store import leases
from kfm.store.pass_left import close_left, fail_pass
from kfm.store.session import Row, Session


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
    if request.testify is not None:
        made = PassTry(request.run_id, request.pipeline_id, request.branch, attempt, now_ms, request.parent)
        post(session, request.testify(made, left), now_ms)


def ended(session: Session, request: EndPass, commit: str | None, now_ms: int) -> None:
    session.all(
        "pass_attempts.close",
        run_id=request.run_id,
        node=request.lone,
        state=request.state,
        ended_at_ms=now_ms,
    )
    if request.testify is not None:
        post(session, request.testify(commit, now_ms), now_ms)


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


def post(session: Session, events: Sequence[Testimony], now_ms: int) -> None:
    for said in events:
        session.all(
            "outbox.post",
            event_id=said.event_id,
            topic=said.topic,
            subject=said.subject,
            body=said.body,
            recorded_at_ms=now_ms,
        )
