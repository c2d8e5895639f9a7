"""What a person does about requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfm.model.errors import UsageError
from kfm.model.records import GovernanceEntry
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
    """What waits never begins, what runs is told to stop; as it stands then."""
    store, said = app.kernel.store, app.loaded.discretion.said
    entry = GovernanceEntry(
        kind="request-cancelled",
        subject=request.dataset_id,
        actor=app.actor,
        recorded_at_ms=store.now_ms(),
        rationale=said(rationale),
        ticket=ticket and said(ticket),
        details={
            "request_id": request.request_id,
            "source_id": request.source_id,
            "dataset_id": request.dataset_id,
            "claimed_actor": claimed_actor and said(claimed_actor),
        },
    )
    requests = store.requests()
    if not requests.cancel(request.request_id, f"Cancelled by {app.actor}: {said(rationale)}", entry):
        raise UsageError(
            f"Request {request.request_id} has ended: {request.outcome or request.state}.",
            remedy="Nothing is left to cancel.",
        )
    return requests.request(request.request_id) or request
