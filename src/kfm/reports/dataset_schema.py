"""The columns of a dataset's tables, their types, and when they changed; what contracts promise, and whether
it holds. Read from the published files, within bounds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from kfm.model.errors import KfmError
from kfm.model.item_ids import source_part
from kfm.model.quantities import readable_size
from kfm.model.records import Check, Record, Run, Window
from kfm.model.times import is_all_time
from kfm.publish.contract.plain_rows import LOOK_LIMITS, Open, known_format, read_columns, read_table
from kfm.publish.contract.streams import FileProblem
from kfm.reports.run_logs import read_log
from kfm.reports.version_diffs import ContractsOf, column_types

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.records import Asset, Item
    from kfm.model.versions import Version
    from kfm.publish.contract.model import SchemaObject

TYPED_BYTES_MAX = 8 * 1024 * 1024  # of a file whose values are looked at
NAMED_BYTES_MAX = 64 * 1024 * 1024  # of a file of which only the names of the columns are read
ROWS_MAX = 20_000
NAMED_ROWS_MAX = 100  # of JSON, whose every row may have other members
WINDOWS_MAX = 2000  # in which a change of columns is looked for
VERSIONS_MAX = 60
SAMPLES = 24
TABLES_MAX = 12  # of one source
LINES_MAX = 2000
RUNS_MAX = 20
CHECKED_BYTES_MAX = 8 * 1024 * 1024


class ColumnSeen(Record, frozen=True):
    name: str
    type: str | None  # of its values; None: they were not looked at
    declared: str | None  # by the contract
    is_required: bool


class ColumnsChanged(Record, frozen=True):
    """From this window, or this version, on the table has other columns than before."""

    start_ms: int | None
    end_ms: int | None
    version: int | None
    added: tuple[str, ...]
    removed: tuple[str, ...]


class TableSchema(Record, frozen=True):
    source_id: str
    name: str  # of the table in its contract, or the ending of its files
    path: str  # of the newest file
    start_ms: int
    end_ms: int
    columns: tuple[ColumnSeen, ...]
    why_not: str | None  # it could not be read
    changes: tuple[ColumnsChanged, ...]  # the newest first
    looked_at: int  # windows, or versions


class Place(NamedTuple):
    """An item, and the version that it was seen in; None: the head, which has all windows."""

    item: Item
    version: int | None


class PastTables(NamedTuple):
    """The windows of a source, or the versions of its one item: the oldest first, read when asked for."""

    length: int
    at: Callable[[int], Place | None]


def newest_items(version: Version, source_id: str, limit: int) -> list[Item]:
    """The last windows of a source, in their order."""
    forest = version.pages.items_forest()
    rows = deque(forest.entries(version.tree_id, source_part(source_id)), maxlen=limit)
    found = version.pages.read_items([(entry.sha256, entry.size) for _, entry in rows])
    return [one for one in found if one.source_id == source_id]


def dataset_schema(
    ledger: LedgerReader, dataset_id: str, sources: Sequence[str], open: Open, contracts: ContractsOf
) -> list[TableSchema]:
    """The tables of each source, as the version that readers see has them."""
    head = ledger.head(dataset_id)
    if head is None:
        return []
    found: list[TableSchema] = []
    for source_id in sources:
        past = _windows(head[1], source_id)
        past = past if past.length > 1 else _over_versions(ledger, dataset_id, source_id)
        last = past.at(past.length - 1) if past.length else None
        if last is not None:
            found += _tables(source_id, last.item, past, open, contracts)
    return found


def _windows(version: Version, source_id: str) -> PastTables:
    forest = version.pages.items_forest()
    rows = list(deque(forest.entries(version.tree_id, source_part(source_id)), maxlen=WINDOWS_MAX))

    def at(number: int) -> Place | None:
        _, entry = rows[number]
        (item,) = version.pages.read_items([(entry.sha256, entry.size)])
        return Place(item, None) if item.source_id == source_id else None

    return PastTables(len(rows), at)


def _over_versions(ledger: LedgerReader, dataset_id: str, source_id: str) -> PastTables:
    """The one item of a source in each of the newest versions."""
    promotions = ledger.promotions(dataset_id, VERSIONS_MAX)[::-1]

    def at(number: int) -> Place | None:
        version = ledger.version(promotions[number].version_id)
        items = newest_items(version, source_id, 1) if version is not None else []
        return Place(items[0], promotions[number].sequence) if items else None

    return PastTables(len(promotions), at)


def _tables(
    source_id: str, last: Item, past: PastTables, open: Open, contracts: ContractsOf
) -> Iterator[TableSchema]:
    for name, asset in list(_named(source_id, last, contracts).items())[:TABLES_MAX]:
        table = contracts.table_of(source_id, asset)
        columns, why_not = _columns(asset, open, table)
        names = partial(_names_at, source_id, name, past, open, contracts)
        yield TableSchema(
            source_id=source_id,
            name=name,
            path=asset.path,
            start_ms=last.window_start_ms,
            end_ms=last.window_end_ms,
            columns=tuple(columns),
            why_not=why_not,
            changes=tuple(_changes(past, cache(names))) if why_not is None else (),
            looked_at=past.length,
        )


def _named(source_id: str, item: Item, contracts: ContractsOf) -> dict[str, Asset]:
    """One file of each table of an item."""
    found: dict[str, Asset] = {}
    for asset in item.assets:
        table = contracts.table_of(source_id, asset)
        if known_format(asset, table) is not None:
            name = table.name if table.properties else asset.path.rpartition(".")[2].lower()
            found.setdefault(name, asset)
    return found


def _columns(asset: Asset, open: Open, table: SchemaObject) -> tuple[list[ColumnSeen], str | None]:
    declared = {prop.column: prop for prop in table.properties}
    try:
        types: dict[str, str | None]
        if asset.size <= TYPED_BYTES_MAX:
            types = dict(column_types(read_table(asset, open, table, rows_max=ROWS_MAX)))
        else:
            types = dict.fromkeys(_names(asset, open, table))
    except FileProblem as problem:
        return [], f"{asset.path} {problem}"
    except (KfmError, OSError):
        return [], f"the bytes of {asset.path} are not in the object store any more"
    return [
        ColumnSeen(
            name=name,
            type=types[name],
            declared=declared[name].logical_type if name in declared else None,
            is_required=name in declared and declared[name].required,
        )
        for name in types
    ], None


def _names(asset: Asset, open: Open, table: SchemaObject) -> list[str]:
    if asset.size > NAMED_BYTES_MAX:
        size, bound = readable_size(asset.size), readable_size(NAMED_BYTES_MAX)
        raise FileProblem(f"is too large to look into here: {size}, {bound} at most")
    return read_columns(asset, open, table, NAMED_ROWS_MAX)


def _names_at(
    source_id: str, name: str, past: PastTables, open: Open, contracts: ContractsOf, number: int
) -> tuple[str, ...] | None:
    """The columns of a table in one window or version; None: it has none, or it can't be read."""
    place = past.at(number)
    asset = _named(source_id, place.item, contracts).get(name) if place is not None else None
    if asset is not None:
        with suppress(FileProblem, KfmError, OSError):
            return tuple(_names(asset, open, contracts.table_of(source_id, asset)))
    return None


