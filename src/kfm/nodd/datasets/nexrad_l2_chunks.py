"""NEXRAD Level II in real time: a volume in pieces. The number of a volume wraps at 999."""

from __future__ import annotations

from kfm.nodd.datasets.nexrad import SITE, site_footprint
from kfm.nodd.grammar import Dataset, Place, Rule
from kfm.nodd.patterns import Fields, Pattern, Template, need
from kfm.nodd.spans import Span, digits


def _start(fields: Fields) -> Span:
    return Span(start_ms=digits(need(fields, "ymd") + need(fields, "hms")))


DATASET = Dataset(
    name="nexrad-l2-chunks",
    title="NEXRAD Level II chunks",
    places=(Place(bucket="unidata-nexrad-level2-chunks"),),
    topics=(
        "arn:aws:sns:us-east-1:684042711724:NewNEXRADLevel2ObjectFilterable",
        "arn:aws:sns:us-east-1:684042711724:NewNEXRADLevel2Object",
        "arn:aws:sns:us-east-1:811054952067:NewNEXRADLevel2Object",  # the publisher before
    ),
    rules=(
        Rule(
            pattern=Pattern(
                "{site:site}/{volume:volume}/{ymd:ymd}-{hms:hms}-{chunk:d3}-{kind:S|I|E}",
                SITE | {"volume": r"[1-9]\d{0,2}"},
            ),
            product=Template("NEXRAD-L2-chunk"),
            platform=Template("{site}"),
            times=_start,
            footprint=site_footprint,
        ),
    ),
)
