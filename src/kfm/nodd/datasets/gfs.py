"""Global Forecast System, with its analyses (gdas) and waves."""

from __future__ import annotations

from kfm.model.feeds import HOUR_MS, Cadence
from kfm.nodd.datasets import ncep_models
from kfm.nodd.grammar import Dataset, Place, Rule
from kfm.nodd.patterns import Pattern, Template
from kfm.nodd.spans import named_forecast

DATASET = Dataset(
    name="gfs",
    title="Global Forecast System",
    places=(
        Place(bucket="noaa-gfs-bdp-pds"),
        Place(bucket="noaa-gfs-pds", home=False),
        Place(bucket="noaa-gfs-warmstart-pds", home=False),
        Place(bucket="global-forecast-system", provider="gcp", home=False),
    ),
    topics=(
        "arn:aws:sns:us-east-1:123901341784:NewGFSObject",
        "arn:aws:sns:us-east-1:123901341784:NewGfsWarmStartObject",
        "arn:aws:sns:us-east-1:104891172899:noaa-gfs-pds",
    ),
    media_type=ncep_models.GRIB2,
    sidecars=ncep_models.INDEX,
    rules=(
        Rule(
            pattern=Pattern(
                "[{run:lower}.{ymd:ymd}/{d_cycle:hh}/[{folder:path}/]]{head:name}.t{hh:hh}z.{rest:name}"
            ),
            product=ncep_models.product,
            times=named_forecast,
            folders=ncep_models.cycle_folder,
            footprint=ncep_models.everywhere,
        ),
        Rule(
            pattern=Pattern("{run:lower}.{ymd:ymd}/{d_cycle:hh}/[{folder:path}/]{file:name}"),
            product=Template("{file}"),
            times=ncep_models.cycle_of_folder,
            footprint=ncep_models.everywhere,
        ),
    ),
    # Four cycles a day, to 384 hours: every hour up to 120, then every third; coarser grids every third
    # throughout.
    cadences=tuple(
        Cadence(
            products=products,
            per_hour=files,
            hours=(0, 6, 12, 18),
            latency_ms=6 * HOUR_MS,
            ahead_ms=384 * HOUR_MS,
        )
        for products, files in (
            (("gfs.pgrb2.0p25", "gfs.pgrb2b.0p25"), 209),
            (("gfs.pgrb2.0p50", "gfs.pgrb2.1p00"), 129),
        )
    ),
)
