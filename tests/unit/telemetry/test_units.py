"""What telemetry tells of units: metrics from counters, spans from workers."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kfm.model.units import ClaimedUnit, ResultBatch, ResultReport, UnitFailure, UnitSuccess
from kfm.nodd.unit_observer import NAMED_MAX, UnitObserver
from kfm.telemetry.aggregates import Aggregates, TimeBounds
from kfm.telemetry.exposition import Tallies, exposition
from kfm.telemetry.ledger_metrics import Figure, fold_units
from tests.recording import Recording

FIGURES: list[Figure] = [
    ("hrrr", "pending", 4, None),
    ("hrrr", "succeeded", 90, None),
    ("hrrr", "quarantined", 1, None),
    ("hrrr", "attempts:1", 88, None),
    ("hrrr", "attempts:2", 3, None),
    ("hrrr", "attempts:12", 1, None),
    ("hrrr", "replays:incident", 2, None),
    ("hrrr", "mismatches", 1, None),
    ("hrrr", "duplicates", 7, None),
    ("hrrr", "watermark", 90, 1_767_225_600_000),
    ("gfs", "pending", 1, None),
    ("", "dead:BODY_INVALID", 5, None),
]
CLAIMED = ClaimedUnit(
    wal_id="03a1e89e33a00-37dde470c673f54c3b58",
    version=2,
    dataset="hrrr",
    provider="aws",
    queue="nodd",
    object_uri="s3://b/k",
    event_time_ms=1,
    attempts=1,
    replay_reason=None,
    extra="{}",
    etag=None,
    sequencer=None,
    size=None,
    version_id=None,
    content_version=1,
    done_version=0,
    grants=1,
    grant_attempts=1,
    granted_at_ms=1,
    alone=0,
    removed=0,
    unclear=0,
    replacing=0,
)


def claimed(name: str, **changes: Any) -> ClaimedUnit:
    return replace(CLAIMED, wal_id=name, **changes)


def done(one: ClaimedUnit) -> UnitSuccess:
    return UnitSuccess(one, "ok", "ok", "ok", None)


def undone(one: ClaimedUnit) -> UnitFailure:
    return UnitFailure(one, "HTTP_503", "Away.", "http", "retry", "retry")


@pytest.mark.req("WAL-16")
def test_counters_become_the_documented_metrics() -> None:
    """Every counter of the ledger of units is exposed under its documented name, with its labels."""
    tallies = Tallies()
    for _ in range(2):  # they are totals: reading them twice adds nothing
        fold_units(FIGURES, tallies, str)
    lines = set(exposition(tallies).splitlines())
    assert {
        'nodd_sns_wal_records_total{dataset="hrrr",status="pending"} 4',
        'nodd_sns_wal_records_total{dataset="hrrr",status="failed"} 0',
        'nodd_sns_wal_records_total{dataset="gfs",status="pending"} 1',
        'nodd_sns_wal_replays_total{dataset="hrrr",replay_reason="incident"} 2',
        'nodd_sns_wal_attempts_histogram_bucket{dataset="hrrr",le="1"} 88',
        'nodd_sns_wal_attempts_histogram_bucket{dataset="hrrr",le="2"} 91',
        'nodd_sns_wal_attempts_histogram_bucket{dataset="hrrr",le="10"} 91',
        'nodd_sns_wal_attempts_histogram_bucket{dataset="hrrr",le="+Inf"} 92',
        'nodd_sns_wal_attempts_histogram_sum{dataset="hrrr"} 106',
        'nodd_sns_wal_attempts_histogram_count{dataset="hrrr"} 92',
        'nodd_sns_replay_mismatch_total{dataset="hrrr"} 1',
        'nodd_sns_replay_mismatch_total{dataset="gfs"} 0',
        'nodd_sns_duplicates_total{dataset="hrrr"} 7',
        'nodd_sns_dead_messages_total{error_code="BODY_INVALID"} 5',
        'nodd_sns_watermark_timestamp_seconds{dataset="hrrr"} 1767225600',
    } <= lines


@pytest.mark.req("WAL-16", "RS-13")
def test_datasets_that_share_a_mask_are_one() -> None:
    """Names that may not be told are not, and what goes by one name is added up."""
    tallies = Tallies()
    fold_units(FIGURES, tallies, lambda _: "masked")
    text = exposition(tallies)
    assert 'nodd_sns_wal_records_total{dataset="masked",status="pending"} 5' in text
    assert "hrrr" not in text


@pytest.mark.req("WAL-16")
def test_a_release_tells_the_same() -> None:
    """A release's document has the counters by dataset and in all."""
    counting = Aggregates("v1", "test", TimeBounds())
    assert counting.ingest().datasets == ()
    counting.units(FIGURES, str)
    told = counting.ingest()
    assert (told.wal_records_total.pending, told.wal_records_total.succeeded) == (5, 90)
    assert (told.wal_replays_total, told.replay_mismatch_total) == (2, 1)
    assert told.wal_attempts_histogram == {"1": 88, "2": 3, "12": 1}
    assert [one.dataset_id for one in told.datasets] == ["gfs", "hrrr"]


