"""Two versions of a dataset compared: by files, by columns and by rows. Reads only, and within bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from kfm.model.errors import KfmError
from kfm.model.quantities import counted, readable_size
from kfm.model.records import Record
from kfm.publish.contract.columns import MISSING
from kfm.publish.contract.model import Contract, SchemaObject
from kfm.publish.contract.plain_rows import (
    ANY,
    FileTable,
    Open,
    is_nothing,
    known_format,
    read_table,
    shown_value,
    type_of,
)
from kfm.publish.contract.streams import FileProblem
from kfm.publish.contract.table import object_for
from kfm.publish.contract.values import key_of
from kfm.publish.manifest import VersionChange, diff, tally

if TYPE_CHECKING:
    from kfm.config.loader import Loaded
    from kfm.model.records import Asset
    from kfm.model.settings import DatasetSettings
    from kfm.model.versions import Version

Kind = Literal["added", "changed", "removed"]
CONTRACT_BYTES_MAX = 1 << 20


class DiffLimits(NamedTuple):
    """What one comparison may read and tell."""

    bytes_max: int = 8 * 1024 * 1024  # of all files that are compared by rows
    rows_max: int = 50_000  # of one file
    files_max: int = 20  # that are compared by rows
    files_shown_max: int = 200
    rows_shown_max: int = 100  # of one file


LIMITS = DiffLimits()


class Cell(Record, frozen=True):
    """A value that differs, before and after; None: there was none."""

    column: str
    before: str | None
    after: str | None


class RowChange(Record, frozen=True):
    kind: Kind
    key: str | None  # the values by which the row was found on both sides
    cells: tuple[Cell, ...]


class ColumnChange(Record, frozen=True):
    kind: Kind
    column: str
    before: str | None  # its type
    after: str | None


class RowsOfFile(Record, frozen=True):
    """One file compared by rows, or why it was not."""

    path: str
    earlier_path: str | None  # where the same table had another name before
    source_id: str
    is_compared: bool
    why_not: str | None = None
    key: tuple[str, ...] = ()  # columns by which rows are found again; none: rows are compared as a whole
    added: int = 0
    changed: int = 0
    removed: int = 0
    unchanged: int = 0
    columns: tuple[ColumnChange, ...] = ()
    rows: tuple[RowChange, ...] = ()
    rows_more: int = 0


class VersionDiff(Record, frozen=True):
    """What differs between two versions of a dataset."""

    files_added: int
    files_changed: int
    files_removed: int
    files_unchanged: int
    changes: tuple[VersionChange, ...]
    changes_more: int
    tables: tuple[RowsOfFile, ...]
    tables_more: int
    shows_values: bool  # values of rows are told of public datasets only


class ContractsOf(NamedTuple):
    """The contracts of a dataset's sources as they are written now: what they say about files and keys."""

    by_source: Mapping[str, Sequence[tuple[str, Contract]]]  # with the prefix of the paths that each is for

    def table_of(self, source_id: str, asset: Asset) -> SchemaObject:
        for prefix, contract in self.by_source.get(source_id, ()):
            if asset.path.startswith(prefix):
                found = object_for(contract, asset)
                if found is not None:
                    return found
        return ANY


def contracts_of(loaded: Loaded, dataset_id: str) -> ContractsOf:
    """A contract that can't be read now says nothing here: runs refuse it, and say so."""
    from kfm.publish.contract import load_contract

    found: dict[str, list[tuple[str, Contract]]] = {}
    for source in loaded.settings.sources:
        if source.dataset != dataset_id:
            continue
        named = [("", source.contract)] if source.contract else []
        named += [
            (f"{member}/", path)
            for member in source.members
            if (path := loaded.settings.source(member).contract)
        ]
        for prefix, path in named:
            try:
                with open(loaded.resolve(path), "rb") as file:
                    contract = load_contract(file.read(CONTRACT_BYTES_MAX + 1), path)
            except (OSError, KfmError):
                continue
            found.setdefault(source.id, []).append((prefix, contract))
    return ContractsOf(found)


