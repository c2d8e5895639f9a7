"""North American Mesoscale model, with its nests."""

from __future__ import annotations

from kfm.model.feeds import Cadence
from kfm.nodd.datasets import ncep_models
from kfm.nodd.grammar import Dataset, Place, Rule
from kfm.nodd.patterns import Fields, Pattern, Template, need
from kfm.nodd.spans import HOUR_MS, Span, cycle, cycle_only, shifted, valid_at


def _times(fields: Fields) -> Span:
    """`tmNN`: the analysis that the forecast starts from lies NN hours before the cycle."""
    reference = cycle(fields)
    before = int(need(fields, "tm"))
    if reference is not None and before:
        reference = shifted(reference, -before * HOUR_MS)
    return valid_at(reference, int(need(fields, "fh")))


_FOLDER = "[nam.{ymd:ymd}/]"
DATASET = Dataset(
    name="nam",
    title="North American Mesoscale Forecast System",
    places=(Place(bucket="noaa-nam-pds"),),
    topics=("arn:aws:sns:us-east-1:123901341784:NewNCEPNAMObject",),
    media_type=ncep_models.GRIB2,
    sidecars=ncep_models.INDEX,
    rules=(
        Rule(
            pattern=Pattern(
                _FOLDER + "nam.t{hh:hh}z.{product:product}{fh:d2}.tm{tm:d2}.grib2",
                {"product": r"[A-Za-z0-9_.-]*?[A-Za-z0-9_-]"},
            ),
            product=Template("{product}"),
            times=_times,
        ),
        Rule(
            pattern=Pattern(_FOLDER + "nam.t{hh:hh}z.{rest:name}"),
            product=ncep_models.rest,
            times=cycle_only,
        ),
    ),
    # Four cycles a day: the parent every hour up to 36 and every third up to 84, the nest every hour up to
    # 60.
    cadences=(
        Cadence(
            products=("awphys",),
            per_hour=53,
            hours=(0, 6, 12, 18),
            latency_ms=5 * HOUR_MS,
            ahead_ms=84 * HOUR_MS,
        ),
        Cadence(
            products=("conusnest.hiresf",),
            per_hour=61,
            hours=(0, 6, 12, 18),
            latency_ms=5 * HOUR_MS,
            ahead_ms=60 * HOUR_MS,
        ),
    ),
)
