"""GOES Geostationary Lightning Mapper."""

from __future__ import annotations

from kfm.model.feeds import Cadence
from kfm.nodd.datasets import goes
from kfm.nodd.grammar import Dataset, Rule
from kfm.nodd.patterns import Pattern, Template
from kfm.nodd.spans import MINUTE_MS, scan

DATASET = Dataset(
    name="goes-glm",
    title="GOES Geostationary Lightning Mapper",
    places=goes.PLACES,
    topics=goes.TOPICS,
    media_type="application/netcdf",
    rules=(
        Rule(
            pattern=Pattern(
                goes.FOLDERS + "{env:env}_{product:glm}" + goes.STAMPS + ".nc",
                goes.KINDS | {"glm": r"GLM-[A-Za-z0-9-]+"},
            ),
            product=Template("{product}"),
            platform=Template("{sat}"),
            platforms=goes.PLATFORMS,
            times=scan,
            folders=goes.folders,
            item=Template("{env}_{product}_{sat}_s{start}_e{end}_c{created}"),
        ),
    ),
    # A file for every twenty seconds.
    cadences=(Cadence(products=("GLM-L2-LCFA",), per_hour=180, latency_ms=15 * MINUTE_MS),),
)
