"""UnRestricted Mesoscale Analysis."""

from __future__ import annotations

from kfm.model.feeds import HOUR_MS, Cadence
from kfm.nodd.datasets import mesoscale_analysis, ncep_models
from kfm.nodd.grammar import Dataset, Place

DATASET = Dataset(
    name="urma",
    title="UnRestricted Mesoscale Analysis",
    places=(Place(bucket="noaa-urma-pds"),),
    topics=("arn:aws:sns:us-east-1:123901341784:NewNCEPURMAObject",),
    media_type=ncep_models.GRIB2,
    sidecars=ncep_models.INDEX,
    rules=mesoscale_analysis.RULES,
    # An analysis each hour, made six hours later, when late observations are there.
    cadences=(
        Cadence(
            products=("2dvaranl_ndfd.grb2_wexp",), platforms=("urma2p5",), per_hour=1, latency_ms=8 * HOUR_MS
        ),
    ),
)
