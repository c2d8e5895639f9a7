"""National Blend of Models: GRIB2, cloud-optimized GeoTIFFs and text bulletins."""

from __future__ import annotations

from kfm.nodd.datasets import ncep_models
from kfm.nodd.grammar import Dataset, Place, Rule
from kfm.nodd.patterns import Fields, Pattern, Template, need
from kfm.nodd.spans import HOUR_MS, Span, at, cycle_only, forecast


def _cog(fields: Fields) -> Span:
    reference, valid = (
        at(*(need(fields, f"{which}_{part}") for part in ("year", "month", "day", "hour", "minute")))
        for which in ("ref", "valid")
    )
    hours, odd = divmod(valid - reference, HOUR_MS)
    return Span(start_ms=valid, end_ms=valid, reference_ms=reference, forecast_hour=None if odd else hours)


def _text(fields: Fields) -> str:
    rest = fields.get("rest")
    return f"{need(fields, 'head')}.{rest}" if rest else need(fields, "head")


_FOLDER = "[blend.{ymd:ymd}/{d_cycle:hh}/[{folder:system}/]]"
_REF = "{ref_year:yyyy}-{ref_month:mm}-{ref_day:dd}T{ref_hour:hh}:{ref_minute:d2}"
_VALID = "{valid_year:yyyy}-{valid_month:mm}-{valid_day:dd}T{valid_hour:hh}:{valid_minute:d2}"
DATASET = Dataset(
    name="nbm",
    title="National Blend of Models",
    places=(
        Place(bucket="noaa-nbm-grib2-pds"),
        Place(bucket="noaa-nbm-pds", home=False),
        Place(bucket="noaa-nbm-para-pds", home=False),
    ),
    topics=(
        "arn:aws:sns:us-east-1:123901341784:NewNBMGRIBObject",
        "arn:aws:sns:us-east-1:123901341784:NewNBMCOGObject",
        "arn:aws:sns:us-east-1:123901341784:NewNBMParaObject",
    ),
    media_type=ncep_models.GRIB2,
    sidecars=ncep_models.INDEX,
    rules=(
        Rule(
            pattern=Pattern(_FOLDER + "blend.t{hh:hh}z.{product:system}.f{fh:hours}.{region:system}.grib2"),
            product=Template("{product}"),
            platform=Template("{region}"),
            times=forecast,
            folders=ncep_models.cycle_folder,
        ),
        Rule(
            pattern=Pattern(
                "[{folder:path}/]{version:name}_{region:word}_{element:word}_" + _REF + "_" + _VALID + ".tif"
            ),
            product=Template("{element}"),
            platform=Template("{region}"),
            times=_cog,
        ),
        Rule(
            pattern=Pattern(_FOLDER + "{head:system}.t{hh:hh}z[.{rest:name}]"),
            product=_text,
            times=cycle_only,
            folders=ncep_models.cycle_folder,
        ),
    ),
)
