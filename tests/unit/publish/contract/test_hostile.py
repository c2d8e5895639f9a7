"""Files that want to break the check: every one ends in a report."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm.publish.contract import ContractLimits
from tests.unit.publish.contract.staged import check_files, contract_text, failed, find, table

TEXT = contract_text(
    table(
        {
            "name": "a",
            "logicalType": "number",
            "unique": True,
            "logicalTypeOptions": {"minimum": 0, "multipleOf": 0.5},
            "quality": [
                {"metric": "missingValues", "mustBe": 0},
                {"metric": "invalidValues", "mustBe": 0, "arguments": {"pattern": "^.+$"}},
            ],
        }
    )
)
NAMES = ("x.csv", "x.json", "x.jsonl", "x.geojson", "x.parquet")
DEEP = b"[" * 100_000
SMALL = ContractLimits(record_chars_max=10_000, element_chars_max=10_000)


@pytest.mark.req("UPD-9")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\xff\xfe\x00",
        b"\xef\xbb\xbf",
        b"\n\n\n",
        b"\r",
        b'"',
        b"{",
        b'{"a": NaN}',
        b'[{"a": Infinity}]',
        b'[{"a": 1}',
        b'[{"a": 1},]',
        b'[{"a": 1, "a": 2}]',
        b'[{"a": "\\ud800"}] x',
        b"[" + b"9" * 5000 + b"]",
        DEEP,
        b'{"type":"FeatureCollection","features":' + DEEP,
        b"PAR1" + b"\x00" * 40 + b"PAR1",
        "a\n\u202e1\n".encode(),
    ],
    ids=range(19),
)
def test_broken_files_fail_a_check(name: str, data: bytes) -> None:
    """Broken bytes are a failed check with a sentence, whatever the file claims to be."""
    report = check_files(TEXT, {name: data}, slowly=len(data) < 1000)
    # No lines are no rows: an empty JSON Lines file is an empty table.
    assert failed(report) or (name == "x.jsonl" and not data.strip())
    assert all(check.detail and len(check.detail) < 1000 for check in report.checks)


@pytest.mark.req("UPD-9")
@settings(max_examples=150, deadline=None)
@given(st.sampled_from(NAMES[:4]), st.binary(max_size=200))
def test_any_bytes_give_a_report(name: str, data: bytes) -> None:
    """No bytes end in a traceback."""
    assert check_files(TEXT, {name: data}).checks


@settings(max_examples=100, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["a", "type", "geometry", "coordinates", "features"]), inner, max_size=4
            )
        ),
        max_leaves=12,
    )
)
def test_any_json_gives_the_same_report_in_pieces(value: object) -> None:
    """How the bytes arrive changes nothing."""
    import json

    for name in NAMES[1:4]:
        data = json.dumps(value).encode()
        assert check_files(TEXT, {name: data}) == check_files(TEXT, {name: data}, slowly=True)


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (b"a,b\n1,2\n3\n4,5,6\n7,8\n", "line 3, line 4"),
        (b'a,b\n"1\n2",2\n3\n', "line 4"),
        (b"\xef\xbb\xbfa,b\r\n1,2\r\n3\r\n", "line 3"),
    ],
)
def test_ragged_rows_are_named_by_line(data: bytes, where: str) -> None:
    """A row of another length is named by the line on which it begins."""
    report = check_files(contract_text(table({"name": "a"}, {"name": "b"})), {"x.csv": data})
    assert failed(report) == ["schema.rows:t"]
    assert where in find(report, "schema.rows:t").detail


def test_harmless_oddities_pass() -> None:
    """A byte order mark, CRLF, quoted newlines, no newline at the end and a mere header are fine in CSV."""
    text = contract_text(table({"name": "a", "logicalType": "string"}, {"name": "b"}))
    for data in (b"\xef\xbb\xbfa,b\r\n1,2\r\n", b'a,b\n"x\ny",2', b"a,b", b"a,b\n\n\n1,2\n", b"a,b\r1,2\r"):
        assert failed(check_files(text, {"x.csv": data})) == [], data
    rows = contract_text(table({"name": "a"}, quality=[{"metric": "rowCount", "mustBeGreaterThan": 0}]))
    assert failed(check_files(rows, {"x.csv": b"a\n"})) == ["quality.rowCount:t"]


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"a,a\n1,2\n", "stand twice in its header"),
        (b'a\n"1"2\n', "is not CSV"),
        (b'a\n"1\n', "is not CSV"),
        (b"a\n1\x00\n", "NUL character in line 2"),
        (b"a\n1\n\xff\n", "is not UTF-8"),
        (b"", "has no header"),
    ],
)
def test_unreadable_csv_says_why(data: bytes, complaint: str) -> None:
    """The sentence names the reason."""
    report = check_files(contract_text(table({"name": "a"})), {"x.csv": data})
    assert complaint in find(report, "schema.readable:t").detail


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.csv", b"a\n" + b"9" * 20_000),
        ("x.csv", b'a\n"' + b"9\n" * 20_000),
        ("x.csv", b'a\n"\n"' + b',"\n"' * 20_000),
        ("x.jsonl", b'{"a": "' + b"x" * 20_000 + b'"}'),
        ("x.json", b'[{"a": "' + b"x" * 300_000 + b'"}]'),
        ("x.geojson", b'{"x": "' + b"x" * 300_000 + b'"}'),
    ],
)
def test_no_record_may_be_endless(name: str, data: bytes) -> None:
    """A record or a value past its limit ends the reading of the file."""
    report = check_files(TEXT, {name: data}, limits=SMALL)
    assert "longer than 10000 characters" in find(report, "schema.readable:t").detail


def test_large_fields_are_fine_within_the_limit() -> None:
    """A field larger than the csv module's default is no error."""
    text = contract_text(table({"name": "a", "logicalType": "string"}))
    assert failed(check_files(text, {"x.csv": b"a\n" + b"x" * 500_000 + b"\n"})) == []


@pytest.mark.req("UPD-9")
def test_memory_stays_bounded() -> None:
    """A file of megabytes with a unique column is checked with a small, fixed amount of memory."""
    import io

    from kfm.model.records import Asset
    from kfm.publish.contract import load_contract, validate

    contract = load_contract(
        contract_text(table({"name": "a", "logicalType": "integer", "unique": True}, {"name": "b"})), "c"
    )
    body = b"a,b\n" + b"".join(b"%d,%s\n" % (n, b"x" * 50) for n in range(30_000)) + b"7,\n"
    asset = Asset(path="x.csv", sha256="0", size=len(body), media_type="text/csv")
    reader = io.BytesIO(body)
    tracemalloc.start()
    report = validate(
        contract, [asset], lambda _: reader, 0, limits=ContractLimits(unique_in_memory_max=1000)
    )
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert failed(report) == ["schema.column.unique:a"]
    assert peak < 1_500_000 < len(body)
