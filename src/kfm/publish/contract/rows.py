"""Rows of staged files, whatever their format, in the order of the declared properties."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from typing import Any

from kfm.model.records import Asset
from kfm.ports import Reader
from kfm.publish.contract.columns import MISSING
from kfm.publish.contract.findings import ContractFindings
from kfm.publish.contract.geojson import (
    GeometryProblem,
    check_bbox,
    check_crs,
    check_geometry,
    features,
    winds_right,
)
from kfm.publish.contract.model import ContractLimits, SchemaObject
from kfm.publish.contract.streams import FileProblem, JsonStream, TextLines, decode_line

# Where the row stands, its values in the order of the properties, and whether they are text.
Row = tuple[str, Sequence[Any], bool]


class RowReader:
    """Reads the files of one schema object; what is wrong with them goes to `findings`."""

    def __init__(self, table: SchemaObject, limits: ContractLimits, findings: ContractFindings) -> None:
        self._table = table
        self._limits = limits
        self._findings = findings
        self._columns = [prop.column for prop in table.properties]
        self._known = frozenset(self._columns)

    def rows(self, file_format: str, asset: Asset, reader: Reader, prefix: str) -> Iterator[Row]:
        """All rows of one file. FileProblem where it can't be read on."""
        if file_format == "csv":
            return self._csv(reader, asset, prefix)
        if file_format == "jsonl":
            return self._json_lines(reader, prefix)
        if file_format == "json":
            return self._json(reader, prefix)
        if file_format == "geojson":
            return self._geojson(reader, prefix)
        return self._parquet(reader, asset, prefix)

    # --- CSV

    def _csv(self, reader: Reader, asset: Asset, prefix: str) -> Iterator[Row]:
        lines = TextLines(reader, self._limits.record_chars_max)
        delimiter = self._table.delimiter
        if delimiter == "," and asset.path.lower().endswith(".tsv"):
            delimiter = "\t"
        # The limit belongs to the process; it is only ever raised, and `lines` bounds a record anyway.
        csv.field_size_limit(max(csv.field_size_limit(), self._limits.record_chars_max))
        records = csv.reader(lines, delimiter=delimiter, strict=True)
        header = self._next(records, lines)
        if not header:
            raise FileProblem("has no header")
        places = self._places(header, asset)
        while True:
            start = lines.number + 1
            record = self._next(records, lines)
            if record is None:
                return
            if not record and len(header) > 1:
                continue  # a blank line
            place = f"{prefix}line {start}"
            if len(record) != len(header) and not (not record and len(header) == 1):
                self._findings.ragged.add(place)
                continue
            values = record or [""]
            yield place, [MISSING if at is None else values[at] for at in places], True

    def _next(self, records: Iterator[list[str]], lines: TextLines) -> list[str] | None:
        try:
            record = next(records, None)
        except csv.Error as error:
            raise FileProblem(f"is not CSV: {error} (line {lines.number})") from None
        lines.record()
        return record

    def _places(self, header: list[str], asset: Asset) -> list[int | None]:
        if len(header) > self._limits.columns_max:
            raise FileProblem(f"has more than {self._limits.columns_max} columns")
        if len(set(header)) != len(header):
            twins = sum(header.count(name) > 1 for name in set(header)) if len(header) < 1000 else "some"
            raise FileProblem(f"has {twins} column names that stand twice in its header")
        self._compare_columns(header, asset)
        index = {name: position for position, name in enumerate(header)}
        return [index.get(name) for name in self._columns]

    def _compare_columns(self, found: Sequence[str], asset: Asset) -> None:
        for prop in self._table.properties:
            if prop.column not in found:
                self._findings.lacks_column(prop.name, asset.path)
        if self._columns:
            for name in found:
                if name not in self._known:
                    self._findings.extra_column(name)

    # --- JSON

    def _json_lines(self, reader: Reader, prefix: str) -> Iterator[Row]:
        lines = TextLines(reader, self._limits.record_chars_max, encoding="utf-8")
        for line in lines:
            lines.record()
            if lines.number == 1 and line.startswith("\ufeff"):
                raise FileProblem("begins with a byte order mark, which JSON does not allow")
            if not line.strip():
                continue
            try:
                row = decode_line(line)
            except FileProblem as problem:
                raise FileProblem(f"{problem} in line {lines.number}") from None
            yield from self._json_row(row, f"{prefix}line {lines.number}")

    def _json(self, reader: Reader, prefix: str) -> Iterator[Row]:
        stream = JsonStream(reader, self._limits.element_chars_max)
        if not stream.peek():
            raise FileProblem("is empty")
        tokens = [token.replace("~1", "/").replace("~0", "~") for token in self._table.pointer.split("/")[1:]]
        for number, row in enumerate(self._at(stream, tokens), 1):
            yield from self._json_row(row, f"{prefix}row {number}")
        stream.end()

    def _at(self, stream: JsonStream, tokens: list[str]) -> Iterator[Any]:
        if not tokens:
            if stream.peek() != "[":
                hint = "" if self._table.pointer else "; name the place of its rows with kfmPointer"
                raise FileProblem(f"has no array of rows where one is expected{hint}")
            yield from stream.elements()
            return
        if stream.peek() != "{":
            raise FileProblem(f"has no member {tokens[0]!r}, so {self._table.pointer} leads nowhere")
        found = False
        for name in stream.named():
            if name == tokens[0]:
                found = True
                yield from self._at(stream, tokens[1:])
            else:
                stream.value()
        if not found:
            raise FileProblem(f"has no member {tokens[0]!r}, so {self._table.pointer} leads nowhere")

    def _json_row(self, row: Any, place: str) -> Iterator[Row]:
        if not isinstance(row, dict):
            self._findings.ragged.add(place)
            return
        if self._columns and not row.keys() <= self._known:
            for name in row:
                if name not in self._known:
                    self._findings.extra_column(name)
        yield place, [row.get(name, MISSING) for name in self._columns], False

    # --- GeoJSON

    def _geojson(self, reader: Reader, prefix: str) -> Iterator[Row]:
        stream = JsonStream(reader, self._limits.element_chars_max)
        if not stream.peek():
            raise FileProblem("is empty")
        head: dict[str, Any] = {}
        for number, feature in enumerate(features(stream, head), 1):
            place = f"{prefix}feature {number}"
            members = self._feature(feature, place)
            if members is None:
                continue
            if self._columns and not members.keys() <= self._known:
                for name in members:
                    if name not in self._known:
                        self._findings.extra_column(name)
            yield place, [self._member(feature, members, name) for name in self._columns], False
        if head.get("type") == "FeatureCollection":
            self._collection(head, prefix)

    def _member(self, feature: dict[str, Any], members: dict[str, Any], name: str) -> Any:
        if name in members:
            return members[name]
        # A column may also mean the feature's own id or geometry.
        return feature.get(name, MISSING) if name in ("id", "geometry") else MISSING

    def _feature(self, feature: Any, place: str) -> dict[str, Any] | None:
        """The properties of a feature, with its geometry checked; None if it is no feature."""
        findings = self._findings
        if not isinstance(feature, dict) or feature.get("type") != "Feature" or "geometry" not in feature:
            findings.geo("structure", place, "it is not a Feature with a geometry member")
            return None
        members = feature.get("properties", MISSING)
        if members is not None and not isinstance(members, dict):
            findings.geo("structure", place, "its properties are not an object")
            return None
        if "id" in feature and type(feature["id"]) not in (str, int, float):
            findings.geo("structure", place, "its id is not text or a number")
        self._geometry(feature, place)
        return members or {}

    def _geometry(self, feature: dict[str, Any], place: str) -> None:
        try:
            if "crs" in feature:
                check_crs(feature["crs"])
            if "bbox" in feature:
                check_bbox(feature["bbox"])
            geometry = feature["geometry"]
            if geometry is None:
                if not self._table.null_geometry_allowed:
                    self._findings.geo("null", place, "it has no geometry")
                return
            check_geometry(geometry)
            if self._table.winding != "ignore" and not winds_right(geometry):
                self._findings.geo("winding", place, "a ring winds the wrong way round")
        except GeometryProblem as error:
            self._findings.geo(error.check, place, error.problem)

    def _collection(self, head: dict[str, Any], prefix: str) -> None:
        place = f"{prefix}the collection"
        try:
            if "crs" in head:
                check_crs(head["crs"])
            if "bbox" in head:
                check_bbox(head["bbox"])
        except GeometryProblem as error:
            self._findings.geo(error.check, place, error.problem)

    # --- Parquet

    def _parquet(self, reader: Reader, asset: Asset, prefix: str) -> Iterator[Row]:
        from kfm.publish.contract.parquet import ParquetRows

        with ParquetRows(reader, self._columns, self._limits) as file:
            self._compare_columns(file.names, asset)
            for number, values in enumerate(file.rows(), 1):
                yield f"{prefix}row {number}", values, False
