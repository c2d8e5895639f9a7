"""Read operations of the API."""

from __future__ import annotations

from typing import Any

from kfm.model.errors import RoleMissing, UsageError
from kfm.model.records import Run
from kfm.model.requests import UpdateRequest
from kfm.model.schedules import Schedule
from kfm.model.wording import instant
from kfm.reports.audit import entry_document, page_of_entries
from kfm.reports.breakers import breaker_document
from kfm.reports.incidents import incident_document, told_document
from kfm.reports.next_steps import step_of_held
from kfm.reports.quarantine import approval_document, held_document, is_open
from kfm.reports.requests import request_document
from kfm.reports.runs import run_document, shown_run
from kfm.reports.schedules import expected_document, schedule_document, state_document
from kfm.reports.status import gather, switch_document
from kfm.reports.units import dead_document, stored_document, unit_document
from kfm.web.api.operations import ApiCall, place_of
from kfm.web.problems import Problem, missing

SUBJECTS_MAX = 100
NODES_MAX = 20_000


def page(found: list[Any], limit: int) -> tuple[list[Any], bool]:
    return found[:limit], len(found) > limit


# --- runs ----------------------------------------------------------------------------


def runs(asked: ApiCall) -> Any:
    query = asked.query
    found, more = page(
        asked.app.ledger.runs(
            dataset_id=asked.names.meant(query["dataset"]),
            source_id=asked.names.meant(query["source"]),
            status=query["status"],
            since_ms=query["since"] or 0,
            before=place_of(query["cursor"]),
            limit=query["limit"] + 1,
        ),
        query["limit"],
    )
    last = f"{found[-1].start_time_ms}~{found[-1].run_id}" if more else None
    return {"runs": [run_document(one) for one in found], "more": more, "next": last}


def one_run(asked: ApiCall) -> Any:
    return shown_run(asked.app.ledger, _run(asked).run_id)


def _run(asked: ApiCall) -> Run:
    run: Run | None = asked.app.ledger.run(asked.path["run_id"])
    if run is None:
        raise missing("run")
    return run


def attempts(asked: ApiCall) -> Any:
    run, ledger = _run(asked), asked.app.ledger
    return {
        "run_id": run.run_id,
        "attempts": ledger.attempts(run.run_id),
        "retries": ledger.retries(run.run_id),
    }


def nodes(asked: ApiCall) -> Any:
    """Of the newest attempt; and of the pipeline's pass, where it has one."""
    from kfm.reports.pipeline_runs import cells_of, graph_document

    run, ledger = _run(asked), asked.app.ledger
    steps = [one for one in ledger.attempts(run.run_id) if one.node and one.attempt == run.attempts]
    tables = _passes(asked.app)
    found = tables.get(run.run_id)
    graph = None
    if found is not None:
        records = {each.dataset_id: each for each in tables.of_run(found.run_id)}
        graph = graph_document(found, cells_of(found, records)[:NODES_MAX], None)
        del graph["svg"]
    return {"run_id": run.run_id, "attempt": run.attempts, "nodes": steps, "pipeline": graph}


def _passes(app: Any) -> Any:
    """What is on record of the passes of pipelines."""
    from kfm.pipelines.run_state_store import StoreParts, open_run_states

    around = StoreParts(app.ledger, app.state, app.objects, app.loaded)
    return open_run_states(around, app.settings.run_state, read_only=True)


def lineage(asked: ApiCall) -> Any:
    from kfm.reports.lineage import event_document

    run, ledger = _run(asked), asked.app.ledger
    now_ms = ledger.now_ms()
    return {
        "subject": run.run_id,
        "events": [event_document(message, now_ms) for message in ledger.outbox_messages(run.run_id)],
    }


def provenance(asked: ApiCall) -> Any:
    """As it may be passed on: names of hidden datasets are masked in it for everybody."""
    import msgspec

    return msgspec.json.decode(asked.app.provenance(_run(asked).run_id, internal=False))


def preview_of_run(asked: ApiCall) -> Any:
    run = _run(asked)
    reader = asked.app.ledger.request_reader()
    for request in reader.of_run(run.run_id):
        if request.plan_digest is not None:
            return preview_document(asked, request)
    raise Problem(404, "No preview of this run was kept.")


