"""Every zone over ten years: the oracle near each change of the clocks, invariants everywhere else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from kfm.model.schedules import Schedule, instants
from kfm.model.times import OffsetSpan, stretches
from tests.schedules.oracle import DAY, Minutes, Pattern, clock, firings, minute_of

FIRST, LAST = minute_of(2020, 1, 1), minute_of(2030, 1, 1)  # ten years, in minutes since 1970
AROUND = 2 * DAY
MINUTE_MS = 60_000
DAY_MS = DAY * MINUTE_MS

ALL = frozenset(range(24))


def pattern(minutes: Iterable[int], hours: Iterable[int] = ALL, **days: frozenset[int]) -> Pattern:
    return Pattern(frozenset(minutes), frozenset(hours), **days)


PATTERNS = (
    pattern(range(60)),
    pattern([0]),
    pattern([30]),
    pattern(range(7, 60, 15)),
    pattern([0, 30], weekdays=frozenset({0})),
    pattern(range(60), range(1, 24)),  # all fixed local times but those of one hour
    pattern(range(60), range(23)),
    pattern([0], [0]),
    pattern([59], [23]),
    pattern([30], [2]),
    pattern([30], [1]),
    pattern([0], [0, 6, 12, 18]),
    pattern(range(0, 60, 10), [0, 1, 2, 3]),
    pattern([15], [0, 3], weekdays=frozenset({0, 6})),
    pattern([45], [1, 2], days=frozenset({1, 7, 13, 29}), weekdays=frozenset({5})),
    pattern([5], [2], months=frozenset({3, 4, 9, 10, 11})),
)


class Change(NamedTuple):
    """A change of the clocks with what they do around it, and one zone that has it."""

    zone: str
    minute: int


def schedule(text: str, zone: str) -> Schedule:
    return Schedule(id="s", source="s", cron=text, time_zone=zone)


def histories() -> dict[tuple[OffsetSpan, ...], list[str]]:
    """All zones, by what their clocks do in these years: whatever holds for one of a group holds for all."""
    found: dict[tuple[OffsetSpan, ...], list[str]] = {}
    for zone in sorted(available_timezones()):
        found.setdefault(tuple(stretches(zone, FIRST * MINUTE_MS, LAST * MINUTE_MS)), []).append(zone)
    return found


def changes(histories: Iterable[tuple[tuple[OffsetSpan, ...], Sequence[str]]]) -> list[Change]:
    """Every change once, however many zones have it."""
    found: dict[tuple[OffsetSpan, ...], Change] = {}
    for history, zones in histories:
        for earlier, later in pairwise(history):
            minute, rest = divmod(later.start_ms, MINUTE_MS)
            assert (rest, earlier.end_ms) == (0, later.start_ms), zones[0]
            low, high = later.start_ms - 2 * AROUND * MINUTE_MS, later.start_ms + AROUND * MINUTE_MS
            near = tuple(
                OffsetSpan(max(piece.start_ms, low), min(piece.end_ms, high), piece.offset_ms)
                for piece in history
                if piece.end_ms > low and piece.start_ms < high
            )
            found.setdefault(near, Change(zones[0], minute))
    return sorted(found.values(), key=lambda change: (change.minute, change.zone))


def check_change(change: Change, patterns: Sequence[Pattern] = PATTERNS) -> int:
    """kfm and the oracle agree within two days of a change; how many instants were compared."""
    zone, minute = change
    # The oracle looks further back: a fixed time that was shown before the span is not shown anew in it.
    first = minute - 2 * AROUND
    shown: Minutes = clock(zone, first, minute + AROUND)
    compared = 0
    for each in patterns:
        expected = [at for at in firings(each, first, shown) if at >= minute - AROUND]
        span_ms = (minute - AROUND) * MINUTE_MS, (minute + AROUND) * MINUTE_MS
        found = [at_ms / MINUTE_MS for at_ms in instants(schedule(each.text, zone), *span_ms)]
        assert found == expected, f"{each.text} in {zone} around minute {minute}"
        compared += len(found)
    return compared


def check_offsets(history: Sequence[OffsetSpan], zone: str, step: timedelta) -> None:
    """The standard library sees the same clocks: at both ends of each stretch, and now and then within."""
    local = ZoneInfo(zone)
    for piece in history:
        within = range(piece.start_ms, piece.end_ms, step // timedelta(milliseconds=1))
        for moment_ms in (*within, piece.end_ms - 1000):
            offset = datetime.fromtimestamp(moment_ms // 1000, local).utcoffset() or timedelta()
            assert offset.total_seconds() * 1000 == piece.offset_ms, f"{zone} at {moment_ms} ms"


def check_days(zone: str, history: Sequence[OffsetSpan]) -> int:
    """A time of day fires once on each date of ten years, about a day apart; a minute of the hour hourly."""
    largest = max((abs(b.offset_ms - a.offset_ms) for a, b in pairwise(history)), default=0)
    local = ZoneInfo(zone)
    daily = list(instants(schedule("15 7 * * *", zone), FIRST * MINUTE_MS, LAST * MINUTE_MS))
    dates = [datetime.fromtimestamp(at_ms / 1000, local).date() for at_ms in daily]
    assert [(later - earlier).days for earlier, later in pairwise(dates)] == [1] * (len(dates) - 1), zone
    assert abs(len(daily) - (LAST - FIRST) / DAY) <= 1, zone
    for earlier, later in pairwise(daily):
        assert abs(later - earlier - DAY_MS) <= largest, zone
    hourly = list(instants(schedule("20 * * * *", zone), FIRST * MINUTE_MS, LAST * MINUTE_MS))
    odd = [b - a for a, b in pairwise(hourly) if b - a != 60 * MINUTE_MS]
    # Only where clocks move by something else than whole hours is an hour of real time not one on the clock.
    moved = sum((b.offset_ms - a.offset_ms) % (60 * MINUTE_MS) != 0 for a, b in pairwise(history))
    assert len(odd) <= moved, zone
    assert all(0 < spacing < 120 * MINUTE_MS for spacing in odd), zone
    return len(daily) + len(hourly)
