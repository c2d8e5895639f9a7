"""NEXRAD Level III: products derived at the radar, in one flat folder."""

from __future__ import annotations

from kfm.model.feeds import HOUR_MS, Cadence
from kfm.nodd.datasets.nexrad import site_footprint
from kfm.nodd.grammar import Dataset, Place, Rule
from kfm.nodd.patterns import Fields, Pattern, Template, need
from kfm.nodd.spans import Span, at

_STAMP = ("year", "month", "day", "hour", "minute", "second")


def _start(fields: Fields) -> Span:
    return Span(start_ms=at(*(need(fields, name) for name in _STAMP)))


DATASET = Dataset(
    name="nexrad-l3",
    title="NEXRAD Level III products",
    places=(Place(bucket="unidata-nexrad-level3"),),
    topics=("arn:aws:sns:us-east-1:684042711724:NewNEXRADLevel3Object",),
    rules=(
        Rule(
            pattern=Pattern(
                "{site:site}_{product:product}"
                "_{year:yyyy}_{month:mm}_{day:dd}_{hour:hh}_{minute:d2}_{second:d2}",
                {"site": r"[A-Z0-9]{3,4}", "product": r"[A-Z0-9]{2,3}"},
            ),
            product=Template("{product}"),
            platform=Template("{site}"),
            times=_start,
            footprint=site_footprint,
        ),
    ),
    # Base reflectivity and velocity of the lowest tilt come with each volume; others at rates of their own.
    cadences=(Cadence(products=("N0B", "N0G"), per_hour=5, latency_ms=HOUR_MS // 2),),
)
