"""One function for each reader: it may refuse with a clear error, and do nothing else."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from kfm.model.canonical import canonical_bytes, strict_loads
from kfm.model.errors import KfmError
from kfm.model.records import Asset, Window
from kfm.model.retry import parse_retry_after
from kfm.model.settings import Settings, SourceSettings
from kfm.model.templates import safe_path
from kfm.model.units import wal_id
from kfm.model.webhook_signatures import verify_kfm
from kfm.model.windows import resolve_window
from kfm.nodd.dataset_registry import load_registry
from kfm.nodd.messages.record_outcomes import line, parse_key, parse_message
from kfm.publish.contract import load_contract, validate
from kfm.runs import plan

NOW_MS = 1_790_000_000_000
CONTRACT = load_contract(
    b"""apiVersion: v3.0.2
kind: DataContract
id: fuzz
name: fuzz
version: 1.0.0
status: active
schema:
  - name: rows
    physicalName: "*"
    logicalType: object
    properties:
      - {name: site, logicalType: string, required: true, unique: true}
      - {name: value, logicalType: number, logicalTypeOptions: {minimum: 0, maximum: 100}}
      - {name: day, logicalType: date}
""",
    "fuzz.odcs.yaml",
)


def config(data: bytes) -> None:
    from kfm.config.loader import load

    with tempfile.TemporaryDirectory(prefix="kfm-fuzz-") as folder:
        path = Path(folder) / "kfm.yml"
        path.write_bytes(data)
        load(str(path), environ={})


def schedules(data: bytes) -> None:
    """What is accepted has a next instant, a time to begin and a decision on what was missed."""
    from kfm.config.schedules import read_schedules
    from kfm.model.schedules import due_ms, missed_instants, next_instant

    known = Settings(sources=(SourceSettings(id="s", dataset="a", kind="files", folder="."),))
    for each in read_schedules("cron.yml", data, known):
        instant_ms = next_instant(each, NOW_MS)
        assert instant_ms is not None
        assert due_ms(each, instant_ms) >= instant_ms > NOW_MS
        assert len(missed_instants(each, NOW_MS - 10**9, NOW_MS).run_ms) <= each.missed.cap


def contract(data: bytes) -> None:
    load_contract(data, "fuzz.odcs.yaml")


def staged(suffix: str, media_type: str) -> Callable[[bytes], None]:
    def check(data: bytes) -> None:
        asset = Asset(path=f"f.{suffix}", sha256="0" * 64, size=len(data), media_type=media_type)
        report = validate(CONTRACT, [asset], lambda _sha256: Bytes(data), NOW_MS)
        assert report.checks

    return check


class Bytes:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, size: int) -> bytes:
        piece, self._data = self._data[:size], self._data[size:]
        return piece

    def close(self) -> None:
        pass


def json_text(data: bytes) -> None:
    document = strict_loads(data)
    assert strict_loads(canonical_bytes(document)) == document


def plan_file(data: bytes) -> None:
    plan.read(data)


def signature(data: bytes) -> None:
    header, _, body = data.partition(b"\n")
    verdict = verify_kfm([b"a secret of some length"], body, header.decode("latin-1"))
    assert not verdict.ok, "no signature is guessed"


def window(data: bytes) -> None:
    found = resolve_window(data.decode("utf-8", "replace"), "America/Chicago", NOW_MS)
    assert isinstance(found, Window)
    assert found.start_ms < found.end_ms


def path(data: bytes) -> None:
    safe = safe_path(data.decode("utf-8", "replace"))
    assert not safe.startswith("/")
    assert ".." not in safe.split("/")


def retry_after(data: bytes) -> None:
    delay_ms = parse_retry_after(data.decode("latin-1"), NOW_MS)
    assert delay_ms is None or delay_ms >= 0


def object_address(data: bytes) -> None:
    made = wal_id("goes-abi", data.decode("utf-8", "replace"), None)
    assert len(made) == 34


DATASETS = load_registry()


def message(data: bytes) -> None:
    """Reading a message never refuses: every record has a line."""
    outcomes = parse_message(data, DATASETS, NOW_MS)
    assert outcomes
    for outcome in outcomes:
        line(outcome)


def object_key(data: bytes) -> None:
    bucket, _, key = data.decode("utf-8", "replace").partition(" ")
    line(parse_key(bucket, key, DATASETS, NOW_MS))


RECORD_SEED = b"""{"Records":[{"eventVersion":"2.1","eventSource":"aws:s3","eventTime":"2026-01-01T00:00:00Z",
"eventName":"ObjectCreated:Put","s3":{"bucket":{"name":"unidata-nexrad-level3"},"object":{"key":
"ICT_N0S_2026_01_01_00_00_00","size":1,"eTag":"e","sequencer":"0A"}}},{"specversion":"1.0","type":"Microsoft.Storage.BlobCreated","subject":"/x","data":{}}]}"""
MESSAGE_SEED = json.dumps(
    {
        "Type": "Notification",
        "TopicArn": "arn:aws:sns:us-east-1:123901341784:NewMRMSObject",
        "Message": RECORD_SEED.decode(),
        "SigningCertURL": "https://sns.us-east-1.amazonaws.com/a.pem",
    }
).encode()
CONFIG_SEED = b"""version: 1
environment: x
datasets:
  - id: a
