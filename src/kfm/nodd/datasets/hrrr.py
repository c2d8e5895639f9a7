"""High-Resolution Rapid Refresh: hourly forecasts for the contiguous states and Alaska."""

from __future__ import annotations

from kfm.model.feeds import HOUR_MS, Cadence
from kfm.nodd.catalogue.geometry import Footprint
from kfm.nodd.grammar import Dataset, Place, Rule
from kfm.nodd.patterns import Fields, Pattern, Template, need
from kfm.nodd.spans import MINUTE_MS, Span, cycle_only, forecast, shifted

_CONUS = Footprint(basis="the bounds of HRRR's grid", box=(-134.0955, 21.1381, -60.9172, 52.6157))


def _times(fields: Fields) -> Span:
    """Sub-hourly files hold the four quarters of an hour that end at the valid time."""
    span = forecast(fields)
    if fields.get("product") != "wrfsubh" or not span.forecast_hour or span.end_ms is None:
        return span
    start = shifted(span.end_ms, -45 * MINUTE_MS)
    return Span(
        start_ms=start, end_ms=span.end_ms, reference_ms=span.reference_ms, forecast_hour=span.forecast_hour
    )


def _footprint(fields: Fields, _platform: str | None, _span: Span) -> Footprint | None:
    return _CONUS if fields.get("region") == "conus" else None


def _rest(fields: Fields) -> str:
    return need(fields, "rest")


_FOLDER = "[hrrr.{ymd:ymd}/{region:system}/]"
DATASET = Dataset(
    name="hrrr",
    title="High-Resolution Rapid Refresh",
    places=(
        Place(bucket="noaa-hrrr-bdp-pds"),
        Place(bucket="high-resolution-rapid-refresh", provider="gcp", home=False),
        Place(bucket="noaahrrr/hrrr", provider="azure", home=False),
    ),
    topics=("arn:aws:sns:us-east-1:123901341784:NewHRRRObject",),
    media_type="application/wmo-GRIB2",
    sidecars={".idx": "index"},
    rules=(
        Rule(
            pattern=Pattern(_FOLDER + "hrrr.t{hh:hh}z.{product:lower}f{fh:hours}[.{tail:lower}].grib2"),
            product=Template("{product}"),
            platform=Template("{region}"),
            times=_times,
            footprint=_footprint,
        ),
        Rule(
            pattern=Pattern(_FOLDER + "[{folder:path}/]hrrr.t{hh:hh}z.{rest:name}"),
            product=_rest,
            platform=Template("{region}"),
            times=cycle_only,
            footprint=_footprint,
        ),
    ),
    # A cycle each hour for the contiguous states: 18 hours ahead, 48 every six hours. Alaska's are not
    # declared.
    cadences=(
        Cadence(
            products=("wrfsfc", "wrfprs", "wrfnat"),
            platforms=("conus",),
            per_hour=49,
            hours=(0, 6, 12, 18),
            latency_ms=2 * HOUR_MS,
            ahead_ms=48 * HOUR_MS,
        ),
        Cadence(
            products=("wrfsfc", "wrfprs", "wrfnat", "wrfsubh"),
            platforms=("conus",),
            per_hour=19,
            latency_ms=2 * HOUR_MS,
            ahead_ms=18 * HOUR_MS,
        ),
    ),
)
