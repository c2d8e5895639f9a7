"""Real-Time Mesoscale Analysis."""

from __future__ import annotations

from kfm.nodd.datasets import mesoscale_analysis, models
from kfm.nodd.grammar import Dataset, Place

DATASET = Dataset(
    name="rtma",
    title="Real-Time Mesoscale Analysis",
    places=(Place(bucket="noaa-rtma-pds"),),
    topics=("arn:aws:sns:us-east-1:123901341784:NewNCEPRTMAObject",),
    media_type=models.GRIB2,
    sidecars=models.INDEX,
    rules=mesoscale_analysis.RULES,
)
