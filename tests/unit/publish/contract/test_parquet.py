"""Parquet files against a contract."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm.model.errors import ExtraMissing
from kfm.publish.contract import ContractLimits, parquet_child
from tests.unit.publish.contract.staged import check_files, contract_text, failed, find, table

TEXT = contract_text(
    table(
        {"name": "a", "logicalType": "integer", "required": True, "unique": True},
        {"name": "b", "logicalType": "string"},
        {"name": "c", "logicalType": "timestamp"},
    )
)


def _parquet(a: list[int | None], names: tuple[str, ...] = ("a", "b", "c")) -> bytes:
    arro3 = pytest.importorskip("arro3.core")
    writing = pytest.importorskip("arro3.io")
    columns = {
        "a": arro3.Array(a, arro3.DataType.int64()),
        "b": arro3.Array(["x"] * len(a), arro3.DataType.string()),
        "c": arro3.Array([1767398400000] * len(a), arro3.DataType.int64()).cast(
            arro3.DataType.timestamp("ms", tz="UTC")
        ),
    }
    out = io.BytesIO()
    writing.write_parquet(arro3.Table.from_pydict({name: columns[name] for name in names}), out)
    return out.getvalue()


@pytest.mark.req("UPD-9")
def test_parquet_is_checked() -> None:
    """Columns, types, nulls and uniqueness are seen in Parquet as in CSV."""
    assert failed(check_files(TEXT, {"x.parquet": _parquet([1, 2])}, slowly=True)) == []
    assert failed(check_files(TEXT, {"x.parquet": _parquet([1, 1, None])})) == [
        "schema.column.required:a",
        "schema.column.unique:a",
    ]
    assert failed(check_files(TEXT, {"x.parquet": _parquet([1], ("a", "c"))})) == ["schema.column.present:b"]


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing library is a clear error, not a failed check: the data may be fine."""
    monkeypatch.setitem(sys.modules, "arro3.io", None)
    with pytest.raises(ExtraMissing) as raised:
        check_files(TEXT, {"x.parquet": b""})
    assert "kfm-kernel[parquet]" in raised.value.way_out


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_damaged_parquet_gives_a_report(data: st.DataObject) -> None:
    """Whatever bytes are changed, the library's panic does not reach us."""
    body = bytearray(_parquet([1, 2, 3]))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    assert check_files(TEXT, {"x.parquet": bytes(body)}).checks


MIB = 1024 * 1024
BELIEVING = ContractLimits(inflated_free_bytes=1 << 50, decoder_bytes_max=160 * MIB)


def _dense(value_bytes: int, names: tuple[str, ...] = ("a", "z"), rows: int = 1) -> bytes:
    """A column `a` of numbers, and columns whose one value is mebibytes of the same character."""
    arro3 = pytest.importorskip("arro3.core")
    writing = pytest.importorskip("arro3.io")
    columns = {"a": arro3.Array(list(range(rows)), arro3.DataType.int64())}
    for name in names[1:]:
        columns[name] = arro3.Array(["x" * value_bytes] * rows, arro3.DataType.string())
    out = io.BytesIO()
    table = arro3.Table.from_pydict({name: columns[name] for name in names})
    writing.write_parquet(table, out, compression="zstd(3)", max_statistics_size=64)
    return out.getvalue()


@pytest.mark.req("UPD-9")
def test_a_bomb_is_refused_by_its_footer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that declares hundreds of times its size is refused before anything of it is decoded."""
    text = contract_text(table({"name": "a"}, {"name": "z", "logicalType": "string"}))
    bomb = _dense(70 * MIB)
    assert len(bomb) < MIB // 4
    monkeypatch.setattr(parquet_child, "__file__", "/nowhere/that/could/decode.py")
    report = check_files(text, {"x.parquet": bomb})
    assert "more than are unpacked" in find(report, "schema.readable:t").detail


@pytest.mark.req("UPD-9")
def test_a_bomb_whose_footer_is_believed_ends_one_check() -> None:
    """Where memory ends, the decoder's own process ends; the check says so, and the next goes on."""
    text = contract_text(table({"name": "a"}, {"name": "z", "logicalType": "string"}))
    report = check_files(text, {"x.parquet": _dense(70 * MIB)}, limits=BELIEVING)
    assert "bytes of memory to be decoded" in find(report, "schema.readable:t").detail
    assert failed(check_files(text, {"x.parquet": _dense(10)}, limits=BELIEVING)) == []


