"""The form of a change: what will happen, the reason, the same as a command; and its receipt."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from secrets import token_urlsafe
from typing import Any

import msgspec

from kfm.datasets.changes import ChangePlan
from kfm.model.errors import KfmError, UsageError
from kfm.model.feeds import feed_names
from kfm.model.quantities import counted, span
from kfm.model.records import Record
from kfm.reports.dataset_plans import plan_lines
from kfm.reports.replays import stage_in
from kfm.reports.units import HASH_PREFIX, find_dead
from kfm.web.api.access import require
from kfm.web.api.operations import ID, Operation, Reply
from kfm.web.api.operations import read_query as read_parameters
from kfm.web.api.perform import body_of, perform
from kfm.web.api.short_ids import with_whole_ids
from kfm.web.console import forms, state_words
from kfm.web.console.actions import ACTIONS, BY_NAME, PAGE, Action, command_line, curl_line, refusal
from kfm.web.console.visit import Link, NotHere, Visit, short
from kfm.web.openapi import BASE
from kfm.web.problems import Problem, problem_of

KEY = "key"  # of the form: sent twice, it is done once
TYPED = "typed"
CHOSEN = tuple(dict.fromkeys(name for each in ACTIONS.values() for name in forms.names_of(each.operation)))
LINES_MAX = 200


class Subject(Record, frozen=True):
    """What a change is about."""

    name: str
    state: str
    href: str
    dataset_id: str = ""


class ActionPage(Record, frozen=True):
    title: str
    verb: str
    effect: str
    subject: Subject | None
    fields: tuple[forms.FormField, ...]
    given: tuple[tuple[str, str], ...]  # what the form sends without asking
    path: tuple[tuple[str, str], ...]  # the ids of what it is about
    rationale: str
    ticket: str
    has_preview: bool
    is_planned: bool  # else its preview has to be made first
    plan: tuple[str, ...]
    plan_more: int
    typed: str  # the name that has to be typed; empty: none
    refused: str  # why this person can't
    problem: str
    remedy: str
    command: str
    curl: str
    here: str
    done: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()


def view(visit: Visit) -> ActionPage:
    """The form, with the preview of what it would do."""
    return _page(visit, dict(visit.query), token_urlsafe(16))


def sent(visit: Visit, form: Mapping[str, str]) -> tuple[int, ActionPage]:
    """What a form has come to: the receipt of the change, or the form again, with what is wrong."""
    values = dict(form)
    try:
        reply = _carry_out(visit, _action(visit), values)
    except (KfmError, Problem) as error:
        problem = problem_of(error)
        page = _page(visit, values, token_urlsafe(16))  # nothing was done under the key that it had
        remedy = str(problem.document().get("remedy", ""))
        return problem.status, msgspec.structs.replace(page, problem=problem.detail, remedy=remedy)
    return 200, _receipt(visit, values, reply)


def _carry_out(visit: Visit, action: Action, values: Mapping[str, str]) -> Reply:
    operation = action.operation
    assert operation.role is not None
    assert operation.body is not None
    what = f"{operation.method} {operation.shown_path}"
    require(visit.context, visit.identity, operation.role, what)
    path = _path(visit, operation, values)
    wanted = _subject(visit, operation, path)
    body = body_of(forms.body_from(operation, values), operation.body)
    if action.is_typed and wanted and values.get(TYPED, "").strip() != wanted.dataset_id:
        raise Problem(400, f"Type `{wanted.dataset_id}` to confirm it: readers will see the difference.")
    if not re.fullmatch(r"[A-Za-z0-9_-]{16,64}", values.get(KEY, "")):
        raise Problem(400, "The form has no key of its own: open it again.")
    key = f"console:{values[KEY]}"
    return perform(
        visit.context, visit.identity, operation, path=path, query={}, body=body, key=key, base=BASE
    )


def _action(visit: Visit) -> Action:
    found = ACTIONS.get(visit.params["operation"])
    if found is None:
        raise NotHere("There is no such change.")
    return found


def _path(visit: Visit, operation: Operation, values: Mapping[str, str]) -> Mapping[str, str]:
    """The ids that its path has; whole, where a beginning was given."""
    found = {name: values.get(name, "") for name in operation.fields}
    for name, value in found.items():
        if re.fullmatch(ID, value) is None:
            raise NotHere(f"The address has no `{name}`.")
    return with_whole_ids(visit.reader, operation, found)


def _page(visit: Visit, values: dict[str, str], key: str) -> ActionPage:
    action = _action(visit)
    operation = action.operation
    path = _path(visit, operation, values)
    about = _subject(visit, operation, path)
    values |= path
    refused = refusal(visit.identity, action, visit.context.people)
    fields = forms.fields_of(operation, values)
    lines: list[str] = []
    problem = ""
    is_asked = all(values.get(each.name) for each in fields if each.is_required)
    if action.preview and not refused and is_asked:
        try:
            lines, values[forms.DIGEST] = _preview(visit, BY_NAME[action.preview], path, values)
        except (KfmError, Problem) as error:
            problem = problem_of(error).detail
    is_planned = not action.preview or (forms.DIGEST in values and bool(lines))
    given = {**path, KEY: key}
    if action.preview and is_planned:  # exactly what was previewed
        given |= {each.name: each.value for each in fields} | {forms.DIGEST: values[forms.DIGEST]}
    return ActionPage(
        title=f"{action.verb}{f' {about.name}' if about else ''}",
        verb=action.verb,
        effect=action.effect,
        subject=about,
        fields=tuple(fields),
        given=tuple(given.items()),
        path=tuple(path.items()),
        rationale=values.get("rationale", ""),
        ticket=values.get("ticket", ""),
        has_preview=action.preview is not None,
        is_planned=is_planned,
        plan=tuple(lines[:LINES_MAX]),
        plan_more=max(len(lines) - LINES_MAX, 0),
        typed=about.dataset_id if about and action.is_typed else "",
        refused=refused,
        problem=problem,
        remedy="",
        command=command_line(action, values),
        curl=curl_line(operation, path, forms.body_from(operation, values)),
        here=f"{visit.base}/{PAGE}/{action.name}",
    )


def _preview(
    visit: Visit, operation: Operation, path: Mapping[str, str], values: Mapping[str, str]
) -> tuple[list[str], str]:
    """What would be done, in lines, and its digest."""
    chosen = [(each.name, values[each.name]) for each in operation.parameters if values.get(each.name)]
    query = read_parameters(chosen, operation.parameters)
    reply = perform(visit.context, visit.identity, operation, path=path, query=query, base=BASE)
    plan = msgspec.convert(reply.document["plan"], ChangePlan)
    return plan_lines(plan), plan.digest


# --- what has come of it ---------------------------------------------------------------


def _receipt(visit: Visit, values: dict[str, str], reply: Reply) -> ActionPage:
    action = _action(visit)
    page = _page(visit, values, "")
    lines, links = [], []
    for name, document in reply.document.items():
        if not isinstance(document, dict):
            continue
        for kind, (id_name, words, place) in _RECORDS.items():
            if name == kind and isinstance(found := document.get(id_name), str):
                state = document.get("state")
                lines.append(f"{words} {short(found)}{f': {state}' if state else ''}")
                if place:
                    links.append(Link(text=f"{words} {short(found)}", href=visit.at(place, found)))
    if reply.document.get("applied") is False:
        lines.append("A second person has to approve it; nothing was changed yet.")
    if "changed" in reply.document and reply.document["changed"] is False:
        lines.append("It was so already: nothing had to be changed.")
    if "listed" in reply.document:
        lines += _compared(reply.document)
    if "released" in reply.document:
        lines.append(f"{counted(reply.document['released'], 'record')} released.")
    if "made" in reply.document:
        lines.append(f"{counted(reply.document['made'], 'request')} made.")
    if page.subject:
        links.append(Link(text=page.subject.name, href=page.subject.href))
    links.append(Link(text="The audit log", href=visit.href("audit")))
    return msgspec.structs.replace(page, done=(f"{action.verb}: done.", *lines), links=tuple(links))


def _compared(document: Mapping[str, Any]) -> list[str]:
    """What a listing has shown."""
    words = ("known", "missing", "changed", "gone", "unreadable", "outside")
    counts = ", ".join(f"{document[name]} {name}" for name in words)
    lines = [f"{counted(document['listed'], 'object')} listed: {counts}."]
    if document["opened"]:
        lines.append(f"{counted(document['opened'], 'unit')} opened as backfill.")
    if not document["complete"]:
        lines.append("There is more in the bucket: the limit was reached.")
    return [*lines, *(f"{each['what']}: {each['object_uri']}" for each in document["gaps"][:LINES_MAX])]


_RECORDS = {
    "request": ("request_id", "Request", "requests"),
    "replay": ("replay_id", "Replay", "plans"),
    "held": ("held_id", "Quarantine entry", "held"),
    "incident": ("incident_id", "Incident", "incidents"),
}


# --- what changes are about ------------------------------------------------------------


def _subject(visit: Visit, operation: Operation, path: Mapping[str, str]) -> Subject | None:
    """None: the change is about nothing that is there yet."""
    if not operation.fields:
        return None
    words = operation.path.split("/")[1]
    found = _SUBJECTS[words](visit, path[operation.fields[0]])
    if found is None:
        raise NotHere(f"There is no such {operation.fields[0].removesuffix('_id')}.")
    return found


def _run(visit: Visit, run_id: str) -> Subject | None:
    run = visit.reader.run(run_id)
    if run is None:
        return None
    when = span(run.window_start_ms, run.window_end_ms)
    word = state_words.of_run(visit.reader, run).text
    return Subject(
        name=f"run {short(run.run_id)}",
        state=f"{run.dataset_id} from {run.source_id}, {when}: {word}, {counted(run.attempts, 'attempt')}"
        + (f", {run.error_code}" if run.error_code else ""),
        href=visit.run(run.run_id),
        dataset_id=run.dataset_id,
    )


def _request(visit: Visit, request_id: str) -> Subject | None:
    found = visit.reader.request_reader().request(request_id)
    if found is None:
        return None
    return Subject(
        name=f"request {short(found.request_id)}",
        state=f"{found.dataset_id} from {found.source_id}, by {found.kind}: {found.state}",
        href=visit.at("requests", found.request_id),
        dataset_id=found.dataset_id,
    )


def _approval(visit: Visit, request_id: str) -> Subject | None:
    found = visit.reader.approval(request_id)
    if found is None:
        return None
    return Subject(
        name=f"request {short(found.request_id)}",
        state=f"{found.kind} of {found.dataset_id}, requested by {found.requested_by}: {found.rationale}",
        href=visit.href(),
        dataset_id=found.dataset_id or "",
    )


def _schedule(visit: Visit, name: str) -> Subject | None:
    schedule_id = visit.schedule(name)
    found = next((each for each in visit.context.schedules if each.id == schedule_id), None)
    if found is None:
        return None
    state = visit.reader.schedule_reader().states().get(found.id)
    word = "paused" if state is not None and state.paused_at_ms is not None else "running"
    return Subject(
        name=f"schedule {found.id}",
        state=f"of source {found.source}: {word}",
        href=visit.at("schedules", found.id),
    )


def _dataset(visit: Visit, name: str) -> Subject | None:
    settings = visit.context.settings
    among = [each for one in settings.datasets for each in one.names]
    wanted = settings.dataset_id(visit.visibility.known(name, among)) or name
    head = next((each for each in visit.reader.heads() if each.dataset_id == wanted), None)
    if head is None and wanted not in {one.id for one in settings.datasets}:
        return _feed(visit, wanted) if wanted in feed_names(settings) else None
    state = f"readers see version {head.sequence}" if head else "nothing is published"
    return Subject(name=wanted, state=state, href=visit.dataset_page(wanted), dataset_id=wanted)


def _breaker(visit: Visit, provider: str) -> Subject | None:
    found = next((each for each in visit.reader.breakers() if each.provider == provider), None)
    if found is None:
        return None
    return Subject(name=f"circuit of {provider}", state=f"it is {found.state}", href=visit.href())


def _held(visit: Visit, held_id: str) -> Subject | None:
    found = visit.reader.held_one(held_id)
    if found is None:
        return None
    return Subject(
        name=f"quarantine entry {short(found.held_id)}",
        state=f"{found.dataset_id} from {found.source_id}: {found.error_code}, {found.state}",
        href=visit.at("held", found.held_id),
        dataset_id=found.dataset_id,
    )


def _replay(visit: Visit, replay_id: str) -> Subject | None:
    found = visit.reader.replay_reader().replay(replay_id)
    if found is None:
        return None
    state = stage_in(visit.reader, found)
    return Subject(
        name=f"replay {found.name or short(replay_id)}",
        state=f"{counted(len(found.plan.units), 'unit')} of {', '.join(found.plan.by_dataset)}: {state}",
        href=visit.at("plans", replay_id),
    )


def _incident(visit: Visit, incident_id: str) -> Subject | None:
    found = next(
        (each for each in visit.reader.find_incidents(incident_id) if each.incident_id == incident_id), None
    )
    if found is None:
        return None
    return Subject(
        name=f"incident {short(incident_id)}", state=found.state, href=visit.at("incidents", incident_id)
    )


def _scope(visit: Visit, scope: str) -> Subject:
    kind, _, name = scope.partition(":")
    now = next((each.position for each in visit.reader.switches() if each.scope == scope), "running")
    about = "everything" if kind == "all" else scope.replace(":", " ")
    return Subject(name=f"for {about}", state=f"it is {now}", href=visit.href(), dataset_id=name)


def _feed(visit: Visit, name: str) -> Subject | None:
    found = visit.reader.unit_reader().totals()
    known = {dataset for dataset, _ in found} | {one.dataset for one in visit.context.settings.ingest.feeds}
    if name not in known:
        return None
    return Subject(name=f"feed {name}", state="announced objects", href=visit.at("feeds", name))


def _message(visit: Visit, envelope: str) -> Subject | None:
    try:
        found = find_dead(visit.reader.unit_reader(), envelope)[0]
    except UsageError:
        return None
    return Subject(
        name=f"dead message {short(envelope.removeprefix(HASH_PREFIX))}",
        state=f"of the queue {found.queue}: {found.error_code}, {found.state}",
        href=visit.at("messages", envelope),
    )


_SUBJECTS: dict[str, Callable[[Visit, str], Subject | None]] = {
    "runs": _run,
    "requests": _request,
    "approvals": _approval,
    "schedules": _schedule,
    "datasets": _dataset,
    "breakers": _breaker,
    "quarantine": _held,
    "replays": _replay,
    "incidents": _incident,
    "switches": _scope,
    "feeds": _feed,
    "dead-letters": _message,
}