def preview_document(asked: ApiCall, request: Any) -> Any:
    """What was about to be changed, as it was kept before it was."""
    from kfm.reports.runs import plan_document
    from kfm.runs import plan as plans

    if asked.names.hides(request.dataset_id):
        raise RoleMissing("What is in this dataset is for those who may operate.")
    kept = asked.app.ledger.request_reader().preview(request.plan_digest or "")
    if kept is None:
        raise Problem(404, "No preview of this was kept.")
    return {
        "request_id": request.request_id,
        "run_id": request.run_id,
        "plan": plan_document(plans.read(kept.encode())),
    }


# --- units ---------------------------------------------------------------------------


def units(asked: ApiCall) -> Any:
    from kfm.model.units import UnitFilter

    query = asked.query
    wanted = UnitFilter(
        dataset=query["dataset"] or "",
        status=query["status"] or "",
        error_code=query["error_code"] or "",
        since_ms=query["since"] or 0,
        limit=query["limit"] + 1,
    )
    found, more = page(asked.app.ledger.unit_reader().find_units(wanted), query["limit"])
    return {"units": [unit_document(one) for one in found], "more": more}


def one_unit(asked: ApiCall) -> Any:
    from kfm.reports.lookup import find_unit

    ledger, wal_id = asked.app.ledger, asked.path["wal_id"]
    reader = ledger.unit_reader()
    try:
        stored = find_unit(reader, wal_id)
    except UsageError:
        raise missing("unit") from None
    return stored_document(stored, reader.history_of(wal_id), ledger.now_ms())


def dead_letters(asked: ApiCall) -> Any:
    """Messages that could not be taken in, by the hashes of what they say."""
    query = asked.query
    found, more = page(
        asked.app.ledger.unit_reader().dead_messages(
            "" if query["all"] else "held", query["error_code"] or "", query["limit"] + 1
        ),
        query["limit"],
    )
    return {"dead": [dead_document(one) for one in found], "more": more}


# --- what stands in the way ----------------------------------------------------------


def status(asked: ApiCall) -> Any:
    return gather(asked.app)


def breakers(asked: ApiCall) -> Any:
    ledger = asked.app.ledger
    now_ms = ledger.now_ms()
    return {"breakers": [breaker_document(breaker, now_ms) for breaker in ledger.breakers()]}


def switches(asked: ApiCall) -> Any:
    found = sorted(asked.app.ledger.switches(), key=lambda switch: str(switch.scope))
    return {"switches": [switch_document(switch) for switch in found]}


def quarantine(asked: ApiCall) -> Any:
    query = asked.query
    found, more = page(
        asked.app.ledger.held(
            state=None if query["all"] else "held",
            kind=query["kind"],
            dataset_id=asked.names.meant(query["dataset"]),
            limit=query["limit"] + 1,
        ),
        query["limit"],
    )
    ledger, now_ms = asked.app.ledger, asked.app.clock.now_ms()
    held = [held_document(one, step_of_held(ledger, one, now_ms)) for one in found]
    return {"held": held, "more": more}


def one_held(asked: ApiCall) -> Any:
    ledger = asked.app.ledger
    held = ledger.held_one(asked.path["held_id"])
    if held is None:
        raise missing("entry")
    requests = ledger.approvals(subject=held.held_id)
    step = step_of_held(ledger, held, asked.app.clock.now_ms())
    return {"held": held_document(held, step), "requests": [approval_document(one) for one in requests]}


def incidents(asked: ApiCall) -> Any:
    query = asked.query
    found, more = page(
        asked.app.ledger.incidents(state=None if query["all"] else "open", limit=query["limit"] + 1),
        query["limit"],
    )
    return {"incidents": [incident_document(one) for one in found], "more": more}


def one_incident(asked: ApiCall) -> Any:
    ledger, wanted = asked.app.ledger, asked.path["incident_id"]
    found = [one for one in ledger.find_incidents(wanted) if wanted in (one.incident_id, one.cause)]
    if len(found) != 1:
        raise missing("incident")
    (incident,) = found
    return {
        "incident": incident_document(incident),
        "subjects": ledger.incident_subjects(incident.cause, SUBJECTS_MAX),
        "told": [told_document(one) for one in ledger.hook_deliveries(incident.cause)],
    }


# --- people --------------------------------------------------------------------------


def approvals(asked: ApiCall) -> Any:
    ledger = asked.app.ledger
    if asked.query["state"] == "requested":
        found = [
            one
            for one in ledger.approvals(state="requested", limit=asked.query["limit"])
            if is_open(ledger, one)
        ]
    else:
        found = ledger.approvals(state=asked.query["state"], limit=asked.query["limit"])
    return {"requests": [approval_document(one) for one in found]}


