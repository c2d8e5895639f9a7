"""Windows: which span of time a run covers.

`P1D` means the last complete day in the source's zone, 23, 24 or 25 hours
long. Windows of one length tile time: no gap, no overlap, across every change
of the clocks. How they are aligned, always in the source's zone:

- years, months and days begin at midnight, weeks at midnight on Monday;
  `P3M` begins in January, April, …; `P10Y` in 2020, 2030, …; several days or
  weeks are counted from Monday 0001-01-01;
- hours, minutes and seconds are counted in real time from midnight, and the
  length must divide 24 hours. On a day when the clocks change the last window
  of the day ends at midnight, so it may be shorter: `PT6H` on a day of 25 hours
  is four windows of six hours and one of one hour, `PT1H` is 25 windows.

`none` is for a source that has no windows: what it gives is one thing, whatever
the day. Its runs all have the window `SNAPSHOT`, which stands for all of time.
"""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from kfm.model.errors import UsageError, WindowError
from kfm.model.patterns import late
from kfm.model.records import Window
from kfm.model.times import MS_MAX, MS_MIN, UTC_ZONE, is_all_time, parse_rfc3339, rfc3339

if TYPE_CHECKING:
    from whenever import ZonedDateTime

DAY_MS = 86_400_000
_FIRST_DAY = date(1970, 1, 1).toordinal()
NO_WINDOW = "none"  # of a source whose content alone says whether there is something new
SNAPSHOT = Window(start_ms=MS_MIN, end_ms=MS_MAX, spec=NO_WINDOW)
_DURATION = late(
    r"P(?:(\d{1,7})Y)?(?:(\d{1,7})M)?(?:(\d{1,7})W)?(?:(\d{1,7})D)?"
    r"(?:T(?:(\d{1,7})H)?(?:(\d{1,7})M)?(?:(\d{1,7})S)?)?\Z",
    re.ASCII,
)
_TOO_LONG = late(r"\d{8,}", re.ASCII)
_DATE = late(r"(\d{4})-(\d\d)-(\d\d)\Z", re.ASCII)
_NAIVE = late(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,3}))?)?\Z", re.ASCII)
_SHORT_OFFSET = late(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d)(Z|[+-]\d\d:\d\d)\Z", re.ASCII)
_CLOCK = late(r"([01]\d|2[0-3]):([0-5]\d)\Z", re.ASCII)
_UNITS = ("years", "months", "weeks", "days")


class Duration(msgspec.Struct, frozen=True, kw_only=True):
    """An ISO 8601 duration: calendar parts, and an exact part."""

    years: int = 0
    months: int = 0
    weeks: int = 0
    days: int = 0
    time_ms: int = 0


@lru_cache(maxsize=64)
def parse_duration(text: str) -> Duration:
    """`P1D`, `P1W`, `P1M`, `P1Y`, `PT6H`, `PT15M`, `P1DT12H`; not zero, no fractions."""
    match = _DURATION.match(text)
    if match is None or text.endswith(("P", "T")):
        if _TOO_LONG.search(text) and _DURATION.match(_TOO_LONG.sub("1", text)):
            raise WindowError(f"{text[:64]!r} is too long.", remedy="A number has seven digits at most.")
        raise WindowError(f"{text[:64]!r} is not an ISO 8601 duration.")
    years, months, weeks, days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    time_ms = ((hours * 60 + minutes) * 60 + seconds) * 1000
    duration = Duration(years=years, months=months, weeks=weeks, days=days, time_ms=time_ms)
    if duration == Duration():
        raise WindowError(f"{text!r} has no length.")
    return duration