def may_show_values(dataset: DatasetSettings | None, *versions: Version | None) -> bool:
    """Only of what was public in each version and is public now; as the reports of contracts do."""
    rights = [one.header.rights for one in versions if one is not None]
    rights += [dataset.rights] if dataset is not None and dataset.rights is not None else []
    return bool(rights) and all(one.care.level == "public" for one in rights)


def diff_versions(
    old: Version | None,
    new: Version,
    open: Open,
    contracts: ContractsOf,
    *,
    shows_values: bool,
    limits: DiffLimits = LIMITS,
) -> VersionDiff:
    """Every difference, as far as the bounds allow; what they cut is counted."""
    changes, figures = diff(old, new), tally(old, new)
    pairs = [each for each in _pairs(old, new) if _has_rows(each, contracts)]
    tables, left = [], limits.bytes_max
    for pair in pairs[: limits.files_max]:
        size = sum(side.asset.size for side in (pair.before, pair.after) if side is not None)
        if size > left:
            tables.append(_unread(pair, _too_large(size, limits)))
            continue
        left -= size
        tables.append(_compared(pair, open, contracts, shows_values, limits))
    return VersionDiff(
        files_added=figures.added,
        files_changed=figures.changed,
        files_removed=figures.removed,
        files_unchanged=figures.unchanged,
        changes=tuple(changes[: limits.files_shown_max]),
        changes_more=max(len(changes) - limits.files_shown_max, 0),
        tables=tuple(tables),
        tables_more=max(len(pairs) - limits.files_max, 0),
        shows_values=shows_values,
    )


def _too_large(size: int, limits: DiffLimits) -> str:
    bound = readable_size(limits.bytes_max)
    if size > limits.bytes_max:
        return f"it is too large to compare by rows: {readable_size(size)} on both sides, {bound} at most"
    return f"the files before it took up the {bound} that one comparison reads"


# --- which file is compared with which -------------------------------------------------


class Side(NamedTuple):
    """A file, and the source that it is from."""

    source_id: str
    asset: Asset


class FilePair(NamedTuple):
    before: Side | None
    after: Side | None

    @property
    def shown(self) -> Side:
        side = self.after or self.before
        assert side is not None
        return side


def _pairs(old: Version | None, new: Version) -> Iterator[FilePair]:
    """Files whose bytes differ, by path. Of a source of which one file went and one came, of the same
    ending, these are the same table under another name."""
    before: dict[str, Side] = {}
    after: dict[str, Side] = {}
    for was, now in new.changed_items(old):
        if was is not None:
            before |= {one.path: Side(was.source_id, one) for one in was.assets}
        if now is not None:
            after |= {one.path: Side(now.source_id, one) for one in now.assets}
    both = sorted(before.keys() & after.keys())
    found = [
        FilePair(before[path], after[path])
        for path in both
        if before[path].asset.sha256 != after[path].asset.sha256
    ]
    gone = [side for path, side in sorted(before.items()) if path not in after]
    come = [side for path, side in sorted(after.items()) if path not in before]
    renamed = {_kind(side): side for side in gone}
    single = [kind for kind, count in Counter(map(_kind, gone)).items() if count == 1]
    for side in come:
        kind = _kind(side)
        alone = kind in single and sum(_kind(each) == kind for each in come) == 1
        found.append(FilePair(renamed.pop(kind) if alone else None, side))
    found += [FilePair(side, None) for side in gone if side in renamed.values() or _kind(side) not in single]
    return iter(found)


def _has_rows(pair: FilePair, contracts: ContractsOf) -> bool:
    side = pair.shown
    return known_format(side.asset, contracts.table_of(side.source_id, side.asset)) is not None


def _kind(side: Side) -> tuple[str, str]:
    return side.source_id, side.asset.path.rpartition(".")[2].lower()


# --- rows ------------------------------------------------------------------------------


def _unread(pair: FilePair, why: str) -> RowsOfFile:
    before, shown = pair.before, pair.shown
    other = before.asset.path if before is not None and before.asset.path != shown.asset.path else None
    return RowsOfFile(
        path=shown.asset.path,
        earlier_path=other,
        source_id=shown.source_id,
        is_compared=False,
        why_not=why,
    )


