"""Feeds: which hours are expected of a product, and what becomes of an hour."""

from __future__ import annotations

import pytest

from kfm.model.completeness import WindowFacts, health
from kfm.model.feeds import (
    ALL_HOURS,
    DAY_MS,
    HOUR_MS,
    LATE_MS,
    RULE,
    Cadence,
    FeedProduct,
    HourCounts,
    ShippedFeed,
    expected_hour,
    expected_hours,
    feed_products,
    feed_rules,
    judged_hour,
    settled_hours,
    together,
)
from kfm.model.settings import FeedSettings, Ingest, Settings

START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
MINUTE_MS = 60_000
SHIPPED = ShippedFeed(
    cadences=(
        Cadence(
            products=("sfc*",), per_hour=49, latency_ms=HOUR_MS, hours=(0, 6, 12, 18), platforms=("conus",)
        ),
        Cadence(products=("sfc*",), per_hour=19, latency_ms=HOUR_MS, platforms=("conus",)),
    ),
    buckets=(("one", "GOES-16"), ("two", "GOES-19"), ("gs://copy", "GOES-19")),
)


def row(*cadences: Cadence, since_ms: int = START_MS, product: str = "sfc") -> FeedProduct:
    every = Cadence(products=("*",), per_hour=12, latency_ms=30 * MINUTE_MS)
    return FeedProduct(
        dataset="d", product=product, platform=None, since_ms=since_ms, cadences=cadences or (every,)
    )


def products(*feeds: FeedSettings, since: dict[tuple[str, str], int] | None = None) -> list[FeedProduct]:
    settings = Settings(ingest=Ingest(feeds=feeds))
    return feed_products(settings, "hrrr", SHIPPED, since or {}, START_MS + 5 * HOUR_MS)


