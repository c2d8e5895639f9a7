"""Promotion: the version, the pointer, the run's success and the lock's release in one transaction."""

from __future__ import annotations

from msgspec.structs import replace

from kfm.db import derived, governance, node_branches, quarantine, requests, rows
from kfm.db.outbox import Journal
from kfm.db.session import Session
from kfm.model.records import GovernanceEntry
from kfm.model.run_state import MAIN
from kfm.model.runs import Promote, PromoteResult


class Undo(Exception):
    """Roll back, and answer this."""

    def __init__(self, answer: PromoteResult) -> None:
        super().__init__(answer.answer)
        self.answer = answer


def promote(session: Session, request: Promote, journal: Journal) -> PromoteResult:
    row = session.one("locks.get_for_update", scope=request.scope)
    lock = rows.lock_from(row) if row else None
    ours = (
        lock is not None
        and lock.fence == request.fence
        and lock.holder is not None
        and lock.holder.run_id == request.run_id
    )
    if not ours:
        return PromoteResult(answer="lost")
    if governance.held_epoch(session) != request.policy_epoch:
        return PromoteResult(answer="epoch-moved")
    head = session.one("promotions.head", dataset_id=request.dataset_id)
    sequence = rows.promotion_from(head).sequence if head else 0
    if sequence != request.base_sequence:
        return PromoteResult(answer="head-moved", sequence=sequence)
    now_ms = session.now_ms()
    succeeded = session.one(
        "runs.succeed",
        run_id=request.run_id,
        fence=request.fence,
        end_time_ms=now_ms,
        fingerprint=request.fingerprint,
        version_id=request.version_id,
    )
    if succeeded is None:
        return PromoteResult(answer="lost")  # taken over under another scope
    answered = requests.end_with_run(session, request.run_id, "success", request.reason, now_ms)
    if request.request_id not in answered and requests.is_cancelled(session, request.request_id):
        raise Undo(PromoteResult(answer="cancelled"))
    if request.manifest is not None:
        sequence += 1
        _insert_version(session, request, sequence, now_ms)
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
    session.all("locks.release", scope=request.scope, fence=request.fence)
    row = session.one("runs.by_id", run_id=request.run_id)
    assert row is not None
    run = rows.run_from(row)
    derived.pin(session, run, request.inputs)
    journal.end(session, request.closes, request.retries, run, now_ms)
    quarantine.succeeded(session, request.run_id, now_ms)
    journal.watch.succeeded(session, run, now_ms)
    placed = [_placed(entry, sequence, request.policy_epoch, now_ms) for entry in request.entries]
    governance.append(session, placed)  # last: the head of the chain is one row for all
    return PromoteResult(
        answer="promoted" if request.manifest is not None else "unchanged", sequence=sequence
    )


def _placed(entry: GovernanceEntry, sequence: int, policy_epoch: int, now_ms: int) -> GovernanceEntry:
    """What the version was given in this transaction, in the chain, too: else its row could tell another."""
    if entry.kind != "promotion":
        return entry
    details = {**entry.details, "sequence": sequence, "policy_epoch": policy_epoch}
    return replace(entry, recorded_at_ms=now_ms, details=details)


def _insert_version(session: Session, request: Promote, sequence: int, now_ms: int) -> None:
    session.all(
        "versions.insert",
        version_id=request.version_id,
        dataset_id=request.dataset_id,
        manifest=rows.text_of(request.manifest),
    )
    landed = session.one(
        "promotions.insert",
        dataset_id=request.dataset_id,
        sequence=sequence,
        version_id=request.version_id,
        run_id=request.run_id,
        fence=request.fence,
        policy_epoch=request.policy_epoch,
        promoted_at_ms=now_ms,
    )
    if landed is None:
        # A run with a lock of another scope promoted between our look and our row.
        raise Undo(PromoteResult(answer="head-moved"))


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
