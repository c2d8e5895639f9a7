"""The state of a unit is explained."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kfm.model.breaker import Breaker
from kfm.model.records import Switch
from kfm.model.settings import DatasetSettings, Ingest, IngestPolicy, RetrySettings, Settings
from kfm.model.units import StoredUnit, UnitTransition, created
from kfm.reports.explain.units import SHOWN_MAX, explain_unit

NOW_MS = 1_767_225_600_000
DOMAIN = "weather"
SETTINGS = Settings(datasets=(DatasetSettings(id="hrrr", domain=DOMAIN),))
WAL_ID = "03a1e89e33a00-37dde470c673f54c3b58"
UNIT = created(
    wal_id=WAL_ID,
    dataset="hrrr",
    object_uri="s3://b/k",
    provider="aws",
    queue="nodd",
    event_time_ms=None,
    time_range_start_ms=None,
    time_range_end_ms=None,
    now_ms=NOW_MS,
)
HISTORY = [
    UnitTransition(1, "pending", "created", NOW_MS, None, 0, {"etag": "e", "size": 3}),
    UnitTransition(2, "in_progress", "claimed", NOW_MS, "w1", 1, {}),
    UnitTransition(3, "failed", "failed", NOW_MS + 5, "w1", 1, {"error_code": "HTTP_503"}),
]


def stored(status: Any = "pending", **changes: Any) -> StoredUnit:
    names = {name: changes.pop(name) for name in list(changes) if name in UNIT.__struct_fields__}
    values: dict[str, Any] = {
        "etag": "e",
        "sequencer": None,
        "size": 3,
        "version_id": None,
        "content_version": 1,
        "done_version": 0,
        "lease_until_ms": 0,
        "not_before_ms": NOW_MS - 1,
        "grants": 1,
        "grant_attempts": 1,
        "granted_at_ms": NOW_MS,
        "alone": 0,
        "removed": 0,
        "unclear": 0,
        "replacing": 0,
        "trail": "1 2 3",
    }
    return StoredUnit(unit=replace(UNIT, status=status, **names), **{**values, **changes})


def reason(one: StoredUnit, switches: tuple[Switch, ...] = ()) -> str:
    return explain_unit(one, HISTORY, switches, SETTINGS, NOW_MS).reason.text


STOPPED = Switch(scope="dataset:hrrr", position="paused", rationale="Bad feed", actor="ann", set_at_ms=NOW_MS)
CASES = {
    "due": (stored(), "waits for a worker since", "kfm worker"),
    "later": (
        stored(not_before_ms=NOW_MS + 60_000, attempts=2, last_error_code="HTTP_503"),
        "2 after HTTP_503",
        "due at",
    ),
    "at work": (
        stored("in_progress", worker_id="w1", lease_until_ms=NOW_MS + 9_000),
        "is running in w1",
        "ends in 9.0 s",
    ),
    "lapsed": (stored("in_progress", worker_id="w1"), "lapsed", "kfm worker"),
    "failed": (
        stored("failed", last_error_code="HTTP_503", last_error_message="Away."),
        "failed after 1 attempt: HTTP_503: Away.",
        f"kfm replay run --unit {WAL_ID} --mode failed-only",
    ),
    "quarantined": (
        stored("quarantined", last_error_code="MAGIC_WRONG", last_error_message="No GRIB"),
        "is quarantined after 1 attempt: MAGIC_WRONG: No GRIB.",
        f"--unit {WAL_ID} --mode repair-and-replace --reason incident --rationale TEXT`. Another person "
        "has to approve it, and the policy of hrrr to have MAGIC_WRONG under `replay_quarantined`.",
    ),
    "done": (
        stored("succeeded", stac_item_id="i", stac_collection_id="c"),
        "item i of collection c",
        "since",
    ),
    "gone": (stored("succeeded"), "its object is gone", "item"),
    "removed": (
        stored("succeeded", stac_item_id="i", stac_collection_id="c", removed=1),
        "item i",
        "removed upstream since",
    ),
}


@pytest.mark.parametrize(("one", "first", "second"), CASES.values(), ids=CASES)
def test_the_reason_names_the_blocker_and_the_way_out(one: StoredUnit, first: str, second: str) -> None:
    """The first line says what the unit waits for, who can lift it and with which command."""
    text = reason(one)
    assert first in text
    assert second in text
    assert text.startswith(f"Unit {WAL_ID} of hrrr ")


@pytest.mark.parametrize(
    ("scope", "lifted_by"), [("dataset:hrrr", "--dataset hrrr"), (f"domain:{DOMAIN}", f"--domain {DOMAIN}")]
)
def test_a_switch_stands_before_everything(scope: str, lifted_by: str) -> None:
    """A thrown switch is the blocker of whatever waits, and is told with the command that lifts it."""
    text = reason(stored(not_before_ms=NOW_MS + 60_000), (replace(STOPPED, scope=scope),))
    assert "Bad feed" in text
    assert f"kfm switch set running {lifted_by}" in text


def test_the_chain_is_the_history() -> None:
    """What the unit went through follows in order, bounded, and each sentence names the unit."""
    explanation = explain_unit(stored(), HISTORY, (), SETTINGS, NOW_MS)
    texts = [sentence.text for sentence in explanation.chain]
    assert "s3://b/k" in texts[0]
    assert [text.partition(": ")[2] for text in texts[1:]] == [
        "taken in.",
        "attempt 1 began, by w1.",
        "attempt failed: HTTP_503.",
    ]
    assert {sentence.record.id for sentence in explanation.chain} == {WAL_ID}
    long = explain_unit(stored(), HISTORY * 20, (), SETTINGS, NOW_MS)
    assert len(long.chain) == SHOWN_MAX + 2
    assert "40 earlier steps: `kfm nodd show" in long.chain[1].text


@pytest.mark.parametrize(
    ("details", "said"),
    [
        ({}, "the item was created"),
        ({"stac_status": "updated"}, "the item was updated"),
        ({"stac_status": "no-op"}, "the item is unchanged"),
    ],
)
def test_success_tells_what_became_of_the_item(details: dict[str, str], said: str) -> None:
    """A history that says nothing of an item means a new one: most are."""
    move = UnitTransition(3, "succeeded", "succeeded", NOW_MS, "w1", 1, details)
    explanation = explain_unit(stored("succeeded"), [move], (), SETTINGS, NOW_MS)
    assert explanation.chain[-1].text.endswith(f"succeeded; {said}.")


@pytest.mark.req("RS-12", "WAL-14")
def test_an_open_circuit_is_the_blocker() -> None:
    """While no call goes out to its provider, no worker takes the unit: the circuit is named."""
    breaker = Breaker(
        provider="objects.aws", state="open", failures=3, opened_at_ms=NOW_MS - 1, tripped_at_ms=NOW_MS - 1
    )
    text = explain_unit(stored(), HISTORY, (), SETTINGS, NOW_MS, circuit=breaker).reason.text
    assert "waits for provider objects.aws: Its circuit is open after 3 failures in a row" in text
    assert "`kfm breaker reset objects.aws --rationale TEXT`" in text
    assert "kfm worker" not in text
    after_cool_down = explain_unit(stored(), HISTORY, (), SETTINGS, NOW_MS + 300_000, circuit=breaker)
    assert "kfm worker" in after_cool_down.reason.text


@pytest.mark.req("RS-12", "WAL-14")
def test_the_way_out_of_used_grants_names_the_setting() -> None:
    """A replay alone does nothing for a unit without grants; with more of them it is the way out."""
    failed = stored("failed", last_error_code="HTTP_503", last_error_message="Away.", grants=5)
    text = reason(failed)
    assert "raise `grants` under `retry` of its policy in `ingest.policies`" in text
    policy = IngestPolicy(datasets=("hrrr",), retry=RetrySettings(grants=6))
    more = replace(SETTINGS, ingest=Ingest(policies=(policy,)))
    granted = explain_unit(failed, HISTORY, (), more, NOW_MS).reason.text
    assert "raise `grants`" not in granted
    assert f"kfm replay run --unit {WAL_ID} --mode failed-only" in granted


@pytest.mark.req("RS-12", "WAL-13")
def test_a_policy_that_has_the_code_is_not_asked_for_it() -> None:
    """Of two conditions of a replay only the one that is not met is named."""
    held = stored("quarantined", last_error_code="GZIP_DAMAGED", last_error_message="Cut")
    policy = IngestPolicy(datasets=("hrrr",), replay_quarantined=("*",))
    text = explain_unit(
        held, HISTORY, (), replace(SETTINGS, ingest=Ingest(policies=(policy,))), NOW_MS
    ).reason.text
    assert text.endswith("Another person has to approve it.")
