"""Checksums that a publisher declares, from the announcement to the verdict."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from pathlib import Path

import pytest

from kfm.config import load
from kfm.core.wal import Wanted
from kfm.wiring import open_app
from kfm.wiring.worker import WorkerWish, run_worker

CONFIG = """\
version: 1
ingest:
  queues: [{name: spool, kind: folder, path: spool}]
  generic: [{bucket: gauges, dataset: gauges, provider: gcp}]
  mirrors: {"gs://gauges": mirror}
  policies: [{integrity: full}]
"""


@pytest.mark.req("WAL-7")
@pytest.mark.parametrize("honest", [True, False])
def test_bytes_are_those_of_the_declared_checksum(tmp_path: Path, honest: bool) -> None:
    """Google's ETags are no checksums, so its MD5 counts; other bytes are quarantined."""
    (tmp_path / "spool").mkdir()
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / "levels.bin").write_bytes(b"3.1")
    (tmp_path / "kfm.yml").write_text(CONFIG)
    digest = hashlib.md5(b"3.1" if honest else b"3.2").digest()
    said = {
        "kind": "storage#object",
        "bucket": "gauges",
        "name": "levels.bin",
        "size": "3",
        "etag": "CIDMy5QCEAE=",
        "generation": "1700000000000001",
        "timeCreated": "2026-01-01T00:00:00Z",
        "md5Hash": base64.b64encode(digest).decode(),
    }
    (tmp_path / "spool" / "one.json").write_text(json.dumps(said))
    with open_app(load(str(tmp_path / "kfm.yml"))) as app:
        run_worker(app, WorkerWish(mode="until-idle"), threading.Event())
        (unit,) = app.ledger.unit_reader().find_units(Wanted())
    assert unit.extra["md5"] == digest.hex()
    expected = ("succeeded", None) if honest else ("quarantined", "CHECKSUM_MISMATCH")
    assert (unit.status, unit.last_error_code) == expected, unit.last_error_message
