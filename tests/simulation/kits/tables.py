"""Tables in CSV, JSON, JSON Lines and Parquet: a contract of a few columns, with rows good and bad."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kfm.model.records import Window
from kfm.model.times import rfc3339
from tests.simulation.kits.columns import CODE, NESTED, PLAIN, REMARK, Column, typed

Rows = list[dict[str, Any]]
FORMATS = ("csv", "ssv", "tsv", "json", "pointer", "jsonl", "parquet")
SUFFIX = {"csv": "csv", "ssv": "csv", "tsv": "tsv", "json": "json", "pointer": "json", "jsonl": "jsonl"}
MEDIA = {
    "csv": "text/csv; charset=utf-8", "ssv": "text/csv", "tsv": "text/tab-separated-values",
    "json": "application/json", "pointer": "application/json", "jsonl": "application/json",
    "parquet": "application/vnd.apache.parquet",
}  # fmt: skip
HEADER = {"apiVersion": "v3.1.0", "kind": "DataContract", "id": "k", "version": "1.0.0", "status": "active"}
PARQUET_COLUMNS = frozenset({"code", "level", "wet", "remark", "small"})


@dataclass(frozen=True)
class Rule:
    """Something said of the whole table, and rows that break it."""

    name: str
    add: Callable[[dict[str, Any]], None]  # to the schema object, or to the contract
    spoil: Callable[[random.Random, Rows, Window], Rows]
    on_contract: bool = False


def _column(table: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in table["properties"] if one["name"] == name)
    return found


def _repeated(_rng: random.Random, rows: Rows, _window: Window) -> Rows:
    return [*rows[:-1], {**rows[-1], "code": rows[0]["code"]}]


def _quality(name: str, *rules: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    return lambda table: _column(table, name).update(quality=list(rules))


def _remarks(*words: str | None) -> Callable[[random.Random, Rows, Window], Rows]:
    return lambda _rng, rows, _window: [
        {**row, "remark": words[at % len(words)]} for at, row in enumerate(rows)
    ]


def _stale(_rng: random.Random, rows: Rows, window: Window) -> Rows:
    return [{**row, "seen": rfc3339(window.end_ms - 30 * 86_400_000)} for row in rows]


def _keyed(table: dict[str, Any]) -> None:
    for position, name in ((2, "code"), (-1, "remark")):
        _column(table, name).update(primaryKey=True, primaryKeyPosition=position)


def _doubled(_rng: random.Random, rows: Rows, _window: Window) -> Rows:
    return [*rows, dict(rows[0])]


RULES = (
    Rule("none", lambda _table: None, lambda _rng, rows, _window: [*rows[:-1], {**rows[-1], "code": "bad"}]),
    Rule("unique", lambda table: _column(table, "code").update(unique=True), _repeated),
    Rule("primary key", _keyed, _doubled),
    Rule(
        "row count",
        lambda table: table.update(
            quality=[
                {"metric": "rowCount", "mustBeBetween": [4, 40]},
                {"metric": "rowCount", "mustNotBe": 5, "severity": "warning"},
                {"type": "text", "description": "looks right"},
                {"type": "sql", "query": "x", "customProperties": [{"property": "kfmIgnore", "value": True}]},
            ]
        ),
        lambda _rng, rows, _window: rows[:2],
    ),
    Rule(
        "composite",
        lambda table: table.update(
            quality=[
                {
                    "rule": "duplicateCount",
                    "name": "no twins",
                    "arguments": {"properties": ["code", "remark"]},
                    "mustBe": 0,
                }
            ]
        ),
        _doubled,
    ),
    Rule(
        "nulls",
        _quality(
            "remark",
            {"metric": "nullValues", "mustBeLessOrEqualTo": 30, "unit": "percent"},
            {"metric": "nullValues", "mustNotBeBetween": [2, 99], "severity": "info"},
        ),
        _remarks(None, "ok"),
    ),
    Rule("old nulls", _quality("remark", {"rule": "nullCheck"}), _remarks("ok", None)),
    Rule(
        "missing",
        _quality(
            "remark",
            {"metric": "missingValues", "arguments": {"missingValues": ["n/a", None]}, "mustBeLessThan": 1},
        ),
        _remarks("n/a", "ok"),
    ),
    Rule(
        "valid",
        _quality(
            "remark",
            {"metric": "invalidValues", "arguments": {"validValues": ["ok", "odd"]}, "mustBe": 0},
            {"metric": "invalidValues", "arguments": {"pattern": "^o"}, "mustBeGreaterOrEqualTo": 0},
        ),
        _remarks("ok", "else"),
    ),
    Rule(
        "distinct",
        _quality("code", {"metric": "duplicateValues", "mustBe": 0, "unit": "rows"}),
        _repeated,
    ),
    Rule(
        "fresh",
        lambda contract: contract.update(
            slaDefaultElement="rows.seen",
            slaProperties=[
                {"property": "latency", "value": 2, "unit": "d"},
                {"property": "retention", "value": 3},
            ],
        ),
        _stale,
        on_contract=True,
    ),
)


class TableKit:
    """One contract, drawn from the seed, and files that keep or break it."""

    def __init__(self, rng: random.Random, *, columns: int = 2, form: str | None = None) -> None:
        self.form = form or rng.choice(FORMATS)
        self.rule = rng.choice(RULES)
        nested = self.form in ("json", "pointer", "jsonl")
        pool = [*PLAIN, *(NESTED * 3 if nested else ())]
        if self.form == "parquet":
            pool = [one for one in pool if one.name in PARQUET_COLUMNS]
        drawn = {one.name: one for one in rng.sample(pool, min(columns, len(pool)))}
        self.columns: list[Column] = [CODE, REMARK, *drawn.values()]
        if self.rule.name == "fresh":
            self.columns.append(Column("seen", typed("timestamp"), str))
        self.extra_allowed = rng.random() < 0.3
        self.suffix = SUFFIX.get(self.form, self.form)
        self.media_type = MEDIA[self.form]
        self.contract = json.dumps(self._document()).encode()

    def _document(self) -> dict[str, Any]:
        custom: list[dict[str, Any]] = [{"property": "owner", "value": "us"}]
        if self.extra_allowed:
            custom.append({"property": "kfmExtraColumns", "value": "allow"})
        if self.form == "ssv":
            custom.append({"property": "kfmDelimiter", "value": ";"})
        if self.form == "pointer":
            custom.append({"property": "kfmPointer", "value": "/data/all~1rows"})
        if self.form == "jsonl":
            custom.append({"property": "kfmFormat", "value": "jsonl"})
        table: dict[str, Any] = {
            "name": "rows",
            "physicalName": f"*.{self.suffix}",
            "logicalType": "object",
            "customProperties": custom,
            "properties": [one.property() for one in self.columns],
        }
        document: dict[str, Any] = {**HEADER, "name": "kit", "schema": [table]}
        self.rule.add(document if self.rule.on_contract else table)
        return document

    def files(self, rng: random.Random, start: int, window: Window, *, good: bool) -> dict[str, bytes]:
        """One or two files that together keep the contract, or together break it."""
        rows = [self._row(start + number, window) for number in range(rng.randrange(4, 7))]
        spoil = None if good else rng.choice(("value", "rule", "bytes"))
        if spoil == "value":
            rows = self._wrong(rng, rows)
        if spoil == "rule":
            rows = self.rule.spoil(rng, rows, window)
        cut = rng.randrange(1, len(rows)) if len(rows) > 1 and rng.random() < 0.5 else len(rows)
        parts = {
            f"part{index}.{self.suffix}": self._written(rng, some)
            for index, some in enumerate(some for some in (rows[:cut], rows[cut:]) if some)
        }
        if spoil == "bytes":
            name = rng.choice(sorted(parts))
            parts[name] = self._hostile(rng, parts[name])
        return parts

    def _row(self, number: int, window: Window) -> dict[str, Any]:
        row = {one.member: one.good(number) for one in self.columns}
        if "seen" in row:
            row["seen"] = rfc3339(window.end_ms - 3_600_000 - number % 100)
        return row

    def _wrong(self, rng: random.Random, rows: Rows) -> Rows:
        text = self.form in ("csv", "ssv", "tsv")
        column = rng.choice([one for one in self.columns if (one.bad_text if text else one.bad)] or [CODE])
        if self.form == "parquet":
            column = CODE  # there a column has one type: what is wrong is what is said
        values: tuple[Any, ...] = column.bad_text if text else column.bad
        value = rng.choice(("ab1", "AB") if self.form == "parquet" else values)
        at = rng.randrange(len(rows))
        return [*rows[:at], {**rows[at], column.member: value}, *rows[at + 1 :]]

    def _written(self, rng: random.Random, rows: Rows) -> bytes:
        if self.extra_allowed:
            rows = [{**row, "more": 1} for row in rows]
        if self.form in ("csv", "ssv", "tsv"):
            return self._csv(rng, rows)
        if self.form == "parquet":
            return _parquet(rows)
        if self.form == "jsonl":
            blank = "\n" if rng.random() < 0.3 else ""
            return blank.join(json.dumps(row) + "\n" for row in rows).encode()
        if self.form == "json":
            return json.dumps(rows, indent=rng.choice((None, 1))).encode()
        return json.dumps({"meta": {"n": 1.5}, "data": {"x": [1], "all/rows": rows}, "end": 12}).encode()

    def _csv(self, rng: random.Random, rows: Rows) -> bytes:
        out = io.StringIO()
        delimiter = {"ssv": ";", "tsv": "\t"}.get(self.form, ",")
        ends = rng.choice(("\n", "\r\n"))
        writer = csv.writer(out, delimiter=delimiter, lineterminator=ends)
        names = list(rows[0])
        writer.writerow(names)
        for row in rows:
            writer.writerow([_text(row[name]) for name in names])
            if rng.random() < 0.1:
                out.write(ends)  # a blank line
        mark = "\ufeff" if rng.random() < 0.2 else ""
        return (mark + out.getvalue()).encode()

    def _hostile(self, rng: random.Random, data: bytes) -> bytes:
        header, _, rest = data.partition(b"\n")
        odd = {
            "csv": (
                b"",
                data + b"\xff\xfe,1\n",
                data + b"one\n",
                header + b"\n" + rest.replace(b"A", b"\0", 1),
                data + b'"never closed',
                header.replace(b"remark", b"code") + b"\n" + rest,
                b"remark\nok\n",
                data + b'x"y"z' + b"," * 300 + b"\n",
            ),
            "json": (
                b"",
                b"\xef\xbb\xbf" + data,
                data[:-2],
                data + b"]",
                data.replace(b'"remark"', b'"code"', 1),
                b'{"a": 1}',
                b"[NaN]",
                b"[" * 100_000,
                b"[1, 2]",
                data + b"\xff",
                b'{"data": {"rows": []}}',
                b"[{1: 2}]",
            ),
            "jsonl": (
                b"\xef\xbb\xbf" + data,
                data + b"[1]\n",
                data + b"{\n",
                data + b'{"code": "A1", "code": "A2"}\n',
                b'{"code": "\0"}\n' + data,
                data + b"[" * 100_000 + b"\n",
                data + b"\xff\n",
                b"Infinity\n",
            ),
            "parquet": (
                b"PAR1",
                b"",
                data[:-9],
                data[:20] + data[40:],
                header,
                b"PAR1" + b"\0" * 40 + b"PAR1",
            ),
        }
        kind = {"ssv": "csv", "tsv": "csv", "pointer": "json"}.get(self.form, self.form)
        return rng.choice([one for one in odd[kind] if one != data])


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parquet(rows: Rows) -> bytes:
    from arro3.core import Array, DataType, Table
    from arro3.io import write_parquet

    kinds = {str: DataType.string(), bool: DataType.bool(), int: DataType.int64()}
    arrays = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        kind = next((type(value) for value in values if value is not None), str)
        arrays[name] = Array(values, kinds[kind])
    out = io.BytesIO()
    write_parquet(Table.from_pydict(arrays), out)
    return out.getvalue()
