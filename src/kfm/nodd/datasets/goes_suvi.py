"""GOES Solar Ultraviolet Imager. It looks at the sun: its data lie nowhere on Earth."""

from __future__ import annotations

from kfm.nodd.datasets import goes
from kfm.nodd.grammar import Dataset, Rule
from kfm.nodd.patterns import Pattern, Template
from kfm.nodd.spans import scan

DATASET = Dataset(
    name="goes-suvi",
    title="GOES Solar Ultraviolet Imager",
    places=goes.PLACES,
    topics=goes.TOPICS,
    rules=(
        Rule(
            pattern=Pattern(
                goes.FOLDERS + "{env:env}_{product:suvi}" + goes.STAMPS + "{ext:.nc|.fits|.fits.gz}",
                goes.KINDS | {"suvi": r"SUVI-[A-Za-z0-9-]+"},
            ),
            product=Template("{product}"),
            platform=Template("{sat}"),
            platforms=goes.PLATFORMS,
            times=scan,
            folders=goes.folders,
            # The same image may lie there in several formats: they are several objects.
            item=Template("{env}_{product}_{sat}_s{start}_e{end}_c{created}{ext}"),
        ),
    ),
)
