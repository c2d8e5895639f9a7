"""Schedules against a slow oracle that looks at the local clock in every minute, and laws that hold."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache
from itertools import islice, pairwise

import msgspec
import pytest
from cronsim import CronSim, CronSimError
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm.model.records import Window
from kfm.model.schedules import (
    MissedPolicy,
    Schedule,
    Which,
    due_ms,
    instants,
    is_continuous,
    latest_instants,
    missed_instants,
    next_instant,
    period_of,
    times_of_day,
)
from kfm.model.settings import SourceSettings
from kfm.model.times import MS_MIN, OffsetSpan, parse_rfc3339, rfc3339
from tests.schedules.oracle import Pattern
from tests.schedules.proof import (
    FIRST,
    LAST,
    MINUTE_MS,
    Change,
    changes,
    check_change,
    check_days,
    check_offsets,
    histories,
    schedule,
)

ODD_ZONES = {
    "America/Chicago",
    "America/Santiago",  # changes at midnight
    "Australia/Lord_Howe",  # half an hour
    "Africa/Casablanca",  # back for Ramadan
    "Africa/Juba",  # changed once
    "Antarctica/Troll",  # two hours
    "Asia/Beirut",
    "Asia/Kathmandu",
    "UTC",
}
EVERY_NTH_CHANGE = 20  # `make schedules` takes them all


def _sets(low: int, high: int) -> st.SearchStrategy[frozenset[int]]:
    return st.frozensets(st.integers(low, high), min_size=1, max_size=6)


@cache
def every_history() -> dict[tuple[OffsetSpan, ...], list[str]]:
    return histories()


@cache
def every_change() -> list[Change]:
    return changes(every_history().items())


PATTERNS = st.builds(
    Pattern,
    minutes=_sets(0, 59),
    hours=st.one_of(st.just(frozenset(range(24))), _sets(0, 23), _sets(0, 4)),
    days=st.one_of(st.none(), _sets(1, 28)),
    months=st.one_of(st.none(), st.none(), _sets(1, 12)),
    weekdays=st.one_of(st.none(), _sets(0, 6)),
)
MOMENTS = st.integers(FIRST * MINUTE_MS, LAST * MINUTE_MS)
ZONES = st.sampled_from(sorted(ODD_ZONES))
CRONS = st.builds(lambda pattern, zone: schedule(pattern.text, zone), PATTERNS, ZONES)
INTERVALS = st.builds(
    lambda every, anchor: Schedule(id="i", source="s", every_ms=every * 1000, anchor_ms=anchor),
    st.integers(60, 100_000),
    MOMENTS,
)
SCHEDULES = st.one_of(CRONS, INTERVALS)


@pytest.mark.req("UPD-13")
def test_near_changes_of_the_clocks() -> None:
    """Within two days of a change, instants are those that a look at the clock in every minute gives."""
    for change in every_change()[::EVERY_NTH_CHANGE]:
        check_change(change)


@pytest.mark.req("UPD-13")
@settings(max_examples=60, deadline=None)
@given(PATTERNS, st.deferred(lambda: st.sampled_from(every_change())))
def test_any_pattern_near_any_change(pattern: Pattern, change: Change) -> None:
    """Also with a generated pattern."""
    check_change(change, [pattern])


@pytest.mark.req("UPD-13")
def test_all_zones_for_ten_years() -> None:
    """The clocks of every zone are as the standard library sees them: groups of one history are groups."""
    assert sum(map(len, every_history().values())) > 400
    for history, zones in every_history().items():
        for zone in zones:
            check_offsets(history, zone, timedelta(days=400))


@pytest.mark.req("UPD-13")
def test_one_a_day_and_one_an_hour() -> None:
    """A time of day fires once on each date of ten years; a minute of the hour once an hour of real time."""
    for history, zones in every_history().items():
        if (zone := next((zone for zone in zones if zone in ODD_ZONES), None)) is not None:
            check_days(zone, history)


@pytest.mark.req("UPD-13")
@settings(max_examples=60, deadline=None)
@given(PATTERNS, MOMENTS)
def test_in_utc_as_cronsim(pattern: Pattern, start_ms: int) -> None:
    """Where clocks run evenly, instants are those of cronsim."""
    begin = datetime(1970, 1, 1) + timedelta(milliseconds=start_ms - 1)
    expected = CronSim(pattern.text, begin)
    found = list(islice(instants(schedule(pattern.text, "UTC"), start_ms), 5))
    assert found == [(at - datetime(1970, 1, 1)) // timedelta(milliseconds=1) for at in islice(expected, 5)]


FIELDS = st.one_of(
    st.just("*"), st.from_regex(r"\A[0-9]{1,3}(,[0-9]{1,2}){0,3}\Z"), st.text("*/-,0٣1²L#9", max_size=4)
)


@pytest.mark.req("UPD-13")
@settings(max_examples=300, deadline=None)
@given(FIELDS, FIELDS, st.sampled_from(["* * *", "* * *", "* * 1-5", "1 * *", "* 2 *"]))
def test_what_is_read_without_cronsim_is_read_as_by_cronsim(minute: str, hour: str, days: str) -> None:
    """Times that are plain numbers, every day: the same times, and what cronsim refuses is refused by it."""
    expression = f"{minute} {hour} {days}"
    try:
        expected = CronSim(expression, datetime(1970, 1, 1))
    except (CronSimError, AssertionError):
        with pytest.raises((CronSimError, AssertionError, ValueError)):
            times_of_day(expression)
        return
    every = [hour * 60 + minute for hour in sorted(expected.hours) for minute in sorted(expected.minutes)]
    assert times_of_day(expression) == every
    assert is_continuous(expression) == (len(expected.hours) == 24)


@pytest.mark.req("UPD-13", "TRG-2")
@settings(max_examples=120, deadline=None)
@given(SCHEDULES, MOMENTS, st.integers(0, 30), st.integers(0, 30))
def test_a_span_and_its_parts(each: Schedule, start_ms: int, first_days: int, second_days: int) -> None:
    """Instants strictly increase, and where a span is cut neither loses nor doubles one."""
    middle_ms, end_ms = start_ms + first_days * 86_400_000, start_ms + (first_days + second_days) * 86_400_000
    whole = list(instants(each, start_ms, end_ms))
    assert [*instants(each, start_ms, middle_ms), *instants(each, middle_ms, end_ms)] == whole
    assert all(earlier < later for earlier, later in pairwise(whole))
    assert all(start_ms <= at_ms < end_ms for at_ms in whole)
    assert latest_instants(each, start_ms, end_ms, 3) == tuple(whole[-3:])


@pytest.mark.req("UPD-13", "TRG-2")
@settings(max_examples=100, deadline=None)
@given(PATTERNS, st.deferred(lambda: st.sampled_from(every_change())), st.integers(-200, 200))
def test_a_cut_near_a_change(pattern: Pattern, change: Change, minutes: int) -> None:
    """Nor where the cut is in a gap, or in an hour that comes twice."""
    each = schedule(pattern._replace(days=None, months=None, weekdays=None).text, change.zone)
    middle_ms = (change.minute + minutes) * MINUTE_MS
    start_ms, end_ms = middle_ms - 86_400_000, middle_ms + 86_400_000
    whole = list(instants(each, start_ms, end_ms))
    assert [*instants(each, start_ms, middle_ms), *instants(each, middle_ms, end_ms)] == whole


def _before(each: Schedule, at_ms: int) -> int | None:
    """The last instant before a moment."""
    return next(iter(latest_instants(each, MS_MIN, at_ms, 1)), None)


@pytest.mark.req("UPD-13")
@settings(max_examples=120, deadline=None)
@given(SCHEDULES, MOMENTS)
def test_next_and_previous(each: Schedule, at_ms: int) -> None:
    """There is none between a moment and its next or previous instant, and the two lead to each other."""
    after, before = next_instant(each, at_ms), _before(each, at_ms + 1)
    assert after is not None
    assert before is not None
    assert before <= at_ms < after
    assert (next_instant(each, before), _before(each, after)) == (after, before)
    assert not list(instants(each, before + 1, after))


@pytest.mark.req("UPD-13", "TRG-3")
@settings(max_examples=80, deadline=None)
@given(SCHEDULES, MOMENTS, st.integers(1, 200_000_000))
def test_jitter(each: Schedule, at_ms: int, jitter_ms: int) -> None:
    """The delay is bounded, the same in every process, and never reaches the next scheduled time."""
    shaken = msgspec.structs.replace(each, jitter_ms=jitter_ms)
    for earlier, later in pairwise(islice(instants(shaken, at_ms), 4)):
        assert earlier <= due_ms(shaken, earlier) == due_ms(shaken, earlier) < later
        assert due_ms(shaken, earlier) - earlier <= jitter_ms
        assert due_ms(each, earlier) == earlier


@pytest.mark.req("UPD-13")
@settings(max_examples=120, deadline=None)
@given(
    SCHEDULES,
    MOMENTS,
    st.integers(0, 10 * 86_400_000),
    st.sampled_from(("all", "last", "none")),
    st.integers(0, 10 * 86_400_000),
    st.integers(1, 20),
)
def test_missed_instants(
    each: Schedule, after_ms: int, away_ms: int, run: Which, within_ms: int, cap: int
) -> None:
    """Each missed scheduled time is either caught up or left out with a reason, and none is both."""
    policy = MissedPolicy(run=run, within_ms=within_ms, cap=cap)
    source = SourceSettings(id="s", dataset="d", kind="files", window="PT6H", time_zone="Europe/Vienna")
    until_ms = after_ms + away_ms
    missed = missed_instants(msgspec.structs.replace(each, missed=policy), source, after_ms, until_ms)
    every = list(instants(each, after_ms + 1, until_ms + 1))
    left_out = [
        at_ms for span in missed.left_out for at_ms in instants(each, span.first_ms, span.last_ms + 1)
    ]
    assert sorted([*missed.run_ms, *left_out]) == every
    allowed = [at_ms for at_ms in every if at_ms >= until_ms - within_ms]
    firsts: dict[int, int] = {}
    for at_ms in allowed:
        firsts.setdefault(period_of(each, source, at_ms).start_ms, at_ms)
    expected = {"all": list(firsts.values())[:cap], "last": allowed[-1:], "none": []}
    assert list(missed.run_ms) == expected[run]


@pytest.mark.req("UPD-13", "TRG-6")
@settings(max_examples=80, deadline=None)
@given(CRONS, ZONES, st.sampled_from(("P1D", "PT1H", "P1M")), MOMENTS)
def test_period(each: Schedule, zone: str, spec: str, at_ms: int) -> None:
    """An instant asks for a window that is over by then, and a later instant never for an earlier one."""
    source = SourceSettings(id="s", dataset="d", kind="files", window=spec, time_zone=zone)
    found: list[Window] = []
    for instant_ms in islice(instants(each, at_ms), 5):
        found.append(period_of(each, source, instant_ms))
        assert found[-1].end_ms <= instant_ms
    assert all(earlier.start_ms <= later.start_ms for earlier, later in pairwise(found))


@pytest.mark.req("UPD-13")
@pytest.mark.parametrize(
    ("cron", "zone", "start", "expected"),
    [
        ("30 2 * * *", "America/Chicago", "2026-03-08T06:00:00Z", ["03-08T08:00", "03-09T07:30"]),
        ("30 1 * * *", "America/Chicago", "2026-11-01T05:00:00Z", ["11-01T06:30", "11-02T07:30"]),
        ("30 * * * *", "America/Chicago", "2026-11-01T06:00:00Z", ["11-01T06:30", "11-01T07:30"]),
        ("*/30 2 * * *", "America/Chicago", "2026-03-08T06:00:00Z", ["03-08T08:00", "03-09T07:00"]),
        ("0 2,3 * * *", "America/Chicago", "2026-03-08T06:00:00Z", ["03-08T08:00", "03-09T07:00"]),
        ("0 9 30 12 *", "Pacific/Apia", "2011-12-01T00:00:00Z", ["12-30T10:00", "12-29T19:00"]),
    ],
    ids=["gap", "fold", "fold-hourly", "gap-many", "gap-meets-next", "day-left-out"],
)
def test_days_of_change(cron: str, zone: str, start: str, expected: list[str]) -> None:
    """Skipped times fire once when the clocks have jumped, repeated ones the first time; hours go on."""
    found = list(islice(instants(schedule(cron, zone), parse_rfc3339(start)), 2))
    assert [rfc3339(at_ms)[5:16] for at_ms in found] == expected
