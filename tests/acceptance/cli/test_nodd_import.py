"""Taking over the records of an older ledger, as the how-to has it, to a catalogue that has their items."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CONFIG = "version: 1\nenvironment: test\n"
KEY = "CONUS/PrecipRate_00.00/20260101/MRMS_PrecipRate_00.00_20260101-{hour:02d}0000.grib2.gz"
HOST = "ip-10-0-0-7.ec2.internal"
RATIONALE = ("--rationale", "fill the catalogue after the import")


def record(hour: int, **changes: Any) -> str:
    made = {
        "wal_id": f"0190b6a2-7b1c-7000-8000-{hour:>012}",
        "dataset": "mrms",
        "object_uri": f"s3://noaa-mrms-pds/{KEY.format(hour=hour)}",
        "status": "succeeded",
        "attempts": 2,
        "stac_status": "created",
        "provenance_status": "ok",
        "stac_item_id": "x",
        "stac_collection_id": "mrms",
        "worker_id": HOST,
        "last_error_message": f"{HOST}: GET https://u:hunter2@h/x?X-Amz-Signature=abcdefgh failed",
    }
    return json.dumps({**made, **changes})


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Who runs the commands."""
    return lambda name: monkeypatch.setattr("kfm.config.loader.actor", lambda: name)


@pytest.mark.req("WAL-21", "WAL-19", "WAL-9", "RS-12")
def test_records_are_taken_over_and_the_catalogue_is_filled(project: Path, kfm: Any, person: Any) -> None:
    """No secret and no host comes in, a false success is named by its line, no item is claimed that is not
    there, attempts are told as they were, and the how-to's commands make the items."""
    (project / "kfm.yml").write_text(CONFIG)
    lines = [
        record(1),
        record(2, stac_status="failed"),
        record(3, status="quarantined", last_error_code="GZIP_DAMAGED"),
    ]
    (project / "records.jsonl").write_text("\n".join(lines))
    person("ada")
    done = kfm("nodd", "import", "records.jsonl", "--rationale", "moving over")
    assert done.code == 1
    assert done.out.splitlines() == [
        "line 2: `status` is succeeded, but stac_status failed.",
        "3 records: 2 taken, 0 known already, 1 not read",
    ]
    listed = kfm("nodd", "units", "--json")
    for word in ("hunter2", "abcdefgh", "ec2.internal"):
        assert word not in listed.out
    ids = {unit["status"]: unit["wal_id"] for unit in listed.document["units"]}
    assert "is quarantined after 2 attempts" in kfm("explain", ids["quarantined"]).out
    one = ids["succeeded"]
    assert "but the catalogue here has no item of it" in kfm("explain", one).out
    selected = ("--dataset", "mrms", "--status", "succeeded", "--mode", "repair-and-replace")
    planned = kfm("replay", "dry-run", *selected, "--reason", "backfill", "--selection-file", "fill.json")
    assert planned.code == 0, planned.err
    asked = kfm("replay", "run", "--selection-file", "fill.json", "--confirm", *RATIONALE, "--json")
    assert asked.code == 3
    person("bob")
    request, replay = asked.document["request"]["request_id"], asked.document["replay"]["replay_id"]
    assert kfm("approvals", "approve", request, "--rationale", "read the plan").code == 0
    person("ada")
    assert kfm("replay", "run", replay, "--confirm", *RATIONALE).code == 0
    assert kfm("worker", "--until-idle", "--no-intake").code == 0
    explained = kfm("explain", one).out
    assert "is in the catalogue as item" in explained
    assert len(kfm("catalogue", "search", "--json").document["features"]) == 1