def resolve_window(spec: str, zone: str, now_ms: int) -> Window:
    """The absolute window that a person's words mean at this moment."""
    if spec == NO_WINDOW:
        return SNAPSHOT
    if "/" in spec:
        window = _explicit(spec, zone)
        return SNAPSHOT if is_all_time(window.start_ms, window.end_ms) else window
    duration = _alignable(spec)
    start_ms, end_ms = _containing(duration, zone, now_ms)
    if end_ms > now_ms:  # always, unless the calendar ends here
        start_ms, end_ms = _containing(duration, zone, start_ms - 1)
    return Window(start_ms=start_ms, end_ms=end_ms, spec=spec)


def asked_window(spec: str | None, own: str, zone: str, now_ms: int) -> Window:
    """The window that is asked for, of a source whose own window is `own`; None asks for that."""
    window = resolve_window(own if spec is None else spec, zone, now_ms)
    if own == NO_WINDOW and window != SNAPSHOT:
        raise WindowError(
            f"{(spec or '')[:128]!r} is asked of a source without windows: it has one snapshot.",
            remedy="Leave the window out.",
        )
    if own != NO_WINDOW and window == SNAPSHOT:
        raise WindowError(
            "Its source has windows, so one of them has to be asked for.",
            remedy=f"Leave the window out for the last one of {own}, or name one, such as 2026-01-31/P1D.",
        )
    return window


def window_of(spec: str, zone: str, at_ms: int) -> Window:
    """The window of this length that an instant lies in, whether it is over or not."""
    if spec == NO_WINDOW:
        return SNAPSHOT
    start_ms, end_ms = _containing(_alignable(spec), zone, at_ms)
    return Window(spec=spec, start_ms=start_ms, end_ms=end_ms)


def fits_into(inner: str, outer: str) -> bool:
    """Does every window of the one length lie in one window of the other, in the same zone?"""
    if inner == outer or NO_WINDOW in (inner, outer) or "/" in inner + outer:
        return inner == outer or NO_WINDOW not in (inner, outer)  # a named start fits or does not, by itself
    small, large = _alignable(inner), _alignable(outer)
    if small.time_ms:
        return not large.time_ms or large.time_ms % small.time_ms == 0
    small_days, large_days = small.weeks * 7 or small.days, large.weeks * 7 or large.days
    if small_days:
        return large_days % small_days == 0 if large_days else not large.time_ms and small_days == 1
    small_months, large_months = (one.years * 12 or one.months for one in (small, large))
    return bool(large_months) and large_months % small_months == 0


def next_window(window: Window, zone: str) -> Window:
    """The window that begins where this one ends."""
    return _neighbour(window, zone, forward=True)


def previous_window(window: Window, zone: str) -> Window:
    """The window that ends where this one begins."""
    return _neighbour(window, zone, forward=False)


def _neighbour(window: Window, zone: str, *, forward: bool) -> Window:
    if window == SNAPSHOT:
        raise WindowError("A source without windows has no window before or after.")
    left, _, right = window.spec.partition("/")
    if not right:
        start_ms, end_ms = _containing(
            _alignable(left), zone, window.end_ms if forward else window.start_ms - 1
        )
        return Window(start_ms=start_ms, end_ms=end_ms, spec=window.spec)
    if right.startswith("P"):
        duration = parse_duration(right)
        if forward:
            start_ms, end_ms = window.end_ms, _shifted(window.end_ms, duration, zone, 1)
        else:
            start_ms, end_ms = _shifted(window.start_ms, duration, zone, -1), window.start_ms
        return Window(start_ms=start_ms, end_ms=end_ms, spec=f"{rfc3339(start_ms)}/{right}")
    length_ms = (window.end_ms - window.start_ms) * (1 if forward else -1)
    start_ms, end_ms = window.start_ms + length_ms, window.end_ms + length_ms
    return Window(start_ms=start_ms, end_ms=end_ms, spec=f"{rfc3339(start_ms)}/{rfc3339(end_ms)}")


def shifted(from_ms: int, duration: Duration, zone: str) -> int:
    """The moment so much later: calendar parts on the local clock, then the exact part."""
    return _shifted(from_ms, duration, zone, 1)


