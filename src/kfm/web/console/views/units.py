"""Pages of units: counts, lists, and one announced object."""

from __future__ import annotations

from kfm.model import quantities
from kfm.model.breaker import circuit_name
from kfm.model.errors import UsageError
from kfm.model.quantities import span
from kfm.model.records import UNIT_STATUSES, Record, Unit
from kfm.model.units import UnitFilter
from kfm.reports.explain.units import explain_unit, is_catalogued
from kfm.reports.lookup import is_wal_id
from kfm.web.console import state_words
from kfm.web.console.state_words import Word
from kfm.web.console.views import explanation
from kfm.web.console.views.explanation import Fact, Next, allowed
from kfm.web.console.visit import ROWS, Filter, NotHere, Paging, TypedFilter, Visit, chosen, typed

FILTERS = ("dataset", "status", "error", "before")


class Count(Record, frozen=True):
    count: int
    href: str
    tone: str


class DatasetUnitCounts(Record, frozen=True):
    unit_dataset: str
    href: str
    counts: tuple[Count, ...]
    total: int
    newest_ms: int | None


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
    heads: tuple[Word, ...]
    datasets: tuple[DatasetUnitCounts, ...]
    filters: tuple[Filter | TypedFilter, ...]
    rows: tuple[UnitRow, ...]
    paging: Paging
    clear: str
    dead: int
    dead_href: str


def view(visit: Visit) -> UnitsView:
    status = visit.choice("status", UNIT_STATUSES)
    counted, newest, dead = _figures(visit)
    names = sorted(name for name in counted if not visit.visibility.hides_units(name))
    dataset = visit.visibility.known(visit.query["dataset"], names) if "dataset" in visit.query else None
    before = visit.query.get("before")
    if before is not None and not is_wal_id(before):
        raise UsageError("`before` is not from a link to older ones.")
    wanted = UnitFilter(
        dataset=dataset or "",
        status=status or "",
        error_code=visit.query.get("error", ""),
        before=before or UnitFilter().before,
        limit=ROWS + 1,
    )
    found = visit.reader.unit_reader().find_units(wanted) if names else []
    unit_words = tuple(state_words.of_unit(each) for each in UNIT_STATUSES)
    return UnitsView(
        heads=unit_words,
        datasets=tuple(_dataset(visit, name, counted[name], newest.get(name)) for name in names),
        filters=(
            chosen("dataset", "Dataset", names, dataset),
            chosen("status", "Status", UNIT_STATUSES, status, [each.text for each in unit_words]),
            typed("error", "Error code", visit.query.get("error")),
        ),
        rows=tuple(
            _row(visit, each) for each in found[:ROWS] if not visit.visibility.hides_units(each.dataset)
        ),
        paging=Paging(
            newer=visit.with_query(before=None) if before else None,
            older=visit.with_query(before=found[ROWS - 1].wal_id) if len(found) > ROWS else None,
            summary=f"{quantities.counted(min(len(found), ROWS), 'unit')}, newest first"
            if found
            else "no units",
            newest=True,
        ),
        clear=visit.href("units"),
        dead=dead,
        dead_href=f"{visit.href('held')}#messages",
    )


def _figures(visit: Visit) -> tuple[dict[str, dict[str, int]], dict[str, int | None], int]:
    """Counts by dataset and status, from the counters of the ledger."""
    counted: dict[str, dict[str, int]] = {}
    newest: dict[str, int | None] = {}
    dead = 0
    for dataset, name, amount, high_ms in visit.reader.unit_figures():
        if name.startswith("dead:"):
            dead += int(amount)
        elif dataset and name in UNIT_STATUSES:
            counted.setdefault(dataset, {})[name] = int(amount)
        elif dataset and name == "watermark":
            newest[dataset] = high_ms
    return counted, newest, dead


def _dataset(visit: Visit, name: str, counts: dict[str, int], newest_ms: int | None) -> DatasetUnitCounts:
    made = [
        Count(
            count=counts.get(status, 0),
            href=visit.href("units", dataset=name, status=status),
            tone=state_words.of_unit(status).tone if counts.get(status) else "none",
        )
        for status in UNIT_STATUSES
    ]
    return DatasetUnitCounts(
        unit_dataset=name,
        href=visit.href("units", dataset=name),
        counts=tuple(made),
        total=sum(counts.values()),
        newest_ms=newest_ms,
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


class UnitView(Record, frozen=True):
    title: str
    word: Word
    unit_dataset: str
    object_uri: str
    facts: tuple[Fact, ...]
    why: explanation.ShownExplanation
    commands: tuple[Next, ...]


def view_one(visit: Visit) -> UnitView:
    reader = visit.reader.unit_reader()
    stored = reader.stored(visit.params["wal_id"])
    if stored is None:
        raise NotHere("No unit of that id is on record. `kfm nodd units` lists them.")
    unit = stored.unit
    if visit.visibility.hides_units(unit.dataset):
        allowed(visit, unit.dataset)
    found = explain_unit(
        stored,
        reader.history_of(unit.wal_id),
        visit.reader.switches(),
        visit.context.settings,
        visit.now_ms,
        visit.reader.request_reader().of_unit(unit.wal_id, stored.content_version),
        visit.reader.breaker(circuit_name(unit.provider)),
        is_catalogued=is_catalogued(visit.reader, unit),
    )
    return UnitView(
        title=f"Unit {unit.wal_id}",
        word=state_words.of_unit(unit.status),
        unit_dataset=unit.dataset,
        object_uri=unit.object_uri,
        facts=tuple(_facts(visit, unit)),
        why=explanation.shown(visit, found),
        commands=(Next(command=f"kfm nodd show {unit.wal_id}", why="shows its whole record"),),
    )


def _facts(visit: Visit, unit: Unit) -> list[Fact]:
    facts = [
        Fact(name="Dataset", text=unit.dataset, href=visit.href("units", dataset=unit.dataset)),
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
