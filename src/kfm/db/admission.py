"""Admission: key, gate decision and lock in one transaction."""

from __future__ import annotations

from msgspec.structs import replace

from kfm.db import approvals, governance, leases, quarantine, requests, rows
from kfm.db.outbox import Journal
from kfm.db.session import Session
from kfm.model.contracts import check_transition
from kfm.model.records import Run
from kfm.model.runs import Admit, AdmitResult


class Undo(Exception):
    """Roll back, and answer this."""

    def __init__(self, answer: AdmitResult) -> None:
        super().__init__(answer.answer)
        self.answer = answer


def admit(session: Session, request: Admit, dead: leases.Dead, journal: Journal) -> AdmitResult:
    # Always in this order, so that two transactions never wait for each other: the collector's
    # lock, locks of datasets and domains by name, the policy epoch, everything else.
    now_ms = session.now_ms()
    collector = session.one("locks.get_for_share", scope=leases.COLLECTOR)
    assert collector is not None, "the first migration makes it"
    lock = leases.lock_for_update(session, request.scope)
    if governance.held_epoch(session) != request.policy_epoch:
        return AdmitResult(answer="epoch-moved")
    collecting = rows.lock_from(collector)
    for held in (lock, collecting):
        if held.holder is not None and not leases.is_gone(held, now_ms, dead):
            return AdmitResult(answer="locked", lock=held)
    if collecting.holder is not None:
        leases.free(session, collecting, now_ms)  # should it wake up, its fence is outdated
    every_one = (request, *request.together)
    for one in every_one:
        if not approvals.is_usable(session, one.approval, now_ms):
            return AdmitResult(answer="moved")
        if not requests.hold(session, one.claim):
            return AdmitResult(answer="unclaimed")
        if _is_judged_anew(session, one):
            return AdmitResult(answer="moved", run=_in_the_way(session, one.run))
    was_for = leases.runs_under(session, lock) if lock.holder is not None else []
    # Above the runs' own fences, too: their scope may have been another one last time.
    fence = max(lock.fence, *(one.seen.fence if one.seen else 0 for one in every_one)) + 1
    begun = [_stored(session, one, fence) for one in every_one]
    if lock.holder is not None:
        leases.evict(session, lock, now_ms, journal, was_for, {one.run_id for one in begun})
    leases.take(
        session, lock, fence, request.worker_id, request.run.run_id, now_ms, now_ms + request.lease_ms
    )
    for one, stored in zip(every_one, begun, strict=True):
        _begin(session, one, stored, now_ms, journal)
    governance.append(session, [entry for one in every_one for entry in one.entries])
    return AdmitResult(answer="admitted", run=begun[0], together=tuple(begun[1:]))


def _stored(session: Session, request: Admit, fence: int) -> Run:
    stored = _store_run(session, replace(request.run, fence=fence), request.seen)
    if stored is None:
        raise Undo(AdmitResult(answer="moved", run=_in_the_way(session, request.run)))
    return stored


def _begin(session: Session, request: Admit, stored: Run, now_ms: int, journal: Journal) -> None:
    requests.begun(session, request.claim, stored.run_id)
    if request.asked is not None:
        requests.accept(session, [request.asked])
    requests.keep_preview(session, request.plan)
    session.all("invocations.insert", **rows.invocation_parameters(request.invocation))
    if request.seen is None:
        session.send("run_documents.insert", run_id=stored.run_id, documents=_kept(request))
    else:
        journal.abandon(session, stored.run_id, leases.LEASE_EXPIRED, leases.GONE, now_ms)
    journal.admitted(session, request, stored, now_ms)
    quarantine.put_retry_state(session, request.grant)
    approvals.use(session, request.approval, stored.run_id, stored.attempts, now_ms)


def _is_judged_anew(session: Session, request: Admit) -> bool:
    """Has the last attempt ended, or was something else decided about it, meanwhile? The next may have been
    promised for later: then nothing begins before its time. Locks the run's row, as who decides does."""
    seen = request.seen
    if seen is None:
        return False
    has_failed = session.one("runs.ended", run_id=seen.run_id, attempts=seen.attempts) is not None
    if not has_failed or seen.status != "failed":
        return has_failed != (seen.status == "failed")
    row = session.one("retry_states.get", run_id=seen.run_id)
    return (quarantine.state_from(row) if row else None) != request.judged


def _kept(request: Admit) -> str:
    """What later attempts tell of the first: the document of the run's key, its envelope, what asked."""
    documents = {name: one for name, one in request.known.key_documents.items() if name != "work"}
    first = {"type": request.invocation.trigger_type, "actor": request.invocation.actor}
    return rows.prose_of({**documents, "first": first})


def _in_the_way(session: Session, run: Run) -> Run | None:
    """The row that has this run's id, or one of its keys."""
    row = (
        session.one("runs.by_id", run_id=run.run_id)
        or session.one("runs.by_key", idempotency_key=run.idempotency_key)
        or session.one("runs.latest_of_work", work_base=run.work_base)
    )
    return rows.run_from(row) if row else None


def _store_run(session: Session, run: Run, seen: Run | None) -> Run | None:
    """Insert a new run, or restart the one that was seen; None if the world has moved."""
    if seen is None:
        if run.status != "running":  # what the table of states says; reading it costs more than this does
            check_transition("run", None, run.status, "started")
        return run if session.one("runs.insert", **rows.run_parameters(run)) else None
    check_transition("run", seen.status, run.status, "retried" if seen.status == "failed" else "taken_over")
    landed = session.one(
        "runs.restart",
        run_id=run.run_id,
        attempts=run.attempts,
        fence=run.fence,
        seen_fence=seen.fence,
        seen_attempts=seen.attempts,
    )
    return run if landed else None
