"""Changes over the API: each with its actor, a rationale and an entry in the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kfm.model import keys
from kfm.model.errors import PlanDrifted, UsageError, WindowError
from kfm.model.incidents import Incident
from kfm.model.records import GovernanceEntry, Justification, Window, governance_entry, justified
from kfm.model.requests import UpdateRequest
from kfm.model.roles import is_person
from kfm.model.scheduled_times import BackfillTime
from kfm.model.settings import SourceSettings
from kfm.model.times import parse_rfc3339, rfc3339
from kfm.reports.breakers import breaker_document
from kfm.reports.coverage import window_document
from kfm.reports.incidents import incident_document, retried_document, silence_document
from kfm.reports.quarantine import approval_document, held_document
from kfm.reports.requests import request_document
from kfm.reports.schedules import backfill_document, state_document
from kfm.reports.status import switch_document
from kfm.runs.provider_breakers import BreakerDecision, decide_breaker
from kfm.runs.target_updates import projection_document
from kfm.service.schedule_changes import backfill_digest, make_backfill, plan_backfill, set_paused
from kfm.web.api.operations import ApiCall, Reply
from kfm.web.api.reads import schedule_of
from kfm.web.problems import Problem, missing

API_TAG = "api-request/1"
MEANING = {
    "running": "work may start",
    "paused": "nothing new starts, work in flight goes on",
    "stopped": "nothing new starts, work in flight is cancelled",
}


# --- updates -------------------------------------------------------------------------


def start(call: ApiCall) -> Any:
    """Accept a request for an update; a runner starts it."""
    from kfm.model.windows import asked_window

    body, app = call.body, call.app
    source = _source(call, body.source)
    now_ms = app.store.now_ms()
    at_ms = now_ms if body.at is None else parse_rfc3339(body.at)
    window = asked_window(body.window, source.window, source.time_zone, at_ms)
    if window.start_ms > now_ms:
        raise WindowError(f"{window.spec} begins in the future.")
    by_person = is_person(call.identity) and not body.machine
    return _accepted(call, source, window, correction=body.correction, by_person=by_person, about={})


def _source(call: ApiCall, source_id: str) -> SourceSettings:
    source: SourceSettings | None = call.app.settings.source_named(source_id)
    if source is not None:
        sync = call.app.settings.sync_of(source.id)
        if sync is not None:
            raise UsageError(
                f"`{source_id}` is a member of a sync, which publishes its data.",
                remedy=f"Ask for the sync: {sync}.",
            )
        return source
    raise UsageError(f"There is no source `{source_id}`.", remedy="The configuration names them.")


def retry(call: ApiCall) -> Any:
    """One more attempt at a failed run, as a request for its work."""
    from kfm.runs.retry import require_retriable

    app, run = call.app, call.app.ledger.run(call.path["run_id"])
    if run is None:
        raise missing("run")
    if run.status != "failed":
        word = "has succeeded" if run.status == "success" else "is running"
        raise Problem(409, f"The run {word}: there is nothing to retry.")
    try:
        require_retriable(app, run)
    except OSError as error:  # its pipeline's file
        raise UsageError(f"The files of its pipeline can't be read: {error.strerror}.") from None
    window = Window(start_ms=run.window_start_ms, end_ms=run.window_end_ms, spec=run.window_spec)
    source = _source(call, run.source_id)
    about = {"retry_of": run.run_id}
    by_person = is_person(call.identity)
    return _accepted(call, source, window, correction=run.correction, by_person=by_person, about=about)


def _accepted(
    call: ApiCall,
    source: SourceSettings,
    window: Window,
    *,
    correction: str | None,
    by_person: bool,
    about: dict[str, Any],
) -> Reply:
    """The request is durable when this returns. One Idempotency-Key accepts one request."""
    app, body, who = call.app, call.body, call.identity.subject
    redact = app.loaded.discretion.said
    named = {"kfm": API_TAG, "subject": who, "key": call.key} if call.key else {"id": app.ids.new()}
    key = keys.key_of(named)
    request = UpdateRequest(
        request_id=keys.request_id(key),
        key=key,
        kind="manual",
        source_id=source.id,
        dataset_id=source.dataset,
        window_start_ms=window.start_ms,
        window_end_ms=window.end_ms,
        actor=who,
        accepted_at_ms=app.store.now_ms(),
        claimed_actor=body.actor and redact(body.actor),
        rationale=redact(body.rationale),
        ticket=body.ticket and redact(body.ticket),
        correction=correction,
        envelope_hash=call.digest,
        by_person=by_person,
        details=about,
    )
    facts = {
        "request_id": request.request_id,
        "source_id": source.id,
        "window_start": rfc3339(window.start_ms),
        "window_end": rfc3339(window.end_ms),
        **about,
    }
    entry = _entry(call, "update-requested", source.dataset, dataset_id=source.dataset, **facts)
    (known,) = app.store.requests().accept([request], entry)
    call.context.wake()
    if known is not None and known.envelope_hash != request.envelope_hash:
        raise key_reused()
    where = {"Location": f"{call.base}/requests/{request.request_id}"}
    return Reply({"request": request_document(known or request)}, where)


def key_reused() -> UsageError:
    return UsageError(
        "The Idempotency-Key was used for something else.",
        remedy="Use a new key for each change.",
    )


def cancel(call: ApiCall) -> Any:
    from kfm.service.requests import cancel_request

    app, body = call.app, call.body
    request = app.ledger.request_reader().request(call.path["request_id"])
    if request is None:
        raise missing("request")
    if request.is_settled:
        raise Problem(409, f"The request has ended: it is {request.state}.")
    ended = cancel_request(
        app, request, rationale=body.rationale, ticket=body.ticket, claimed_actor=body.actor
    )
    return {"request": request_document(ended)}


def cancel_run(call: ApiCall) -> Any:
    """Cancel each request of a run that has no end yet."""
    from kfm.service.requests import cancel_request

    app, body = call.app, call.body
    run = app.ledger.run(call.path["run_id"])
    if run is None:
        raise missing("run")
    open_ones = [one for one in app.ledger.request_reader().of_run(run.run_id) if not one.is_settled]
    if not open_ones:
        raise Problem(409, "No request of this run is open: there is nothing to cancel.")
    ended = [
        cancel_request(app, one, rationale=body.rationale, ticket=body.ticket, claimed_actor=body.actor)
        for one in open_ones
    ]
    return {"run_id": run.run_id, "requests": [request_document(one) for one in ended]}


def _entry(call: ApiCall, kind: str, subject: str, **facts: Any) -> GovernanceEntry:
    app, body = call.app, call.body
    redact = app.loaded.discretion.said
    by = justified(redact, call.identity.subject, body.rationale, body.ticket, body.actor)
    return governance_entry(kind, subject, app.store.now_ms(), by, **facts)


# --- schedules -----------------------------------------------------------------------


def pause(call: ApiCall) -> Any:
    return _set_paused(call, True)


def resume(call: ApiCall) -> Any:
    return _set_paused(call, False)


def _set_paused(call: ApiCall, paused: bool) -> Any:
    schedule, body = schedule_of(call), call.body
    state, changed = set_paused(
        call.app, schedule, paused, rationale=body.rationale, ticket=body.ticket, claimed_actor=body.actor
    )
    return {"schedule_id": schedule.id, "changed": changed, **state_document(state)}


def backfill(call: ApiCall) -> Any:
    """Requests for scheduled times that did not run; with `dry_run` only their list."""
    schedule, body, app = schedule_of(call), call.body, call.app
    start_ms, end_ms = parse_rfc3339(body.start), parse_rfc3339(body.end)
    planned = plan_backfill(app, schedule, start_ms, end_ms, only_missed=body.missed_only)
    if body.cells is not None:
        planned = only_cells(call, schedule.id, planned, body.cells)
    digest = backfill_digest(schedule, planned)
    if body.digest not in (None, digest):
        raise PlanDrifted(
            f"The list has changed since it was shown: now it is {digest[:19]}….",
            remedy="Look at it again, and send the digest of that. Nothing was done.",
        )
    made: list[UpdateRequest] = []
    plan_id = app.ids.new()
    if not body.dry_run:
        made = make_backfill(
            app,
            schedule,
            planned,
            rationale=body.rationale,
            ticket=body.ticket,
            claimed_actor=body.actor,
            name=body.name,
            plan_id=plan_id,
        )
        call.context.wake()
    fresh = {one.request_id for one in made}
    return {
        "schedule_id": schedule.id,
        "from": body.start,
        "to": body.end,
        "missed_only": body.missed_only,
        "instants": [{**backfill_document(one), "made": one.request_id in fresh} for one in planned],
        "made": len(made),
        "dry_run": body.dry_run,
        "digest": digest,
        "plan_id": plan_id if made else None,
    }


def only_cells(
    call: ApiCall, schedule_id: str, planned: Sequence[BackfillTime], cells: str
) -> list[BackfillTime]:
    """Of the planned times those that were chosen; all of these have to be among them."""
    from kfm.web.api.plans import instants_of

    chosen = instants_of(cells)
    if call.visibility.known(chosen[0].schedule_id, [schedule_id]) != schedule_id:
        raise UsageError(f"The cells are not of the schedule {schedule_id}.")
    wanted = {one.instant_ms for one in chosen}
    return [one for one in planned if one.instant_ms in wanted]


# --- blockers ------------------------------------------------------------------------


def reset_breaker(call: ApiCall) -> Any:
    return _decide_breaker(call, BreakerDecision(kind="reset"))


def probe_breaker(call: ApiCall) -> Any:
    return _decide_breaker(call, BreakerDecision(kind="probe"))


def hold_breaker(call: ApiCall) -> Any:
    return _decide_breaker(call, BreakerDecision(kind="hold", until_ms=parse_rfc3339(call.body.until)))


def _decide_breaker(call: ApiCall, decision: BreakerDecision) -> Any:
    app, provider = call.app, call.path["provider"]
    if provider not in [breaker.provider for breaker in app.ledger.breakers()]:
        raise missing("provider that had trouble")
    before, after = decide_breaker(app, provider, decision, _by(call))
    return {"breaker": breaker_document(after, app.ledger.now_ms(), app.settings), "was": before.state}


def _by(call: ApiCall) -> Justification:
    body, said = call.body, call.app.loaded.discretion.said
    return justified(said, call.identity.subject, body.rationale, body.ticket, body.actor)


def _incident(call: ApiCall) -> Incident:
    wanted = call.path["incident_id"]
    known: list[Incident] = call.app.ledger.find_incidents(wanted)
    found = [one for one in known if one.incident_id == wanted]
    if not found:
        raise missing("incident")
    return found[0]


def acknowledge_incident(call: ApiCall) -> Any:
    from kfm.service import incidents

    seen = incidents.acknowledge_incident(call.app, _incident(call), _by(call))
    return {"incident": incident_document(seen, call.app.ledger.silences())}


def assign_incident(call: ApiCall) -> Any:
    from kfm.service import incidents

    person = call.body.person
    seen = incidents.assign_incident(call.app, _incident(call), person, _by(call))
    return {"incident": incident_document(seen, call.app.ledger.silences())}


def retry_incident(call: ApiCall) -> Any:
    """Requests for all failed runs that it affects."""
    from kfm.service import incident_retries

    found = incident_retries.retry_incident(
        call.app, _incident(call), _by(call), by_person=is_person(call.identity)
    )
    call.context.wake()
    return retried_document(call.path["incident_id"], found)


def close_incident(call: ApiCall) -> Any:
    from kfm.service import incidents

    body = call.body
    closed = incidents.close_incident(
        call.app,
        _incident(call),
        actor=call.identity.subject,
        rationale=body.rationale,
        ticket=body.ticket,
        claimed_actor=body.actor,
    )
    return {"incident": incident_document(closed, call.app.ledger.silences())}


def silence_incident(call: ApiCall) -> Any:
    return _silence(call, f"incident:{_incident(call).incident_id}")


def silence_dataset(call: ApiCall) -> Any:
    from kfm.service import incidents

    scope = f"dataset:{call.path['dataset_id']}"
    if not incidents.is_silenceable(call.app, call.path["dataset_id"]):
        raise missing("dataset")
    return _silence(call, scope)


def _silence(call: ApiCall, scope: str) -> Any:
    from kfm.service import incidents

    if call.body.until is None:
        incidents.end_silence(call.app, scope, _by(call))
        return {"scope": scope, "silence": None}
    made = incidents.silence(call.app, scope, parse_rfc3339(call.body.until), _by(call))
    return {"scope": scope, "silence": silence_document(made)}


def dismiss(call: ApiCall) -> Any:
    """Settle windows that will never have data; with `undo` they are expected again."""
    from kfm.service.dismissals import WindowChoice, dismiss_windows, require_dataset

    app, body = call.app, call.body
    try:
        dataset = require_dataset(app.settings, call.path["dataset_id"])
    except UsageError:
        raise missing("dataset") from None
    choice = WindowChoice(
        windows=(body.window,), source=body.source, product=body.product, platform=body.platform
    )
    done = dismiss_windows(app, dataset, choice, _by(call), undo=body.undo)
    return {
        "dataset_id": dataset,
        "undone": body.undo,
        "windows": [window_document(one) for one in done.after],
    }


def project_again(call: ApiCall) -> Any:
    """Every target shows what is promoted of the dataset, whatever it shows now."""
    app, dataset_id = call.app, call.path["dataset_id"]
    if app.ledger.head(dataset_id) is None:
        raise missing("dataset that is published")
    entry = _entry(call, "projected-again", dataset_id, dataset_id=dataset_id)
    app.store.keep_entry(entry)
    reports = app.project(dataset_id, everything=True)
    return {
        "projections": [projection_document(one) for one in reports],
        "exit_code": 4 if any(one.error for one in reports) else 0,
    }


def release(call: ApiCall) -> Any:
    """Request the release; a second person has to approve it."""
    from kfm.service.approvals import request_release

    app, body = call.app, call.body
    held = app.ledger.held_one(call.path["held_id"])
    if held is None:
        raise missing("entry")
    if held.grain != "run":
        raise UsageError(f"A {held.grain} is not released: it comes back by a replay.")
    approval = request_release(
        app,
        held,
        actor=call.identity.subject,
        names=call.identity.names,
        rationale=body.rationale,
        ticket=body.ticket,
        claimed_actor=body.actor,
    )
    return {"held": held_document(held), "request": approval_document(approval)}


def approve(call: ApiCall) -> Any:
    from kfm.service.approvals import approve as agree

    app, body, request_id = call.app, call.body, call.path["request_id"]
    approval = app.ledger.approval(request_id)
    if approval is None:
        raise missing("request")
    held = agree(
        app,
        approval,
        actor=call.identity.subject,
        names=call.identity.names,
        rationale=body.rationale,
        claimed_actor=body.actor,
    )
    return {
        "held": held_document(held) if held is not None else None,
        "request": approval_document(app.ledger.approval(request_id)),
    }


def reject(call: ApiCall) -> Any:
    from kfm.service.approvals import reject as refuse

    app, body, request_id = call.app, call.body, call.path["request_id"]
    approval = app.ledger.approval(request_id)
    if approval is None:
        raise missing("request")
    refuse(
        app,
        approval,
        actor=call.identity.subject,
        names=call.identity.names,
        rationale=body.rationale,
        claimed_actor=body.actor,
    )
    return {"request": approval_document(app.ledger.approval(request_id))}


def revoke_approval(call: ApiCall) -> Any:
    from kfm.service.standing_approvals import revoke

    app, body, request_id = call.app, call.body, call.path["request_id"]
    approval = app.ledger.approval(request_id)
    if approval is None:
        raise missing("request")
    revoke(app, approval, actor=call.identity.subject, rationale=body.rationale, claimed_actor=body.actor)
    return {"request": approval_document(app.ledger.approval(request_id))}


def stand(call: ApiCall) -> Any:
    from kfm.service import standing_approvals

    app, body, source_id = call.app, call.body, call.path["source_id"]
    if source_id not in {source.id for source in app.settings.sources}:
        raise missing("source")
    approval = standing_approvals.stand(
        app,
        source_id,
        identity=call.identity,
        until=body.until,
        rationale=body.rationale,
        ticket=body.ticket,
        claimed_actor=body.actor,
    )
    return {"request": approval_document(approval)}


def set_switch(call: ApiCall) -> Any:
    app, body, scope = call.app, call.body, call.path["scope"]
    if not _is_known(app, scope):
        raise Problem(404, "There is no such scope: all, dataset:ID, domain:ID, replays:ID, replays:all.")
    kind, _, name = scope.partition(":")
    if kind in ("dataset", "replays"):
        scope = f"{kind}:{app.settings.dataset_id(name)}"  # a switch is about the dataset, whatever its name
    switch = app.set_switch(
        scope,
        body.position,
        rationale=body.rationale,
        actor=call.identity.subject,
        claimed_actor=body.actor,
        ticket=body.ticket,
    )
    return {"switch": switch_document(switch), "meaning": MEANING[body.position]}


def _is_known(app: Any, scope: str) -> bool:
    kind, _, name = scope.partition(":")
    if scope in ("all", "replays:all"):
        return True
    datasets = app.settings.datasets
    if kind == "domain":
        return name in {dataset.domain for dataset in datasets}
    if kind not in ("dataset", "replays"):
        return False
    if name in {name for dataset in datasets for name in dataset.names}:
        return True
    from kfm.nodd.ingest import registry_of

    return name in registry_of(app).names
