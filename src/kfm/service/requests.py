"""Cancellation of requests by a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfm.model.errors import UsageError
from kfm.model.records import governance_entry, justified
from kfm.model.requests import UpdateRequest

if TYPE_CHECKING:
    from kfm.app import App


def cancel_request(
    app: App,
    request: UpdateRequest,
    *,
    rationale: str,
    ticket: str | None = None,
    claimed_actor: str | None = None,
) -> UpdateRequest:
    """Cancel a request: one that waits never begins, one that runs is asked to stop. Its state afterwards."""
    store = app.kernel.store
    by = justified(app.loaded.discretion.said, app.actor, rationale, ticket, claimed_actor)
    entry = governance_entry(
        "request-cancelled",
        request.dataset_id,
        store.now_ms(),
        by,
        request_id=request.request_id,
        source_id=request.source_id,
        dataset_id=request.dataset_id,
    )
    requests = store.requests()
    if not requests.cancel(request.request_id, f"Cancelled by {app.actor}: {by.rationale}", entry):
        raise UsageError(
            f"Request {request.request_id} has ended: {request.outcome or request.state}.",
            remedy="Nothing is left to cancel.",
        )
    return requests.request(request.request_id) or request
