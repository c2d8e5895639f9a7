"""Approval requests, and their effect once approved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from kfm.db import quarantine, rows
from kfm.db.session import Row, Session
from kfm.model.errors import NotApproved
from kfm.model.quarantine import Approval
from kfm.model.records import GovernanceEntry, Lock
from kfm.model.runs import Approve, ApproveResult, Reject

if TYPE_CHECKING:
    from kfm.db.incidents import IncidentKeeper

SAME_MAX = 100  # requests about one subject that are looked through
_FIELDS = Approval.__struct_fields__
_FREE = (
    "requested_by",
    "rationale",
    "ticket",
    "approved_by",
    "approval_rationale",
    "about",
    "rejected_by",
    "rejection_rationale",
    "revoked_by",
    "revocation_rationale",
)


def approval_from(row: Row) -> Approval:
    values = dict(zip(_FIELDS, row, strict=True))
    values["requested_names"] = rows.value_of(values["requested_names"])
    return rows.converted(_FIELDS, tuple(values.values()), Approval)


def approval_parameters(approval: Approval) -> dict[str, Any]:
    parameters = rows.with_storable(msgspec.structs.asdict(approval), _FREE)
    parameters["requested_names"] = rows.prose_of(list(approval.requested_names))
    return parameters


def same_waiting(session: Session, approval: Approval) -> Approval | None:
    """A request for exactly the same that waits for an approval."""
    found = session.all(
        "approvals.of_subject", state="requested", subject=approval.subject, row_limit=SAME_MAX
    )
    same = (
        one
        for one in map(approval_from, found)
        if (one.kind, one.digest, one.status) == (approval.kind, approval.digest, "requested")
    )
    return next(same, None)


def start_waiting(session: Session, approval: Approval, watch: IncidentKeeper) -> None:
    """A second person is asked: the one place where an approval begins to wait."""
    session.all("approvals.insert", **approval_parameters(approval))
    if approval.dataset_id is not None:
        watch.approval_waiting(session, approval, session.now_ms())


def end_waiting(session: Session, request_id: str, watch: IncidentKeeper) -> None:
    """It waits no more: approved, rejected, superseded, or its request was cancelled."""
    watch.approval_decided(session, request_id, session.now_ms())


def approve(session: Session, request: Approve, watch: IncidentKeeper) -> ApproveResult:
    """Approve and carry out; nothing happens if anything is not as it was asked for."""
    from kfm.model.roles import is_same_person  # late: readers do not need it

    now_ms, by = session.now_ms(), rows.storable(request.approved_by)
    if request.held_id is not None:
        refused = _not_as_asked(session, request, request.held_id, now_ms)
        if refused is not None:
            return refused
    row = session.one("approvals.get_for_update", request_id=request.request_id)
    asked = approval_from(row) if row else None
    agrees = (by, *(rows.storable(name) for name in request.names))
    if asked is None or is_same_person(asked.requested_by, asked.requested_names, agrees):
        return ApproveResult(answer="moved")
    landed = session.one(
        "approvals.approve",
        request_id=request.request_id,
        digest=request.digest,
        approved_by=by,
        approved_at_ms=now_ms,
        approval_rationale=rows.storable(request.rationale),
        expires_at_ms=now_ms + request.valid_ms if request.valid_ms is not None else None,
    )
    if landed is None:
        return ApproveResult(answer="moved")
    late = watch.late()
    end_waiting(session, request.request_id, late)
    if request.update is not None:
        _let_run(session, request.update, request.digest, by)
    if request.held_id is not None:
        row = session.one("held.get_for_update", held_id=request.held_id)
        assert row is not None, "it was there a moment ago, and is held since"
        session.one("held.release", held_id=request.held_id, released_at_ms=now_ms, released_by=by)
        late.ended(session, quarantine.held_from(row).subject, now_ms)
    quarantine.put_retry_state(session, request.grant)
    if request.revived is not None:
        session.all("requests.revive", request_id=request.revived, reason=f"Released by {by}.")
    from kfm.db import governance  # late: readers do not need it

    late.settle()
    governance.append(session, request.entries)
    return ApproveResult(answer="approved")


def reject(session: Session, request: Reject, watch: IncidentKeeper) -> bool:
    """Reject what was asked for; False: it was approved or rejected meanwhile, or is the asker's own."""
    from kfm.model.roles import is_same_person  # late: readers do not need it

    now_ms, by = session.now_ms(), rows.storable(request.rejected_by)
    row = session.one("approvals.get_for_update", request_id=request.request_id)
    asked = approval_from(row) if row else None
    rejects = (by, *(rows.storable(name) for name in request.names))
    if asked is None or is_same_person(asked.requested_by, asked.requested_names, rejects):
        return False
    landed = session.one(
        "approvals.reject",
        request_id=request.request_id,
        rejected_by=by,
        rejected_at_ms=now_ms,
        rejection_rationale=rows.storable(request.rationale),
    )
    if landed is None:
        return False
    if request.update is not None:
        # One that was cancelled meanwhile stays as it is.
        session.one(
            "requests.rejected",
            request_id=request.update,
            reason=rows.storable(f"Rejected by {by}: {request.rationale}"),
            ended_at_ms=now_ms,
        )
        # Its approval was told of until now; from now on it is a window without data.
        session.all("overdue_marks.lower_request", request_id=request.update)
    from kfm.db import governance  # late: readers do not need it

    end_waiting(session, request.request_id, watch)
    governance.append(session, request.entries)
    return True


