"""`kfm nodd`, as a person types it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest

KEY = "CONUS/PrecipRate_00.00/20260101/MRMS_PrecipRate_00.00_20260101-000000.grib2.gz"
FIELDS = (
    "dataset object_uri provider product platform time_range_start time_range_end reference_time "
    "forecast_hour wal_id stac_collection_id stac_item_id"
).split()


@pytest.fixture
def nodd(kfm: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Call `kfm nodd`, with a body on standard input."""

    def call(*arguments: str, body: bytes | str = b"") -> Any:
        data = body.encode() if isinstance(body, str) else body
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
        return kfm("nodd", *arguments)

    return call


def event(*keys: str, name: str = "ObjectCreated:Put") -> str:
    records = [
        {
            "eventVersion": "2.1",
            "eventSource": "aws:s3",
            "eventName": name,
            "s3": {"bucket": {"name": "noaa-mrms-pds"}, "object": {"key": key}},
        }
        for key in keys
    ]
    return json.dumps({"Records": records})


@pytest.mark.req("WAL-20")
def test_parse_prints_a_line_for_each_record(nodd: Callable[..., Any], valid: Callable[..., None]) -> None:
    """A record is a line with exactly its fields, or with an error; one error makes exit code 1."""
    done = nodd("parse", body=event(KEY, "index.html", KEY))
    lines = [json.loads(text) for text in done.out.splitlines()]
    assert done.code == 1
    assert list(lines[0]) == FIELDS
    assert lines[0]["time_range_start"] == "2026-01-01T00:00:00Z"
    assert lines[1]["error_code"] == "KEY_UNKNOWN"
    assert (lines[2]["error_code"], lines[2]["ignored"]) == ("REPEATED", True)
    assert done.err == ""
    document = nodd("parse", "--json", body=event(KEY, "index.html", KEY))
    valid("nodd-parse", json.loads(document.out))
    assert json.loads(document.out)["records"] == lines


def test_ignored_records_are_fine(nodd: Callable[..., Any]) -> None:
    """Tests, removals and repeats do not make a message a failure."""
    for body in ('{"Event": "s3:TestEvent"}', event(KEY, name="ObjectRemoved:Delete"), event(KEY, KEY)):
        done = nodd("parse", body=body)
        assert done.code == 0
        assert '"ignored":true' in done.out


@pytest.mark.parametrize("body", [b"", b"\x00", b"\xff", b"[" * 5000, b"null", b'"\\ud83d"', b"{" * 40])
def test_no_body_is_a_traceback(body: bytes, nodd: Callable[..., Any]) -> None:
    """Whatever comes, it is an error line and exit code 1."""
    done = nodd("parse", body=body)
    assert done.code == 1
    assert "error_code" in json.loads(done.out)
    assert done.err == ""


def test_one_key(nodd: Callable[..., Any]) -> None:
    """`--key` reads one key; an unknown bucket needs a policy."""
    assert json.loads(nodd("parse", "--key", "noaa-mrms-pds", KEY).out)["dataset"] == "mrms"
    refused = nodd("parse", "--key", "my-bucket", "a.nc")
    assert (refused.code, json.loads(refused.out)["error_code"]) == (1, "BUCKET_UNKNOWN")
    taken = nodd("parse", "--generic", "my-bucket=mine", "--key", "my-bucket", "a.nc")
    assert (taken.code, json.loads(taken.out)["stac_item_id"]) == (0, "a.nc~--add0f685ae3f9f55")
    assert nodd("parse", "--generic", "my-bucket", "--key", "my-bucket", "a.nc").code == 2
    assert nodd("parse", "--topic", "NoSuchTopic", "--key", "my-bucket", "a.nc").code == 2


def test_datasets_are_listed_with_their_topics(nodd: Callable[..., Any], valid: Callable[..., None]) -> None:
    """All that is known, with who announces it."""
    document = json.loads(nodd("datasets", "--json").out)
    valid("nodd-datasets", document)
    assert len(document["datasets"]) >= 21
    text = nodd("datasets", "hrrr").out
    assert "arn:aws:sns:us-east-1:123901341784:NewHRRRObject" in text
    assert "s3://noaa-hrrr-bdp-pds" in text
    wrong = nodd("datasets", "hrr")
    assert wrong.code == 2
    assert "hrrr" in wrong.err


def test_closed_input_is_an_empty_body(process: Callable[..., Any]) -> None:
    """Closed input is an empty body: that is an error line, too."""
    done = process("nodd", "parse", stdin=-3)  # DEVNULL
    assert (done.code, json.loads(done.out)["error_code"]) == (1, "BODY_EMPTY")
