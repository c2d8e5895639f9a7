"""Requests for an update as documents."""

from __future__ import annotations

from typing import Any

from kfm.model.quantities import instant
from kfm.model.requests import UpdateRequest


def request_document(request: UpdateRequest) -> dict[str, Any]:
    """What was asked for, by whom, and what became of it."""
    return {
        "request_id": request.request_id,
        "kind": request.kind,
        "state": request.state,
        "source_id": request.source_id,
        "dataset_id": request.dataset_id,
        "window_start": instant(request.window_start_ms),
        "window_end": instant(request.window_end_ms),
        "actor": request.actor,
        "claimed_actor": request.claimed_actor,
        "rationale": request.rationale,
        "ticket": request.ticket,
        "correction": request.correction,
        "accepted_at": instant(request.accepted_at_ms),
        "not_before": instant(request.not_before_ms or None),
        "schedule_id": request.schedule_id,
        "instant": instant(request.instant_ms),
        "request_uuid": request.request_uuid,
        "envelope_hash": request.envelope_hash,
        "needs_approval": request.needs_approval,
        "plan_digest": request.plan_digest,
        "run_id": request.run_id,
        "outcome": request.outcome,
        "reason": request.reason,
        "tries": request.tries,
        "cancelling": request.cancel,
        "ended_at": instant(request.ended_at_ms),
        "details": request.details,
    }