def revoke(
    session: Session, request_id: str, by: str, rationale: str, entries: Sequence[GovernanceEntry]
) -> bool:
    """End an approval before its time; False: it was used up or revoked meanwhile. What is under way and was
    begun under it is decided on anew before it is promoted, so the epoch moves."""
    from kfm.db import governance  # late: readers do not need it

    governance.advance_epoch(session)
    landed = session.one(
        "approvals.revoke",
        request_id=request_id,
        revoked_by=rows.storable(by),
        revoked_at_ms=session.now_ms(),
        rationale=rows.storable(rationale),
    )
    if landed is None:
        return False
    governance.append(session, entries)
    return True


def supersede(session: Session, subject: str, by: str, watch: IncidentKeeper) -> list[str]:
    """The undecided approvals of a request's preview, ended by a newer preview or with their request."""
    found = [row[0] for row in session.all("approvals.supersede", subject=subject, superseded_by=by)]
    for request_id in found:
        end_waiting(session, request_id, watch)
    return found


def _let_run(session: Session, request_id: str, digest: str, by: str) -> None:
    reason = f"Approved by {by}."
    if not session.one("requests.approved", request_id=request_id, plan_digest=digest, reason=reason):
        raise NotApproved("The request does not wait for this approval any more.")


def _not_as_asked(session: Session, request: Approve, held_id: str, now_ms: int) -> ApproveResult | None:
    """First the run, then what is held of it: the order in which a run's end takes them."""
    from kfm.model.quarantine import release_digest  # late: readers do not need it

    grant = request.grant
    if grant is not None and not session.one("runs.ended", run_id=grant.run_id, attempts=grant.attempt):
        lock = _live_lock(session, grant.run_id, now_ms)
        return ApproveResult(answer="busy", lock=lock) if lock is not None else ApproveResult(answer="moved")
    row = session.one("held.get_for_update", held_id=held_id)
    if row is None or release_digest(quarantine.held_from(row)) != request.digest:
        return ApproveResult(answer="moved")
    return None


def _live_lock(session: Session, run_id: str, now_ms: int) -> Lock | None:
    from kfm.db import leases  # late: readers do not need it

    return leases.live(session, lambda lock: lock.holder is not None and lock.holder.run_id == run_id, now_ms)


def is_usable(session: Session, approval: tuple[str, str] | None, now_ms: int) -> bool:
    """May an attempt begin with this approval? Held from here to the end of the transaction."""
    if approval is None:
        return True
    request_id, digest = approval
    return session.one("approvals.usable", request_id=request_id, digest=digest, now_ms=now_ms) is not None


def use(session: Session, approval: tuple[str, str] | None, run_id: str, attempt: int, now_ms: int) -> None:
    """One approval, one attempt; each use of one that is for more is kept."""
    if approval is None:
        return
    used = session.one(
        "approvals.use", request_id=approval[0], used_by=run_id, used_attempt=attempt, used_at_ms=now_ms
    )
    assert used is not None, "the approval's row is ours inside this transaction"
    if used[0] in ("update", "standing"):
        session.all("approval_uses.add", request_id=approval[0], run_id=run_id, attempt=attempt, at_ms=now_ms)
