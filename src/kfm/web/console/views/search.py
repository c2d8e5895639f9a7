"""Search: datasets, runs, objects, tickets and errors, by what people have at hand of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from kfm.model.errors import KfmError, all_errors
from kfm.model.quantities import moment
from kfm.model.records import Record, Unit
from kfm.nodd.dataset_registry import Registry, load_registry
from kfm.nodd.messages.refusals import RecordRefusal
from kfm.reports.lookup import PREFIX_CHARS_MIN, is_wal_id
from kfm.web.console import state_words
from kfm.web.console.state_words import Word
from kfm.web.console.visit import TypedFilter, Visit, short, typed

FILTERS = ("q",)
FOUND_MAX = 20  # of one kind
LOOKED_MAX = 2000  # failed runs and incidents that are gone through for an error
_ID = re.compile(r"[0-9a-f-]{4,40}", re.ASCII)
_ERROR = re.compile(r"[A-Z][A-Z0-9_]{3,40}", re.ASCII)
_URI = re.compile(r"(?:(\w+)://)?([^/]+)/(.+)", re.ASCII)
_PROVIDERS = {"s3": "aws", "gs": "gcp"}


class Found(Record, frozen=True):
    kind: str
    name: str
    href: str
    word: Word | None = None
    details: str = ""
    dataset_id: str = ""


class SearchView(Record, frozen=True):
    field: TypedFilter
    found: tuple[Found, ...]
    asked: bool


def view(visit: Visit) -> SearchView:
    text = visit.query.get("q", "").strip()
    kinds = (_names, _ids, _objects, _tickets, _errors)
    found = [each for kind in kinds for each in _some(kind, visit, text)] if text else []
    return SearchView(field=typed("q", "Search", text), found=tuple(found), asked=bool(text))


def _some(kind: Callable[[Visit, str], Iterator[Found]], visit: Visit, text: str) -> Iterator[Found]:
    for number, each in enumerate(kind(visit, text)):
        if number == FOUND_MAX:
            return
        if not (each.dataset_id and visit.visibility.hides(each.dataset_id)):
            yield each


def _names(visit: Visit, text: str) -> Iterator[Found]:
    """Datasets, sources and schedules whose names hold the text."""
    settings, part = visit.context.settings, text.lower()
    for dataset in settings.datasets:
        if any(part in name.lower() for name in dataset.names):
            yield Found(
                kind="dataset", name=dataset.id, href=visit.dataset_page(dataset.id), dataset_id=dataset.id
            )
    for source in settings.sources:
        if any(part in name.lower() for name in source.names):
            yield Found(
                kind="source",
                name=source.id,
                href=visit.href("activity", source=source.id, last="30d"),
                details=f"of {source.dataset}",
                dataset_id=source.dataset,
            )
    for schedule in visit.context.schedules:
        if part in schedule.id.lower():
            yield Found(kind="schedule", name=schedule.id, href=visit.at("schedules", schedule.id))
    for name in sorted({name for name, _, _, _ in visit.reader.unit_figures()}):
        if part in name.lower() and not visit.visibility.hides_units(name):
            yield Found(kind="feed", name=name, href=visit.at("feeds", name))


def _ids(visit: Visit, text: str) -> Iterator[Found]:
    """Records whose ids begin so."""
    start = text.lower()
    if not _ID.fullmatch(start) or len(start) < PREFIX_CHARS_MIN:
        return
    reader = visit.reader
    for run in reader.find_runs(start, FOUND_MAX):
        yield Found(
            kind="run",
            name=short(run.run_id),
            href=visit.run(run.run_id),
            word=state_words.of_run(reader, run),
            details=moment(run.start_time_ms),
            dataset_id=run.dataset_id,
        )
    for call in reader.find_invocations(start, FOUND_MAX):
        yield Found(
            kind="invocation",
            name=short(call.invocation_id),
            href=visit.at("calls", call.invocation_id),
            word=state_words.of_invocation(call.outcome),
            details=moment(call.requested_at_ms),
            dataset_id=call.dataset_id,
        )
    for request in reader.request_reader().find(start, FOUND_MAX):
        yield Found(
            kind="request",
            name=short(request.request_id),
            href=visit.at("requests", request.request_id),
            word=state_words.of_request(request.state, request.outcome, request.blocked_by),
            details=moment(request.accepted_at_ms),
            dataset_id=request.dataset_id,
        )
    if is_wal_id(start) and (unit := reader.unit_reader().unit(start)) is not None:
        yield _unit(visit, unit)


def _objects(visit: Visit, text: str) -> Iterator[Found]:
    """An announced object by its address, or by its key alone: its unit's id is made of it."""
    match = _URI.fullmatch(text)
    if match is None:
        return
    registry = load_registry()
    for wal_id in dict.fromkeys(_wal_ids(registry, match)):
        if (unit := visit.reader.unit_reader().unit(wal_id)) is not None:
            yield _unit(visit, unit)


