"""Rapid Refresh."""

from __future__ import annotations

from kfm.model.feeds import HOUR_MS, Cadence
from kfm.nodd.datasets import ncep_models
from kfm.nodd.grammar import Dataset, Place, Rule
from kfm.nodd.patterns import Pattern, Template
from kfm.nodd.spans import cycle_only, forecast

_FOLDER = "[{run:run}.{ymd:ymd}/]"
_RUN = {"run": r"rap[a-z_]*", "product": r"[A-Za-z0-9_-]+"}
DATASET = Dataset(
    name="rap",
    title="Rapid Refresh",
    places=(Place(bucket="noaa-rap-pds"),),
    topics=("arn:aws:sns:us-east-1:123901341784:NewRAPObject",),
    media_type=ncep_models.GRIB2,
    sidecars=ncep_models.INDEX,
    rules=(
        Rule(
            pattern=Pattern(_FOLDER + "{head:run}.t{hh:hh}z.{product:product}f{fh:hours}.grib2", _RUN),
            product=Template("{product}"),
            times=forecast,
        ),
        Rule(
            pattern=Pattern(_FOLDER + "{head:run}.t{hh:hh}z.{rest:name}", _RUN),
            product=ncep_models.rest,
            times=cycle_only,
        ),
    ),
    # A cycle each hour, 21 hours ahead at least.
    cadences=(
        Cadence(
            products=("awp130pgrb", "awp252pgrb"), per_hour=22, latency_ms=2 * HOUR_MS, ahead_ms=21 * HOUR_MS
        ),
    ),
)
