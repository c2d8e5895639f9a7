"""Times as text: RFC 3339 in UTC, milliseconds only where there are any."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache

from kfm.core.errors import UsageError

MS_MIN = -62_135_596_800_000  # 0001-01-01T00:00:00Z
MS_MAX = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_RFC3339 = re.compile(
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