def one_approval(asked: ApiCall) -> Any:
    approval = asked.app.ledger.approval(asked.path["request_id"])
    if approval is None:
        raise missing("request")
    return {"request": approval_document(approval)}


def audit(asked: ApiCall) -> Any:
    query = asked.query
    before = None if query["cursor"] is None else int(query["cursor"])
    found, rest = page_of_entries(
        asked.app.ledger,
        kind=query["kind"],
        subject=asked.names.meant(query["subject"]),
        before=before,
        limit=query["limit"],
    )
    return {
        "entries": [entry_document(one) for one in found],
        "more": rest is not None,
        "next": None if rest is None else str(rest),
    }


def explain(asked: ApiCall) -> Any:
    from kfm.reports.error_pages import error_page
    from kfm.reports.explain.subjects import explained, is_code

    app, what = asked.app, asked.names.meant(asked.path["what"]) or ""
    try:
        if is_code(what):
            return error_page(what.upper())
        return explained(app.ledger, _passes(app), app.settings, what, app.clock.now_ms())
    except UsageError as error:
        raise Problem(404, error.detail, error) from None


def whoami(asked: ApiCall) -> Any:
    identity = asked.identity
    return {
        "subject": None if identity.open else identity.subject,
        "known_by": "nothing" if identity.open else identity.known_by,
        "roles": ["read"] if identity.open else list(identity.roles),
        "people": len(asked.place.people),
    }


COVERED_MS = 24 * 60 * 60 * 1000


def requests(asked: ApiCall) -> Any:
    query = asked.query
    found, more = page(
        asked.app.ledger.request_reader().requests(
            state=query["state"],
            kind=query["kind"],
            source_id=asked.names.meant(query["source"]),
            schedule_id=asked.names.meant(query["schedule"]),
            before=place_of(query["cursor"]),
            limit=query["limit"] + 1,
        ),
        query["limit"],
    )
    last = f"{found[-1].accepted_at_ms}~{found[-1].request_id}" if more else None
    return {"requests": [request_document(one) for one in found], "more": more, "next": last}


def one_request(asked: ApiCall) -> Any:
    return {"request": request_document(_request(asked))}


def _request(asked: ApiCall) -> UpdateRequest:
    request: UpdateRequest | None = asked.app.ledger.request_reader().request(asked.path["request_id"])
    if request is None:
        raise missing("request")
    return request


def preview_of_request(asked: ApiCall) -> Any:
    request = _request(asked)
    if request.plan_digest is None:
        raise missing("preview")
    return preview_document(asked, request)


# --- schedules -----------------------------------------------------------------------


def schedules(asked: ApiCall) -> Any:
    states = asked.app.ledger.schedule_reader().states()
    now_ms = asked.place.now_ms()
    return {
        "schedules": [
            {
                **schedule_document(each, asked.app.settings.source(each.source), now_ms),
                **state_document(states.get(each.id)),
            }
            for each in sorted(asked.place.schedules, key=lambda each: each.id)
        ]
    }


def schedule_of(asked: ApiCall) -> Schedule:
    wanted = asked.names.meant(asked.path["schedule_id"])
    for schedule in asked.place.schedules:
        if schedule.id == wanted:
            return schedule
    raise missing("schedule")


def instants(asked: ApiCall) -> Any:
    """Coverage: drawn from what the schedule expects, not from the rows that exist."""
    from kfm.service.schedule_changes import history

    schedule, query = schedule_of(asked), asked.query
    now_ms = asked.place.now_ms()
    start_ms = now_ms - COVERED_MS if query["start"] is None else query["start"]
    end_ms = max(now_ms, start_ms) + 1 if query["end"] is None else query["end"]
    limit = query["limit"]
    found, more = page(history(asked.app, schedule, start_ms, end_ms, limit + 1), limit)
    return {
        "schedule_id": schedule.id,
        "start": instant(start_ms),
        "end": instant(end_ms),
        "instants": [{**expected_document(one), **_ending(asked, one.request_id)} for one in found],
        "more": more,
    }


def _ending(asked: ApiCall, request_id: str | None) -> dict[str, Any]:
    """How the request that an instant became has ended, or stands."""
    request = asked.app.ledger.request_reader().request(request_id) if request_id else None
    return {name: getattr(request, name, None) for name in ("state", "outcome", "run_id")}
