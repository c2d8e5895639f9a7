"""Rows of CSV and JSON files against a contract."""

from __future__ import annotations

from typing import Any

import pytest

from kfm.model.records import Window
from tests.unit.publish.contract.staged import DAY_MS, NOW_MS, check_files, contract_text, failed, find, table

A = {"name": "a"}


def _column(**more: Any) -> bytes:
    return contract_text(table({"name": "a", **more}))


@pytest.mark.req("UPD-9", "RS-7")
def test_a_table_that_keeps_its_contract_passes() -> None:
    """Good data passes every check, and the summary adds up."""
    text = contract_text(
        table(
            {"name": "site", "logicalType": "string", "required": True, "primaryKey": True},
            {"name": "flow", "logicalType": "number", "logicalTypeOptions": {"minimum": 0}},
            quality=[{"metric": "rowCount", "mustBe": 2}],
        )
    )
    report = check_files(text, {"x.csv": b"site,flow\r\n1,0\r\n2,\r\n"})
    assert failed(report) == []
    assert report.summary() == {"checks": len(report.checks), "passed": len(report.checks), "failed": 0}


@pytest.mark.req("UPD-9")
@pytest.mark.parametrize(
    ("kind", "options", "good", "bad"),
    [
        ("integer", {}, ["0", "-7", "+7", "9" * 30], ["1.0", "1e3", " 1", "1_000", "0x1", "one", "٣"]),
        ("integer", {"format": "u8"}, ["0", "255"], ["-1", "256"]),
        ("integer", {"multipleOf": 5}, ["10", "-5"], ["11"]),
        ("integer", {"minimum": 1, "maximum": 3}, ["1", "3"], ["0", "4"]),
        ("integer", {"exclusiveMinimum": 1, "exclusiveMaximum": 3}, ["2"], ["1", "3"]),
        ("number", {}, ["1", "-1.5", ".5", "2.", "1e-3"], ["1,5", "NaN", "Infinity", "1e400", "1__0", "--1"]),
        ("number", {"minimum": 0.1, "maximum": 0.3}, ["0.1", "0.3"], ["0.09999", "0.30001"]),
        ("number", {"multipleOf": 0.1}, ["0.3", "0.7"], ["0.35"]),
        ("number", {"format": "f32"}, ["3e38"], ["4e38"]),
        ("boolean", {}, ["true", "FALSE"], ["1", "yes"]),
        ("date", {}, ["2026-01-31", "2024-02-29"], ["2026-02-29", "20260131", "2026-1-31", "2026-W01-1"]),
        ("date", {"minimum": "2026-01-01"}, ["2026-01-01"], ["2025-12-31"]),
        ("date", {"format": "dd.MM.yyyy"}, ["31.01.2026"], ["2026-01-31", "31.13.2026"]),
        (
            "timestamp",
            {},
            ["2026-01-31T06:00:00Z", "2026-01-31 06:00", "2026-01-31T06:00:00.123456789+02:00"],
            ["2026-01-31", "2026-01-31T25:00Z", "2026-01-31T06:00:60Z"],
        ),
        ("timestamp", {"timezone": True}, ["2026-01-31T06:00:00-06:00"], ["2026-01-31T06:00:00"]),
        ("timestamp", {"timezone": False}, ["2026-01-31T06:00:00"], ["2026-01-31T06:00:00Z"]),
        (
            "timestamp",
            {"maximum": "2026-01-01T00:00:00Z"},
            ["2026-01-01T01:00:00+01:00"],
            ["2026-01-01T00:00:01Z"],
        ),
        (
            "timestamp",
            {"format": "yyyy-MM-dd'T'HH:mm:ssXXX"},
            ["2026-01-31T06:00:00+02:00"],
            ["2026-01-31 06:00:00"],
        ),
        ("time", {}, ["06:00", "23:59:59.5", "06:00:00Z"], ["24:00", "6:00"]),
        ("time", {"minimum": "06:00", "format": "HH:mm"}, ["06:00"], ["05:59", "06:00:00"]),
        ("string", {"minLength": 2, "maxLength": 3}, ["ab", "äöü"], ["a", "abcd"]),
        ("string", {"pattern": "^[A-Z]{2}$"}, ["KS"], ["ks", "KSX"]),
        ("string", {"pattern": "S"}, ["KS"], ["K"]),
        ("string", {"format": "uuid"}, ["123e4567-e89b-12d3-a456-426614174000"], ["123"]),
        ("string", {"format": "ipv4"}, ["10.0.0.1"], ["10.0.0"]),
        ("string", {"format": "email"}, ["a@b.org"], ["a@b"]),
        ("string", {"format": "password"}, ["anything"], []),
    ],
)
def test_types_and_options(kind: str, options: dict[str, Any], good: list[str], bad: list[str]) -> None:
    """Each value is judged as the contract says: bounds are inclusive, spellings are strict."""
    text = _column(logicalType=kind, logicalTypeOptions=options)
    for value in good:
        assert failed(check_files(text, {"x.csv": f'a\n"{value}"\n'.encode()})) == [], value
    for value in bad:
        assert len(failed(check_files(text, {"x.csv": f'a\n"{value}"\n'.encode()}))) == 1, value


