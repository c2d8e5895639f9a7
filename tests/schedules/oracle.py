"""When a schedule fires, found the slow way: by looking at the local clock in every minute.

It shares no line with kfm: patterns are sets, dates come from the standard library, and what the clock shows
is asked of `zoneinfo` for each single minute.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

Minutes = NDArray[np.int64]
DAY = 1440
_EPOCH_DAY = date(1970, 1, 1).toordinal()


class Pattern(NamedTuple):
    """The five fields as sets; `None` is a star."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int] | None = None
    months: frozenset[int] | None = None
    weekdays: frozenset[int] | None = None  # 0 is Sunday

    @property
    def text(self) -> str:
        return " ".join(_field(part) for part in self)

    @property
    def continuous(self) -> bool:
        return len(self.hours) == 24

    def on(self, number: int) -> bool:
        """Does it fire on this local date? Two restrictions of the day are alternatives, as cron has it."""
        day = date.fromordinal(_EPOCH_DAY + number)
        if self.months is not None and day.month not in self.months:
            return False
        by_day = self.days is not None and day.day in self.days
        by_weekday = self.weekdays is not None and day.isoweekday() % 7 in self.weekdays
        return by_day or by_weekday or (self.days is None and self.weekdays is None)

    def times(self) -> NDArray[np.bool_]:
        made = np.zeros(DAY, dtype=bool)
        made[[hour * 60 + minute for hour in self.hours for minute in self.minutes]] = True
        return made


def _field(values: frozenset[int] | None) -> str:
    return "*" if values is None else ",".join(str(value) for value in sorted(values))


def clock(zone: str, first: int, last: int) -> Minutes:
    """What the local clock shows in each minute of a span, in minutes since 1970 as if it were UTC."""
    local = ZoneInfo(zone)
    shown = []
    for minute in range(first, last):
        offset = datetime.fromtimestamp(minute * 60, local).utcoffset() or timedelta()
        seconds = offset.days * 86_400 + offset.seconds
        assert seconds % 60 == 0, f"{zone} is not ahead of UTC by whole minutes"
        shown.append(minute + seconds // 60)
    return np.array(shown, dtype=np.int64)


def firings(pattern: Pattern, first: int, shown: Minutes) -> list[int]:
    """The minutes in which it fires, given what the clock shows in each from `first` on.

    Continuous: each time that a matching minute is shown. Fixed local times: when the clock shows a time that
    it has not shown yet, and that time, or one that it has just jumped over, matches.
    """
    low, high = int(shown.min()), int(shown.max())
    numbers = np.arange(low // DAY, high // DAY + 1)
    days = np.array([pattern.on(int(number)) for number in numbers])
    matches = (days[:, None] & pattern.times()[None, :]).reshape(-1)
    begin = int(numbers[0]) * DAY
    if pattern.continuous:
        fires = matches[shown - begin]
    else:
        highest = np.maximum.accumulate(shown)
        before = np.concatenate(([shown[0] - 1], highest[:-1]))
        upto = np.concatenate(([0], np.cumsum(matches)))
        fires = (shown > before) & (upto[shown - begin + 1] - upto[np.maximum(before - begin + 1, 0)] > 0)
    return [first + int(index) for index in np.flatnonzero(fires)]


def minute_of(year: int, month: int, day: int) -> int:
    return int(datetime(year, month, day, tzinfo=UTC).timestamp()) // 60
