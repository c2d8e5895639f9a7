"""Operational Forecast Systems of coasts and lakes.

`nNNN` counts through a nowcast that ends at or near the cycle; where exactly
differs by system, so a key alone gives no valid time for it.
"""

from __future__ import annotations

from kfm.nodd.datasets import ncep_models
from kfm.nodd.grammar import Dataset, Place, Rule
from kfm.nodd.patterns import Fields, Pattern, Template, need
from kfm.nodd.spans import Span, cycle, cycle_only, valid_at


def _times(fields: Fields) -> Span:
    if need(fields, "way") == "n":
        return cycle_only(fields)
    return valid_at(cycle(fields), int(need(fields, "step")))


def _folders(fields: Fields, _span: Span) -> Fields:
    ymd = need(fields, "ymd")
    return {"d_system": need(fields, "system"), "d_ymd": ymd}


_FOLDER = "[{d_system:system}.{d_ymd:ymd}/]"
_OTHER = "[{folder:path}/]"
_STEP = {"step": r"\d{2,3}", "system": r"[a-z0-9]+", "product": r"[a-z0-9_]+"}
DATASET = Dataset(
    name="ofs",
    title="Operational Forecast Systems of coasts and lakes",
    places=(Place(bucket="noaa-ofs-pds"), Place(bucket="noaa-nos-ofs-pds", home=False)),
    topics=(
        "arn:aws:sns:us-east-1:123901341784:NewOFSObject",
        "arn:aws:sns:us-east-1:123901341784:NewNOSOFSObject",
    ),
    media_type="application/netcdf",
    rules=(
        *(
            Rule(
                pattern=Pattern(folders + name, _STEP),
                product=Template("{product}"),
                platform=Template("{system}"),
                times=_times,
                folders=_folders if folders is _FOLDER else None,
            )
            for folders in (_FOLDER, _OTHER)
            for name in (
                "nos.{system:system}.{product:product}.{way:f|n}{step:step}.{ymd:ymd}.t{hh:hh}z.nc",
                "{system:system}.t{hh:hh}z.{ymd:ymd}.{product:product}.{way:f|n}{step:step}.nc",  # since 2024
            )
        ),
        *(
            Rule(
                pattern=Pattern(_OTHER + name, _STEP),
                product=ncep_models.rest,
                platform=Template("{system}"),
                times=cycle_only,
            )
            for name in (
                "nos.{system:system}.{rest:name}.{ymd:ymd}.t{hh:hh}z[.{tail:name}]",
                "{system:system}.t{hh:hh}z.{ymd:ymd}.{rest:name}.{ext:word}",
            )
        ),
    ),
)