@pytest.mark.req("UPD-9")
@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("integer", [1, -1], [1.0, True, "1", [1]]),
        ("number", [1, 1.5], ["1", True, {}]),
        ("string", ["", "x"], [1, True]),
        ("boolean", [True], ["true", 1]),
        ("date", ["2026-01-31"], [20260131]),
        ("timestamp", ["2026-01-31T00:00Z"], [1767398400]),
        ("object", [{}], [[], "x"]),
        ("array", [[]], [{}, "x"]),
    ],
)
def test_json_values_keep_their_types(kind: str, good: list[Any], bad: list[Any]) -> None:
    """JSON has types of its own: text that looks like a number is text."""
    import json

    text = _column(logicalType=kind)
    for value in good:
        assert failed(check_files(text, {"x.json": json.dumps([{"a": value}]).encode()})) == [], value
    for value in bad:
        data = json.dumps({"a": value}).encode()
        assert failed(check_files(text, {"x.jsonl": data})) == ["schema.column.type:a"], value


@pytest.mark.req("UPD-9")
def test_nested_members_are_checked() -> None:
    """A member of an object and an item of an array have types, needs and bounds too."""
    text = contract_text(
        table(
            {
                "name": "a",
                "logicalType": "object",
                "logicalTypeOptions": {"required": ["y"]},
                "properties": [{"name": "x", "logicalType": "integer", "logicalTypeOptions": {"minimum": 1}}],
            },
            {
                "name": "b",
                "logicalType": "array",
                "logicalTypeOptions": {"maxItems": 2, "uniqueItems": True},
                "items": {"logicalType": "string"},
            },
        )
    )

    def fails(row: str) -> list[str]:
        return failed(check_files(text, {"x.jsonl": row.encode()}))

    assert fails('{"a": {"x": 1, "y": 2}, "b": ["p", "q"]}') == []
    assert fails('{"a": {"x": 0, "y": 2}, "b": []}') == ["schema.column.type:a"]
    assert fails('{"a": {"x": 1}, "b": []}') == ["schema.column.type:a"]
    assert fails('{"a": {"y": 1}, "b": ["p", "p"]}') == ["schema.column.type:b"]
    assert fails('{"a": {"y": 1}, "b": [1]}') == ["schema.column.type:b"]
    assert fails('{"a": {"y": 1}, "b": ["p", "q", "r"]}') == ["schema.column.length:b"]


@pytest.mark.req("UPD-9")
def test_columns_missing_and_extra() -> None:
    """A declared column has to be there; another one is refused unless the contract allows it."""
    assert failed(check_files(_column(), {"x.csv": b"b\n1\n"})) == [
        "schema.columns.extra:t",
        "schema.column.present:a",
    ]
    allowed = contract_text(table(A, custom={"kfmExtraColumns": "allow"}))
    assert failed(check_files(allowed, {"x.csv": b"a,b\n1,2\n"})) == []
    assert failed(check_files(_column(), {"x.json": b'[{"a": 1, "b": 2}]'})) == ["schema.columns.extra:t"]
    assert failed(check_files(_column(), {"x.json": b"[{}]"})) == []


@pytest.mark.req("UPD-9")
def test_a_column_may_have_another_name_in_the_file() -> None:
    """physicalName is what the file calls it, name is what people read."""
    text = _column(physicalName="00060_Mean", logicalType="integer")
    report = check_files(text, {"x.csv": b"00060_Mean\nx\n"})
    assert failed(report) == ["schema.column.type:a"]


@pytest.mark.req("UPD-9")
def test_nulls() -> None:
    """An empty CSV field and a JSON null are no value; required columns refuse both."""
    text = _column(logicalType="string", required=True)
    assert failed(check_files(text, {"x.csv": b'a\n""\n'})) == ["schema.column.required:a"]
    assert failed(check_files(text, {"x.json": b'[{"a": null}]'})) == ["schema.column.required:a"]
    assert failed(check_files(text, {"x.json": b"[{}]"})) == ["schema.column.required:a"]
    assert failed(check_files(text, {"x.json": b'[{"a": ""}]'})) == []


