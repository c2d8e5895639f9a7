"""What RTMA and URMA have in common: analyses of the surface, and precipitation before a stamp."""

from __future__ import annotations

import re

from kfm.nodd.datasets import ncep_models
from kfm.nodd.grammar import Rule
from kfm.nodd.patterns import Fields, Pattern, Template, need
from kfm.nodd.spans import HOUR_MS, Span, cycle, digits, shifted

_WINDOW = re.compile(r"pcp_?(\d\d)h", re.ASCII)


def _analysis(fields: Fields) -> Span:
    at_ms = cycle(fields)
    return Span(start_ms=at_ms, end_ms=at_ms, reference_ms=at_ms)


def _precipitation(fields: Fields) -> Span:
    """An hour, if the name says nothing else, that ends at the stamp."""
    stamp = digits(need(fields, "stamp"))
    window = _WINDOW.match(need(fields, "rest"))
    start = shifted(stamp, -(int(window[1]) if window else 1) * HOUR_MS)
    return Span(start_ms=start, end_ms=stamp, reference_ms=stamp)


_FOLDER = "[{folder:system}.{ymd:ymd}/]"
RULES = (
    Rule(
        pattern=Pattern(
            _FOLDER + "{system:system}.t{hh:cycle}z.{rest:name}",
            {"cycle": r"\d\d(?:\d\d)?"},
        ),
        product=ncep_models.rest,
        platform=Template("{system}"),
        times=_analysis,
    ),
    Rule(
        pattern=Pattern(_FOLDER + "{system:system}.{stamp:ymdh}.{rest:pcp}", {"pcp": r"pcp[A-Za-z0-9_.-]*"}),
        product=ncep_models.rest,
        platform=Template("{system}"),
        times=_precipitation,
    ),
)
