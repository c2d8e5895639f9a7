"""What can be asked: runs, units, and what stands in the way. The same documents as the commands print."""

from __future__ import annotations

from typing import Any

from kfm.core.errors import RoleMissing, UsageError
from kfm.core.records import Run
from kfm.documents.audit import entry_document, page_of_entries
from kfm.documents.breakers import breaker_document
from kfm.documents.dead import dead_document
from kfm.documents.held import approval_document, held_document, is_open
from kfm.documents.incidents import incident_document, told_document
from kfm.documents.overview import gather, switch_document
from kfm.documents.runs import run_document, shown_run
from kfm.documents.units import stored_document, unit_document
from kfm.serving.api.answers import Problem, missing
from kfm.serving.api.operations import Asked, place_of

SUBJECTS_MAX = 100
NODES_MAX = 20_000


def page(found: list[Any], limit: int) -> tuple[list[Any], bool]:
    return found[:limit], len(found) > limit


# --- runs ----------------------------------------------------------------------------


def runs(asked: Asked) -> Any:
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


def one_run(asked: Asked) -> Any:
    return shown_run(asked.app.ledger, _run(asked).run_id)


def _run(asked: Asked) -> Run:
    run: Run | None = asked.app.ledger.run(asked.path["run_id"])
    if run is None:
        raise missing("run")
    return run


def attempts(asked: Asked) -> Any:
    run, ledger = _run(asked), asked.app.ledger
    return {
        "run_id": run.run_id,
        "attempts": ledger.attempts(run.run_id),
        "retries": ledger.retries(run.run_id),
    }


def nodes(asked: Asked) -> Any:
    """Of the newest attempt; and of the pipeline's pass, where it has one."""
    from kfm.documents.passes import cells_of, graph_document

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
    from kfm.wiring.run_states import Surroundings, open_run_states

    around = Surroundings(app.ledger, app.state, app.objects, app.loaded)
    return open_run_states(around, app.settings.run_state, read_only=True)


def lineage(asked: Asked) -> Any:
    from kfm.documents.lineage import event_document

    run, ledger = _run(asked), asked.app.ledger
    now_ms = ledger.now_ms()
    return {
        "subject": run.run_id,
        "events": [event_document(letter, now_ms) for letter in ledger.letters(run.run_id)],
    }


def provenance(asked: Asked) -> Any:
    """As it may be passed on: names of hidden datasets are masked in it for everybody."""
    import msgspec

    return msgspec.json.decode(asked.app.provenance(_run(asked).run_id, internal=False))


def preview_of_run(asked: Asked) -> Any:
    run = _run(asked)
    reader = asked.app.ledger.request_reader()
    for request in reader.of_run(run.run_id):
        if request.plan_digest is not None:
            return preview_document(asked, request)
    raise Problem(404, "No preview of this run was kept.")


def preview_document(asked: Asked, request: Any) -> Any:
    """What was about to be changed, as it was kept before it was."""
    from kfm.documents.plans import plan_document
    from kfm.publish import plan as plans

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


def units(asked: Asked) -> Any:
    from kfm.core.wal import Wanted

    query = asked.query
    wanted = Wanted(
        dataset=query["dataset"] or "",
        status=query["status"] or "",
        error_code=query["error_code"] or "",
        since_ms=query["since"] or 0,
        limit=query["limit"] + 1,
    )
    found, more = page(asked.app.ledger.unit_reader().find_units(wanted), query["limit"])
    return {"units": [unit_document(one) for one in found], "more": more}


def one_unit(asked: Asked) -> Any:
    from kfm.documents.finding import find_unit

    ledger, wal_id = asked.app.ledger, asked.path["wal_id"]
    reader = ledger.unit_reader()
    try:
        stored = find_unit(reader, wal_id)
    except UsageError:
        raise missing("unit") from None
    return stored_document(stored, reader.history_of(wal_id), ledger.now_ms())


def dead_letters(asked: Asked) -> Any:
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


def status(asked: Asked) -> Any:
    return gather(asked.app)


def breakers(asked: Asked) -> Any:
    ledger = asked.app.ledger
    now_ms = ledger.now_ms()
    return {"breakers": [breaker_document(breaker, now_ms) for breaker in ledger.breakers()]}


def switches(asked: Asked) -> Any:
    found = sorted(asked.app.ledger.switches(), key=lambda switch: str(switch.scope))
    return {"switches": [switch_document(switch) for switch in found]}


def quarantine(asked: Asked) -> Any:
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
    return {"held": [held_document(one) for one in found], "more": more}


def one_held(asked: Asked) -> Any:
    ledger = asked.app.ledger
    held = ledger.held_one(asked.path["held_id"])
    if held is None:
        raise missing("entry")
    requests = ledger.approvals(subject=held.held_id)
    return {"held": held_document(held), "requests": [approval_document(one) for one in requests]}


def incidents(asked: Asked) -> Any:
    query = asked.query
    found, more = page(
        asked.app.ledger.incidents(state=None if query["all"] else "open", limit=query["limit"] + 1),
        query["limit"],
    )
    return {"incidents": [incident_document(one) for one in found], "more": more}


def one_incident(asked: Asked) -> Any:
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


def approvals(asked: Asked) -> Any:
    ledger = asked.app.ledger
    if asked.query["state"] == "requested":
        found = [
            one
            for one in ledger.approvals(state="requested", limit=asked.query["limit"])
            if is_open(ledger, one)
        ]
    else:
        found = ledger.approvals(state="approved", limit=asked.query["limit"])
    return {"requests": [approval_document(one) for one in found]}


def one_approval(asked: Asked) -> Any:
    approval = asked.app.ledger.approval(asked.path["request_id"])
    if approval is None:
        raise missing("request")
    return {"request": approval_document(approval)}


def audit(asked: Asked) -> Any:
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


def explain(asked: Asked) -> Any:
    from kfm.documents.explaining import explained

    app, what = asked.app, asked.names.meant(asked.path["what"]) or ""
    try:
        return explained(app.ledger, _passes(app), app.settings, what, app.clock.now_ms())
    except UsageError as error:
        raise Problem(404, error.detail, error) from None


def whoami(asked: Asked) -> Any:
    identity = asked.identity
    return {
        "subject": None if identity.open else identity.subject,
        "known_by": "nothing" if identity.open else identity.known_by,
        "roles": ["read"] if identity.open else list(identity.roles),
        "people": len(asked.place.people),
    }
