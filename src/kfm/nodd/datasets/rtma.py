"""Real-Time Mesoscale Analysis."""

from __future__ import annotations

from kfm.model.feeds import HOUR_MS, Cadence
from kfm.nodd.datasets import mesoscale_analysis, ncep_models
from kfm.nodd.grammar import Dataset, Place

DATASET = Dataset(
    name="rtma",
    title="Real-Time Mesoscale Analysis",
    places=(Place(bucket="noaa-rtma-pds"),),
    topics=("arn:aws:sns:us-east-1:123901341784:NewNCEPRTMAObject",),
    media_type=ncep_models.GRIB2,
    sidecars=ncep_models.INDEX,
    rules=mesoscale_analysis.RULES,
    # An analysis each hour; rapid updates every quarter of one.
    cadences=(
        Cadence(
            products=("2dvaranl_ndfd.grb2_wexp",), platforms=("rtma2p5",), per_hour=1, latency_ms=HOUR_MS
        ),
        Cadence(products=("2dvaranl_ndfd.grb2",), platforms=("rtma2p5_ru",), per_hour=4, latency_ms=HOUR_MS),
    ),
)
