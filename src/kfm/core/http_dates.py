"""Dates as HTTP writes them, in three historic shapes."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_MONTHS = {
    name: number for number, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)
}
_CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
_SHAPES = tuple(
    re.compile(shape, re.ASCII | re.IGNORECASE)
    for shape in (
        rf"[a-z]{{3}}, (?P<day>\d\d) (?P<month>[a-z]{{3}}) (?P<year>\d{{4}}) {_CLOCK} GMT",
        rf"[a-z]{{6,9}}, (?P<day>\d\d)-(?P<month>[a-z]{{3}})-(?P<year>\d\d) {_CLOCK} GMT",
        rf"[a-z]{{3}} (?P<month>[a-z]{{3}}) (?P<day>[ \d]\d) {_CLOCK} (?P<year>\d{{4}})",
    )
)


def parse_http_date(text: str | None) -> int | None:
    """Milliseconds since the epoch; None for what is no HTTP date."""
    for shape in _SHAPES:
        match = shape.fullmatch((text or "").strip())
        if match is None:
            continue
        year = int(match["year"])
        if len(match["year"]) == 2:  # 70 and later are the last century, as everywhere
            year += 1900 if year >= 70 else 2000
        clock = (int(match["hour"]), int(match["minute"]), min(int(match["second"]), 59))
        try:
            at = datetime(year, _MONTHS[match["month"].lower()], int(match["day"]), *clock, tzinfo=UTC)
        except (ValueError, KeyError):
            return None
        return round(at.timestamp()) * 1000
    return None
