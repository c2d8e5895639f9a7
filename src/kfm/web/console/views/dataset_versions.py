"""The versions of a dataset as a page shows them, and two of them compared by files, columns and rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from kfm.model.errors import UsageError
from kfm.model.records import Record
from kfm.publish.manifest import VersionChange
from kfm.reports.datasets import StoredObjects, version_documents
from kfm.reports.version_diffs import (
    Cell,
    ColumnChange,
    RowChange,
    RowsOfFile,
    VersionDiff,
    compared_versions,
    diff_sentence,
)
from kfm.web.console import state_words
from kfm.web.console.actions import offer
from kfm.web.console.state_words import Word
from kfm.web.console.visit import Paging, TypedFilter, Visit, short, typed
from kfm.web.gone import readable_version
from kfm.web.problems import Problem

FILTERS = ("before", "version", "against")
VERSIONS = 25  # of one page
# What the page has room for, in characters with their markup: it stays below 100 kB.
CHANGES_CHARS, ROWS_CHARS, COLUMNS_MAX = 25_000, 25_000, 12
CHANGE_CHARS, ROW_CHARS, CELL_CHARS = 260, 190, 90
T = TypeVar("T")
_MADE_BY = {
    "withdraw": "withdrawal",
    "retire": "retirement",
    "lift": "lifted withdrawal",
    "rename": "renaming",
}


class ListedVersion(Record, frozen=True):
    version: int
    at_ms: int
    by: str
    href: str | None
    files: int
    bytes: int
    note: str
    compare: str | None  # with the version before
    roll_back: str | None  # the form that puts it back


class ChangeRow(Record, frozen=True):
    word: Word
    what: str
    name: str
    before: str
    after: str
    size_before: int | None
    size_after: int | None


class RowLine(Record, frozen=True):
    word: Word
    key: str | None
    cells: tuple[Cell, ...]


class TableDiff(Record, frozen=True):
    path: str
    earlier_path: str | None
    source_id: str
    is_compared: bool
    why_not: str | None
    key: str
    summary: str
    columns: tuple[tuple[Word, ColumnChange], ...]
    columns_more: int
    rows: tuple[RowLine, ...]
    rows_more: int


class Comparison(Record, frozen=True):
    """Two versions beside each other, or why they can't be."""

    version: int
    against: int | None
    problem: str
    summary: str = ""
    changes: tuple[ChangeRow, ...] = ()
    changes_more: int = 0
    tables: tuple[TableDiff, ...] = ()
    tables_more: int = 0
    shows_values: bool = True


class Versions(Record, frozen=True):
    rows: tuple[ListedVersion, ...]
    paging: Paging
    fields: tuple[TypedFilter, ...]
    clear: str
    comparison: Comparison | None


def versions(visit: Visit, name: str) -> Versions:
    before = number_of(visit, "before")
    promotions = visit.reader.promotions(name, VERSIONS + 1, before)
    shown = promotions[:VERSIONS]
    with visit.context.objects() as has:
        stored = StoredObjects(visit.context.settings.limits.versions_kept, has)
        documents = version_documents(visit.reader, name, shown, stored)
    rolls_back = offer(visit, "rollBack", dataset_id=name).href is not None
    rows: list[ListedVersion] = []
    for promotion, one in zip(shown, documents, strict=True):
        by = f"run {short(one['run_id'])}" if one["run_id"] else f"{_MADE_BY.get(one['by'], one['by'])}"
        note = "can be put back" if one["can_roll_back"] else f"holds what was {one['held_back']}"
        if one["held_back"] == "collected":
            note = "its objects were collected"
        is_head = before is None and not rows
        number = one["version"]
        roll_back = offer(visit, "rollBack", dataset_id=name, to_version=number).href
        rows.append(
            ListedVersion(
                version=number,
                at_ms=promotion.promoted_at_ms,
                by=f"{by} by {one['actor']}" if one["actor"] else by,
                href=visit.run(one["run_id"]) if one["run_id"] else None,
                files=one["files"],
                bytes=one["bytes"],
                note="the head" if is_head else note,
                compare=visit.with_query(version=number, against=number - 1) if number > 1 else None,
                roll_back=roll_back if rolls_back and one["can_roll_back"] else None,
            )
        )
    version, against = number_of(visit, "version"), number_of(visit, "against")
    comparison = _comparison(visit, name, version, against) if version or against else None
    if comparison is not None:
        version, against = comparison.version, comparison.against
    last = shown[-1].sequence if len(promotions) > VERSIONS else None
    many = f"versions {shown[-1].sequence} to {shown[0].sequence}, newest first" if shown else "no versions"
    return Versions(
        rows=tuple(rows),
        paging=Paging(
            newer=visit.with_query(before=None) if before is not None else None,
            older=visit.with_query(before=last) if last is not None else None,
            summary=many,
            newest=True,
        ),
        fields=(
            typed("against", "Earlier version", str(against) if against else ""),
            typed("version", "Later version", str(version) if version else ""),
        ),
        clear=visit.with_query(version=None, against=None),
        comparison=comparison,
    )


