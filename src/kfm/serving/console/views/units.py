"""Announced objects: how many stand where, and which."""

from __future__ import annotations

from kfm.core.records import UNIT_STATUSES, Record, Unit
from kfm.core.wal import Wanted
from kfm.serving.console import words
from kfm.serving.console.visits import ROWS, Filter, Paging, Visit, chosen, paged
from kfm.serving.console.words import Word

FILTERS = ("dataset", "status", "error", "page")


class Count(Record, frozen=True):
    count: int
    href: str
    tone: str


class DatasetUnits(Record, frozen=True):
    unit_dataset: str
    href: str
    counts: tuple[Count, ...]
    total: int
    newest_ms: int | None


class Row(Record, frozen=True):
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
    datasets: tuple[DatasetUnits, ...]
    filters: tuple[Filter, ...]
    rows: tuple[Row, ...]
    paging: Paging
    clear: str
    dead: int
    dead_href: str


def view(visit: Visit) -> UnitsView:
    status = visit.choice("status", UNIT_STATUSES)
    counted, newest, dead = _figures(visit)
    names = sorted(name for name in counted if not _hidden(visit, name))
    dataset = visit.shown.real(visit.query["dataset"], names) if "dataset" in visit.query else None
    skipped = (visit.page() - 1) * ROWS
    wanted = Wanted(
        dataset=dataset or "",
        status=status or "",
        error_code=visit.query.get("error", ""),
        limit=skipped + ROWS + 1,
    )
    found = visit.reader.unit_reader().find_units(wanted)[skipped:] if names else []
    unit_words = tuple(words.of_unit(each) for each in UNIT_STATUSES)
    return UnitsView(
        heads=unit_words,
        datasets=tuple(_dataset(visit, name, counted[name], newest.get(name)) for name in names),
        filters=(
            chosen("dataset", "Dataset", names, dataset),
            chosen("status", "Status", UNIT_STATUSES, status, [each.text for each in unit_words]),
            Filter(name="error", label="Error code", value=visit.query.get("error", "")),
        ),
        rows=tuple(_row(visit, each) for each in found[:ROWS] if not _hidden(visit, each.dataset)),
        paging=paged(visit, len(found), "units"),
        clear=visit.href("units"),
        dead=dead,
        dead_href=f"{visit.href('held')}#messages",
    )


def _hidden(visit: Visit, dataset: str) -> bool:
    """What is announced to everybody is no secret, unless its rights are declared here and say so."""
    return visit.place.settings.declared(dataset) is not None and visit.shown.hides(dataset)


def _figures(visit: Visit) -> tuple[dict[str, dict[str, int]], dict[str, int | None], int]:
    """From counters, not by counting."""
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


def _dataset(visit: Visit, name: str, counts: dict[str, int], newest_ms: int | None) -> DatasetUnits:
    made = [
        Count(
            count=counts.get(status, 0),
            href=visit.href("units", dataset=name, status=status),
            tone=words.of_unit(status).tone if counts.get(status) else "none",
        )
        for status in UNIT_STATUSES
    ]
    return DatasetUnits(
        unit_dataset=name,
        href=visit.href("units", dataset=name),
        counts=tuple(made),
        total=sum(counts.values()),
        newest_ms=newest_ms,
    )


def _row(visit: Visit, unit: Unit) -> Row:
    return Row(
        wal_id=unit.wal_id,
        href=visit.at("units", unit.wal_id),
        word=words.of_unit(unit.status),
        unit_dataset=unit.dataset,
        object_uri=unit.object_uri,
        attempts=unit.attempts,
        error_code=unit.last_error_code or "",
        updated_ms=unit.updated_at_ms,
    )