def time_of_day(text: str, zone: str, after_ms: int) -> int:
    """The first `HH:MM` of the local clock at or after a moment; what the clocks skip is after the gap."""
    from whenever import PlainDateTime

    clock = _CLOCK.match(text)
    if clock is None:
        raise WindowError(f"{text[:64]!r} is not a time of day such as 08:00.")
    day = _local_date(after_ms, zone)
    for ordinal in (day.toordinal(), day.toordinal() + 1, day.toordinal() + 2):
        on = date.fromordinal(ordinal)
        plain = PlainDateTime(on.year, on.month, on.day, int(clock[1]), int(clock[2]))
        at_ms = _ms(plain.assume_tz(zone, disambiguation="compatible"))
        if at_ms >= after_ms:
            return at_ms
    raise WindowError("The window leaves the calendar.")


# --- windows with a named start ------------------------------------------------------


def _explicit(spec: str, zone: str) -> Window:
    left, _, right = spec.partition("/")
    start_ms = parse_instant(left, zone)
    if right.startswith("P"):
        end_ms = _shifted(start_ms, parse_duration(right), zone, 1)
    else:
        end_ms = parse_instant(right, zone)
    if end_ms <= start_ms:
        raise WindowError(f"{spec[:128]!r} ends before it begins, or is empty.")
    return Window(start_ms=start_ms, end_ms=end_ms, spec=spec)


def parse_instant(text: str, zone: str) -> int:
    """A date (its first instant), a local time, or a time with an offset, in ms since the epoch.

    Without an offset it is a time in the zone. One that the clocks show twice,
    or never, is refused: an offset says which is meant.
    """
    day = _DATE.match(text)
    if day is not None:
        return _midnight(_date(text, *(int(part) for part in day.groups())), zone)
    local = _NAIVE.match(text)
    if local is None:
        short = _SHORT_OFFSET.match(text)
        try:
            return parse_rfc3339(f"{short[1]}:00{short[2]}" if short else text)
        except UsageError as error:
            raise WindowError(error.detail) from None
    from whenever import PlainDateTime, RepeatedTime, SkippedTime

    year, month, day_, hour, minute, second = (int(part or 0) for part in local.group(1, 2, 3, 4, 5, 6))
    ms = int((local[7] or "0").ljust(3, "0"))
    try:
        plain = PlainDateTime(year, month, day_, hour, minute, second, nanosecond=ms * 1_000_000)
        return _ms(plain.assume_tz(zone, disambiguation="raise"))
    except RepeatedTime:
        raise WindowError(f"The clocks of {zone} show {text} twice: add an offset such as -05:00.") from None
    except SkippedTime:
        raise WindowError(f"The clocks of {zone} never show {text}.") from None
    except ValueError as error:
        raise WindowError(f"{text!r} in {zone}: {error}.") from None


def _shifted(from_ms: int, duration: Duration, zone: str, sign: int) -> int:
    """Calendar parts first, on the local clock; then the exact part."""
    moved_ms = from_ms
    if zone == UTC_ZONE and not (duration.years or duration.months):  # all its days are of one length
        moved_ms += sign * (duration.weeks * 7 + duration.days) * DAY_MS
    elif duration.years or duration.months or duration.weeks or duration.days:
        try:
            moved = _zoned(from_ms, zone).add(
                years=sign * duration.years,
                months=sign * duration.months,
                weeks=sign * duration.weeks,
                days=sign * duration.days,
                disambiguation="compatible",
            )
        except ValueError as error:
            raise WindowError(f"The window leaves the calendar: {error}.") from None
        moved_ms = _ms(moved)
    shifted_ms = moved_ms + sign * duration.time_ms
    if not MS_MIN <= shifted_ms <= MS_MAX:
        raise WindowError("The window leaves the calendar.")
    return shifted_ms


# --- aligned windows -----------------------------------------------------------------