def _compared(
    pair: FilePair, open: Open, contracts: ContractsOf, shows_values: bool, limits: DiffLimits
) -> RowsOfFile:
    schema = contracts.table_of(pair.shown.source_id, pair.shown.asset)
    sides: list[FileTable] = []
    for side in pair:
        if side is None:
            sides.append(FileTable(columns=(), rows=(), is_text=False))
            continue
        try:
            sides.append(read_table(side.asset, open, schema, rows_max=limits.rows_max))
        except FileProblem as problem:
            return _unread(pair, f"{side.asset.path} {problem}")
        except (KfmError, OSError):  # collected, or the store can't be asked
            return _unread(pair, f"the bytes of {side.asset.path} are not in the object store any more")
    before, after = sides
    declared = tuple(prop.column for prop in schema.primary_key)
    key = key_columns(before, after, declared)
    found = list(row_changes(before, after, key))
    counts = Counter(each.kind for each in found)
    bare = _unread(pair, "")
    shown = found[: limits.rows_shown_max] if shows_values else []
    return RowsOfFile(
        path=bare.path,
        earlier_path=bare.earlier_path,
        source_id=bare.source_id,
        is_compared=True,
        key=key,
        added=counts["added"],
        changed=counts["changed"],
        removed=counts["removed"],
        unchanged=len(after.rows) - counts["added"] - counts["changed"],
        columns=tuple(column_changes(before, after)) if pair.before and pair.after else (),
        rows=tuple(shown),
        rows_more=len(found) - len(shown),
    )


def column_changes(before: FileTable, after: FileTable) -> Iterator[ColumnChange]:
    """Columns that came, went, or hold values of another type."""
    was, now = column_types(before), column_types(after)
    for name in dict.fromkeys((*now, *was)):
        old, new = was.get(name), now.get(name)
        if old == new:
            continue
        kind: Kind = "added" if old is None else "removed" if new is None else "changed"
        yield ColumnChange(kind=kind, column=name, before=old, after=new)


def column_types(table: FileTable) -> dict[str, str]:
    return {
        name: type_of((row[place] for row in table.rows), is_text=table.is_text)
        for place, name in enumerate(table.columns)
    }


def key_columns(before: FileTable, after: FileTable, declared: Sequence[str] = ()) -> tuple[str, ...]:
    """The columns by which rows are found on both sides: the primary key of the contract; else the first
    column, or as few of the first as it takes, whose values are all there, and unique on both sides."""
    sides = [each for each in (before, after) if each.rows]
    if len(sides) < 2:
        return ()
    common = [name for name in after.columns if name in before.columns]
    wanted = tuple(declared)
    alone = [(name,) for name in common if name != "geometry"]
    several = [tuple(common[:count]) for count in (2, 3) if count < len(common)]
    choices = [wanted] if wanted and set(wanted) <= set(common) else []
    for names in (*choices, *alone[:8], *several):
        if all(_keyed(each, names) is not None for each in sides):
            return names
    return ()


def _keyed(table: FileTable, names: Sequence[str]) -> dict[bytes, int] | None:
    """The place of each row by its key; None: it is not unique, or a value is not there."""
    places = [table.columns.index(name) for name in names]
    found: dict[bytes, int] = {}
    for number, row in enumerate(table.rows):
        values = [row[place] for place in places]
        if any(is_nothing(value, is_text=table.is_text) for value in values):
            return None
        found[_joined(values)] = number
    return found if len(found) == len(table.rows) else None


def _joined(values: Sequence[Any]) -> bytes:
    keys = [key_of(None if value is MISSING else value) for value in values]
    return b"".join(len(key).to_bytes(8, "big") + key for key in keys)


