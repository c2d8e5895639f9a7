"""Read operations of the API."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from kfm.datasets.completeness import completeness_of
from kfm.model.dataset_names import of_dataset, present_name
from kfm.model.errors import RoleMissing, UsageError
from kfm.model.quantities import instant
from kfm.model.records import Run
from kfm.model.requests import UpdateRequest
from kfm.model.schedules import Schedule
from kfm.reports.audit import EntryFilter, entry_document, page_of_entries
from kfm.reports.breakers import breaker_document
from kfm.reports.coverage import coverage_document, health_document
from kfm.reports.incidents import incident_next_step, present_document, told_documents
from kfm.reports.next_steps import step_of_held
from kfm.reports.quarantine import approval_document, held_document, is_open, objects_of
from kfm.reports.requests import request_document, shown_request
from kfm.reports.runs import run_document, shown_run
from kfm.reports.schedules import expected_document, schedule_document, state_document
from kfm.reports.status import read_status, switch_document
from kfm.reports.units import dead_document, stored_document, unit_document
from kfm.runs import artifacts
from kfm.web.api.operations import ApiCall, cursor_position
from kfm.web.gone import gone_dataset
from kfm.web.problems import Problem, missing

SUBJECTS_MAX = 100
NODES_MAX = 20_000
COVERED_MS = 24 * 60 * 60 * 1000


def page(found: Sequence[Any], limit: int) -> tuple[list[Any], bool]:
    return list(found[:limit]), len(found) > limit


def rest(more: bool, *last: object) -> dict[str, Any]:
    """How a list goes on: with the rows after the one in this place, if there are more."""
    return {"more": more, "next": "~".join(map(str, last)) if more else None}


# --- runs ----------------------------------------------------------------------------


def runs(call: ApiCall) -> Any:
    query = call.query
    found, more = page(
        call.app.ledger.runs(
            dataset_id=call.app.settings.dataset_id(call.visibility.meant(query["dataset"])),
            source_id=call.app.settings.source_id(call.visibility.meant(query["source"])),
            status=query["status"],
            since_ms=query["since"] or 0,
            before=cursor_position(query["cursor"]),
            limit=query["limit"] + 1,
        ),
        query["limit"],
    )
    last = (found[-1].start_time_ms, found[-1].run_id) if more else ()
    return {"runs": [run_document(one) for one in found], **rest(more, *last)}


def one_run(call: ApiCall) -> Any:
    return shown_run(call.app.ledger, _run(call).run_id, call.app.settings)


def _run(call: ApiCall) -> Run:
    run: Run | None = call.app.ledger.run(call.path["run_id"])
    if run is None:
        raise missing("run")
    return run


def attempts(call: ApiCall) -> Any:
    run, ledger = _run(call), call.app.ledger
    return {
        "run_id": run.run_id,
        "attempts": ledger.attempts(run.run_id),
        "retries": ledger.retries(run.run_id),
    }


def nodes(call: ApiCall) -> Any:
    """The nodes of the newest attempt; and of the pipeline run, if there is one."""
    from kfm.reports.pipeline_runs import cells_of, graph_document

    run, ledger = _run(call), call.app.ledger
    steps = [one for one in ledger.attempts(run.run_id) if one.node and one.attempt == run.attempts]
    tables = _passes(call.app)
    found = tables.get(run.run_id)
    graph = None
    if found is not None:
        records = {each.dataset_id: each for each in tables.of_run(found.run_id)}
        graph = graph_document(found, cells_of(found, records)[:NODES_MAX], None)
        del graph["svg"]
    return {"run_id": run.run_id, "attempt": run.attempts, "nodes": steps, "pipeline": graph}


def _passes(app: Any) -> Any:
    """The store of pipeline runs."""
    from kfm.pipelines.run_state_store import read_run_states

    return read_run_states(app)


def lineage(call: ApiCall) -> Any:
    from kfm.reports.lineage import event_document

    run, ledger = _run(call), call.app.ledger
    now_ms = ledger.now_ms()
    return {
        "subject": run.run_id,
        "events": [event_document(message, now_ms) for message in ledger.outbox_messages(run.run_id)],
    }


def provenance(call: ApiCall) -> Any:
    """In its public form: names of hidden datasets are masked for all readers."""
    import msgspec

    return msgspec.json.decode(artifacts.provenance(call.app, _run(call).run_id, internal=False))


def preview_of_run(call: ApiCall) -> Any:
    run = _run(call)
    reader = call.app.ledger.request_reader()
    for request in reader.of_run(run.run_id):
        if request.plan_digest is not None:
            return preview_document(call, request)
    raise Problem(404, "No preview of this run is on record.")


def preview_document(call: ApiCall, request: Any) -> Any:
    """The plan of a request, as it was recorded before any change."""
    from kfm.reports.runs import plan_document
    from kfm.runs import plan as plans

    if call.visibility.hides(request.dataset_id):
        raise RoleMissing("The content of this dataset needs the role operate.")
    kept = call.app.ledger.request_reader().preview(request.plan_digest or "")
    if kept is None:
        raise Problem(404, "No preview is on record.")
    return {
        "request_id": request.request_id,
        "run_id": request.run_id,
        "plan": plan_document(plans.read(kept.encode())),
    }


# --- units ---------------------------------------------------------------------------


def units(call: ApiCall) -> Any:
    from kfm.model.units import AFTER_ALL_IDS, UnitFilter

    query = call.query
    wanted = UnitFilter(
        dataset=call.visibility.meant(query["dataset"]) or "",
        status=query["status"] or "",
        error_code=query["error_code"] or "",
        since_ms=query["since"] or 0,
        before=query["cursor"] or AFTER_ALL_IDS,
        limit=query["limit"] + 1,
        start_ms=query["start"],
        end_ms=query["end"],
        product=query["product"] or "",
        platform=query["platform"] or "",
        standing=query["standing"] or "",
    )
    if wanted.is_of_product and not wanted.dataset:
        raise UsageError("`product`, `platform` and `standing` are of one dataset: name it as `dataset`.")
    if wanted.is_of_product and (wanted.status or wanted.since_ms):
        raise UsageError("`standing` says what became of objects of a product, not `status` or `since`.")
    found, more = page(call.app.ledger.unit_reader().find_units(wanted), query["limit"])
    return {"units": [unit_document(one) for one in found], **rest(more, *(one.wal_id for one in found[-1:]))}


def one_unit(call: ApiCall) -> Any:
    from kfm.reports.lookup import find_unit

    ledger = call.app.ledger
    try:
        stored = find_unit(ledger.unit_reader(), call.path["wal_id"])
    except UsageError:
        raise missing("unit") from None
    return stored_document(ledger, stored)


def dead_letters(call: ApiCall) -> Any:
    """Messages that could not be read, by the hashes of their bodies."""
    query, before = call.query, None
    if query["cursor"] is not None:
        at_ms, place = cursor_position(query["cursor"]) or (0, "")
        envelope, _, index = place.rpartition(".")
        before = (at_ms, envelope, int(index) if re.fullmatch("[0-9]{1,9}", index) else 0)
    found, more = page(
        call.app.ledger.unit_reader().dead_messages(
            "" if query["all"] else "held", query["error_code"] or "", query["limit"] + 1, before=before
        ),
        query["limit"],
    )
    dead = [{**dead_document(one), "error": call.visibility.unattributed(one.error)} for one in found]
    last = [(one.last_at_ms, f"{one.envelope_hash}.{one.record_index}") for one in found[-1:]]
    return {"dead": dead, **rest(more, *(last[0] if more else ()))}


# --- blockers ------------------------------------------------------------------------


def status(call: ApiCall) -> Any:
    read = read_status(call.app, _schedules(call), with_needs=True)
    return {**read.document, "not_in_force": sorted(call.context.live.problems)}


def _schedules(call: ApiCall) -> Any:
    """The schedules that are in force: a file that can't be read leaves the last ones."""
    return lambda: call.context.schedules


