"""The span of time that a list shows: the first of its filters."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from kfm.model.errors import UsageError
from kfm.model.quantities import moment
from kfm.model.times import parse_rfc3339
from kfm.web.console.visit import Filter, Option, TypedFilter, Visit, typed

FILTERS = ("last", "from", "to")
HOUR_MS = 3_600_000
SPANS = {
    "1h": (HOUR_MS, "last hour"),
    "24h": (24 * HOUR_MS, "last 24 hours"),
    "7d": (7 * 24 * HOUR_MS, "last 7 days"),
    "30d": (30 * 24 * HOUR_MS, "last 30 days"),
    "all": (0, "all of it"),
}
USUAL = "24h"
FAR_MS = 253_402_300_799_999  # the end of the year 9999
_FORMS = ("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M")


class TimeRange(NamedTuple):
    """From (included) to (excluded), and the filters that say so."""

    from_ms: int
    until_ms: int
    filters: tuple[Filter | TypedFilter, ...]
    text: str


def time_range(visit: Visit, usual: str = USUAL) -> TimeRange:
    """What `from` and `to` say, unless `last` says how long; without any of them what is usual."""
    last = visit.choice("last", tuple(SPANS))
    first, end = visit.query.get("from"), visit.query.get("to")
    if not last and (first or end):
        from_ms, until_ms = _read("from", first, 0), _read("to", end, FAR_MS)
        if from_ms >= until_ms:
            raise UsageError("`from` is not before `to`.")
        text = " ".join(
            [*([f"from {moment(from_ms)}"] if first else []), *([f"to {moment(until_ms)}"] if end else [])]
        )
    else:
        length, text = SPANS[last or usual]
        from_ms, until_ms = (visit.now_ms - length if length else 0), FAR_MS
    shown = last or ("" if first or end else usual)
    options = [("", "as typed"), *((name, words) for name, (_, words) in SPANS.items())]
    spans = tuple(Option(value=value, text=words, chosen=value == shown) for value, words in options)
    filters = (
        Filter(name="last", label="Time", options=spans),
        typed("from", "From (UTC)", first),
        typed("to", "To (UTC)", end),
    )
    return TimeRange(from_ms, until_ms, filters, text)


def _read(name: str, text: str | None, other: int) -> int:
    if text is None:
        return other
    for form in _FORMS:
        try:
            return int(datetime.strptime(text, form).replace(tzinfo=UTC).timestamp() * 1000)
        except ValueError:
            continue
    try:
        return parse_rfc3339(text)
    except UsageError as error:
        raise UsageError(f"`{name}` is a day or a time such as 2026-01-31 06:00.") from error
