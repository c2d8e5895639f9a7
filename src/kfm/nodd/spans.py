"""Times in keys: from digits to milliseconds, and what data cover. A time that can't be is refused."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from kfm.model.records import Record
from kfm.model.times import MS_MAX, MS_MIN
from kfm.nodd.messages.refusals import RecordRefusal
from kfm.nodd.patterns import Fields, need

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
DAYS_KEPT = 4096  # the calendar is asked once a day; eleven years are kept, for those who fill gaps
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_HOUR_AT_END = re.compile(r"\.?f(\d{2,3})\Z", re.ASCII)
_HOUR_WITHIN = re.compile(r"f(\d{2,3})(?=\.)", re.ASCII)
_CLOCK = {"": 0} | {
    f"{hour:02d}{minute}": hour * HOUR_MS + int(minute or "0") * MINUTE_MS
    for hour in range(24)
    for minute in ("", *(f"{minute:02d}" for minute in range(60)))
}
_SECONDS = {"": 0} | {f"{second:02d}": second * 1000 for second in range(60)}
_TENTHS = {"": 0} | {str(tenth): tenth * 100 for tenth in range(10)}
_SECONDS_AND_TENTHS = {
    second + tenth: _SECONDS[second] + _TENTHS[tenth] for second in _SECONDS if second for tenth in _TENTHS
}
_ANALYSIS = re.compile(r"anl(?=\.|\Z)")


class Span(Record, frozen=True, gc=False):
    """The time that an object covers, as far as its key shows it. All in ms since the epoch."""

    start_ms: int | None = None
    end_ms: int | None = None
    reference_ms: int | None = None
    forecast_hour: int | None = None
    issued_ms: int | None = None
    created_ms: int | None = None


NOTHING_KNOWN = Span()


def at(year: str, month: str, day: str, hour: str = "0", minute: str = "0", second: str = "0") -> int:
    """That moment. A sixtieth second is refused: none of these clocks shows leap seconds."""
    try:
        moment = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second), tzinfo=UTC)
    except ValueError:
        raise RecordRefusal("TIME_INVALID") from None
    return (moment - _EPOCH) // _MS


def digits(text: str) -> int:
    """`YYYYMMDD`, and as much of `HHMMSS` and tenths as there is."""
    try:
        past_ms = _CLOCK[text[8:12]] + _SECONDS[text[12:14]] + _TENTHS[text[14:15]]
    except KeyError:
        return _digits(text)
    return _day(text[:8]) + past_ms


def _digits(text: str) -> int:
    rest = text[8:14].ljust(6, "0")
    tenths = int(text[14:15] or "0")
    return at(text[:4], text[4:6], text[6:8], rest[:2], rest[2:4], rest[4:6]) + tenths * 100


@lru_cache(maxsize=DAYS_KEPT)  # the channels of one image have the same
def day_of_year(text: str) -> int:
    """`YYYYDDDHHMMSSt`: GOES counts days of the year."""
    try:
        past_ms = _CLOCK[text[7:11]] + _SECONDS_AND_TENTHS[text[11:14]]
    except KeyError:
        return _day_of_year(text)
    return _numbered_day(text[:7]) + past_ms


def _day_of_year(text: str) -> int:
    year, day = int(text[:4]), int(text[4:7])
    if day == 0 or year == 0:
        raise RecordRefusal("TIME_INVALID", "Days of the year begin with 001.")
    start = at(text[:4], "1", "1", text[7:9], text[9:11], text[11:13])
    made = start + (day - 1) * 24 * HOUR_MS + int(text[13:14] or "0") * 100
    if day > 365 and year_of(made) != year:
        raise RecordRefusal("TIME_INVALID", f"{year} has no day {day}.")
    return made


_day = lru_cache(maxsize=DAYS_KEPT)(_digits)


@lru_cache(maxsize=DAYS_KEPT)
def _numbered_day(text: str) -> int:
    return _day_of_year(f"{text}000000")


def year_of(ms: int) -> int:
    try:
        return (_EPOCH + timedelta(milliseconds=ms)).year
    except OverflowError:
        raise RecordRefusal("TIME_INVALID") from None


def day_parts(ms: int) -> tuple[str, str, str, str, str]:
    """(year, month, day, hour, day of year) of a moment, as folders write them."""
    days, hour = divmod(ms // HOUR_MS, 24)
    year, month, day, number = _date_parts(days)
    return year, month, day, f"{hour:02d}", number


@lru_cache(maxsize=DAYS_KEPT)
def _date_parts(days: int) -> tuple[str, str, str, str]:
    date = _EPOCH + timedelta(days=days)
    return f"{date.year:04d}", f"{date.month:02d}", f"{date.day:02d}", f"{date.timetuple().tm_yday:03d}"


def shifted(ms: int, by_ms: int) -> int:
    made = ms + by_ms
    if not MS_MIN <= made <= MS_MAX:
        raise RecordRefusal("TIME_INVALID", "It is outside the years 0001 to 9999.")
    return made


# --- what data cover -----------------------------------------------------------------


def scan(fields: Fields) -> Span:
    """GOES: start, end and making of a scan."""
    start, end = day_of_year(need(fields, "start")), day_of_year(need(fields, "end"))
    return Span(start, end, created_ms=day_of_year(need(fields, "created")))


def whole_year(fields: Fields) -> Span:
    year = need(fields, "year")
    return Span(start_ms=at(year, "1", "1"), end_ms=at(year, "12", "31", "23", "59", "59"))


def unknown(_fields: Fields) -> Span:
    """The key has no time."""
    return NOTHING_KNOWN


def cycle(fields: Fields) -> int | None:
    """The reference time of a model: the date of the folder, the hour of the file."""
    hour, ymd = need(fields, "hh"), fields.get("ymd")
    if int(hour[:2]) > 23 or (len(hour) == 4 and int(hour[2:]) > 59):
        raise RecordRefusal("TIME_INVALID", "There is no such hour.")
    return None if ymd is None else digits(ymd + hour)


def cycle_only(fields: Fields) -> Span:
    """A product of a model's cycle without a time that it is valid for."""
    return Span(reference_ms=cycle(fields))


def valid_at(reference_ms: int | None, hours: int) -> Span:
    """A forecast: valid that many hours after its cycle."""
    if reference_ms is None:
        return Span(forecast_hour=hours)
    valid = shifted(reference_ms, hours * HOUR_MS)
    return Span(start_ms=valid, end_ms=valid, reference_ms=reference_ms, forecast_hour=hours)


def forecast(fields: Fields) -> Span:
    return valid_at(cycle(fields), int(need(fields, "fh")))


def named_forecast(fields: Fields) -> Span:
    """Names such as `gfs.t00z.pgrb2.0p25.f006`: the hour stands somewhere in the rest of the name."""
    rest = need(fields, "rest")
    hour = _HOUR_AT_END.search(rest) or _HOUR_WITHIN.search(rest)
    if hour is not None:
        return valid_at(cycle(fields), int(hour[1]))
    if _ANALYSIS.search(rest):
        return valid_at(cycle(fields), 0)
    return cycle_only(fields)


def without_hour(name: str) -> str:
    """The product of such a name."""
    return _HOUR_AT_END.sub("", name)