@pytest.mark.req("UPD-9")
def test_uniqueness_and_primary_keys() -> None:
    """A repeated value is found, by meaning and not by spelling; a null is compared with nothing."""
    text = _column(logicalType="number", unique=True)
    report = check_files(text, {"x.csv": b"a\n1\n1.0\n\n2\n1e0\n"})
    assert failed(report) == ["schema.column.unique:a"]
    assert find(report, "schema.column.unique:a").sample == ("line 3", "line 6")
    key = contract_text(
        table(
            {"name": "b", "primaryKey": True, "primaryKeyPosition": 2, "logicalType": "string"},
            {"name": "a", "primaryKey": True, "primaryKeyPosition": 1, "logicalType": "string"},
        )
    )
    assert failed(check_files(key, {"x.csv": b"a,b\n1,2\n12,\n1,22\n"})) == ["schema.column.required:b"]
    assert failed(check_files(key, {"x.csv": b"a,b\n1,2\n1,2\n"})) == ["schema.primary-key:t"]
    assert failed(check_files(key, {"x.csv": b"a,b\n1,12\n11,2\n"})) == []


@pytest.mark.req("UPD-9")
def test_files_of_one_object_are_one_table() -> None:
    """A key repeated in another file, and a count over all files, are seen."""
    text = contract_text(
        table({"name": "a", "unique": True}, quality=[{"metric": "rowCount", "mustBeLessThan": 4}])
    )
    report = check_files(text, {"p1.csv": b"a\n1\n2\n", "p2.csv": b"a\n3\n2\n"})
    assert failed(report) == ["schema.column.unique:a", "quality.rowCount:t"]
    assert find(report, "schema.column.unique:a").sample == ("p2.csv line 3",)
    assert find(report, "schema.column.unique:a").path is None


@pytest.mark.req("UPD-9")
@pytest.mark.parametrize(
    ("rule", "holds"),
    [
        ({"metric": "nullValues", "mustBe": 1}, True),
        ({"metric": "nullValues", "mustBeLessThan": 1}, False),
        ({"metric": "nullValues", "mustBeLessOrEqualTo": 25, "unit": "percent"}, True),
        ({"metric": "nullValues", "mustBeGreaterThan": 25, "unit": "percent"}, False),
        ({"metric": "missingValues", "arguments": {"missingValues": [None, "n/a"]}, "mustBe": 2}, True),
        ({"metric": "missingValues", "arguments": {"missingValues": ["n/a"]}, "mustBe": 1}, True),
        ({"metric": "invalidValues", "arguments": {"validValues": ["x"]}, "mustBe": 1}, True),
        ({"metric": "invalidValues", "arguments": {"pattern": "^[a-z/]+$"}, "mustBe": 0}, True),
        ({"metric": "duplicateValues", "mustBe": 1}, True),
        ({"metric": "duplicateValues", "mustBeBetween": [2, 3]}, False),
        ({"metric": "duplicateValues", "mustNotBeBetween": [0, 1]}, False),
        ({"metric": "duplicateValues", "mustNotBe": 1}, False),
        ({"rule": "duplicateCount", "mustBeGreaterOrEqualTo": 1}, True),
        ({"rule": "nullCheck"}, False),
        ({"metric": "nullValues", "mustBe": 0, "severity": "warning"}, True),
    ],
)
def test_quality_of_a_column(rule: dict[str, Any], holds: bool) -> None:
    """The metrics of the standard's library, compared as the operators say, both ends included."""
    text = contract_text(table({"name": "a", "quality": [rule]}, {"name": "b"}))
    report = check_files(text, {"x.csv": b"a,b\nx,1\nx,2\n,3\nn/a,4\n"})
    assert (failed(report) == []) is holds


@pytest.mark.req("UPD-9")
def test_enumerations() -> None:
    """A value outside an enumeration is found, whether it is text or a number."""
    text = _column(logicalType="integer", enum=[{"value": 1}, {"value": 2}])
    assert failed(check_files(text, {"x.csv": b"a\n1\n2\n"})) == []
    assert failed(check_files(text, {"x.csv": b"a\n3\n"})) == ["schema.column.values:a"]
    assert failed(check_files(text, {"x.json": b'[{"a": 3}]'})) == ["schema.column.values:a"]


@pytest.mark.req("UPD-9")
def test_duplicates_over_several_columns() -> None:
    """A rule of the object may name the columns that are unique together."""
    rule = {"metric": "duplicateValues", "mustBe": 0, "arguments": {"properties": ["a", "b"]}}
    text = contract_text(table({"name": "a"}, {"name": "b"}, quality=[rule]))
    assert failed(check_files(text, {"x.csv": b"a,b\n1,1\n1,2\n"})) == []
    assert failed(check_files(text, {"x.csv": b"a,b\n1,1\n1,1\n"})) == ["quality.duplicateValues:t"]


