"""National Water Model. `tmNN` counts backwards from the cycle, `fNNN` forwards."""

from __future__ import annotations

from kfm.model.feeds import Cadence
from kfm.nodd.grammar import Dataset, Place, Rule
from kfm.nodd.patterns import Fields, Pattern, Template, need
from kfm.nodd.spans import HOUR_MS, MINUTE_MS, Span, at, cycle, cycle_only, shifted

_STAMP = ("year", "month", "day", "hour", "minute", "second")


def _times(fields: Fields) -> Span:
    """Hours, or hours and minutes where a model runs by the quarter of an hour."""
    step, direction = need(fields, "step"), need(fields, "way")
    minutes = step[-2:] if len(step) > 3 else "00"
    hours = step[:-2] if len(step) > 3 else step
    sign = -1 if direction == "tm" else 1
    whole = sign * int(hours) if int(minutes) == 0 else None
    reference = cycle(fields)
    if reference is None:
        return Span(forecast_hour=whole)
    valid = shifted(reference, sign * (int(hours) * HOUR_MS + int(minutes) * MINUTE_MS))
    return Span(start_ms=valid, end_ms=valid, reference_ms=reference, forecast_hour=whole)


def _product(fields: Fields) -> str:
    folder = fields.get("folder")
    return f"{folder}/{need(fields, 'kind')}" if folder else need(fields, "kind")


def _slice(fields: Fields) -> Span:
    """Observations by the quarter of an hour, or of an hour: those leave the minutes out."""
    return Span(start_ms=at(*(fields.get(name) or "0" for name in _STAMP)))


_FOLDER = "[nwm.{ymd:ymd}/{folder:system}/]"
DATASET = Dataset(
    name="nwm",
    title="National Water Model",
    places=(
        Place(bucket="noaa-nwm-pds"),
        Place(bucket="national-water-model", provider="gcp", home=False),
    ),
    topics=("arn:aws:sns:us-east-1:123901341784:NewNWMObject",),
    media_type="application/netcdf",
    rules=(
        Rule(
            pattern=Pattern(
                _FOLDER
                + "nwm.t{hh:hh}z.{config:system}.{kind:system}.{way:f|tm}{step:step}.{region:system}.nc"
                "[{tail:tail}]",
                {"step": r"\d{2,5}", "tail": r"[_.][a-z_.]+"},
            ),
            product=_product,
            platform=Template("{region}"),
            times=_times,
        ),
        Rule(
            pattern=Pattern(
                "nwm.{ymd:ymd}/{folder:system}/{year:yyyy}-{month:mm}-{day:dd}"
                "_{hour:hh}[:{minute:d2}:{second:d2}].{rest:name}"
            ),
            product=Template("{folder}"),
            times=_slice,
        ),
        Rule(
            pattern=Pattern(_FOLDER + "nwm.t{hh:hh}z.{kind:name}"),
            product=_product,
            times=cycle_only,
        ),
    ),
    # A cycle each hour. Medium and long range, and other regions, are not declared.
    cadences=(
        Cadence(
            products=tuple(
                f"short_range/{kind}" for kind in ("channel_rt", "land", "reservoir", "terrain_rt")
            ),
            platforms=("conus",),
            per_hour=18,
            latency_ms=2 * HOUR_MS,
            ahead_ms=18 * HOUR_MS,
        ),
        Cadence(
            products=tuple(
                f"analysis_assim/{kind}" for kind in ("channel_rt", "land", "reservoir", "terrain_rt")
            ),
            platforms=("conus",),
            per_hour=3,
            latency_ms=2 * HOUR_MS,
        ),
    ),
)