@pytest.mark.req("UPD-9")
def test_columns_that_the_contract_does_not_name_are_not_decoded() -> None:
    """A column of another's interest costs nothing, however large it is."""
    text = contract_text(table({"name": "a", "logicalType": "integer"}, custom={"kfmExtraColumns": "allow"}))
    report = check_files(text, {"x.parquet": _dense(70 * MIB)}, limits=BELIEVING)
    assert failed(report) == []
    assert "Columns that the contract does not name: 'z'" in find(report, "schema.columns.extra:t").detail


@pytest.mark.req("UPD-9")
def test_rows_out_of_nothing_are_refused() -> None:
    """Equal values take no space: rows are bounded by the bytes that they come from."""
    text = contract_text(table({"name": "a", "logicalType": "integer"}))
    few = ContractLimits(parquet_rows_free=100, parquet_rows_per_byte_max=1)
    data = _parquet([7] * 5000, ("a",))
    assert len(data) < 5000
    report = check_files(text, {"x.parquet": data}, limits=few)
    assert "declares 5000 rows" in find(report, "schema.readable:t").detail


@pytest.mark.req("UPD-9")
def test_a_row_has_a_limit() -> None:
    """One row is never larger in this process than one element of a JSON file may be."""
    text = contract_text(table({"name": "z", "logicalType": "string"}, custom={"kfmExtraColumns": "allow"}))
    small = ContractLimits(element_chars_max=10_000)
    report = check_files(text, {"x.parquet": _dense(20_000, rows=3)}, limits=small)
    assert "a row is larger than 10000 bytes" in find(report, "schema.readable:t").detail


@pytest.mark.req("UPD-9")
def test_every_kind_of_value_comes_back_as_it_was() -> None:
    """Numbers, text, times, decimals, lists and members are the same on this side of the process."""
    from datetime import date, datetime, time
    from decimal import Decimal

    from kfm.publish.contract.parquet import ParquetRows

    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    values = {
        "whole": [1, -(2**63), None],
        "text": ["a", "", "\U0001f33d"],
        "real": [0.5, 1e300, None],
        "flag": [True, False, None],
        "bytes": [b"\x00\xff", b"", None],
        "day": [date(2026, 1, 31), date(1600, 2, 29), None],
        "moment": [datetime(2026, 1, 31, 6, 0, 0, 123456), None, None],
        "clock": [time(6, 30), None, None],
        "money": [Decimal("12.50"), None, None],
        "list": [[1, 2], [], None],
        "object": [{"x": 1, "y": "b"}, {"x": None, "y": None}, None],
        "other": [1, 2, 3],
    }
    kinds = {"money": pa.decimal128(12, 2), "clock": pa.time64("us"), "moment": pa.timestamp("us")}
    out = io.BytesIO()
    table = pa.table({name: pa.array(each, kinds.get(name)) for name, each in values.items()})
    parquet.write_table(table, out, row_group_size=2)
    wanted = [name for name in reversed(values) if name != "other"]
    with ParquetRows(io.BytesIO(out.getvalue()), wanted, ContractLimits()) as file:
        assert file.names == list(values)
        assert [dict(zip(wanted, row, strict=True)) for row in file.rows()] == [
            {name: values[name][at] for name in wanted} for at in range(3)
        ]


@pytest.mark.req("UPD-9")
@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("import time; time.sleep(30)", "within 1 seconds"),
        ("import os; os.abort()", "bytes of memory"),
        ("import sys; sys.exit(3)", "ended with 3"),
        ("import os; os.write(1, b'\\xff\\xff\\xff\\xff')", "no sensible answer"),
        ("import os; os.write(1, b'\\0\\0\\0\\3abc')", "no sensible answer"),
        ("import os; os.write(1, b'\\0\\0\\0\\1\\x90')", "no sensible answer"),
        # rows: [[1, 2]], where one column is wanted
        ("import os; os.write(1, b'\\0\\0\\0\\x0a\\x92\\xa4rows\\x91\\x92\\1\\2')", "no sensible answer"),
    ],
)
def test_whatever_the_decoder_does_is_a_failed_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, sentence: str
) -> None:
    """A decoder that hangs, dies or answers nonsense ends this check, with a sentence."""
    (tmp_path / "child.py").write_text(script)
    monkeypatch.setattr(parquet_child, "__file__", str(tmp_path / "child.py"))
    text = contract_text(table({"name": "a"}))
    report = check_files(
        text, {"x.parquet": _parquet([1, 2], ("a",))}, limits=ContractLimits(decoder_seconds_max=1)
    )
    assert sentence in find(report, "schema.readable:t").detail