@pytest.mark.req("UPD-9")
def test_freshness_is_measured_from_the_window() -> None:
    """A backfill is not stale, and an unfinished window is not judged from its future end."""
    sla = [{"property": "freshness", "value": 2, "unit": "d", "element": "a"}]
    text = contract_text(table({"name": "a", "logicalType": "date"}), slaProperties=sla)
    old = Window(start_ms=NOW_MS - 101 * DAY_MS, end_ms=NOW_MS - 100 * DAY_MS, spec="P1D")
    future = Window(start_ms=NOW_MS, end_ms=NOW_MS + 100 * DAY_MS, spec="P100D")
    recent, ancient = {"x.csv": b"a\n2026-01-01\n2020-01-01\n"}, {"x.csv": b"a\n2025-09-24\n"}
    assert failed(check_files(text, recent)) == []
    assert failed(check_files(text, recent, now_ms=NOW_MS + 1)) == ["sla.freshness:a"]
    assert failed(check_files(text, recent, window=future)) == []
    assert failed(check_files(text, ancient)) == ["sla.freshness:a"]
    assert failed(check_files(text, ancient, window=old)) == []
    assert failed(check_files(text, {"x.csv": b"a\n\n"})) == ["sla.freshness:a"]


@pytest.mark.req("UPD-9")
def test_which_files_an_object_describes() -> None:
    """Path patterns choose the object; a file that none describes fails the contract."""
    flow = {**table({"name": "a"}), "name": "flow", "physicalName": "*flow.csv"}
    sites = {**table({"name": "b"}), "name": "sites", "physicalName": "sites.csv"}
    text = contract_text(flow, sites)
    good = {"2026/flow.csv": b"a\n1\n", "2026/sites.csv": b"b\n1\n"}
    assert failed(check_files(text, good)) == []
    assert failed(check_files(text, {**good, "readme.txt": b""})) == ["schema.covered"]
    assert failed(check_files(text, {"2026/flow.csv": b"a\n1\n"})) == ["schema.present:sites"]
    allowed = contract_text(
        flow,
        {**sites, "customProperties": [{"property": "kfmOptional", "value": True}]},
        customProperties=[{"property": "kfmUncovered", "value": "allow"}],
    )
    assert failed(check_files(allowed, {"2026/flow.csv": b"a\n1\n", "readme.txt": b""})) == []
    assert failed(check_files(text, {})) == ["schema.present:flow", "schema.present:sites"]


def test_other_shapes_of_files() -> None:
    """Tabs, other delimiters, rows at a pointer, blank lines and files that are only carried along."""
    assert failed(check_files(contract_text(table(A, {"name": "b"})), {"x.tsv": b"a\tb\n1\t2\n\n"})) == []
    semicolon = contract_text(table(A, {"name": "b"}, custom={"kfmDelimiter": ";"}))
    assert failed(check_files(semicolon, {"x.csv": b"a;b\n1;2\n"})) == []
    pointed = contract_text(table(A, custom={"kfmPointer": "/data/it~1ems"}))
    body = b'{"meta": [1, {"x": 2}], "data": {"n": 3, "it/ems": [{"a": 1}], "m": 1}}'
    assert failed(check_files(pointed, {"x.json": body}, slowly=True)) == []
    assert failed(check_files(pointed, {"x.json": b'{"data": {}}'})) == ["schema.readable:t"]
    opaque = contract_text(table(custom={"kfmFormat": "opaque"}))
    assert failed(check_files(opaque, {"x.tif": b"\x00\x01"})) == []
    assert failed(check_files(contract_text(table()), {"x.tif": b"\x00"})) == ["schema.readable:t"]


@pytest.mark.req("RS-13", "UPD-9")
def test_values_are_shown_only_where_they_may_be() -> None:
    """A report on data that is not public holds places, never values."""
    text = contract_text(
        table(
            {
                "name": "a",
                "logicalType": "integer",
                "logicalTypeOptions": {"maximum": 5},
                "quality": [{"metric": "invalidValues", "mustBe": 0, "arguments": {"validValues": [1]}}],
            }
        )
    )
    data = {"x.csv": b"a\nsecret-7741\n99887766\n"}
    hidden = repr(check_files(text, data, show_values=False))
    assert "secret" not in hidden
    assert "9988" not in hidden
    assert "line 2" in hidden
    assert "secret-7741" in repr(check_files(text, data, show_values=True))


def test_samples_are_few_and_details_bounded() -> None:
    """However many rows are bad, a report names the first five and the count."""
    data = b"a\n" + b"x\n" * 10_000
    check = find(check_files(_column(logicalType="integer"), {"x.csv": data}), "schema.column.type:a")
    assert len(check.sample) == 5
    assert "10000 of 10000" in check.detail
    assert "and 9995 more" in check.detail
    assert len(check.detail) < 300