def _wal_ids(registry: Registry, match: re.Match[str]) -> Iterator[str]:
    scheme, bucket, key = match.groups()
    providers = [_PROVIDERS[scheme]] if scheme in _PROVIDERS else registry.providers_of(bucket)
    places = [(provider, bucket, key) for provider in providers]
    if not scheme:  # the whole text may be a key
        places += [(provider, name, match[0]) for provider, name in registry.places]
    for place in places:
        try:
            yield registry.read(*place).wal_id
        except (RecordRefusal, KfmError):
            continue


def _unit(visit: Visit, unit: Unit) -> Found:
    hidden = visit.visibility.hides_units(unit.dataset)
    return Found(
        kind="unit",
        name=unit.wal_id if hidden else unit.object_uri,
        href=visit.at("units", unit.wal_id),
        word=state_words.of_unit(unit.status),
        details="" if hidden else unit.dataset,
    )


def _tickets(visit: Visit, text: str) -> Iterator[Found]:
    """What was asked for or decided with reference to a ticket."""
    calls, entries = visit.reader.of_ticket(text, FOUND_MAX)
    for call in calls:
        yield Found(
            kind="ticket",
            name=f"invocation {short(call.invocation_id)}",
            href=visit.at("calls", call.invocation_id),
            word=state_words.of_invocation(call.outcome),
            details=f"{moment(call.requested_at_ms)}, {call.actor}: {call.rationale or ''}",
            dataset_id=call.dataset_id,
        )
    for entry in entries:
        yield Found(
            kind="ticket",
            name=f"{entry.kind} {entry.subject}",
            href=visit.href("audit", kind=entry.kind),
            details=f"{moment(entry.recorded_at_ms)}, {entry.actor}: {entry.rationale or ''}",
        )


def _errors(visit: Visit, text: str) -> Iterator[Found]:
    """A code: what it means, open incidents, and runs that failed with it."""
    code = text.upper()
    if not _ERROR.fullmatch(code):
        return
    for error in all_errors():
        if error.code == code:
            yield Found(
                kind="error",
                name=code,
                href=visit.href("activity", text=code, last="30d"),
                details=error().message,
            )
    for incident in visit.reader.incidents(state="open", limit=LOOKED_MAX):
        if incident.error_code == code:
            yield Found(
                kind="incident",
                name=f"{incident.name} {code}",
                href=f"{visit.href()}#incidents",
                details=f"open since {moment(incident.opened_at_ms)}",
                dataset_id=incident.name if incident.about == "dataset" else "",
            )
    for run in visit.reader.runs(status="failed", limit=LOOKED_MAX):
        if run.error_code == code:
            yield Found(
                kind="run",
                name=short(run.run_id),
                href=visit.run(run.run_id),
                word=state_words.of_run(visit.reader, run),
                details=f"{code}, {moment(run.start_time_ms)}",
                dataset_id=run.dataset_id,
            )
