"""NEXRAD Level II: volume scans of weather radars."""

from __future__ import annotations

from kfm.model.feeds import HOUR_MS, Cadence
from kfm.nodd.datasets.nexrad import SITE, site_footprint
from kfm.nodd.grammar import Dataset, Place, Rule
from kfm.nodd.patterns import Fields, Pattern, Template, need
from kfm.nodd.spans import Span, day_parts, digits


def _start(fields: Fields) -> Span:
    """The key has the start of a volume, to the second; it ends some minutes later."""
    return Span(start_ms=digits(need(fields, "ymd") + need(fields, "hms")))


def _product(fields: Fields) -> str:
    """`_MDM` shares a volume's stem but holds its metadata messages."""
    return "NEXRAD-L2-MDM" if fields.get("kind") else "NEXRAD-L2"


def _folders(fields: Fields, span: Span) -> Fields:
    year, month, day, _, _ = day_parts(span.start_ms or 0)
    return {"d_year": year, "d_month": month, "d_day": day, "d_site": need(fields, "site")}


def _hour(fields: Fields) -> Span:
    return Span(start_ms=digits(need(fields, "since")), end_ms=digits(need(fields, "until")))


_FOLDERS = "[{d_year:yyyy}/{d_month:mm}/{d_day:dd}/{d_site:site}/]"
DATASET = Dataset(
    name="nexrad-l2",
    title="NEXRAD Level II volumes",
    places=(
        Place(bucket="unidata-nexrad-level2"),
        Place(bucket="noaa-nexrad-level2", home=False),  # until 2025
        Place(bucket="gcp-public-data-nexrad-l2", provider="gcp", home=False),
    ),
    topics=(
        "arn:aws:sns:us-east-1:684042711724:NewNEXRADLevel2Archive",
        "arn:aws:sns:us-east-1:811054952067:NewNEXRADLevel2Archive",  # the publisher before
    ),
    rules=(
        Rule(
            pattern=Pattern(
                _FOLDERS + "{site:site}{ymd:ymd}_{hms:hms}[_{version:version}][_{kind:kind}][{gz:packed}]",
                SITE | {"version": r"V\d\d", "kind": "MDM", "packed": r"\.(?:gz|Z|bz2)(?:\.\d{3})?|\.\d{3}"},
            ),
            product=_product,
            platform=Template("{site}"),
            times=_start,
            folders=_folders,
            item=Template("{site}{ymd}_{hms}[_{version}][_{kind}][{gz}]"),
            footprint=site_footprint,
        ),
        Rule(
            pattern=Pattern(
                _FOLDERS + "NWS_NEXRAD_{kind:kind}_{site:site}_{since:stamp}_{until:stamp}.tar",
                SITE | {"kind": r"[A-Z0-9]+", "stamp": r"\d{14}"},
            ),
            product=Template("NEXRAD-L2-hour"),
            platform=Template("{site}"),
            times=_hour,
            folders=_folders,
            item=Template("NWS_NEXRAD_{kind}_{site}_{since}_{until}.tar"),
            footprint=site_footprint,
        ),
    ),
    # A volume takes four to ten minutes, by the radar's mode: five an hour is the least of a radar that
    # works.
    cadences=(Cadence(products=("NEXRAD-L2",), per_hour=5, latency_ms=HOUR_MS // 2),),
)
