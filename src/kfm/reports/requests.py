"""Requests for an update as documents, with the announced objects that they gather."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kfm.model.quantities import instant
from kfm.model.requests import AnnouncedObject, UpdateRequest

if TYPE_CHECKING:
    from kfm.db.requests import RequestReader

OBJECTS_MAX = 1000  # of one document
NAMED_MAX = 20  # of one text


def request_document(request: UpdateRequest) -> dict[str, Any]:
    """What was asked for, by whom, and what became of it."""
    return {
        "request_id": request.request_id,
        "kind": request.kind,
        "state": request.state,
        "blocked_by": request.blocked_by,
        "source_id": request.source_id,
        "dataset_id": request.dataset_id,
        "window_start": instant(request.window_start_ms),
        "window_end": instant(request.window_end_ms),
        "actor": request.actor,
        "by_person": request.by_person,
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
        "members": request.members,
        "details": request.details,
    }


def shown_request(reader: RequestReader, request: UpdateRequest) -> dict[str, Any]:
    """The document of a request, with its objects."""
    return {**request_document(request), "objects": reader.announced([request], OBJECTS_MAX)}


def named(objects: Sequence[AnnouncedObject], count: int) -> str:
    """The names of the first objects of so many, and how many more there are."""
    names = ", ".join(one.name for one in objects[:NAMED_MAX])
    more = count - min(len(objects), NAMED_MAX)
    return f"{names} and {more} more" if more > 0 else names
