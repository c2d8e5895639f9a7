"""Two versions compared: every row that differs is told, nothing else, and no more than the bounds allow."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm.publish.contract import load_contract
from kfm.reports.version_diffs import (
    ContractsOf,
    DiffLimits,
    RowsOfFile,
    VersionDiff,
    diff_sentence,
    diff_versions,
    may_show_values,
)
from tests.unit.publish.contract.staged import contract_text, table
from tests.unit.reports.tables import Store

NO_CONTRACTS = ContractsOf({})


def compared(
    before: dict[str, bytes],
    after: dict[str, bytes],
    contracts: ContractsOf = NO_CONTRACTS,
    *,
    shows_values: bool = True,
    **limits: int,
) -> VersionDiff:
    store = Store()
    old, new = store.version(store.item(before)), store.version(store.item(after))
    bounds = DiffLimits(**limits)
    return diff_versions(old, new, store.open, contracts, shows_values=shows_values, limits=bounds)


def told(one: RowsOfFile) -> list[tuple[str, str | None, dict[str, tuple[str | None, str | None]]]]:
    return [
        (row.kind, row.key, {cell.column: (cell.before, cell.after) for cell in row.cells})
        for row in one.rows
    ]


def csv_of(rows: dict[str, tuple[str, str]]) -> bytes:
    lines = "".join(f"{name},{one},{other}\n" for name, (one, other) in rows.items())
    return f"site,value,note\n{lines}".encode()


def test_rows_are_found_again_by_their_key() -> None:
    """A row whose values differ has changed; the others came or went; an unchanged one is only counted."""
    before = {"a": ("1", "x"), "b": ("2", "x"), "c": ("3", "x")}
    after = {"a": ("1", "x"), "b": ("7", "x"), "d": ("4", "")}
    (one,) = compared({"t.csv": csv_of(before)}, {"t.csv": csv_of(after)}).tables
    assert one.key == ("site",)
    assert told(one) == [
        ("changed", "b", {"value": ("2", "7")}),
        ("added", "d", {"site": (None, "d"), "value": (None, "4"), "note": (None, "")}),
        ("removed", "c", {"site": ("c", None), "value": ("3", None), "note": ("x", None)}),
    ]
    assert (one.added, one.changed, one.removed, one.unchanged) == (1, 1, 1, 1)


ROWS = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=2),
    st.tuples(st.sampled_from(["1", "2", "3.5"]), st.sampled_from(["x", "y"])),
    min_size=1,
    max_size=8,
)


@settings(max_examples=150, deadline=None)
@given(ROWS, ROWS)
def test_applied_to_the_one_it_makes_the_other(
    before: dict[str, tuple[str, str]], after: dict[str, tuple[str, str]]
) -> None:
    """Whatever the two tables are: what is told, applied to the earlier rows, makes the later ones."""
    found = compared({"t.csv": csv_of(before)}, {"t.csv": csv_of(after)}).tables
    rows = {name: {"site": name, "value": one, "note": other} for name, (one, other) in before.items()}
    for kind, key, cells in (each for one in found for each in told(one)):
        now = {column: pair[1] or "" for column, pair in cells.items()}
        if kind == "removed":
            gone = rows.pop(key or "")
            assert gone == {column: pair[0] or "" for column, pair in cells.items()}
        elif kind == "changed":
            assert all(rows[key or ""][column] == pair[0] for column, pair in cells.items())
            rows[key or ""] |= now
        else:
            rows[key or ""] = now
    assert rows == {n: {"site": n, "value": one, "note": other} for n, (one, other) in after.items()}


def test_without_a_key_rows_are_compared_as_a_whole() -> None:
    """Where no column tells which row is which, equal rows are matched one to one, however often they are
    there."""
    before, after = b"v\n1\n1\n2\n", b"v\n1\n2\n2\n"
    (one,) = compared({"t.csv": before}, {"t.csv": after}).tables
    assert one.key == ()
    assert told(one) == [("added", None, {"v": (None, "2")}), ("removed", None, {"v": ("1", None)})]
    assert one.unchanged == 2
    (twice,) = compared({"t.csv": b"id\n1\n1\n"}, {"t.csv": b"id\n1\n2\n"}).tables
    assert (twice.key, twice.added, twice.removed, twice.unchanged) == ((), 1, 1, 1)


def test_the_primary_key_of_the_contract_comes_first() -> None:
    """A contract says which row is which, also where another column would do."""
    text = contract_text(
        table(
            {"name": "n", "logicalType": "integer"},
            {"name": "id", "logicalType": "string", "primaryKey": True, "primaryKeyPosition": 1},
        )
    )
    contracts = ContractsOf({"s": [("", load_contract(text, "c.yaml"))]})
    (one,) = compared({"t.csv": b"n,id\n1,a\n2,b\n"}, {"t.csv": b"n,id\n2,a\n1,b\n"}, contracts).tables
    assert one.key == ("id",)
    assert [each[:2] for each in told(one)] == [("changed", "a"), ("changed", "b")]


def _features(*values: tuple[str, float]) -> bytes:
    made = [
        {
            "type": "Feature",
            "properties": {"name": name},
            "geometry": {"type": "Point", "coordinates": [x, 38]},
        }
        for name, x in values
    ]
    return json.dumps({"type": "FeatureCollection", "features": made}).encode()


def test_features_and_lines_are_rows() -> None:
    """A feature is a row, its geometry one of the values; so is a line of JSON, with its own types."""
    moved = compared(
        {"t.geojson": _features(("Reno", -98.0), ("Ellis", -99.0))},
        {"t.geojson": _features(("Reno", -98.5), ("Ellis", -99.0))},
    )
    assert told(moved.tables[0]) == [
        ("changed", "Reno", {"geometry": ("Point at -98, 38", "Point at -98.5, 38")})
    ]
    lines = compared({"t.jsonl": b'{"id":1,"v":1}\n'}, {"t.jsonl": b'{"id":1,"v":"1"}\n{"id":2}\n'})
    (one,) = lines.tables
    assert [each[0] for each in told(one)] == ["changed", "added"]
    assert [(each.kind, each.column, each.before, each.after) for each in one.columns] == [
        ("changed", "v", "integer", "string")
    ]


def test_parquet_is_read_too() -> None:
    """Rows of Parquet files are compared by the reader of contracts."""
    arro3, writing = pytest.importorskip("arro3.core"), pytest.importorskip("arro3.io")

    def made(values: list[int]) -> bytes:
        out = io.BytesIO()
        ids = arro3.Array(list(range(len(values))), arro3.DataType.int64())
        column = arro3.Array(values, arro3.DataType.int64())
        writing.write_parquet(arro3.Table.from_pydict({"id": ids, "v": column}), out)
        return out.getvalue()

    (one,) = compared({"t.parquet": made([5, 6])}, {"t.parquet": made([5, 7])}).tables
    assert told(one) == [("changed", "1", {"v": ("6", "7")})]


def test_a_table_under_another_name_is_the_same_table() -> None:
    """Where one file of a source takes the place of another one, their rows are compared."""
    (one,) = compared({"1.csv": b"id,v\n1,1\n"}, {"2.csv": b"id,v\n1,2\n"}).tables
    assert (one.path, one.earlier_path) == ("2.csv", "1.csv")
    assert told(one) == [("changed", "1", {"v": ("1", "2")})]
    both = compared({"1.csv": b"id\n1\n"}, {"2.csv": b"id\n2\n", "3.csv": b"id\n3\n"}).tables
    assert [(each.path, each.earlier_path, each.added, each.removed) for each in both] == [
        ("2.csv", None, 1, 0),
        ("3.csv", None, 1, 0),
        ("1.csv", None, 0, 1),
    ]


def test_columns_that_came_or_went_are_named() -> None:
    """A column that is there on one side only is told with its type."""
    (one,) = compared({"t.csv": b"id,a\n1,2\n"}, {"t.csv": b"id,b\n1,2026-01-01\n"}).tables
    assert {(each.kind, each.column, each.before, each.after) for each in one.columns} == {
        ("removed", "a", "integer", None),
        ("added", "b", None, "date"),
    }


def test_what_is_too_large_is_said_to_be() -> None:
    """Beyond a bound nothing is compared in part: the file says why, and others are compared."""
    big, small = b"id,v\n" + b"1,1\n" * 400, b"id,v\n1,1\n"
    found = compared(
        {"a.csv": big, "b.csv": small}, {"a.csv": big + b"2,2\n", "b.csv": b"id,v\n1,2\n"}, bytes_max=1000
    )
    large, fine = found.tables
    assert not large.is_compared
    assert "too large to compare by rows" in (large.why_not or "")
    assert fine.is_compared
    rows = compared({"a.csv": big}, {"a.csv": b"id,v\n2,2\n"}, rows_max=100)
    assert rows.tables[0].why_not == "a.csv has more than 100 rows"
    many = {f"{number}.csv": b"id\n1\n" for number in range(5)}
    cut = compared(dict.fromkeys(many, b"id\n2\n"), many, files_max=2, files_shown_max=3)
    assert (len(cut.tables), cut.tables_more, len(cut.changes), cut.changes_more) == (2, 3, 3, 2)
    told_few = compared({"a.csv": b"id\n"}, {"a.csv": b"id\n1\n2\n3\n"}, rows_shown_max=2).tables[0]
    assert (len(told_few.rows), told_few.rows_more, told_few.added) == (2, 1, 3)


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("t.csv", b"\xff\xfe\x00"),
        ("t.csv", b""),
        ("t.csv", b"a,a\n1,2\n"),
        ("t.csv", b'a\n"1\n'),
        ("t.jsonl", b"[" * 100_000),
        ("t.jsonl", b"nonsense\n"),
        ("t.geojson", b'{"type":"FeatureCollection"}'),
        ("t.geojson", b"[]"),
        ("t.parquet", b"PAR1nonsensePAR1"),
    ],
)
def test_what_cannot_be_read_says_why(path: str, data: bytes) -> None:
    """A file that is not what its name says is told with the reason; the rest of the comparison is there."""
    found = compared({path: data, "u.csv": b"id\n1\n"}, {path: data + b" ", "u.csv": b"id\n2\n"})
    tables = {one.path: one for one in found.tables}
    assert tables["u.csv"].is_compared
    if path.endswith("parquet"):
        pytest.importorskip("arro3.io")
    assert not tables[path].is_compared
    assert tables[path].why_not


def test_bytes_that_were_collected_are_not_there_any_more() -> None:
    """Versions outlive their objects: the files are compared, and of the rows it says that they are gone."""
    store = Store()
    old, new = (
        store.version(store.item({"t.csv": b"id\n1\n"})),
        store.version(store.item({"t.csv": b"id\n2\n"})),
    )
    store.blobs.clear()
    found = diff_versions(old, new, store.open, NO_CONTRACTS, shows_values=True)
    assert found.files_changed == 1
    assert "not in the object store any more" in (found.tables[0].why_not or "")


def test_values_are_told_of_public_data_only() -> None:
    """Of a version that was not public, or is not any more, rows are counted and not told."""
    store = Store()
    public = store.version(store.item({}))
    assert may_show_values(None, public)
    assert not may_show_values(None, public, store.version(store.item({}), level="review"))
    assert not may_show_values(None)
    found = compared({"t.csv": b"id\n1\n"}, {"t.csv": b"id\n2\n"}, shows_values=False)
    assert found.tables[0].rows == ()
    assert (found.tables[0].added, found.tables[0].removed, found.tables[0].rows_more) == (1, 1, 2)


def test_the_first_version_is_all_new_and_a_picture_has_no_rows() -> None:
    """Against nothing every row came; a file without rows is compared as a file."""
    store = Store()
    new = store.version(store.item({"t.csv": b"id\n1\n", "p.bin": b"\x89PNG"}))
    found = diff_versions(None, new, store.open, NO_CONTRACTS, shows_values=True)
    assert [one.path for one in found.tables] == ["t.csv"]
    assert diff_sentence(found) == (
        "2 files added, 0 changed, 0 removed, 0 unchanged; 1 row added, 0 changed, 0 removed"
    )


def test_what_a_value_looks_like() -> None:
    """Control characters and long texts don't leave their line."""
    (one,) = compared(
        {"t.csv": b"id,v\n1,a\n"}, {"t.csv": 'id,v\n1,"x\x1b[31m\u202e\n'.encode() + b"y" * 400 + b'"\n'}
    ).tables
    after: Any = told(one)[0][2]["v"][1]
    assert after.isprintable()
    assert len(after) == 200