def row_changes(before: FileTable, after: FileTable, key: Sequence[str]) -> Iterator[RowChange]:
    """Rows that came, went or differ; without a key a row that differs has gone and come."""
    names = tuple(dict.fromkeys((*after.columns, *before.columns)))
    was_at = _places(before, names)
    now_at = _places(after, names)
    if not key:
        yield from _whole_rows(before, after, names, was_at, now_at)
        return
    old, new = _keyed(before, key) or {}, _keyed(after, key) or {}
    for each, number in new.items():
        now = after.rows[number]
        was = before.rows[old[each]] if each in old else None
        cells = _cells(names, was, was_at, now, now_at)
        if was is None or cells:
            yield RowChange(
                kind="added" if was is None else "changed", key=_key_text(after, key, now), cells=cells
            )
    for each, number in old.items():
        if each not in new:
            was = before.rows[number]
            cells = _cells(names, was, was_at, None, now_at)
            yield RowChange(kind="removed", key=_key_text(before, key, was), cells=cells)


def _whole_rows(
    before: FileTable,
    after: FileTable,
    names: Sequence[str],
    was_at: Sequence[int | None],
    now_at: Sequence[int | None],
) -> Iterator[RowChange]:
    old = Counter(_joined(_in_order(row, was_at)) for row in before.rows)
    new = Counter(_joined(_in_order(row, now_at)) for row in after.rows)
    come, gone = new - old, old - new
    for row in after.rows:
        if _taken(come, _joined(_in_order(row, now_at))):
            yield RowChange(kind="added", key=None, cells=_cells(names, None, was_at, row, now_at))
    for row in before.rows:
        if _taken(gone, _joined(_in_order(row, was_at))):
            yield RowChange(kind="removed", key=None, cells=_cells(names, row, was_at, None, now_at))


def _taken(counts: Counter[bytes], key: bytes) -> bool:
    if not counts[key]:
        return False
    counts[key] -= 1
    return True


def _places(table: FileTable, names: Sequence[str]) -> list[int | None]:
    at = {name: place for place, name in enumerate(table.columns)}
    return [at.get(name) for name in names]


def _in_order(row: Sequence[Any], places: Sequence[int | None]) -> list[Any]:
    return [None if place is None else row[place] for place in places]


def _cells(
    names: Sequence[str],
    was: Sequence[Any] | None,
    was_at: Sequence[int | None],
    now: Sequence[Any] | None,
    now_at: Sequence[int | None],
) -> tuple[Cell, ...]:
    """The values that differ; of a row that came or went, all that it has."""
    found = []
    for name, there, here in zip(names, was_at, now_at, strict=True):
        old = MISSING if was is None or there is None else was[there]
        new = MISSING if now is None or here is None else now[here]
        both = was is not None and now is not None
        if both and _joined([old]) == _joined([new]):
            continue
        if not both and old is MISSING and new is MISSING:
            continue
        found.append(Cell(column=name, before=shown_value(old), after=shown_value(new)))
    return tuple(found)


def _key_text(table: FileTable, key: Sequence[str], row: Sequence[Any]) -> str:
    return ", ".join(shown_value(row[table.columns.index(name)]) or "" for name in key)


def compared_versions(app: Any, dataset_id: str, old: Version | None, new: Version) -> VersionDiff:
    """Of an application: with its objects, and the contracts as they are written now."""
    settings = app.settings
    declared = settings.declared(dataset_id)
    return diff_versions(
        old,
        new,
        app.objects.open,
        contracts_of(app.loaded, dataset_id),
        shows_values=may_show_values(declared, old, new),
    )


NumberedVersion = tuple[int | None, "Version | None"]


def diff_document(app: Any, dataset_id: str, before: NumberedVersion, after: tuple[int, Version]) -> Any:
    """As programs read it."""
    found = compared_versions(app, dataset_id, before[1], after[1])
    return {
        "dataset_id": dataset_id,
        "against": before[0],
        "version": after[0],
        "summary": diff_sentence(found),
        **msgspec.to_builtins(found),
    }


def diff_sentence(found: VersionDiff) -> str:
    """In a line, for people."""
    files = (
        f"{counted(found.files_added, 'file')} added, {found.files_changed} changed, "
        f"{found.files_removed} removed, {found.files_unchanged} unchanged"
    )
    compared = [one for one in found.tables if one.is_compared]
    if not compared:
        return files
    rows = tuple(sum(getattr(one, name) for one in compared) for name in ("added", "changed", "removed"))
    return f"{files}; {counted(rows[0], 'row')} added, {rows[1]} changed, {rows[2]} removed"