def number_of(visit: Visit, name: str) -> int | None:
    value = visit.query.get(name)
    if value is None:
        return None
    if not value.isascii() or not value.isdigit() or len(value) > 15 or int(value) < 1:
        raise UsageError(f"`{name}` is the number of a version.")
    return int(value)


def _comparison(visit: Visit, name: str, version: int | None, against: int | None) -> Comparison:
    """The one that is not named is the head, or the one before."""
    head = next(iter(visit.reader.promotions(name, 1)), None)
    newer = version or (head.sequence if head is not None else 0)
    older: int | None = against or newer - 1 or None
    if older == newer:
        return Comparison(version=newer, against=older, problem="Choose two different versions.")
    try:
        with visit.context.app(visit.identity, read_only=True) as app:
            after = readable_version(app.ledger, name, newer)[1]
            before = readable_version(app.ledger, name, older)[1] if older else None
            found = compared_versions(app, name, before, after)
    except Problem as problem:
        detail = problem.detail if problem.status == 410 else "There is no version of that number."
        return Comparison(version=newer, against=older, problem=detail)
    return _shown(newer, older, found)


def _shown(version: int, against: int | None, found: VersionDiff) -> Comparison:
    changes = _fitting(map(change_row, found.changes), _change_chars, CHANGES_CHARS)
    tables, left = [], ROWS_CHARS
    for one in found.tables:
        rows = _fitting(one.rows, _row_chars, left)
        left -= sum(map(_row_chars, rows))
        tables.append(_table(one, rows))
    return Comparison(
        version=version,
        against=against,
        problem="",
        summary=diff_sentence(found),
        changes=tuple(changes),
        changes_more=found.changes_more + len(found.changes) - len(changes),
        tables=tuple(tables),
        tables_more=found.tables_more,
        shows_values=found.shows_values,
    )


def _fitting(rows: Iterable[T], chars: Callable[[T], int], room: int) -> list[T]:
    found: list[T] = []
    for row in rows:
        room -= chars(row)
        if room < 0:
            break
        found.append(row)
    return found


def _change_chars(row: ChangeRow) -> int:
    return CHANGE_CHARS + len(row.name) + len(row.before) + len(row.after)


def _row_chars(row: RowChange) -> int:
    texts = (len(cell.column) + len(cell.before or "") + len(cell.after or "") for cell in row.cells)
    return ROW_CHARS + len(row.key or "") + sum(CELL_CHARS + chars for chars in texts)


def change_row(change: VersionChange) -> ChangeRow:
    hashes = [each[:12] if each else "" for each in (change.sha256_before, change.sha256_after)]
    return ChangeRow(
        word=state_words.word(change.kind),
        what="file" if change.what == "asset" else change.what,
        name=change.name,
        before=change.before or hashes[0],
        after=change.after or hashes[1],
        size_before=change.size_before,
        size_after=change.size_after,
    )


def _table(one: RowsOfFile, rows: Sequence[RowChange]) -> TableDiff:
    figures = f"{one.added} added, {one.changed} changed, {one.removed} removed, {one.unchanged} unchanged"
    return TableDiff(
        path=one.path,
        earlier_path=one.earlier_path,
        source_id=one.source_id,
        is_compared=one.is_compared,
        why_not=one.why_not,
        key=", ".join(one.key),
        summary=f"Rows: {figures}",
        columns=tuple((state_words.word(each.kind), each) for each in one.columns[:COLUMNS_MAX]),
        columns_more=max(len(one.columns) - COLUMNS_MAX, 0),
        rows=tuple(
            RowLine(word=state_words.word(each.kind), key=each.key, cells=each.cells) for each in rows
        ),
        rows_more=one.rows_more + len(one.rows) - len(rows),
    )
