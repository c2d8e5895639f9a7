"""Promotion: the version, the pointer, the run's success and the lock's release in one transaction."""

from __future__ import annotations

from kfm.db import dataset_changes, derived, governance, node_branches, quarantine, requests, rows
from kfm.db.incidents import IncidentKeeper
from kfm.db.outbox import Journal
from kfm.db.session import Session
from kfm.db.versions import MadeVersion, StagedVersion, insert_version, placed
from kfm.model.run_state import MAIN
from kfm.model.runs import Promote, PromoteResult


class Undo(Exception):
    """Roll back, and answer this."""

    def __init__(self, answer: PromoteResult) -> None:
        super().__init__(answer.answer)
        self.answer = answer


def promote(
    session: Session, request: Promote, staged: StagedVersion | None, journal: Journal
) -> PromoteResult:
    """`staged`: the version, as it is stored."""
    row = session.one("locks.get_for_update", scope=request.scope)
    lock = rows.lock_from(row) if row else None
    ours = (
        lock is not None
        and lock.fence == request.fence
        and lock.holder is not None
        and lock.holder.run_id == (request.holder or request.run_id)
    )
    if not ours:
        return PromoteResult(answer="lost")
    if governance.held_epoch(session) != request.policy_epoch:
        return PromoteResult(answer="epoch-moved")
    head = session.one("promotions.head", dataset_id=request.dataset_id)
    sequence = rows.promotion_from(head).sequence if head else 0
    if sequence != request.base_sequence:
        return PromoteResult(answer="head-moved", sequence=sequence)
    if staged is not None and dataset_changes.is_withdrawn(session, request.dataset_id, staged):
        return PromoteResult(answer="withdrawn", sequence=sequence)
    if request.window_length is not None and not _keep_length(session, *request.window_length):
        return PromoteResult(answer="rewindowed", sequence=sequence)
    now_ms, every_one = session.now_ms(), (request, *request.together)
    for one in every_one:
        _succeed(session, one, now_ms)
    if staged is not None:
        sequence += 1
        made_by = MadeVersion(
            request.dataset_id,
            sequence,
            request.version_id,
            request.run_id,
            request.fence,
            request.policy_epoch,
        )
        if not insert_version(session, made_by, staged, now_ms):
            # A run with a lock of another scope promoted between our look and our row.
            raise Undo(PromoteResult(answer="head-moved"))
    session.all("locks.release", scope=request.scope, fence=request.fence)
    late = journal.watch.late()
    for one in every_one:
        _end(session, one, now_ms, journal, late)
    entries = [
        placed(entry, sequence, request.policy_epoch, now_ms) for one in every_one for entry in one.entries
    ]
    late.settle()
    governance.append(session, entries)  # last: the head of the chain is one row for all
    return PromoteResult(answer="promoted" if request.version is not None else "unchanged", sequence=sequence)


def _succeed(session: Session, request: Promote, now_ms: int) -> None:
    """The run has succeeded, and its requests have their answer; nothing of all this, where it is not ours
    any more or was cancelled."""
    succeeded = session.one(
        "runs.succeed",
        run_id=request.run_id,
        fence=request.fence,
        end_time_ms=now_ms,
        fingerprint=request.fingerprint,
        version_id=request.version_id,
        outcome=request.outcome,
    )
    if succeeded is None:
        raise Undo(PromoteResult(answer="lost"))  # taken over under another scope
    answered = requests.end_with_run(session, request.run_id, "success", request.reason, now_ms)
    if request.request_id not in answered and requests.is_cancelled(session, request.request_id):
        raise Undo(PromoteResult(answer="cancelled"))


def _end(session: Session, request: Promote, now_ms: int, journal: Journal, watch: IncidentKeeper) -> None:
    session.all(
        "invocations.finish",
        run_id=request.run_id,
        invocation_id=request.invocation_id,
        outcome="success",
        reason=rows.storable(request.reason),
        reason_code=request.reason_code,
        gates=rows.gates_text(request.gates),
    )
    _keep_what_it_learned(session, request, now_ms)
    if request.branch is not None:
        node_branches.promoted(session, request.branch, MAIN, run_id=request.run_id, author="kfm")
    row = session.one("runs.by_id", run_id=request.run_id)
    assert row is not None
    run = rows.run_from(row)
    derived.pin(session, run, request.inputs)
    journal.end(session, request.closes, request.retries, run, now_ms)
    quarantine.succeeded(session, request.run_id, now_ms)
    watch.succeeded(session, run, now_ms, is_there=request.outcome != "absent")


def _keep_length(session: Session, source_id: str, length: str) -> bool:
    """The length of a source's windows is on record with its first version; False: it is another one by
    now."""
    session.all("window_rules.ensure", source_id=source_id, window_length=length)
    row = session.one("window_rules.get", source_id=source_id)
    return row is not None and row[0] == length


def _keep_what_it_learned(session: Session, request: Promote, now_ms: int) -> None:
    """For the next run of the dataset, and for listeners."""
    for key, value in request.states:
        session.all(
            "states.set",
            dataset_id=request.dataset_id,
            state_key=key,
            value=rows.text_of(value),
            run_id=request.run_id,
        )
    for event_type, payload in request.events:
        session.all(
            "events.append",
            run_id=request.run_id,
            dataset_id=request.dataset_id,
            event_type=event_type,
            payload=rows.text_of(payload),
            emitted_at_ms=now_ms,
        )
