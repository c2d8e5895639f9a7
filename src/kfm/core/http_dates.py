"""Dates as HTTP writes them, in three historic shapes."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = "|".join(_MONTHS)
_IMF_DATE = re.compile(
    rf"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), (\d\d) ({_MONTH}) (\d{{4}}) (\d\d):(\d\d):(\d\d) GMT\Z", re.ASCII
)
_RFC850_DATE = re.compile(
    rf"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, (\d\d)-({_MONTH})-(\d\d) (\d\d):(\d\d):(\d\d) GMT\Z",
    re.ASCII,
)
_ASCTIME_DATE = re.compile(
    rf"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ({_MONTH}) ([ \d]\d) (\d\d):(\d\d):(\d\d) (\d{{4}})\Z", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_http_date(text: str | None, now_ms: int | None = None) -> int | None:
    """Milliseconds since the epoch; None for what is no HTTP date. `now_ms` decides two-digit years."""
    text = (text or "").strip(" \t")
    if match := _IMF_DATE.match(text):
        day, month, year, hour, minute, second = match.groups()
    elif match := _ASCTIME_DATE.match(text):
        month, day, hour, minute, second, year = match.groups()
    elif match := _RFC850_DATE.match(text):
        day, month, year, hour, minute, second = match.groups()
        year = str(_full_year(int(year), now_ms))
    else:
        return None
    leap = second == "60"  # allowed by the grammar, unknown to the calendar
    try:
        moment = datetime(
            int(year),
            _MONTHS.index(month) + 1,
            int(day),
            int(hour),
            int(minute),
            59 if leap else int(second),
            tzinfo=UTC,
        )
    except ValueError:
        return None
    return int((moment - _EPOCH).total_seconds()) * 1000 + (1000 if leap else 0)


def _full_year(two_digits: int, now_ms: int | None) -> int:
    """RFC 9110: a year more than 50 years ahead means the past century. Without a now: 70 and later."""
    if now_ms is None:
        return two_digits + (1900 if two_digits >= 70 else 2000)
    this_year = datetime.fromtimestamp(now_ms / 1000, UTC).year
    year = this_year - this_year % 100 + two_digits
    return year - 100 if year > this_year + 50 else year
