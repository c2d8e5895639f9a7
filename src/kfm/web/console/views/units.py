"""Pages of units: lists of announced objects, and one of them."""

from __future__ import annotations

from kfm.model.breaker import circuit_name
from kfm.model.errors import UsageError
from kfm.model.next_steps import unit_step
from kfm.model.quantities import counted, span
from kfm.model.records import UNIT_STATUSES, Record, Unit
from kfm.model.retry_budgets import unit_policy
from kfm.model.units import AFTER_ALL_IDS, StoredUnit, UnitFilter, UnitTransition
from kfm.reports.explain.units import explain_unit, is_catalogued
from kfm.reports.lookup import is_wal_id
from kfm.web.console import state_words, time_range
from kfm.web.console.actions import Offer, offer
from kfm.web.console.state_words import Word
from kfm.web.console.views import explanation
from kfm.web.console.views.explanation import Fact, Next, allowed
from kfm.web.console.views.feed_grid import STANDING_WORDS
from kfm.web.console.views.feeds import queue_filter
from kfm.web.console.visit import ROWS, Filter, NotHere, Paging, TypedFilter, Visit, chosen, typed

# `page` was how older ones were asked for: an address with it leads to the newest.
FILTERS = (*time_range.FILTERS, "dataset", "status", "error", "product", "platform", "before", "page")
INCIDENTS_MAX = 500
# What can be asked for, of which the counts of feeds are made, too.
_STANDINGS = ("waiting", "retrying", "there", "running")
_OF_STATUS = {"failed": "failed", "quarantined": "quarantined", "in_progress": "running"}


class UnitRow(Record, frozen=True):
    wal_id: str
    href: str
    word: Word
    unit_dataset: str
    object_uri: str
    attempts: int
    error_code: str
    updated_ms: int


class UnitsView(Record, frozen=True):
    filters: tuple[Filter | TypedFilter, ...]
    order: str
    rows: tuple[UnitRow, ...]
    paging: Paging
    clear: str
    is_any: bool


def view(visit: Visit) -> UnitsView:
    reader = visit.reader.unit_reader()
    totals = reader.totals()
    names = sorted({name for name, _ in totals if name and not visit.visibility.hides_units(name)})
    dataset = visit.visibility.known(visit.query["dataset"], names) if "dataset" in visit.query else ""
    asked = time_range.time_range(visit, "all")
    wanted = _wanted(visit, dataset, asked)
    found = reader.find_units(wanted) if names else []
    shown = [each for each in found[:ROWS] if not visit.visibility.hides_units(each.dataset)]
    statuses = (*UNIT_STATUSES, *_STANDINGS)
    words = [state_words.of_unit(each).text for each in UNIT_STATUSES]
    words += [STANDING_WORDS[each] for each in _STANDINGS]
    by_data_time = bool(dataset) and (wanted.is_of_product or wanted.standing == "there" or not wanted.status)
    return UnitsView(
        filters=(
            *asked.filters,
            chosen("dataset", "Dataset", names, dataset),
            chosen("status", "Status", statuses, visit.query.get("status"), words),
            typed("error", "Error code", visit.query.get("error")),
            typed("product", "Product", visit.query.get("product")),
            typed("platform", "Platform", visit.query.get("platform")),
        ),
        order=_order(wanted, by_data_time=by_data_time),
        rows=tuple(_row(visit, each) for each in shown),
        paging=_paging(visit, len(shown), found[ROWS - 1].wal_id if len(found) > ROWS else None),
        clear=visit.href("units"),
        is_any=bool(names),
    )


def _wanted(visit: Visit, dataset: str, asked: time_range.TimeRange) -> UnitFilter:
    status = visit.choice("status", (*UNIT_STATUSES, *_STANDINGS)) or ""
    product, platform = visit.query.get("product", ""), visit.query.get("platform", "")
    if not dataset and (product or platform or status == "there"):
        raise UsageError("Choose a dataset: products and what arrived are those of one.")
    before = visit.query.get("before", AFTER_ALL_IDS)
    if before != AFTER_ALL_IDS and not is_wal_id(before):
        raise UsageError("`before` is not from a link to older ones.")
    standing = status if status in _STANDINGS else ""
    if product and status in _OF_STATUS:
        status, standing = "", _OF_STATUS[status]
    if standing == "running" and not product:
        status, standing = "in_progress", ""
    return UnitFilter(
        dataset=dataset,
        status="" if standing else status,
        error_code=visit.query.get("error", ""),
        before=before,
        limit=ROWS + 1,
        start_ms=asked.from_ms or None,
        end_ms=None if asked.until_ms == time_range.FAR_MS else asked.until_ms,
        product=product,
        platform=platform,
        standing=standing,
    )


