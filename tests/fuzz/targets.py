"""One function for each reader of foreign bytes: it may refuse with a clear error, and do nothing else."""

from __future__ import annotations

import gzip
import io
import json
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException

from kfm.audit import anchors
from kfm.contracts.verifier import verify_audit
from kfm.evidence_bundle import verify_bundle
from kfm.model.canonical import canonical_bytes, strict_loads
from kfm.model.documents import parse_json
from kfm.model.errors import KfmError
from kfm.model.records import Asset, Window
from kfm.model.retry import parse_retry_after
from kfm.model.settings import Settings, SourceSettings
from kfm.model.templates import safe_path
from kfm.model.times import parse_http_date, parse_rfc3339
from kfm.model.units import wal_id
from kfm.model.webhook_signatures import verify_kfm
from kfm.model.webhooks import WebhookRefusal, as_request, read_webhook
from kfm.model.windows import resolve_window
from kfm.nodd.catalogue.search import parse_bbox, parse_datetime, parse_token
from kfm.nodd.dataset_registry import load_registry
from kfm.nodd.inspect import grib2, netcdf, nexrad_header
from kfm.nodd.inspect.file_walk import walker_for
from kfm.nodd.inspect.gzip_members import Bomb, Damaged, Inflater, first_inflated
from kfm.nodd.inspect.header_facts import HeaderInvalid, HeaderUnread, MemoryBytes
from kfm.nodd.messages import sns_signatures
from kfm.nodd.messages.record_outcomes import line, parse_key, parse_message
from kfm.nodd.queues.line_stream import LineCutter
from kfm.nodd.unit_import import read_line
from kfm.publish.contract import ContractLimits, load_contract, validate
from kfm.publish.contract.expressions import Expression, ExpressionError
from kfm.publish.contract.parquet_footer import read_footer
from kfm.publish.contract.streams import FileProblem
from kfm.runs import plan
from kfm.sources.http_bodies import decoded
from kfm.sources.http_pages import next_link
from kfm.web.query_params import from_body, from_text
from tests import nodd_objects, webhook_samples

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
    from kfm.config.schedule_file import read_schedules
    from kfm.model.schedules import due_ms, missed_instants, next_instant

    known = Settings(sources=(SourceSettings(id="s", dataset="a", kind="files", folder="."),))
    for each in read_schedules("cron.yml", data, known):
        instant_ms = next_instant(each, NOW_MS)
        assert instant_ms is not None
        assert due_ms(each, instant_ms) >= instant_ms > NOW_MS
        assert len(missed_instants(each, known.sources[0], NOW_MS - 10**9, NOW_MS).run_ms) <= each.missed.cap


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


def http_date(data: bytes) -> None:
    text = data.decode("latin-1")
    assert parse_http_date(text, NOW_MS) is None or text.isascii()
    with suppress(ValueError):
        parse_rfc3339(text)


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


def read_header(reader: Callable[[Any], Any]) -> Callable[[bytes], None]:
    def look(data: bytes) -> None:
        with suppress(HeaderInvalid, HeaderUnread):
            reader(MemoryBytes(data))

    return look


def gzipped(data: bytes) -> None:
    """Never more comes out than is allowed, in pieces or at once."""
    with suppress(Damaged):
        assert len(first_inflated(data, 1000)[0]) <= 1000
    inflater = Inflater(bytes_max=100_000, ratio_max=200)
    with suppress(Damaged, Bomb):
        for at in range(0, len(data), 999):
            for piece in inflater.feed(data[at : at + 999]):
                assert len(piece) <= 256 * 1024


def walked(data: bytes) -> None:
    """However the bytes are cut, the verdict is the same."""
    for kind in ("grib", "nexrad-l2", "ldm"):
        verdicts = []
        for size in (1, 100, len(data) or 1):
            walker = walker_for(kind)
            assert walker is not None
            for at in range(0, len(data), size):
                walker.feed(data[at : at + size])
            verdicts.append(walker.problem())
        assert len(set(verdicts)) == 1, verdicts


def http_body(data: bytes) -> None:
    encoding, _, body = data.partition(b"\n")
    response: Any = SimpleNamespace(headers={"content-encoding": encoding.decode("latin-1")})
    for piece in islice(decoded(response, iter((body[:7], body[7:]))), 50):
        assert len(piece) <= 1024 * 1024


