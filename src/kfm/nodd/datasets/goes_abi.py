"""GOES Advanced Baseline Imager: radiances and products of a sector."""

from __future__ import annotations

from kfm.model.feeds import Cadence
from kfm.nodd.catalogue.geometry import Footprint, goes_sector
from kfm.nodd.datasets import goes
from kfm.nodd.grammar import Dataset, Rule
from kfm.nodd.patterns import Fields, Pattern, Template, need
from kfm.nodd.spans import HOUR_MS, MINUTE_MS, Span, scan


def _folders(fields: Fields, span: Span) -> Fields:
    """Mesoscale sectors 1 and 2 share a folder; their number stands in the file name only."""
    product = need(fields, "product")
    folder = product[:-1] if product.endswith(("M1", "M2")) else product
    return goes.under(folder, (span.start_ms or 0) // HOUR_MS)


def _footprint(fields: Fields, platform: str | None, span: Span) -> Footprint | None:
    return goes_sector(platform, need(fields, "product")[-1], span.start_ms)


DATASET = Dataset(
    name="goes-abi",
    title="GOES Advanced Baseline Imager",
    places=goes.PLACES,
    topics=goes.TOPICS,
    media_type="application/netcdf",
    rules=(
        Rule(
            pattern=Pattern(
                goes.FOLDERS + "{env:env}_{product:abi}-M{mode:digit}[C{channel:d2}]" + goes.STAMPS + ".nc",
                goes.KINDS | {"abi": r"ABI-[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*?"},
            ),
            product=Template("{product}"),
            platform=Template("{sat}"),
            platforms=goes.PLATFORMS,
            times=scan,
            folders=_folders,
            item=Template("{env}_{product}-M{mode}[C{channel}]_{sat}_s{start}_e{end}_c{created}"),
            footprint=_footprint,
        ),
    ),
    # Mode 6: the full disk every ten minutes, CONUS every five, each mesoscale sector every minute;
    # radiances and cloud and moisture imagery have a file for each of 16 channels. Other products are made
    # at rates of their own.
    cadences=tuple(
        Cadence(products=(f"{product}{sector}",), per_hour=files * scans, latency_ms=30 * MINUTE_MS)
        for sector, scans in (("F", 6), ("C", 12), ("M1", 60), ("M2", 60))
        for product, files in (("ABI-L1b-Rad", 16), ("ABI-L2-CMIP", 16), ("ABI-L2-MCMIP", 1))
    ),
)
