"""Explains a request: what asked for it (a schedule, a webhook, a person), and who approved it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfm.model.records import Run
from kfm.model.requests import UpdateRequest
from kfm.model.wording import counted, moment, span
from kfm.reports.explain.sentences import Explanation, Sentence, of_request, of_run, stopped

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader

SHOWN_MAX = 5
_STATES = {
    "open": "waits",
    "running": "is running",
    "awaiting-approval": "waits for an approval",
    "cancelled": "was cancelled",
}
_ENDED = {
    "success": "was done",
    "noop": "found nothing to do",
    "failed": "failed",
    "refused": "was refused",
}


def requested(ledger: LedgerReader, run: Run) -> list[Sentence]:
    """The requests that a run answered, the oldest first. A run that a person started has none."""
    found = ledger.request_reader().of_run(run.run_id, SHOWN_MAX + 1)
    sentences = [each for one in found[:SHOWN_MAX] for each in (_asked(one), *_agreed(ledger, one))]
    if len(found) > SHOWN_MAX:
        more = "Further requests were answered with it"
        sentences.append(of_run(f"{more}: `kfm requests list --source {run.source_id}`.", run))
    return sentences


def explain_request(ledger: LedgerReader, request: UpdateRequest, run: Explanation | None) -> Explanation:
    """Why a request is in its state; then what led to it, and the explanation of its run."""
    name = f"Request {request.request_id}"
    how = _STATES.get(request.state) or _ENDED.get(request.outcome or "", "has ended")
    why = f"{how}: {stopped(request.reason or 'no reason is recorded')}"
    if request.outcome == "success" and request.run_id is not None:
        why = f"{how}, by run {request.run_id}."  # the reason that is on record is why the run began
    chain = [_asked(request), *_agreed(ledger, request)]
    if request.tries > 1:
        chain.append(of_request(f"It was taken up {counted(request.tries, 'time')}.", request))
    if run is not None:
        chain += [run.reason, *(each for each in run.chain if each.record.id != request.request_id)]
    elif request.run_id is None:
        chain.append(of_request("No evidence of a run that answered it.", request))
    return Explanation(
        kind="request",
        id=request.request_id,
        reason=of_request(f"{name} {why}", request),
        chain=tuple(chain),
    )


def _asked(request: UpdateRequest) -> Sentence:
    """Who or what asked, when, and for which window."""
    window = span(request.window_start_ms, request.window_end_ms)
    by = request.actor
    if request.kind == "cron" and request.instant_ms is not None:
        by = f"the scheduled time {moment(request.instant_ms)} of schedule {request.schedule_id}"
    elif request.kind == "webhook":
        scheme = request.details.get("scheme")
        signed = f", signed in the way of {scheme}" if scheme else ""
        by = f"{request.actor}{signed}, as {request.request_uuid}"
    claimed = request.claimed_actor if request.kind != "cron" else None
    beside = f" on behalf of {claimed} (a claim)" if claimed else ""
    said = f"It was asked for by request {request.request_id}, accepted at {moment(request.accepted_at_ms)}"
    return of_request(f"{said} from {by}{beside}, for {window}.", request)


def _agreed(ledger: LedgerReader, request: UpdateRequest) -> list[Sentence]:
    """Who approved its preview, if that had to be."""
    if not request.needs_approval:
        return []
    asked = ledger.approvals(subject=request.request_id, limit=1)
    if asked and asked[0].rejected_at_ms is not None:
        one = asked[0]
        when = f"at {moment(one.rejected_at_ms or 0)} ({one.rejection_rationale})"
        text = f"{one.rejected_by} rejected its preview {one.digest} {when}: approval {one.request_id}."
        return [of_request(text, request)]
    if not asked or asked[0].approved_by is None:
        return [of_request("No evidence of an approval of its preview.", request)]
    one = asked[0]
    when = f"at {moment(one.approved_at_ms or 0)} ({one.approval_rationale})"
    text = f"{one.approved_by} approved its preview {one.digest} {when}: approval {one.request_id}."
    return [of_request(text, request)]
