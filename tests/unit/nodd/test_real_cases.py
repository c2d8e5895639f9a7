"""Real keys and messages, where a collection of them is configured. It is no part of the project."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from kfm.model.times import parse_rfc3339
from kfm.nodd.dataset_registry import load_registry
from kfm.nodd.messages.record_outcomes import (
    Arrival,
    IgnoredRecord,
    RefusedRecord,
    Removal,
    line,
    parse_key,
    parse_message,
)

FOLDER = Path(os.environ.get("KFM_NODD_CASES") or Path(__file__).resolve().parents[4] / "shared/data/nodd")
NOW_MS = 1_798_761_600_000  # 2027
REGISTRY = load_registry()
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="no collection of real keys (KFM_NODD_CASES)")


def _rows(name: str) -> list[dict[str, Any]]:
    path = FOLDER / name
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(text) for text in lines]


def _ms(text: str | None) -> int | None:
    return None if text is None else parse_rfc3339(text)


@pytest.mark.req("WAL-20")
@pytest.mark.parametrize("row", _rows("keys.jsonl"), ids=lambda row: row["key"][-60:])
def test_real_keys(row: dict[str, Any]) -> None:
    """A real key tells exactly what can be known from it."""
    outcome = parse_key(row["bucket"], row["key"], REGISTRY, NOW_MS)
    assert isinstance(outcome, Arrival), outcome
    reading = outcome.reading
    assert reading.suspect == ()
    assert (
        reading.dataset,
        reading.product,
        reading.platform,
        reading.time_range_start_ms,
        reading.time_range_end_ms,
        reading.reference_time_ms,
        reading.forecast_hour,
        reading.issued_ms,
    ) == (
        row["dataset"],
        row["product"],
        row["platform_or_site"],
        _ms(row["time_range_start"]),
        _ms(row["time_range_end"]),
        _ms(row["reference_time"]),
        row["forecast_hour"],
        _ms(row["issued"]),
    )


def test_real_keys_are_as_many_items() -> None:
    """Each data object is an item of its own."""
    items: dict[tuple[str, str], str] = {}
    for row in _rows("keys.jsonl"):
        outcome = parse_key(row["bucket"], row["key"], REGISTRY, NOW_MS)
        assert isinstance(outcome, Arrival)
        reading = outcome.reading
        uri = reading.data_uri or reading.object_uri
        assert items.setdefault((reading.stac_collection_id, reading.stac_item_id), uri) == uri


@pytest.mark.req("WAL-20")
@pytest.mark.parametrize("row", _rows("hostile.jsonl"), ids=lambda row: f"{row['id']} {row['name']}")
def test_hostile_bodies(row: dict[str, Any]) -> None:
    """A hostile body has the answer that is marked beside it."""
    body = (
        base64.b64decode(row["body_b64"])
        if "body_b64" in row
        else row["body"].encode("utf-8", "surrogatepass")
    )
    outcomes = parse_message(body, REGISTRY, NOW_MS)
    arrived = [outcome for outcome in outcomes if isinstance(outcome, Arrival)]
    action, expected = row["expected_action"], row["expected_ingested_records"]
    if action.endswith("or_flag"):
        assert all(outcome.reading.suspect for outcome in arrived)
        assert arrived or any(isinstance(outcome, RefusedRecord) for outcome in outcomes)
    elif action.startswith("quarantine"):
        assert not arrived
        assert any(isinstance(outcome, RefusedRecord) for outcome in outcomes)
    elif action.startswith(("ack_ignore", "tombstone")):
        assert all(isinstance(outcome, IgnoredRecord | Removal) for outcome in outcomes)
    elif action == "flag_future":
        assert [bool(outcome.reading.suspect) for outcome in arrived] == [True]
    elif expected is not None:
        assert len(arrived) == expected
        assert not any(isinstance(outcome, RefusedRecord) for outcome in outcomes)
    json.dumps([line(outcome).error_code for outcome in outcomes if not isinstance(outcome, Arrival)])


@pytest.mark.req("WAL-20")
@pytest.mark.parametrize("path", sorted(FOLDER.glob("messages/*.json")), ids=lambda path: path.name)
def test_real_messages(path: Path) -> None:
    """Messages about known buckets are taken in; tests, removals and foreign buckets are not."""
    outcomes = parse_message(path.read_bytes(), REGISTRY, NOW_MS)
    known = any(word in path.name for word in ("goes", "nexrad"))
    assert [isinstance(outcome, Arrival) for outcome in outcomes] == [known] * len(outcomes)