# --- spans ---------------------------------------------------------------------------


@pytest.mark.req("WAL-16")
def test_a_batch_is_one_span_and_trouble_has_its_own() -> None:
    """Successes are counted in their batch's span; failures and replays are told one by one."""
    telemetry = Recording()
    watch = UnitObserver(telemetry, "w1", {"nodd": "aws_sqs"})
    replayed = claimed("replayed", replay_reason="incident", attempts=3)
    finish = ResultBatch(
        successes=(done(claimed("fine")), done(replayed)), failures=(undone(claimed("bad")),)
    )
    watch.batch_ended(finish, ResultReport(succeeded=("fine", "replayed"), failed=("bad",)), 12)
    batch, *units = telemetry.spans
    assert batch.name == "kfm.units"
    assert batch.attributes == {
        "dataset": "hrrr",
        "worker": "w1",
        "units": 3,
        "succeeded": 2,
        "failed": 1,
        "lost": 0,
        "messaging_operation_name": "process",
        "messaging_destination_name": "nodd",
        "messaging_system": "aws_sqs",
    }
    told = {str(span.attributes["wal_id"]): span.attributes for span in units}
    assert set(told) == {"replayed", "bad"}
    assert all(span.parent is batch for span in units)
    assert (told["replayed"]["replay_reason"], told["replayed"]["outcome"]) == ("incident", "success")
    assert (told["bad"]["error_type"], told["bad"]["outcome"]) == ("HTTP_503", "failed")
    assert "Away." not in repr(telemetry.spans)


def test_a_lost_batch_and_a_bad_one_stay_bounded() -> None:
    """Units that another worker took over are told as lost, and of a large bad batch only some are named."""
    telemetry = Recording()
    watch = UnitObserver(telemetry, "w1", {})
    many = tuple(undone(claimed(f"unit {number}")) for number in range(NAMED_MAX + 50))
    watch.batch_ended(
        ResultBatch(successes=(done(claimed("gone")),), failures=many), ResultReport(lost=("gone",)), 1
    )
    batch, *units = telemetry.spans
    assert "messaging_system" not in batch.attributes
    assert len(units) == NAMED_MAX
    assert units[0].attributes["outcome"] == "lost"
    watch.batch_ended(ResultBatch(), ResultReport(), 1)
    assert len(telemetry.spans) == NAMED_MAX + 1


@pytest.mark.req("RS-13")
def test_units_of_a_masked_dataset_have_no_span() -> None:
    """The id of a unit could be guessed from its object: for a masked dataset it is not told."""
    telemetry = Recording()
    watch = UnitObserver(telemetry, "w1", {}, lambda _: "masked")
    watch.batch_ended(ResultBatch(failures=(undone(claimed("bad")),)), ResultReport(failed=("bad",)), 1)
    (batch,) = telemetry.spans
    assert batch.attributes["dataset"] == "masked"