@pytest.mark.req("DAT-2")
def test_only_whole_hours_since_the_beginning_are_expected() -> None:
    """The hour in which it was configured is not: some of its objects came before. Nor is the present one."""
    found = list(expected_hours(row(since_ms=START_MS + 1), START_MS + 4 * HOUR_MS - 1))
    assert [(one.window.start_ms - START_MS) // HOUR_MS for one in found] == [1, 2]
    first = found[0].window
    assert first.due_ms == first.end_ms + 30 * MINUTE_MS
    assert first.until_ms == first.due_ms + LATE_MS
    assert found[0].objects_min == 12


@pytest.mark.req("DAT-2")
def test_the_first_cadence_with_the_hour_of_the_day_holds() -> None:
    """A model's long cycles have more files than the others."""
    (one,) = products(
        FeedSettings(dataset="hrrr", products=("sfc",), platforms=("conus",), since="2026-01-01")
    )
    found = [each.objects_min for each in expected_hours(one, START_MS + 8 * HOUR_MS)]
    assert found == [49, 19, 19, 19, 19, 19, 49, 19]


@pytest.mark.req("DAT-2")
def test_the_configuration_overrides_what_is_shipped() -> None:
    """Number, hours and latency, each by itself; a product without a cadence gets one by `per_hour` alone."""
    named = {"dataset": "hrrr", "platforms": ("conus",), "since": "2026-01-01"}
    (later,) = products(FeedSettings(products=("sfc",), within="PT3H", **named))
    assert [one.latency_ms for one in later.cadences] == [3 * HOUR_MS] * 2
    (some,) = products(FeedSettings(products=("sfc",), hours=(6, 7), **named))
    assert [(one.per_hour, one.hours) for one in some.cadences] == [(49, (6,)), (19, (6, 7))]
    (own,) = products(FeedSettings(products=("sfc",), per_hour=5, **named))
    assert [(one.per_hour, one.hours, one.latency_ms) for one in own.cadences] == [(5, ALL_HOURS, HOUR_MS)]
    (unknown,) = products(FeedSettings(products=("other",), **named))
    assert unknown.cadences == ()
    assert list(expected_hours(unknown, START_MS + DAY_MS)) == []
    (declared,) = products(FeedSettings(products=("other",), per_hour=1, **named))
    assert declared.cadence_at(START_MS) is not None
    (elsewhere,) = products(FeedSettings(dataset="hrrr", products=("sfc",), platforms=("alaska",)))
    assert elsewhere.cadences == ()


@pytest.mark.req("DAT-2")
def test_a_product_is_expected_since_it_was_configured() -> None:
    """As the ledger remembers it; what it does not remember yet, from now on; `from` says otherwise."""
    feed = FeedSettings(dataset="hrrr", products=("sfc", "prs"), platforms=("conus",))
    assert feed_rules(Settings(ingest=Ingest(feeds=(feed,)))) == [
        ("hrrr sfc conus", RULE),
        ("hrrr prs conus", RULE),
    ]
    known, fresh = products(feed, since={("hrrr sfc conus", RULE): START_MS})
    assert (known.id, known.since_ms) == ("hrrr sfc conus", START_MS)
    assert fresh.since_ms == START_MS + 5 * HOUR_MS
    (declared,) = products(FeedSettings(dataset="hrrr", products=("sfc",), since="2025-12-01T00:00:00Z"))
    assert declared.since_ms == START_MS - 31 * DAY_MS
    assert declared.id == "hrrr sfc"


@pytest.mark.req("DAT-1")
@pytest.mark.parametrize(
    ("counts", "state"),
    [
        (HourCounts(there=12), "published"),
        (HourCounts(there=12, failed=1, code="X"), "published"),
        (HourCounts(there=11, running=1, quarantined=1, code="X"), "running"),
        (HourCounts(there=11, quarantined=1, waiting=1, code="X"), "quarantined"),
        (HourCounts(there=11, waiting=1), "waiting"),
        (HourCounts(there=11, retrying=1, failed=1, code="X"), "waiting"),
        (HourCounts(there=11, failed=1, code="X"), "failed"),
        (HourCounts(there=11), "overdue"),
        (HourCounts(), "overdue"),
    ],
)
def test_the_state_of_an_hour(counts: HourCounts, state: str) -> None:
    """It is there with its last expected object; else it is what keeps it from that."""
    expected = expected_hour(row(), START_MS)
    assert expected is not None
    due_ms = expected.window.due_ms
    judged = judged_hour(expected, counts, WindowFacts(), due_ms)
    assert judged.state == state
    assert (judged.objects, judged.objects_min) == (counts.there, 12)
    if state == "overdue":
        assert judged_hour(expected, counts, WindowFacts(), due_ms - 1).state == "waiting"
        assert judged_hour(expected, counts, WindowFacts(), due_ms + LATE_MS).state == "missing"
    dismissed = WindowFacts(settled="dismissed", settled_ms=5)
    word = judged_hour(expected, counts, dismissed, due_ms).state
    assert word == "dismissed"  # what was there before a person settled it changes nothing


@pytest.mark.req("DAT-1")
def test_what_comes_after_a_dismissal_counts() -> None:
    """An hour that is complete after all is published."""
    expected = expected_hour(row(), START_MS)
    assert expected is not None
    dismissed = WindowFacts(settled="dismissed", settled_ms=5)
    assert judged_hour(expected, HourCounts(there=12, ended_ms=6), dismissed, 10).state == "published"


def test_platforms_together_are_one_row() -> None:
    """Where none is named, their objects add up."""
    one = HourCounts(there=5, newest_ms=3, ended_ms=9, announced=5, delay_ms=50)
    other = HourCounts(there=7, failed=1, code="X", newest_ms=8, announced=8, delay_ms=80)
    assert together([one, other]) == HourCounts(
        there=12, failed=1, code="X", newest_ms=8, ended_ms=9, announced=13, delay_ms=130
    )


def test_the_bucket_of_a_platform() -> None:
    """The one that holds it, the main one before copies."""
    assert SHIPPED.bucket_of("GOES-19") == "two"
    assert SHIPPED.bucket_of(None) == "one"
    assert SHIPPED.bucket_of("GOES-20") is None


@pytest.mark.req("DAT-1")
def test_the_watermark_stops_at_the_first_open_hour_in_order() -> None:
    """Hours that need no look count as far as they sort before it: by their ends, then by their rows."""
    now_ms = START_MS + 10 * HOUR_MS
    open_row, other = row(product="b"), row(product="c")
    first = row(product="a")
    gap = expected_hour(open_row, START_MS + 3 * HOUR_MS)
    assert gap is not None
    judged = judged_hour(gap, HourCounts(), WindowFacts(), now_ms)
    mark_ms = START_MS + 8 * HOUR_MS
    hole = settled_hours(open_row, mark_ms, [START_MS + 3 * HOUR_MS])

    def watermark(*known: FeedProduct) -> int | None:
        before = [hole, *(settled_hours(one, mark_ms, ()) for one in known)]
        found = health("d", [judged], now_ms, is_published=True, before=before)
        assert found.counts == {"published": 7 + 8 * len(known), "overdue": 1}
        assert found.newest_ms == mark_ms
        assert found.state == "incomplete"
        return found.watermark_ms

    assert watermark() == START_MS + 3 * HOUR_MS
    assert watermark(other) == START_MS + 3 * HOUR_MS
    assert watermark(first) == START_MS + 4 * HOUR_MS
