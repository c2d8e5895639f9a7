"""Tables as they are in files, whether or not a contract names their columns: columns, rows, and types."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from typing import Any

from msgspec.structs import replace

from kfm.model.errors import ExtraMissing
from kfm.model.patterns import late
from kfm.model.records import Asset, Record
from kfm.ports import Reader
from kfm.publish.contract.columns import MISSING
from kfm.publish.contract.findings import ContractFindings
from kfm.publish.contract.formats import format_of
from kfm.publish.contract.geojson import GEOMETRY_TYPES, GeometryProblem, check_geometry, positions
from kfm.publish.contract.model import ContractLimits, Property, SchemaObject
from kfm.publish.contract.rows import RowReader
from kfm.publish.contract.streams import FileProblem

Open = Callable[[str], Reader]
ANY = SchemaObject(name="rows")  # what holds of a file that no contract is about
GEOMETRY = "geometry"
_NONE = Property(name="\0", column="\0")  # no file has it, so all of its columns are beside it
# A page waits for it: less than a run may use.
LOOK_LIMITS = ContractLimits(decoder_bytes_max=512 * 1024 * 1024, decoder_seconds_max=10)
TEXT_CHARS_MAX = 200
_INTEGER, _NUMBER = late(r"[+-]?\d{1,18}", re.ASCII), late(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DATE, _TIME = late(r"\d{4}-\d\d-\d\d", re.ASCII), late(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*", re.ASCII)


class FileTable(Record, frozen=True):
    """The rows of one file, held as a whole."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    is_text: bool  # its values are text, whatever they mean


def known_format(asset: Asset, table: SchemaObject = ANY) -> str | None:
    """The format in which a file's rows can be read, if they can."""
    found = table.format or format_of(asset)
    return None if found == "opaque" else found


def read_table(asset: Asset, open: Open, table: SchemaObject = ANY, *, rows_max: int) -> FileTable:
    """All rows of a file. FileProblem where it can't be read, or has more than `rows_max`."""
    columns = read_columns(asset, open, table)
    wanted = replace(table, properties=tuple(Property(name=name, column=name) for name in columns))
    found: list[tuple[Any, ...]] = []
    for _, values, _ in _rows(asset, open, wanted, ContractFindings(LOOK_LIMITS)):
        if len(found) == rows_max:
            raise FileProblem(f"has more than {rows_max:,} rows")
        found.append(tuple(values))
    is_text = known_format(asset, table) == "csv"
    return FileTable(columns=tuple(columns), rows=tuple(found), is_text=is_text)


def read_columns(
    asset: Asset, open: Open, table: SchemaObject = ANY, rows_max: int | None = None
) -> list[str]:
    """The names of its columns, in their order; of JSON, those of the first `rows_max` rows."""
    findings = ContractFindings(LOOK_LIMITS)
    rows = _rows(asset, open, replace(table, properties=(_NONE,)), findings)
    file_format = known_format(asset, table)
    has_header = file_format in ("csv", "parquet")
    for number, _ in enumerate(rows, 1):
        if has_header or number == rows_max:
            break
    names = list(findings.extra)
    return names if file_format != "geojson" or GEOMETRY in names else [*names, GEOMETRY]


def _rows(
    asset: Asset, open: Open, table: SchemaObject, findings: ContractFindings
) -> Iterator[tuple[str, Sequence[Any], bool]]:
    file_format = known_format(asset, table)
    if file_format is None:
        raise FileProblem("has a format whose rows can't be read")
    reader = open(asset.sha256)
    try:
        yield from RowReader(table, LOOK_LIMITS, findings).rows(file_format, asset, reader, "")
    except ExtraMissing as error:
        raise FileProblem(f"can't be read here: {error.detail or error.message}") from None
    finally:
        reader.close()


# --- values --------------------------------------------------------------------------


def type_of(values: Iterable[Any], *, is_text: bool) -> str:
    """The narrowest type that all values of a column have; `nothing` if it has none."""
    seen = {_type(value, is_text=is_text) for value in values} - {"nothing"}
    if seen == {"integer", "number"}:
        return "number"
    if seen == {"date", "timestamp"}:
        return "timestamp"
    if len(seen) == 1:
        return seen.pop()
    return "string" if seen and is_text else " or ".join(sorted(seen)) or "nothing"


def _type(value: Any, *, is_text: bool) -> str:
    if is_nothing(value, is_text=is_text):
        return "nothing"
    if is_text:
        return _type_of_text(value)
    named = (
        (bool, "boolean"), (int, "integer"), (float, "number"), (datetime, "timestamp"), (date, "date"),
        (time, "time"), (list, "array"), (str, "string"),
    )  # fmt: skip
    if isinstance(value, Mapping):
        return "geometry" if value.get("type") in GEOMETRY_TYPES else "object"
    return next((name for kind, name in named if isinstance(value, kind)), "number")


def _type_of_text(text: str) -> str:
    if _INTEGER.fullmatch(text):
        return "integer"
    if len(text) <= 400 and _NUMBER.fullmatch(text):
        return "number"
    if text.lower() in ("true", "false"):
        return "boolean"
    if _DATE.fullmatch(text):
        return "date"
    return "timestamp" if len(text) <= 40 and _TIME.fullmatch(text) else "string"


def is_nothing(value: Any, *, is_text: bool) -> bool:
    return value is None or value is MISSING or (is_text and value == "")


def shown_value(value: Any) -> str | None:
    """A value on one line, for a person; None: there is none. A geometry by its kind, size and place."""
    if value is None or value is MISSING:
        return None
    if isinstance(value, Mapping) and value.get("type") in GEOMETRY_TYPES:
        return _geometry_text(value)
    text = value if isinstance(value, str) else str(value)
    text = text[: TEXT_CHARS_MAX + 1]
    text = "".join(char if char.isprintable() else "\N{SYMBOL FOR NEWLINE}" for char in text)
    return text if len(text) <= TEXT_CHARS_MAX else f"{text[: TEXT_CHARS_MAX - 1]}…"


def _geometry_text(geometry: Mapping[str, Any]) -> str:
    kind = str(geometry["type"])
    try:
        check_geometry(geometry)
    except GeometryProblem as error:
        return f"{kind}, not valid: {error.problem}"
    places = list(positions(geometry))
    if not places:
        return f"{kind} without positions"
    if len(places) == 1:
        return f"{kind} at {places[0][0]:g}, {places[0][1]:g}"
    west, east = min(x for x, _ in places), max(x for x, _ in places)
    south, north = min(y for _, y in places), max(y for _, y in places)
    return f"{kind} of {len(places)} positions, {west:g}…{east:g}, {south:g}…{north:g}"