def _order(wanted: UnitFilter, *, by_data_time: bool) -> str:
    if wanted.product or wanted.platform:
        return "Objects by data time, the newest first; files that describe others are left out"
    if by_data_time or (wanted.dataset and (wanted.start_ms is not None or wanted.end_ms is not None)):
        return "Objects by data time (of a model its cycle), the newest first"
    return "Objects by the time that they cover, the newest first"


def _paging(visit: Visit, shown: int, last: str | None) -> Paging:
    return Paging(
        newer=visit.with_query(before=None, page=None) if "before" in visit.query else None,
        older=visit.with_query(before=last, page=None) if last else None,
        summary=counted(shown, "unit") if shown else "no units",
        newest=True,
    )


def _row(visit: Visit, unit: Unit) -> UnitRow:
    return UnitRow(
        wal_id=unit.wal_id,
        href=visit.at("units", unit.wal_id),
        word=state_words.of_unit(unit.status),
        unit_dataset=unit.dataset,
        object_uri=unit.object_uri,
        attempts=unit.attempts,
        error_code=unit.last_error_code or "",
        updated_ms=unit.updated_at_ms,
    )


class HistoryRow(Record, frozen=True):
    at_ms: int
    event: str
    word: Word
    attempts: int
    worker_id: str
    error_code: str


class BelongsRow(Record, frozen=True):
    """Something that belongs to the unit."""

    kind: str
    name: str
    href: str | None
    text: str
    command: str = ""


class UnitView(Record, frozen=True):
    title: str
    word: Word
    unit_dataset: str
    object_uri: str
    facts: tuple[Fact, ...]
    why: explanation.ShownExplanation
    belongs: tuple[BelongsRow, ...]
    history: tuple[HistoryRow, ...]
    commands: tuple[Next, ...]
    actions: tuple[Offer, ...]


def view_one(visit: Visit) -> UnitView:
    reader = visit.reader.unit_reader()
    stored = reader.stored(visit.params["wal_id"])
    if stored is None:
        raise NotHere("No unit of that id is on record. `kfm nodd units` lists them.")
    unit = stored.unit
    if visit.visibility.hides_units(unit.dataset):
        allowed(visit, unit.dataset)
    history = reader.history_of(unit.wal_id)
    in_catalogue = is_catalogued(visit.reader, unit)
    found = explain_unit(
        stored,
        history,
        visit.reader.switches(),
        visit.context.settings,
        visit.now_ms,
        visit.reader.request_reader().of_unit(unit.wal_id, stored.content_version),
        visit.reader.breaker(circuit_name(unit.provider)),
        is_catalogued=in_catalogue,
    )
    return UnitView(
        title=f"Unit {unit.wal_id}",
        word=state_words.of_unit(unit.status),
        unit_dataset=unit.dataset,
        object_uri=unit.object_uri,
        facts=tuple(_facts(visit, unit)),
        why=explanation.shown(visit, found),
        belongs=tuple(_belongs(visit, stored, history, is_catalogued=in_catalogue)),
        history=tuple(_moved(each) for each in reversed(history)),
        commands=(_next(visit, stored),),
        actions=tuple(
            offer(visit, name, text, incident_id=incident)
            for incident in _incident(visit, unit)[:1]
            for name, text in (
                ("acknowledgeIncident", "Acknowledge the incident"),
                ("assignIncident", "Assign the incident"),
            )
        ),
    )


def _next(visit: Visit, stored: StoredUnit) -> Next:
    """The one thing that a person does about it."""
    unit = stored.unit
    if unit.status in ("failed", "quarantined"):
        left = stored.grants < unit_policy(visit.context.settings, unit.dataset).grants_max
        step = unit_step(unit.wal_id, unit.status, grants_left=left)
        second = " A second person has to approve it." if unit.status == "quarantined" else ""
        return Next(command=step.command, why=f"{step.sentence}.{second}")
    return Next(command=f"kfm nodd show {unit.wal_id}", why="nothing is to be done: its whole record")


