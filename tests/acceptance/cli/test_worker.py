"""`kfm worker` and both `reconcile`: shapes for programs, and what `kfm doctor` says of their places."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

CONFIG = """\
version: 1
environment: test
ingest:
  queues:
    - {name: spool, kind: folder, path: spool}
  mirrors: {noaa-mrms-pds: mirror}
"""
KEY = "CONUS/PrecipRate_00.00/20260101/MRMS_PrecipRate_00.00_20260101-{hour:02d}0000.grib2.gz"

Kfm = Callable[..., Any]
Valid = Callable[[str, Any], None]


def message(hour: int) -> str:
    thing = {"key": KEY.format(hour=hour), "size": 1, "eTag": "e", "sequencer": "01"}
    record = {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "eventTime": "2026-01-01T00:00:00.000Z",
        "eventName": "ObjectCreated:Put",
        "s3": {"bucket": {"name": "noaa-mrms-pds"}, "object": thing},
    }
    return json.dumps({"Records": [record]})


@pytest.fixture
def place(project: Path) -> Path:
    """A spool with two announcements, and a bucket with one object more."""
    (project / "kfm.yml").write_text(CONFIG)
    (project / "spool").mkdir()
    for hour in range(2):
        (project / "spool" / f"{hour}.json").write_text(message(hour))
    for hour in range(3):
        path = project / "mirror" / KEY.format(hour=hour)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return project


@pytest.fixture
def landing() -> Iterator[str]:
    """Something that answers like a STAC API's first page, and to a token alone."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.headers.get("Authorization") == "Bearer letmein-1"
            self.send_response(200 if known else 401)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.req("CLI-1")
def test_what_a_worker_tells_programs(place: Path, kfm: Kfm, valid: Valid) -> None:
    """Its result has the published shape, and counts what it did."""
    done = kfm("worker", "--until-idle", "--json").document
    valid("worker", done)
    assert (done["tasks"]["created"], done["tasks"]["succeeded"], done["waiting"]) == (2, 2, 0)
    assert list((place / "spool").glob("*.json")) == []


def test_what_reconciling_a_bucket_tells_programs(place: Path, kfm: Kfm, valid: Valid) -> None:
    """Missing and changed objects one by one; opened they are missing no more."""
    kfm("worker", "--until-idle")
    told = kfm("nodd", "reconcile", "noaa-mrms-pds", "--json")
    valid("nodd-reconcile", told.document)
    assert told.code == 1
    assert {gap["what"] for gap in told.document["gaps"]} >= {"missing"}
    opened = kfm("nodd", "reconcile", "noaa-mrms-pds", "--open", "--rationale", "a test", "--json")
    valid("nodd-reconcile", opened.document)
    assert (opened.code, opened.document["opened"]) == (0, len(told.document["gaps"]))


def test_what_comparing_catalogues_tells_programs(place: Path, kfm: Kfm, valid: Valid, landing: str) -> None:
    """A row for each replica; of an empty catalogue nothing differs."""
    (place / "kfm.yml").write_text(CONFIG + f"  replicas:\n    - {{name: public, url: '{landing}'}}\n")
    told = kfm("catalogue", "reconcile", "--json")
    valid("catalogue-reconcile", told.document)
    (row,) = told.document["replicas"]
    assert (told.code, row["replica"], row["items"], row["equal"]) == (0, "public", 0, 0)


@pytest.mark.req("CLI-2")
def test_a_name_that_nothing_announces_stops_the_worker(place: Path, kfm: Kfm) -> None:
    """A misspelt dataset in a policy would silently ask for less: it is told with its line instead."""
    (place / "kfm.yml").write_text(CONFIG + "  policies:\n    - {datasets: [mrsm], integrity: full}\n")
    for command in (("worker", "--until-idle"), ("config", "check")):
        told = kfm(*command)
        assert told.code == 2
        assert "kfm.yml:8: there is no announced dataset `mrsm`; did you mean `mrms`?" in told.err
    assert len(list((place / "spool").glob("*.json"))) == 2


def test_doctor_looks_at_queues_mirrors_and_replicas(
    place: Path, kfm: Kfm, valid: Valid, landing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is asked whether it is there; nothing is received and nothing is told but what is needed."""
    monkeypatch.setenv("REPLICA_WORD", "letmein-1")
    replicas = f"  replicas:\n    - {{name: known, url: '{landing}', token: 'env:REPLICA_WORD'}}\n"
    replicas += f"    - {{name: strange, url: '{landing}'}}\n"
    (place / "kfm.yml").write_text(CONFIG.replace("mirror}", "mirror, other: nowhere}") + replicas)
    told = kfm("doctor", "--json").document
    valid("doctor", told)
    found = {
        (check["name"], check["message"].partition(":")[0]): check["state"]
        for check in told["checks"]
        if check["name"] in ("queues", "mirrors", "replicas")
    }
    assert found == {
        ("queues", "spool"): "ok",
        ("mirrors", "noaa-mrms-pds"): "ok",
        ("mirrors", "other"): "fail",
        ("replicas", "known"): "ok",
        ("replicas", "strange"): "fail",
    }
    assert told["exit_code"] == 4
    assert "letmein-1" not in json.dumps(told)
    assert len(list((place / "spool").glob("*.json"))) == 2
