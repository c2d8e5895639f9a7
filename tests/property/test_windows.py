"""Windows tile time: no gap, no overlap, across every change of the clocks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm.model.errors import WindowError
from kfm.model.records import Window
from kfm.model.times import MS_MAX, MS_MIN, offset_ms, parse_rfc3339, rfc3339, stretches
from kfm.model.windows import (
    DAY_MS,
    next_window,
    parse_duration,
    parse_instant,
    previous_window,
    resolve_window,
    shifted,
    window_of,
)

ZONES = (
    "UTC",
    "America/Chicago",
    "Europe/Berlin",
    "Australia/Lord_Howe",  # half an hour of summer time
    "America/Sao_Paulo",  # changed at midnight
    "Atlantic/Azores",  # midnight comes twice
    "Africa/Casablanca",  # the other way round
    "America/St_Johns",  # set back at 00:01: yesterday's date comes back
    "Pacific/Apia",  # left a day out
    "Asia/Kathmandu",
)
SPECS = ("P1D", "P2D", "P1W", "P2W", "P1M", "P3M", "P1Y", "P10Y", "PT1H", "PT6H", "PT15M", "PT24H", "PT90M")
MOMENTS = st.integers(parse_rfc3339("1995-01-01T00:00:00Z"), parse_rfc3339("2040-01-01T00:00:00Z"))


@pytest.mark.req("UPD-3")
@settings(max_examples=250, deadline=None)
@given(st.sampled_from(SPECS), st.sampled_from(ZONES), MOMENTS)
def test_last_complete_window(spec: str, zone: str, now_ms: int) -> None:
    """The window is complete, its successor is not, and its neighbours touch it and come back to it."""
    window = resolve_window(spec, zone, now_ms)
    after, before = next_window(window, zone), previous_window(window, zone)
    assert window.start_ms < window.end_ms <= now_ms < after.end_ms
    assert (before.end_ms, window.end_ms) == (window.start_ms, after.start_ms)
    assert before.start_ms < before.end_ms
    assert previous_window(after, zone) == window == next_window(before, zone)


@pytest.mark.req("UPD-3")
@settings(max_examples=150, deadline=None)
@given(st.sampled_from(SPECS), st.sampled_from(ZONES), MOMENTS, st.integers(0, 40 * DAY_MS))
def test_windows_only_move_forward(spec: str, zone: str, now_ms: int, later_ms: int) -> None:
    """Asked again later, the window is the same one or lies wholly after it."""
    first, second = resolve_window(spec, zone, now_ms), resolve_window(spec, zone, now_ms + later_ms)
    assert second == first or second.start_ms >= first.end_ms


@pytest.mark.req("UPD-3")
@settings(max_examples=150, deadline=None)
@given(st.sampled_from(("PT1H", "PT90M", "PT48H")), st.sampled_from(ZONES), MOMENTS)
def test_exact_lengths_are_exact(length: str, zone: str, at_ms: int) -> None:
    """Hours later are as many hours later when the clocks change, by way of the calendar or not."""
    duration = parse_duration(length)
    assert shifted(at_ms, duration, zone) == at_ms + duration.time_ms
    a_day_more = shifted(at_ms, parse_duration(f"P1D{length[1:]}"), zone)
    assert a_day_more == shifted(at_ms, parse_duration("P1D"), zone) + duration.time_ms


@pytest.mark.req("UPD-3")
def test_date_that_comes_back() -> None:
    """While the clocks show yesterday's date for a second time, yesterday is already complete."""
    zone = "America/St_Johns"
    for now_ms in range(parse_rfc3339("2010-11-07T02:31:00Z"), parse_rfc3339("2010-11-07T03:30:00Z"), 60_000):
        assert rfc3339(resolve_window("P1D", zone, now_ms).end_ms) == "2010-11-07T02:30:00Z"
        quarter = resolve_window("PT15M", zone, now_ms)
        assert (quarter.end_ms - quarter.start_ms, now_ms - quarter.end_ms < 900_000) == (900_000, True)


@pytest.mark.req("UPD-3")
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("year", [2010, 2011, 2018, 2026])
def test_a_year_of_days(zone: str, year: int) -> None:
    """A year is tiled by its days, each as long as the clocks made it, and six hours fit the days."""
    window = resolve_window("P1D", zone, parse_instant(f"{year}-01-02", zone))
    end_ms = parse_instant(f"{year + 1}-01-01", zone)
    covered_ms = 0
    while window.start_ms < end_ms:
        length_ms = window.end_ms - window.start_ms
        assert DAY_MS - 3_600_000 <= length_ms <= DAY_MS + 3_600_000
        if length_ms != DAY_MS:
            _assert_tiled(window, zone)
        covered_ms += length_ms
        window = next_window(window, zone)
    assert covered_ms == end_ms - parse_instant(f"{year}-01-01", zone)


def _assert_tiled(day: Window, zone: str) -> None:
    """Hours and quarters of days fill a day on which the clocks change."""
    for spec in ("PT1H", "PT6H"):
        part = next_window(resolve_window(spec, zone, day.start_ms), zone)
        assert part.start_ms == day.start_ms
        while part.end_ms < day.end_ms:
            part = next_window(part, zone)
        assert part.end_ms == day.end_ms


@settings(max_examples=200, deadline=None)
@given(st.integers(MS_MIN, MS_MAX))
def test_times_come_back(ms: int) -> None:
    """A time, written and read again, is the time; the text sorts as the time does within a length."""
    text = rfc3339(ms)
    assert parse_rfc3339(text) == ms
    assert text.endswith("Z")
    assert ("." in text) == bool(ms % 1000)


@pytest.mark.req("UPD-3")
@settings(max_examples=300, deadline=None)
@given(
    at_ms=st.one_of(
        st.integers(MS_MIN, MS_MAX),
        st.integers(MS_MIN // DAY_MS, MS_MAX // DAY_MS).map(lambda day: day * DAY_MS),
        st.sampled_from([MS_MIN, MS_MAX]),
    ),
    spec=st.sampled_from(["P1Y", "P3M", "P1W", "P10D", "P1D", "PT6H", "PT1M"]),
)
def test_utc_is_cut_as_the_library_of_zones_cuts_it(at_ms: int, spec: str) -> None:
    """Windows, days and offsets in UTC need no library; another name of the same zone asks it, and agrees."""

    def told(zone: str) -> object:
        try:
            found = window_of(spec, zone, at_ms)
        except WindowError:
            return "no window"
        return found.start_ms, found.end_ms

    assert told("UTC") == told("Etc/UTC")
    assert offset_ms("UTC", at_ms) == offset_ms("Etc/UTC", at_ms) == 0
    end_ms = min(at_ms + 400 * DAY_MS, MS_MAX)
    assert [*stretches("UTC", at_ms, end_ms)] == [*stretches("Etc/UTC", at_ms, end_ms)]