@lru_cache(maxsize=64)
def _alignable(spec: str) -> Duration:
    duration = parse_duration(spec)
    parts = sum(getattr(duration, unit) > 0 for unit in _UNITS) + (duration.time_ms > 0)
    if parts != 1:
        raise WindowError(f"{spec!r} mixes units, so nothing says where it begins: name a start.")
    if duration.time_ms and DAY_MS % duration.time_ms:
        raise WindowError(
            f"{spec!r} does not divide a day: use a length that does, whole days, or name a start."
        )
    return duration


def _containing(duration: Duration, zone: str, at_ms: int) -> tuple[int, int]:
    """The aligned window that holds an instant."""
    if duration.time_ms:
        day_start, day_end = _containing(Duration(days=1), zone, at_ms)
        start_ms = day_start + (at_ms - day_start) // duration.time_ms * duration.time_ms
        return start_ms, min(start_ms + duration.time_ms, day_end)
    index = _index(duration, _local_date(at_ms, zone))
    start_ms, end_ms = _boundary(duration, index, zone), _boundary(duration, index + 1, zone)
    # A clock set back over midnight, or a day that a zone left out, moves the local date by one.
    while start_ms > at_ms:
        index, end_ms = index - 1, start_ms
        start_ms = _boundary(duration, index, zone)
    while end_ms <= at_ms:
        index, start_ms = index + 1, end_ms
        end_ms = _boundary(duration, index + 1, zone)
    return start_ms, end_ms


def _index(duration: Duration, day: date) -> int:
    """The running number of the window of this length that holds a local date."""
    if duration.years:
        return day.year // duration.years
    if duration.months:
        return (day.year * 12 + day.month - 1) // duration.months
    # 0001-01-01 is a Monday.
    return (day.toordinal() - 1) // (duration.weeks * 7 or duration.days)


def _boundary(duration: Duration, index: int, zone: str) -> int:
    try:
        if duration.years:
            day = date(index * duration.years, 1, 1)
        elif duration.months:
            year, month = divmod(index * duration.months, 12)
            day = date(year, month + 1, 1)
        else:
            day = date.fromordinal(index * (duration.weeks * 7 or duration.days) + 1)
    except (ValueError, OverflowError):
        raise WindowError("The window leaves the calendar.") from None
    return _midnight(day, zone)


def _date(text: str, year: int, month: int, day: int) -> date:
    try:
        return date(year, month, day)
    except ValueError:
        raise WindowError(f"{text!r} is not a date.") from None


@lru_cache(maxsize=4096)  # the windows of a year ask for each midnight many times
def _midnight(day: date, zone: str) -> int:
    """The first instant of a local day; where the zone left the day out, of the next one."""
    if zone == UTC_ZONE:  # needs no library, and commands that only look need not load one
        return (day.toordinal() - _FIRST_DAY) * DAY_MS
    from whenever import PlainDateTime

    try:
        noon = PlainDateTime(day.year, day.month, day.day, 12).assume_tz(zone, disambiguation="compatible")
        return _ms(noon.start_of("day"))
    except ValueError as error:
        raise WindowError(f"{day} in {zone}: {error}.") from None


def _local_date(at_ms: int, zone: str) -> date:
    if zone == UTC_ZONE and MS_MIN <= at_ms <= MS_MAX:
        return date.fromordinal(at_ms // DAY_MS + _FIRST_DAY)
    return _zoned(at_ms, zone).date().to_stdlib()


def _zoned(at_ms: int, zone: str) -> ZonedDateTime:
    from whenever import Instant

    try:
        return Instant.from_timestamp(at_ms, unit="millisecond").to_tz(zone)
    except ValueError as error:
        raise WindowError(f"{at_ms} ms in {zone}: {error}.") from None


def _ms(moment: ZonedDateTime) -> int:
    return int(moment.timestamp(unit="millisecond"))
