"""Wishes that need a second person, and what his yes lets happen."""

from __future__ import annotations

from typing import Any

import msgspec

from kfm.core.commits import Approve
from kfm.core.holding import Approval
from kfm.store import holding, retry_states, rows
from kfm.store.session import Row, Session

_FIELDS = Approval.__struct_fields__


def approval_from(row: Row) -> Approval:
    return rows.converted(_FIELDS, row, Approval)


def approval_parameters(approval: Approval) -> dict[str, Any]:
    free = ("requested_by", "rationale", "ticket", "approved_by", "approval_rationale")
    return rows.with_storable(msgspec.structs.asdict(approval), free)


def release(session: Session, request: Approve) -> bool:
    """Approve the release of what is held and carry it out; False if anything is not as it was asked for."""
    from kfm.core.giving_up import release_digest  # late: those who only read need it not

    row = session.one("held.get_for_update", held_id=request.held_id)
    if row is None or release_digest(holding.held_from(row)) != request.digest:
        return False
    now_ms = session.now_ms()
    approved = session.one(
        "approvals.approve",
        request_id=request.request_id,
        digest=request.digest,
        approved_by=rows.storable(request.approved_by),
        approved_at_ms=now_ms,
        approval_rationale=rows.storable(request.rationale),
    )
    if approved is None:
        return False
    session.one(
        "held.release",
        held_id=request.held_id,
        released_at_ms=now_ms,
        released_by=rows.storable(request.approved_by),
    )
    retry_states.put(session, request.grant)
    from kfm.store import governance  # late: those who only read need it not

    governance.append(session, request.entries)
    return True
