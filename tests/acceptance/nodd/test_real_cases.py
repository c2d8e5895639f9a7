"""Real keys, messages and hostile bodies from a queue to the catalogue, where a collection is configured."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest

from tests.acceptance.nodd.conftest import Worked

FOLDER = Path(os.environ.get("KFM_NODD_CASES") or Path(__file__).resolve().parents[4] / "shared/data/nodd")
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="no collection of real cases (KFM_NODD_CASES)")


def _came(worked: Worked) -> dict[str, Any]:
    """What became of everything in the spool."""
    with worked() as (app, tasks):
        reader, catalogue = app.ledger.unit_reader(), app.ledger.catalogue()
        return {
            "tasks": tasks,
            "counts": reader.unit_counts(),
            "dead": reader.dead_messages(),
            "collections": {one.collection_id: one.items for one in catalogue.collections()},
        }


def _rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


@pytest.mark.req("WAL-9", "WAL-20")
def test_every_real_key_becomes_one_item_or_one_asset(spool: Path, worked: Worked) -> None:
    """Announced twice, all real keys are units that succeed once; each data object is one item."""
    keys = list(dict.fromkeys((row["bucket"], row["key"]) for row in _rows("keys.jsonl")))
    for number, (bucket, key) in enumerate(keys * 2):
        record = {
            "eventVersion": "2.1",
            "eventSource": "aws:s3",
            "awsRegion": "us-east-1",
            "eventTime": "2026-01-01T00:00:00.000Z",
            "eventName": "ObjectCreated:Put",
            "s3": {
                "s3SchemaVersion": "1.0",
                "bucket": {"name": bucket, "arn": f"arn:aws:s3:::{bucket}"},
                "object": {
                    "key": quote_plus(key, safe="/"),
                    "size": 10,
                    "eTag": "d41d8cd98f00b204e9800998ecf8427e",
                    "sequencer": "0A",
                },
            },
        }
        (spool / f"{number:06d}.json").write_text(json.dumps({"Records": [record]}))
    came = _came(worked)
    assert came["tasks"].succeeded == came["tasks"].created == len(keys)
    assert came["tasks"].duplicate == len(keys)
    assert came["tasks"].failed == came["tasks"].dead == 0
    sidecars = sum(key.endswith((".idx", ".sidx")) for _, key in keys)
    assert len(keys) - sidecars <= sum(came["collections"].values()) <= len(keys)


@pytest.mark.req("WAL-20", "TRG-9")
def test_hostile_bodies_harm_no_other_message(spool: Path, worked: Worked) -> None:
    """Among hostile bodies an honest message is taken in; each that must be refused is a dead letter."""
    refused = 0
    for number, row in enumerate(_rows("hostile.jsonl")):
        body = (
            base64.b64decode(row["body_b64"])
            if "body_b64" in row
            else row["body"].encode("utf-8", "surrogatepass")
        )
        refused += row["expected_action"].startswith("quarantine") and not row["expected_action"].endswith(
            "or_flag"
        )
        (spool / f"{number:06d}.json").write_bytes(body)
    honest = sorted((FOLDER / "messages").glob("*goes*.json"))
    for number, path in enumerate(honest):
        (spool / f"9{number:05d}.json").write_bytes(path.read_bytes())
    came = _came(worked)
    assert len({one.envelope_hash for one in came["dead"]}) >= refused
    assert not list(spool.glob("*.json"))
    assert came["tasks"].failed == 0
    assert honest
    assert any(name.startswith("goes") for name in came["collections"])
    statuses = {name for (_, name), amount in came["counts"].items() if amount}
    assert not statuses & {"pending", "in_progress", "failed", "quarantined"}