def datasets(call: ApiCall) -> Any:
    """How each dataset is, and the version that readers see."""
    completeness = completeness_of(call.app, schedules=_schedules(call))
    heads = {head.dataset_id: head for head in call.app.ledger.heads()}
    renames = call.app.ledger.change_reader().renames()
    found = []
    for name in completeness.names():
        head = heads.get(name)
        found.append(
            {
                "dataset_id": name,
                "name": present_name(name, of_dataset(name, renames)),
                "version": head.sequence if head else None,
                "promoted_at": instant(head.promoted_at_ms) if head else None,
                "health": health_document(completeness.health(name)),
            }
        )
    return {"datasets": found}


def dataset_coverage(call: ApiCall) -> Any:
    """The state of every window of a dataset, newest last; `health` is of all of them."""
    query, now_ms = call.query, call.app.ledger.now_ms()
    completeness = completeness_of(call.app, now_ms, _schedules(call))
    asked = call.visibility.meant(call.path["dataset_id"])
    wanted = call.app.settings.dataset_id(asked)
    if wanted is None or wanted not in completeness.names():
        raise (gone_dataset(call.app.ledger, wanted) if wanted else None) or missing("dataset")
    name = present_name(wanted, call.app.ledger.change_reader().renames(wanted))
    coverage = completeness.coverage(wanted, query["start"], query["end"])
    rows = {one.id for one in completeness.products(wanted) if query["product"] in (None, one.product)}
    at_ms = query["at"]
    chosen = [
        one
        for one in (coverage.windows if at_ms is None else completeness.windows_at(wanted, at_ms))
        if (query["start"] is None or one.end_ms > query["start"])
        and (query["end"] is None or one.start_ms < query["end"])
        and query["state"] in (None, one.state)
        and (query["product"] is None or one.source_id in rows)
    ]
    # The cursor counts what is older: new windows come at the other end.
    chosen = chosen if query["cursor"] is None else chosen[: int(query["cursor"])]
    shown = chosen[-query["limit"] :]
    document = coverage_document(coverage, shown, now_ms, query["product"])
    older = len(chosen) - len(shown)
    return {**document, **rest(bool(older), older), "renamed_to": name if asked != name else None}


