"""Times: RFC 3339 in UTC, the three date formats of HTTP, local clocks with their offsets."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from typing import NamedTuple

from kfm.model.errors import UsageError
from kfm.model.patterns import late

MS_MIN = -62_135_596_800_000  # 0001-01-01T00:00:00Z
MS_MAX = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z
UTC_ZONE = "UTC"
WAIT_MAX_MS = 86_400_000  # no lease, claim or wait that a machine sets is longer
AHEAD_MS = 10 * 60_000  # clocks that differ by less are left to themselves


def holds(until_ms: int, now_ms: int, length_ms: int = WAIT_MAX_MS) -> bool:
    """Does a lease, a claim or a wait still last? One that lies further ahead than twice its length was set
    by a clock that was ahead, and is over: nothing waits for that clock's time."""
    return 0 < until_ms - now_ms <= 2 * length_ms


def last_ms(now_ms: int) -> int:
    """The latest time that anything waits for."""
    return now_ms + 2 * WAIT_MAX_MS


def is_all_time(start_ms: int, end_ms: int) -> bool:
    """Is it the window of a source without windows, which stands for all of time?"""
    return (start_ms, end_ms) == (MS_MIN, MS_MAX)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_RFC3339 = late(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:([Zz])|([+-])(\d\d):(\d\d))\Z",
    re.ASCII,
)


def rfc3339(ms: int) -> str:
    """`2026-01-01T00:00:00Z`, or `….250Z` where the milliseconds are not zero."""
    if not MS_MIN <= ms <= MS_MAX:
        raise UsageError(f"{ms} ms is outside the years 0001 to 9999.")
    second, rest = divmod(ms, 1000)
    return f"{_second(second)}.{rest:03}Z" if rest else f"{_second(second)}Z"


@lru_cache(1024)
def _second(second: int) -> str:
    """Objects of one image, and the records of one batch, have the same."""
    return (_EPOCH + timedelta(seconds=second)).isoformat()[:19]


def parse_rfc3339(text: str) -> int:
    """Milliseconds since the epoch. Finer fractions are cut off; a time without an offset is refused."""
    match = _RFC3339.match(text)
    if match is None:
        raise UsageError(f"{text[:64]!r} is not an RFC 3339 time such as 2026-01-01T00:00:00Z.")
    year, month, day, hour, minute, second = (int(part) for part in match.group(1, 2, 3, 4, 5, 6))
    ms = int((match[7] or "0").ljust(3, "0")[:3])
    zone = UTC
    try:
        if match[8] is None:
            hours, minutes = int(match[10]), int(match[11])
            if hours > 23 or minutes > 59:
                raise ValueError
            offset = timedelta(hours=hours, minutes=minutes)
            zone = timezone(offset if match[9] == "+" else -offset)
        local = datetime(year, month, day, hour, minute, second, ms * 1000, tzinfo=zone)
    except ValueError:
        raise UsageError(f"{text[:64]!r} names no time that exists.") from None
    # Timedelta arithmetic: an offset may carry the first or last day of the calendar over its edge.
    since = (local.replace(tzinfo=UTC) - _EPOCH) // _MS - (local.utcoffset() or timedelta()) // _MS
    if not MS_MIN <= since <= MS_MAX:
        raise UsageError(f"{text[:64]!r} is outside the years 0001 to 9999.")
    return since


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = "|".join(_MONTHS)
_IMF_DATE = late(
    rf"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), (\d\d) ({_MONTH}) (\d{{4}}) (\d\d):(\d\d):(\d\d) GMT\Z", re.ASCII
)
_RFC850_DATE = late(
    rf"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, (\d\d)-({_MONTH})-(\d\d) (\d\d):(\d\d):(\d\d) GMT\Z",
    re.ASCII,
)
_ASCTIME_DATE = late(
    rf"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ({_MONTH}) ([ \d]\d) (\d\d):(\d\d):(\d\d) (\d{{4}})\Z", re.ASCII
)


def is_strong_date(headers: Mapping[str, str], now_ms: int) -> bool:
    """Does Last-Modified identify the content? Not within its second: it may be written again in there.

    By the clock of the server that answers; `now_ms` is for one that does not tell its own."""
    modified_ms = parse_http_date(headers.get("last-modified"))
    date_ms = parse_http_date(headers.get("date"))
    return modified_ms is not None and modified_ms < (now_ms if date_ms is None else date_ms)


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


class OffsetSpan(NamedTuple):
    """A span of instants with one offset: what the clock shows is the instant plus the offset."""

    start_ms: int
    end_ms: int
    offset_ms: int

    @property
    def shown_start_ms(self) -> int:
        """What the local clock shows at the start, counted as if it were UTC."""
        return self.start_ms + self.offset_ms

    @property
    def shown_end_ms(self) -> int:
        return self.end_ms + self.offset_ms


def stretches(zone: str, start_ms: int, end_ms: int = MS_MAX) -> Iterator[OffsetSpan]:
    """The span in pieces of even time, in order, without a gap between them."""
    if zone == UTC_ZONE:  # needs no library, and commands that only look need not load one
        if start_ms < end_ms:
            yield OffsetSpan(start_ms, end_ms, 0)
        return
    from whenever import Instant

    moment = Instant.from_timestamp(start_ms, unit="millisecond").to_tz(zone)
    while start_ms < end_ms:
        offset_ms = int(moment.offset.total("milliseconds"))
        following = moment.next_transition()
        while following is not None and following.offset == moment.offset:  # only the zone's letters change
            following = following.next_transition()
        if following is None:
            yield OffsetSpan(start_ms, end_ms, offset_ms)
            return
        until_ms = min(int(following.timestamp(unit="millisecond")), end_ms)
        yield OffsetSpan(start_ms, until_ms, offset_ms)
        start_ms, moment = until_ms, following


def offset_ms(zone: str, at_ms: int) -> int:
    """How far the local clock is ahead of UTC at an instant."""
    if zone == UTC_ZONE:
        return 0
    from whenever import Instant

    zoned = Instant.from_timestamp(at_ms, unit="millisecond").to_tz(zone)
    return int(zoned.offset.total("milliseconds"))