sources:
  - {id: s, dataset: a, kind: files, folder: .}
"""
SCHEDULES_SEED = b"""version: 1
schedules:
  - {id: a, source: s, cron: "*/20 2-4 1,L * MON-FRI", time_zone: America/Chicago, jitter: PT5M}
  - {id: b, source: s, every: PT90M, anchor: 2026-01-01, missed: {run: all, within: P2D, cap: 9}}
"""
CONTRACT_SEED = b"""apiVersion: v3.0.2
kind: DataContract
id: a
name: a
version: 1.0.0
status: active
schema:
  - {name: r, properties: [{name: c, logicalType: string}]}
"""
GEOJSON_SEED = b"""{"type":"FeatureCollection","features":[{"type":"Feature","properties":{"site":"a"},
"geometry":{"type":"Polygon","coordinates":[[[-98,38],[-97,38],[-97,39],[-98,38]]]}}]}"""
TARGETS: dict[str, tuple[Callable[[bytes], None], bytes]] = {
    "config": (config, CONFIG_SEED),
    "schedules": (schedules, SCHEDULES_SEED),
    "contract": (contract, CONTRACT_SEED),
    "csv": (staged("csv", "text/csv"), b"site,value,day\na,1,2026-01-01\nb,2.5,2026-01-02\n"),
    "json": (staged("json", "application/json"), b'[{"site": "a", "value": 1, "day": "2026-01-01"}]'),
    "geojson": (staged("geojson", "application/geo+json"), GEOJSON_SEED),
    "strict_json": (json_text, b'{"a": [1, 2.5, true, null], "b": {"c": "\\u00e9"}}'),
    "plan": (plan_file, b'{"plan":1,"dataset_id":"a","digest":"sha256:00"}\n'),
    "signature": (signature, b"sha256=" + b"0" * 64 + b"\n{}"),
    "window": (window, b"2026-01-01T00:00:00Z/P1D"),
    "path": (path, b"2026/01/01/flow.csv"),
    "retry_after": (retry_after, b"Wed, 21 Oct 2026 07:28:00 GMT"),
    "message": (message, MESSAGE_SEED),
    "records": (message, RECORD_SEED),
    "object_key": (object_key, b"unidata-nexrad-level2 2026/01/01/KICT/KICT20260101_000000_V06"),
    "object_address": (object_address, b"s3://noaa-goes16/ABI-L1b/2026/001/00/file.nc"),
}


def attempt(name: str, data: bytes) -> None:
    """A refusal is an answer; anything else that is raised is a defect."""
    try:
        TARGETS[name][0](data)
    except KfmError:
        return