def _changes(past: PastTables, names: Callable[[int], tuple[str, ...] | None]) -> list[ColumnsChanged]:
    """Where the columns differ from those before, the newest first: looked for between some that lie evenly,
    and there by halves. A change that was taken back between two of them is not seen."""
    last = past.length - 1
    some = sorted({last * step // SAMPLES for step in range(SAMPLES + 1)})
    readable = [number for number in some if names(number) is not None]
    found: list[ColumnsChanged] = []
    for first, second in pairwise(readable):
        found += _between(first, second, past, names)
    return found[::-1]


def _between(
    first: int, second: int, past: PastTables, names: Callable[[int], tuple[str, ...] | None]
) -> list[ColumnsChanged]:
    waiting, found = [(first, second)], []
    while waiting:
        start, end = waiting.pop()
        was, now = names(start) or (), names(end) or ()
        if set(was) == set(now):
            continue
        middle = next((each for each in range((start + end) // 2, end) if each > start and names(each)), None)
        if middle is not None:
            waiting += [(middle, end), (start, middle)]
            continue
        place = past.at(end)
        assert place is not None
        found.append(
            ColumnsChanged(
                start_ms=place.item.window_start_ms,
                end_ms=place.item.window_end_ms,
                version=place.version,
                added=tuple(each for each in now if each not in was),
                removed=tuple(each for each in was if each not in now),
            )
        )
    return found


# --- contracts -----------------------------------------------------------------------


class CheckedRun(Record, frozen=True):
    """The last run whose files were checked, as its log has it."""

    run_id: str
    at_ms: int
    checks: int
    failed: tuple[Check, ...]


class ContractStanding(Record, frozen=True):
    """What a contract promises, whether the published files keep it, and what the last run's files did."""

    source_id: str
    contract: str  # the file
    contract_id: str
    contract_version: str
    status: str
    tables: int
    columns: int
    start_ms: int | None  # the window that was checked: the newest that is published
    end_ms: int | None
    checks: tuple[Check, ...]
    why_not: str | None  # it was not checked
    last: CheckedRun | None


def contract_standings(
    app: Any, dataset_id: str, contracts: ContractsOf, folder: str
) -> list[ContractStanding]:
    """For each contract of a dataset's sources. `folder`: of the state, where the logs of runs are."""
    ledger, settings, found = app.ledger, app.settings, []
    head = ledger.head(dataset_id)
    for source in settings.sources:
        if source.dataset != dataset_id or source.id not in contracts.by_source:
            continue
        items = newest_items(head[1], source.id, 1) if head is not None else []
        last = last_checked(ledger, folder, source.id)
        for prefix, contract in contracts.by_source[source.id]:
            path = source.contract if not prefix else settings.source(prefix.rstrip("/")).contract
            checks, why_not = _checked(app, contract, items, prefix, dataset_id)
            found.append(
                ContractStanding(
                    source_id=source.id,
                    contract=path or "",
                    contract_id=contract.id,
                    contract_version=contract.version,
                    status=contract.status,
                    tables=len(contract.objects),
                    columns=sum(len(table.properties) for table in contract.objects),
                    start_ms=items[0].window_start_ms if items else None,
                    end_ms=items[0].window_end_ms if items else None,
                    checks=checks,
                    why_not=why_not,
                    last=last,
                )
            )
    return found


def _checked(
    app: Any, contract: Any, items: Sequence[Item], prefix: str, dataset_id: str
) -> tuple[tuple[Check, ...], str | None]:
    """Every check on the newest published window, by the same function as in a run."""
    from kfm.publish.contract import validate

    if not items:
        return (), "nothing of this source is published"
    (item,) = items
    assets = [asset for asset in item.assets if asset.path.startswith(prefix)]
    size = sum(asset.size for asset in assets)
    if size > CHECKED_BYTES_MAX:
        bound = readable_size(CHECKED_BYTES_MAX)
        return (), f"the files are too large to be checked here: {readable_size(size)}, {bound} at most"
    declared = app.settings.declared(dataset_id)
    public = declared is not None and declared.rights is not None and declared.rights.care.level == "public"
    whole = is_all_time(item.window_start_ms, item.window_end_ms)
    window = None if whole else Window(start_ms=item.window_start_ms, end_ms=item.window_end_ms, spec="")
    try:
        report = validate(
            contract,
            assets,
            app.objects.open,
            app.ledger.now_ms(),
            window,
            show_values=public,
            limits=LOOK_LIMITS,
        )
    except (KfmError, OSError):
        return (), "the bytes are not in the object store any more"
    return report.checks, None


def last_checked(ledger: LedgerReader, folder: str, source_id: str) -> CheckedRun | None:
    """The newest run of a source whose log has the end of a check; None: none has, of the last ones here."""
    for run in ledger.runs(source_id=source_id, limit=RUNS_MAX):
        found = _from_log(folder, run)
        if found is not None:
            return found
    return None


def _from_log(folder: str, run: Run) -> CheckedRun | None:
    page = read_log(folder, run, step="validate", limit=LINES_MAX)
    lines = page.lines if page is not None else ()
    summary = next((line["facts"].get("summary") for line in lines if "summary" in line["facts"]), None)
    if summary is None:
        return None
    failed = []
    for line in lines:
        if line["level"] != "error":
            continue
        name, _, detail = line["message"].partition(": ")
        failed.append(Check(name=name, passed=False, detail=detail, path=line["facts"].get("path")))
    return CheckedRun(
        run_id=run.run_id, at_ms=run.start_time_ms, checks=summary["checks"], failed=tuple(failed)
    )