def _moved(move: UnitTransition) -> HistoryRow:
    details = move.details
    return HistoryRow(
        at_ms=move.at_ms,
        event=move.event.replace("_", " "),
        word=state_words.of_unit(move.status),
        attempts=move.attempts,
        worker_id=move.worker_id or "",
        error_code=str(details.get("error_code") or details.get("reason") or ""),
    )


def _incident(visit: Visit, unit: Unit) -> list[str]:
    """The open incident of its dataset and error."""
    if unit.status not in ("failed", "quarantined"):
        return []
    return [
        each.incident_id
        for each in visit.reader.incidents(state="open", limit=INCIDENTS_MAX)
        if (each.about, each.name, each.error_code) == ("dataset", unit.dataset, unit.last_error_code)
    ]


def _belongs(
    visit: Visit, stored: StoredUnit, history: list[UnitTransition], *, is_catalogued: bool
) -> list[BelongsRow]:
    """Its feed, item, quarantine entries, incident, replays, requests with their runs, and its queue."""
    unit, rows = stored.unit, []
    rows.append(
        BelongsRow(
            kind="feed",
            name=unit.dataset,
            href=visit.at("feeds", unit.dataset),
            text="all objects of its dataset",
        )
    )
    if is_catalogued:
        collection, item = unit.stac_collection_id or "", unit.stac_item_id or ""
        rows.append(
            BelongsRow(
                kind="catalogue item",
                name=item,
                href=None,
                text=f"in the collection {collection}",
                command=f"kfm catalogue show {collection} {item}",
            )
        )
    rows += [
        BelongsRow(
            kind="quarantine entry",
            name=each.held_id,
            href=visit.at("held", each.held_id),
            text=state_words.of_quarantined(each.kind, each.state).text,
        )
        for each in visit.reader.held(subject=unit.wal_id)
    ]
    rows += [
        BelongsRow(
            kind="incident", name=each, href=visit.at("incidents", each), text="open, of the same error"
        )
        for each in _incident(visit, unit)
    ]
    replays = dict.fromkeys(str(each.details["replay_id"]) for each in history if "replay_id" in each.details)
    rows += [
        BelongsRow(
            kind="replay",
            name=each,
            href=None,
            text="brought it back",
            command=f"kfm replay inspect {each}",
        )
        for each in replays
    ]
    for request in visit.reader.request_reader().of_unit(unit.wal_id, stored.content_version):
        mark = state_words.of_request(request.state, request.outcome, request.blocked_by)
        rows.append(
            BelongsRow(
                kind="request",
                name=request.request_id,
                href=visit.at("requests", request.request_id),
                text=f"of {request.dataset_id}: {mark.text}",
            )
        )
        if request.run_id:
            rows.append(
                BelongsRow(kind="run", name=request.run_id, href=visit.run(request.run_id), text="made of it")
            )
    rows.append(
        BelongsRow(
            kind="messages",
            name=unit.queue,
            href=visit.href("messages", queue=queue_filter(unit.queue), state="any"),
            text="of its queue that could not be read",
        )
    )
    return rows


def _facts(visit: Visit, unit: Unit) -> list[Fact]:
    facts = [
        Fact(name="Dataset", text=unit.dataset, href=visit.at("feeds", unit.dataset)),
        Fact(name="Queue", text=unit.queue),
        Fact(name="Attempts", text=str(unit.attempts)),
        Fact(name="Announced (UTC)", text="", at_ms=unit.created_at_ms),
        Fact(name="Changed (UTC)", text="", at_ms=unit.updated_at_ms),
        Fact(name="Integrity", text=unit.integrity_status),
        Fact(name="Metadata", text=unit.metadata_status),
        Fact(name="Catalogue", text=unit.stac_status),
        Fact(name="Provenance", text=unit.provenance_status),
    ]
    if unit.time_range_start_ms is not None and unit.time_range_end_ms is not None:
        covers = span(unit.time_range_start_ms, unit.time_range_end_ms).removesuffix(" UTC")
        facts.insert(1, Fact(name="Covers (UTC)", text=covers))
    if unit.last_error_code:
        message = f": {unit.last_error_message}" if unit.last_error_message else ""
        facts.append(Fact(name="Last error", text=f"{unit.last_error_code}{message}"))
    return facts