def breakers(call: ApiCall) -> Any:
    ledger = call.app.ledger
    now_ms = ledger.now_ms()
    return {
        "breakers": [breaker_document(breaker, now_ms, call.app.settings) for breaker in ledger.breakers()]
    }


def switches(call: ApiCall) -> Any:
    found = sorted(call.app.ledger.switches(), key=lambda switch: str(switch.scope))
    return {"switches": [switch_document(switch) for switch in found]}


def quarantine(call: ApiCall) -> Any:
    query = call.query
    found, more = page(
        call.app.ledger.held_page(
            state=None if query["all"] else "held",
            kind=query["kind"],
            dataset_id=call.app.settings.dataset_id(call.visibility.meant(query["dataset"])),
            before=None if query["cursor"] is None else int(query["cursor"]),
            limit=query["limit"] + 1,
        ),
        query["limit"],
    )
    ledger, now_ms, settings = call.app.ledger, call.app.ledger.now_ms(), call.app.settings
    held = [held_document(one, step_of_held(ledger, one, now_ms, settings)) for _, one in found]
    return {"held": held, **rest(more, *(number for number, _ in found[-1:]))}


def one_held(call: ApiCall) -> Any:
    ledger = call.app.ledger
    held = ledger.held_one(call.path["held_id"])
    if held is None:
        raise missing("entry")
    requests = ledger.approvals(subject=held.held_id)
    step = step_of_held(ledger, held, call.app.ledger.now_ms(), call.app.settings)
    return {
        "held": held_document(held, step),
        "requests": [approval_document(one) for one in requests],
        "objects": objects_of(ledger, held)[0],
    }


def incidents(call: ApiCall) -> Any:
    query = call.query
    found, more = page(
        call.app.ledger.incidents(
            state=None if query["all"] else "open",
            before=cursor_position(query["cursor"]),
            limit=query["limit"] + 1,
        ),
        query["limit"],
    )
    silences = call.app.ledger.silences()
    last = (found[-1].opened_at_ms, found[-1].cause) if more else ()
    shown = [present_document(call.app.ledger, one, silences) for one in found]
    return {"incidents": shown, **rest(more, *last)}


def one_incident(call: ApiCall) -> Any:
    ledger, wanted = call.app.ledger, call.path["incident_id"]
    found = [one for one in ledger.find_incidents(wanted) if wanted in (one.incident_id, one.cause)]
    if len(found) != 1:
        raise missing("incident")
    (incident,) = found
    if wanted != incident.incident_id and call.visibility.hides_record(incident):
        raise missing("incident")  # a cause can be computed: finding it would confirm a guess
    return {
        "incident": present_document(ledger, incident, ledger.silences()),
        "subjects": ledger.incident_subjects(incident.cause, SUBJECTS_MAX),
        "told": told_documents(ledger, incident),
        "next_step": incident_next_step(ledger, incident),
    }


# --- people --------------------------------------------------------------------------


def approvals(call: ApiCall) -> Any:
    """A page may be short, and others follow it: requests whose run has moved on are left out."""
    ledger, query = call.app.ledger, call.query
    found, more = page(
        ledger.approvals(
            state=query["state"], before=cursor_position(query["cursor"]), limit=query["limit"] + 1
        ),
        query["limit"],
    )
    shown = [one for one in found if query["state"] != "requested" or is_open(ledger, one)]
    last = (found[-1].requested_at_ms, found[-1].request_id) if more else ()
    documents = [{**approval_document(one), "excluded_by": _excluded(ledger, one)} for one in shown]
    return {"requests": documents, **rest(more, *last)}


def _excluded(ledger: Any, one: Any) -> str | None:
    from kfm.reports.approvals import excluded_by

    found = excluded_by(ledger, one)
    return None if found is None else found.sentence


def one_approval(call: ApiCall) -> Any:
    approval = call.app.ledger.approval(call.path["request_id"])
    if approval is None:
        raise missing("request")
    from kfm.service.approval_previews import plan_of, preview_lines, shown_approval

    ledger = call.app.ledger
    plan = plan_of(ledger, approval)
    preview = preview_lines(approval, plan)
    return {"request": shown_approval(ledger, call.app.settings, approval, plan), "preview": preview}


