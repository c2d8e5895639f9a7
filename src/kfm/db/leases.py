"""Leases on datasets and domains: taken, renewed, freed, and reaped when their holder is gone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from kfm.db import rows
from kfm.db.outbox import Journal
from kfm.db.session import Session
from kfm.model.records import Lock
from kfm.model.runs import Reaped
from kfm.model.times import holds

Dead = Callable[[str], bool]

LEASE_EXPIRED = "LEASE_EXPIRED"
WORKER_DIED = "WORKER_DIED"
CANCELLED = "CANCELLED"
GONE = "The process that ran it is gone."
COLLECTOR = "gc"  # the lock that garbage collection holds; no run starts while it is held
RETENTION = "retention"  # the lock of the process that takes old rows away; runs go on beside it
PIPELINES = ("pipeline:", "node:")  # locks of pipeline runs, which need not be runs of a source


def is_gone(lock: Lock, now_ms: int, dead: Dead) -> bool:
    if lock.holder is None:
        return False
    return not holds(lock.lease_until_ms, now_ms) or dead(lock.holder.worker_id)


def at_work_on(session: Session, branch: str) -> Lock | None:
    """The lock of a pass, or of a node that runs alone, on this branch."""
    return live(
        session,
        lambda lock: lock.scope.startswith(PIPELINES) and lock.scope.endswith(f"@{branch}"),
        session.now_ms(),
    )


def live(
    session: Session, wanted: Callable[[Lock], bool], now_ms: int, dead: Dead = lambda _worker_id: False
) -> Lock | None:
    """The first held lock of this kind whose holder is not known to be gone."""
    for lock in (rows.lock_from(row) for row in session.all("locks.held")):
        if lock.holder is not None and wanted(lock) and not is_gone(lock, now_ms, dead):
            return lock
    return None


def lock_for_update(session: Session, scope: str) -> Lock:
    row = session.one("locks.get_for_update", scope=scope)
    if row is None:
        session.all("locks.ensure", scope=scope)
        row = session.one("locks.get_for_update", scope=scope)
    assert row is not None
    return rows.lock_from(row)


def take(
    session: Session,
    lock: Lock,
    fence: int,
    worker_id: str | None,
    run_id: str | None,
    now_ms: int,
    lease_until_ms: int,
) -> None:
    taken = session.one(
        "locks.take",
        scope=lock.scope,
        seen_fence=lock.fence,
        fence=fence,
        worker_id=worker_id,
        run_id=run_id,
        acquired_at_ms=now_ms,
        lease_until_ms=lease_until_ms,
    )
    assert taken is not None, "the lock's row is ours inside this transaction"


def free(session: Session, lock: Lock, now_ms: int) -> None:
    """Free the lock. The fence grows, so whatever the last holder still tries is refused."""
    take(session, lock, lock.fence + 1, None, None, now_ms, 0)


def runs_under(session: Session, lock: Lock) -> list[str]:
    """The runs that a lock is held for: its holder's, then those that are promoted together with it."""
    assert lock.holder is not None
    own = lock.holder.run_id
    if lock.scope.startswith(PIPELINES):
        return [own]
    beside = [row[0] for row in session.all("runs.beside", run_id=own, fence=lock.fence)]
    # The fence of another scope may be the same number.
    others = {row[3] for row in session.all("locks.held")} if beside else set()
    return [own, *(run_id for run_id in beside if run_id not in others)]


def evict(
    session: Session,
    lock: Lock,
    now_ms: int,
    journal: Journal,
    run_ids: Sequence[str] | None = None,
    heirs: Collection[str] = (),
) -> list[Reaped]:
    """Fail the runs of a holder that is gone; without those that are not its runs any more.

    `run_ids`: which they were before `heirs`, the runs that take the lock, began: of those that are among
    them only the earlier attempt ends."""
    assert lock.holder is not None
    lapsed, reaped = not holds(lock.lease_until_ms, now_ms), []
    for run_id in runs_under(session, lock) if run_ids is None else run_ids:
        code, reason = LEASE_EXPIRED if lapsed else WORKER_DIED, GONE
        cancelled = session.one("requests.cancelled", run_id=run_id)
        if cancelled is not None:  # its process was told to stop, and did
            code, reason = CANCELLED, str(cancelled[0])
        if not fail_run(session, lock, run_id, code, reason, now_ms, journal, is_taken_over=run_id in heirs):
            continue
        if cancelled is not None:
            session.all("requests.end_cancelled", run_id=run_id, ended_at_ms=now_ms)
        reaped.append(Reaped(run_id=run_id, scope=lock.scope, worker_id=lock.holder.worker_id, lapsed=lapsed))
    return reaped


def fail_run(
    session: Session,
    lock: Lock,
    run_id: str,
    code: str,
    message: str,
    now_ms: int,
    journal: Journal,
    error_class: str = "lease",
    *,
    retryable: bool = True,
    is_taken_over: bool = False,
) -> bool:
    """Fail a run that a lock is held for, without a word from its process.

    False if the run went on under a lock of another scope: what is under way there stays open."""
    landed = session.one(
        "runs.fail",
        run_id=run_id,
        fence=lock.fence,
        end_time_ms=now_ms,
        error_code=code,
        error_message=message,
    )
    goes_on = landed is None and not is_taken_over and not lock.scope.startswith(PIPELINES)
    ended = "invocations.interrupt_earlier" if goes_on else "invocations.interrupt"
    session.all(ended, run_id=run_id, reason=message, reason_code=code)
    if goes_on:
        return False
    lone = lone_node(lock.scope)
    journal.abandon(session, run_id, code, message, now_ms, lone, error_class, retryable=retryable)
    return True


def lone_node(scope: str) -> str:
    """The node that is at work under this lock by itself, while others of its run may be, too."""
    return scope.removeprefix("node:").rpartition("@")[0] if scope.startswith("node:") else ""


def sweep(session: Session, now_ms: int, dead: Dead, journal: Journal) -> tuple[list[Reaped], list[Lock]]:
    """Evict every holder that is gone; returns the runs that this ended, and the locks still held."""
    reaped: list[Reaped] = []
    live = []
    for lock in (rows.lock_from(row) for row in session.all("locks.held")):
        if is_gone(lock, now_ms, dead):
            lock = lock_for_update(session, lock.scope)  # it may have changed hands before we had it
        if lock.holder is None:
            continue
        if not is_gone(lock, now_ms, dead):
            live.append(lock)
            continue
        reaped += evict(session, lock, now_ms, journal)
        free(session, lock, now_ms)
    return reaped, live