def link_header(data: bytes) -> None:
    next_link(data.decode("latin-1"))


def expression(data: bytes) -> None:
    pattern, _, text = data.decode("utf-8", "surrogateescape").partition("\n")
    with suppress(ExpressionError, FileProblem):
        made = Expression(pattern)
        assert made.matches(text) == made.matches(text)


def parquet_footer(data: bytes) -> None:
    """What the decoder is given is a footer again, and names nothing else."""
    with suppress(FileProblem):
        found = read_footer(io.BytesIO(data), ("a", "b"), ContractLimits())
        size = len(data)
        again = read_footer(io.BytesIO(data + found.data), ("a", "b"), ContractLimits())
        assert (again.rows, again.names) == (found.rows, found.wanted), size


def webhook(data: bytes) -> None:
    """A sender who has the secret may send anything."""
    found = read_webhook(webhook_samples.to(), webhook_samples.kfm(data), data, webhook_samples.NOW_MS, 8192)
    if not isinstance(found, WebhookRefusal):
        as_request(found, webhook_samples.source(), webhook_samples.NOW_MS)


def search_body(data: bytes) -> None:
    with suppress(HTTPException):
        from_body("application/json", data)


def search_text(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    pairs = [(name, value) for name, _, value in (part.partition("=") for part in text.split("&"))]
    with suppress(KfmError, HTTPException):
        from_text(pairs, ("bbox", "datetime", "limit", "ids", "collections", "intersects", "token"))
    for parse in (parse_datetime, parse_token, lambda each: parse_bbox(each.split(","))):
        with suppress(KfmError):
            parse(text)


def imported_unit(data: bytes) -> None:
    read_line(data, DATASETS, NOW_MS)


def bundle(data: bytes) -> None:
    """An evidence bundle of a stranger: findings, or no bundle at all."""
    with tempfile.TemporaryDirectory(prefix="kfm-fuzz-") as folder:
        path = Path(folder) / "bundle.zip"
        path.write_bytes(data)
        with suppress(verify_bundle.NoBundle):
            verify_bundle.verify(str(path))


def chain_line(data: bytes) -> None:
    with suppress(verify_audit.Bad):
        verify_audit.parse(data)


def anchor_lines(data: bytes) -> None:
    anchors.parse(data, "anchors.jsonl")


def certificate(data: bytes) -> None:
    sns_signatures._read(data)


def cut_lines(data: bytes) -> None:
    cutter, lines = LineCutter(), []
    for at in range(0, len(data), 11):
        lines += cutter.cut(data[at : at + 11])
    lines += cutter.end()
    assert lines == [each for each in data.split(b"\n") if each.strip()]


def json_config(data: bytes) -> None:
    parse_json("kfm.json", data.decode("utf-8", "replace"))


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


def _parquet() -> bytes:
    """A small file with two columns, as arrow writes it."""
    from arro3.core import Array, DataType, Table
    from arro3.io import write_parquet

    out = io.BytesIO()
    columns = {"a": Array([1, 2], DataType.int64()), "site": Array(["x", "y"], DataType.string())}
    write_parquet(Table.from_pydict(columns), out, compression="zstd(1)")
    return out.getvalue()


def _bundle() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("checksums.sha256", "0" * 64 + "  run.json\n")
        archive.writestr("run.json", "{}")
    return out.getvalue()


LINK = {"number": 1, "previous": "sha256:" + "0" * 64, "content": "sha256:1", "hash": "sha256:2"}
UNIT = {
    "dataset": "nexrad-l2",
    "object_uri": "s3://unidata-nexrad-level2/2026/01/01/KICT/KICT20260101_000000_V06",
    "status": "succeeded",
    "created_at": "2026-01-01T00:00:00Z",
    "error_message": "x",
    "etag": "e",
    "attempts": 1,
}


ATTRIBUTES = nodd_objects.GOES_ATTRIBUTES


class Target(NamedTuple):
    read: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    slow: bool = False  # a process for each input: fewer of them


def _target(read: Callable[[bytes], None], *seeds: bytes, slow: bool = False) -> Target:
    return Target(read, seeds, slow)


TARGETS: dict[str, Target] = {
    "config": _target(config, CONFIG_SEED, b"%YAML 1.1\n---\na: yes"),
    "config_json": _target(json_config, b'{"version": 1, "datasets": [{"id": "a"}]}'),
    "schedules": _target(schedules, SCHEDULES_SEED),
    "contract": _target(contract, CONTRACT_SEED),
    "expression": _target(expression, b"^(?:a+|[b-d]{2,3})*\\b$\naabcd", b"\\u{1f33d}|\\x41.\\w?\nA"),
    "csv": _target(staged("csv", "text/csv"), b"site,value,day\na,1,2026-01-01\nb,2.5,2026-01-02\n"),
    "json": _target(staged("json", "application/json"), b'[{"site": "a", "value": 1, "day": "2026-01-01"}]'),
    "jsonl": _target(staged("jsonl", "application/jsonl"), b'{"site": "a", "value": 1}\n{"site": "b"}\n'),
    "geojson": _target(staged("geojson", "application/geo+json"), GEOJSON_SEED),
    "parquet_footer": _target(parquet_footer, _parquet()),
    "parquet": _target(staged("parquet", "application/vnd.apache.parquet"), _parquet(), slow=True),
    "strict_json": _target(json_text, b'{"a": [1, 2.5, true, null], "b": {"c": "\\u00e9"}}'),
    "plan": _target(plan_file, b'{"plan":1,"dataset_id":"a","digest":"sha256:00"}\n'),
    "signature": _target(signature, b"sha256=" + b"0" * 64 + b"\n{}"),
    "webhook": _target(webhook, webhook_samples.encoded(webhook_samples.payload())),
    "window": _target(window, b"2026-01-01T00:00:00Z/P1D"),
    "path": _target(path, b"2026/01/01/flow.csv"),
    "retry_after": _target(retry_after, b"Wed, 21 Oct 2026 07:28:00 GMT"),
    "http_date": _target(http_date, b"Wednesday, 21-Oct-26 07:28:00 GMT", b"2026-01-01T00:00:00.5+01:00"),
    "http_body": _target(http_body, b"gzip\n" + gzip.compress(b"a" * 99, mtime=0), b"deflate\nx"),
    "link_header": _target(link_header, b'<https://x/?p=2>; rel="next", <https://x/>; rel=first'),
    "message": _target(message, MESSAGE_SEED),
    "records": _target(message, RECORD_SEED),
    "object_key": _target(object_key, b"unidata-nexrad-level2 2026/01/01/KICT/KICT20260101_000000_V06"),
    "object_address": _target(object_address, b"s3://noaa-goes16/ABI-L1b/2026/001/00/file.nc"),
    "message_lines": _target(cut_lines, b'{"a": 1}\n\n{"b": 2}'),
    "certificate": _target(certificate, b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"),
    "imported_unit": _target(imported_unit, json.dumps(UNIT).encode()),
    "grib2": _target(read_header(grib2.message), nodd_objects.grib2()),
    "grib2_index": _target(read_header(grib2.index), b"1:0:d=2026010100:TMP:2 m above ground:anl:\n"),
    "netcdf": _target(
        read_header(netcdf.attributes), nodd_objects.hdf5(ATTRIBUTES), nodd_objects.netcdf3(ATTRIBUTES)
    ),
    "nexrad": _target(read_header(nexrad_header.volume), nodd_objects.volume()),
    "gzip": _target(gzipped, gzip.compress(b"a" * 3000, mtime=0) * 2),
    "file_walk": _target(walked, nodd_objects.grib2(), nodd_objects.volume()),
    "search_body": _target(search_body, b'{"bbox": [-98, 38, -97, 39], "limit": 2, "collections": ["a"]}'),
    "search_text": _target(search_text, b"bbox=-98,38,-97,39&datetime=2026-01-01T00:00:00Z/..&limit=2"),
    "anchors": _target(
        anchor_lines, b'{"environment":"x","number":1,"hash":"sha256:00","at":"2026-01-01T00:00:00Z"}\n'
    ),
    "bundle": _target(bundle, _bundle()),
    "chain_line": _target(chain_line, canonical_bytes(LINK) + b"\n"),
}


def attempt(name: str, data: bytes) -> None:
    """A refusal is an answer; anything else that is raised is a defect."""
    with suppress(KfmError):
        TARGETS[name].read(data)