def audit(call: ApiCall) -> Any:
    query = call.query
    before = None if query["cursor"] is None else int(query["cursor"])
    found, older = page_of_entries(
        call.app.ledger,
        EntryFilter(
            kind=query["kind"],
            subject=call.visibility.meant(query["subject"]),
            actor=query["actor"],
            since_ms=query["since"],
            until_ms=query["until"],
        ),
        before=before,
        limit=query["limit"],
        hides=call.visibility.hides_record,
    )
    return {
        "entries": [entry_document(one) for one in found],
        **rest(older is not None, older),
    }


def explain(call: ApiCall) -> Any:
    from kfm.reports.explain.subjects import error_page, explain_subject, is_code

    app, what = call.app, call.visibility.meant(call.path["what"]) or ""
    try:
        if is_code(what):
            return error_page(what.upper())
        found = explain_subject(
            app.ledger,
            lambda: _passes(app),
            app.settings,
            what,
            app.ledger.now_ms(),
            lambda: call.context.schedules,
            completeness_of(app, schedules=_schedules(call)).health,
        )
    except UsageError as error:
        if call.visibility.everything:
            raise Problem(404, error.detail, error) from None
        raise missing("run, invocation, request, unit, dataset or source") from None  # a guess learns nothing
    if call.visibility.hides_record(found):
        raise RoleMissing("The records of this dataset need the role operate.")
    return found


def whoami(call: ApiCall) -> Any:
    identity = call.identity
    return {
        "subject": None if identity.open else identity.subject,
        "known_by": "nothing" if identity.open else identity.known_by,
        "roles": ["read"] if identity.open else list(identity.roles),
        "people": len(call.context.people),
    }


def requests(call: ApiCall) -> Any:
    query = call.query
    found, more = page(
        call.app.ledger.request_reader().requests(
            state=query["state"],
            kind=query["kind"],
            source_id=call.app.settings.source_id(call.visibility.meant(query["source"])),
            schedule_id=call.visibility.meant(query["schedule"]),
            before=cursor_position(query["cursor"]),
            limit=query["limit"] + 1,
        ),
        query["limit"],
    )
    last = (found[-1].accepted_at_ms, found[-1].request_id) if more else ()
    return {"requests": [request_document(one) for one in found], **rest(more, *last)}


def one_request(call: ApiCall) -> Any:
    return {"request": shown_request(call.app.ledger.request_reader(), _request(call))}


def _request(call: ApiCall) -> UpdateRequest:
    request: UpdateRequest | None = call.app.ledger.request_reader().request(call.path["request_id"])
    if request is None:
        raise missing("request")
    return request


def preview_of_request(call: ApiCall) -> Any:
    request = _request(call)
    if request.plan_digest is None:
        raise missing("preview")
    return preview_document(call, request)


# --- schedules -----------------------------------------------------------------------


def schedules(call: ApiCall) -> Any:
    states = call.app.ledger.schedule_reader().states()
    now_ms = call.context.now_ms()
    return {
        "schedules": [
            {
                **schedule_document(each, call.app.settings.source(each.source), now_ms),
                **state_document(states.get(each.id)),
            }
            for each in sorted(call.context.schedules, key=lambda each: each.id)
        ]
    }


def schedule_of(call: ApiCall) -> Schedule:
    wanted = call.visibility.meant(call.path["schedule_id"])
    for schedule in call.context.schedules:
        if schedule.id == wanted:
            return schedule
    raise missing("schedule")


def instants(call: ApiCall) -> Any:
    """Coverage: computed from the schedule, not from the rows that exist."""
    from kfm.service.schedule_changes import history

    schedule, query = schedule_of(call), call.query
    now_ms = call.context.now_ms()
    start_ms = now_ms - COVERED_MS if query["start"] is None else query["start"]
    end_ms = max(now_ms, start_ms) + 1 if query["end"] is None else query["end"]
    limit = query["limit"]
    from_ms = start_ms if query["cursor"] is None else max(start_ms, int(query["cursor"]) + 1)
    found, more = page(
        history(call.app, schedule, from_ms, end_ms, limit + 1) if from_ms < end_ms else [], limit
    )
    return {
        "schedule_id": schedule.id,
        "start": instant(start_ms),
        "end": instant(end_ms),
        "instants": [{**expected_document(one), **_ending(call, one.request_id)} for one in found],
        **rest(more, *(one.instant_ms for one in found[-1:])),
    }


def _ending(call: ApiCall, request_id: str | None) -> dict[str, Any]:
    """State and outcome of the request of a scheduled time."""
    request = call.app.ledger.request_reader().request(request_id) if request_id else None
    return {name: getattr(request, name, None) for name in ("state", "outcome", "blocked_by", "run_id")}
