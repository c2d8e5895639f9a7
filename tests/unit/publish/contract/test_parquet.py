"""Parquet files against a contract."""

from __future__ import annotations

import io
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm.model.errors import ExtraMissing
from tests.unit.publish.contract.staged import check_files, contract_text, failed, table

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
    assert "kfm[parquet]" in raised.value.way_out


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_damaged_parquet_gives_a_report(data: st.DataObject) -> None:
    """Whatever bytes are changed, the library's panic does not reach us."""
    body = bytearray(_parquet([1, 2, 3]))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    assert check_files(TEXT, {"x.parquet": bytes(body)}).checks
