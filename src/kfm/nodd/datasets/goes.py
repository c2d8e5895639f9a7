"""What the instruments of GOES-R satellites have in common: buckets, topics, folders, scan times."""

from __future__ import annotations

from functools import lru_cache

from kfm.nodd.grammar import Place
from kfm.nodd.patterns import Fields, need
from kfm.nodd.spans import HOUR_MS, Span, day_parts

NUMBERS = ("16", "17", "18", "19")
PLATFORMS = {f"G{number}": f"GOES-{number}" for number in NUMBERS}
PLACES = (
    *(Place(bucket=f"noaa-goes{number}", platform=f"GOES-{number}") for number in NUMBERS),
    *(
        Place(bucket=f"gcp-public-data-goes-{number}", provider="gcp", platform=f"GOES-{number}", home=False)
        for number in NUMBERS
    ),
    *(
        Place(bucket=f"goeseuwest/noaa-goes{number}", provider="azure", platform=f"GOES-{number}", home=False)
        for number in ("16", "17", "18")
    ),
)
TOPICS = tuple(f"arn:aws:sns:us-east-1:123901341784:NewGOES{number}Object" for number in NUMBERS)
FOLDERS = "[{folder:word}/{d_year:yyyy}/{d_doy:doy}/{d_hour:hh}/]"
STAMPS = "_{sat:sat}_s{start:day_scan}_e{end:day_scan}_c{created:day_scan}"
KINDS = {"sat": r"G\d\d", "env": r"O[RT]|I[TPS]|RP"}  # operational, tests, reprocessed


def folders(fields: Fields, span: Span) -> Fields:
    """An object lies under its product and the hour in which its scan began."""
    return under(need(fields, "product"), (span.start_ms or 0) // HOUR_MS)


@lru_cache(maxsize=1024)  # some dozens of products, and one hour after the other
def under(product: str, hours: int) -> Fields:
    """The folders of a product and an hour since the epoch. Shared between calls: never changed."""
    year, _, _, hour, doy = day_parts(hours * HOUR_MS)
    return {"folder": product, "d_year": year, "d_doy": doy, "d_hour": hour}
