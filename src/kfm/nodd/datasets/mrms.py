"""Multi-Radar/Multi-Sensor: mosaics every two minutes, and precipitation over hours."""

from __future__ import annotations

import re

from kfm.model.feeds import Cadence
from kfm.nodd.catalogue.geometry import Footprint
from kfm.nodd.grammar import Dataset, Place, Rule
from kfm.nodd.patterns import Fields, Pattern, Template, need
from kfm.nodd.spans import HOUR_MS, MINUTE_MS, Span, digits, shifted

_WINDOW = re.compile(r"_QPE_(\d\d)([HM])(?:_|\Z)", re.ASCII)
_BOXES = {
    "CONUS": (-130.0, 20.0, -60.0, 55.0),
    "ALASKA": (-176.0, 50.0, -126.0, 72.0),
    "HAWAII": (-164.0, 15.0, -151.0, 26.0),
    "CARIB": (-90.0, 10.0, -60.0, 25.0),
    "GUAM": (140.0, 9.0, 150.0, 18.0),
}


def _times(fields: Fields) -> Span:
    """An instant; precipitation estimates cover the hours before their stamp."""
    stamp = digits(need(fields, "ymd") + need(fields, "hms"))
    window = _WINDOW.search(need(fields, "product"))
    before = int(window[1]) * (HOUR_MS if window[2] == "H" else MINUTE_MS) if window else 0
    return Span(start_ms=shifted(stamp, -before), end_ms=stamp)


def _folders(fields: Fields, _span: Span) -> Fields:
    return {"d_product": need(fields, "product"), "d_ymd": need(fields, "ymd")}


def _footprint(fields: Fields, _platform: str | None, _span: Span) -> Footprint | None:
    box = _BOXES.get(fields.get("region") or "")
    return Footprint(basis="the bounds of the mosaic", box=box) if box else None


DATASET = Dataset(
    name="mrms",
    title="Multi-Radar/Multi-Sensor System",
    places=(Place(bucket="noaa-mrms-pds"),),
    topics=("arn:aws:sns:us-east-1:123901341784:NewMRMSObject",),
    media_type="application/wmo-GRIB2",
    rules=(
        Rule(
            pattern=Pattern(
                "[{region:word}/{d_product:name}/{d_ymd:ymd}/]"
                "MRMS_{product:name}_{ymd:ymd}{mark:-|_}{hms:hms}{ext:.grib2|.grib2.gz|.json|.json.gz}"
            ),
            product=Template("{product}"),
            platform=Template("{region}"),
            times=_times,
            folders=_folders,
            item=Template("[{region}~]MRMS_{product}_{ymd}{mark}{hms}{ext}"),
            footprint=_footprint,
        ),
    ),
    # Mosaics every two minutes, now and then a second later than that: 28 at least. Estimates of hours
    # count from the first of them, so they are due that much later; the second pass waits for more gauges
    # than the first.
    cadences=(
        Cadence(
            products=("MergedReflectivity*", "PrecipRate_*", "PrecipFlag_*", "SeamlessHSR_*"),
            per_hour=28,
            latency_ms=30 * MINUTE_MS,
        ),
        *(
            Cadence(
                products=(f"MultiSensor_QPE_{hours:02d}H_Pass{number}_*",),
                per_hour=1,
                latency_ms=(hours + 2 * number) * HOUR_MS,
            )
            for hours in (1, 3, 6, 12, 24, 48, 72)
            for number in (1, 2)
        ),
    ),
)
