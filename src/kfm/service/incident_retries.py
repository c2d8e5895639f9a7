"""One more attempt at all that an incident affects: requests for its failed runs, in one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfm.model import keys
from kfm.model.errors import UsageError
from kfm.model.incidents import Incident
from kfm.model.records import Justification, Record, Run, governance_entry
from kfm.model.requests import UpdateRequest
from kfm.runs.retry import require_retriable

if TYPE_CHECKING:
    from kfm.app import App

RETRY_TAG = "incident-retry/1"
RUNS_MAX = 1_000  # of one decision


class PassedOver(Record, frozen=True):
    """A subject of the incident that is not retried, and why."""

    subject: str
    why: str


class RetriedIncident(Record, frozen=True):
    """What was requested. A request that was made before for the same attempt is the same one."""

    requests: tuple[UpdateRequest, ...]
    passed_over: tuple[PassedOver, ...]


def retry_incident(app: App, incident: Incident, by: Justification, *, by_person: bool) -> RetriedIncident:
    """Each run that failed and can be retried gets a request; the decision is one entry of the audit log."""
    wanted, passed_over = [], []
    for subject in app.ledger.incident_subjects(incident.cause, RUNS_MAX):
        run = app.ledger.run(subject)
        why = "it is no run: it comes back by itself, by a release or by a replay" if run is None else ""
        if run is not None:
            why = _refusal(app, run)
        if run is None or why:
            passed_over.append(PassedOver(subject=subject, why=why))
        else:
            wanted.append(_request(app, run, incident, by, by_person=by_person))
    if not wanted:
        first = f" {passed_over[0].subject}: {passed_over[0].why}." if passed_over else ""
        raise UsageError(
            f"Nothing that it affects can be retried.{first}",
            remedy=f"kfm incident show {incident.incident_id}",
        )
    entry = governance_entry(
        "update-requested",
        f"{incident.about}:{incident.name}",
        app.writer.now_ms(),
        by,
        incident_id=incident.incident_id,
        request_ids=[one.request_id for one in wanted],
    )
    known = app.writer.requests().accept(wanted, entry)
    made = tuple(found or one for found, one in zip(known, wanted, strict=True))
    return RetriedIncident(requests=made, passed_over=tuple(passed_over))


def _refusal(app: App, run: Run) -> str:
    if run.status != "failed":
        return "it has succeeded" if run.status == "success" else "it is running"
    sync = app.settings.sync_of(run.source_id)
    if sync is not None:
        return f"its source is a member of the sync {sync}"
    try:
        require_retriable(app, run)
    except UsageError as error:
        return error.detail.rstrip(".")
    except OSError as error:  # its pipeline's file
        return f"the files of its pipeline can't be read: {error.strerror}"
    return ""


def _request(app: App, run: Run, incident: Incident, by: Justification, *, by_person: bool) -> UpdateRequest:
    key = keys.key_of(
        {"kfm": RETRY_TAG, "incident": incident.incident_id, "run": run.run_id, "attempts": run.attempts}
    )
    return UpdateRequest(
        request_id=keys.request_id(key),
        key=key,
        kind="manual",
        source_id=run.source_id,
        dataset_id=run.dataset_id,
        window_start_ms=run.window_start_ms,
        window_end_ms=run.window_end_ms,
        actor=by.actor,
        accepted_at_ms=app.writer.now_ms(),
        claimed_actor=by.claimed_actor or None,
        rationale=by.rationale,
        ticket=by.ticket,
        correction=run.correction,
        by_person=by_person,
        details={"retry_of": run.run_id, "incident_id": incident.incident_id},
    )
