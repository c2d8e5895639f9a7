"""Checksums that a publisher declares, from the announcement to the verdict."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pytest

from kfm.model.units import UnitFilter
from tests.acceptance.nodd.conftest import Worked

READ_WHOLE = """\
  generic: [{bucket: gauges, dataset: gauges, provider: gcp}]
  mirrors: {"gs://gauges": mirror}
  policies: [{integrity: full}]
"""


@pytest.mark.req("WAL-7")
@pytest.mark.parametrize("honest", [True, False])
def test_bytes_are_those_of_the_declared_checksum(spool: Path, worked: Worked, honest: bool) -> None:
    """Google's ETags are no checksums, so its MD5 counts; other bytes are quarantined."""
    mirror = spool.parent / "mirror"
    mirror.mkdir()
    (mirror / "levels.bin").write_bytes(b"3.1")
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
    (spool / "one.json").write_text(json.dumps(said))
    with worked(READ_WHOLE) as (app, _):
        (unit,) = app.ledger.unit_reader().find_units(UnitFilter())
    assert unit.extra["md5"] == digest.hex()
    expected = ("succeeded", None) if honest else ("quarantined", "CHECKSUM_MISMATCH")
    assert (unit.status, unit.last_error_code) == expected, unit.last_error_message
