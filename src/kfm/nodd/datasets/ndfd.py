"""National Digital Forecast Database. Keys have the time of issue, not the valid time."""

from __future__ import annotations

from kfm.nodd.grammar import Dataset, Place, Rule
from kfm.nodd.patterns import Fields, Pattern, Template, need
from kfm.nodd.spans import Span, digits, unknown


def _issued(fields: Fields) -> Span:
    return Span(issued_ms=digits(need(fields, "issued")))


def _folders(fields: Fields, _span: Span) -> Fields:
    issued = need(fields, "issued")
    return {"d_year": issued[:4], "d_month": issued[4:6], "d_day": issued[6:8]}


DATASET = Dataset(
    name="ndfd",
    title="National Digital Forecast Database",
    places=(Place(bucket="noaa-ndfd-pds"),),
    topics=("arn:aws:sns:us-east-1:123901341784:NewNDFDObject",),
    media_type="application/wmo-GRIB2",
    rules=(
        Rule(
            pattern=Pattern(
                "wmo/{element:text}/[{d_year:yyyy}/{d_month:mm}/{d_day:dd}/]"
                "{bulletin:bulletin}_{office:office}_{issued:ymdhm}",
                {"bulletin": r"[A-Z]{4}\d\d", "office": r"[A-Z]{4}"},
            ),
            product=Template("{element}/{bulletin}"),
            platform=Template("{office}"),
            times=_issued,
            folders=_folders,
        ),
        Rule(
            pattern=Pattern(
                "{bulletin:bulletin}_{office:office}_{issued:ymdhm}",
                {"bulletin": r"[A-Z]{4}\d\d", "office": r"[A-Z]{4}"},
            ),
            product=Template("{bulletin}"),
            platform=Template("{office}"),
            times=_issued,
        ),
        Rule(
            # The newest forecast of a region, written again and again under one key.
            pattern=Pattern("{status:opnl|expr}/AR.{region:name}/VP.{period:name}/ds.{element:word}.bin"),
            product=Template("{element}/{period}"),
            platform=Template("{region}"),
            times=unknown,
        ),
    ),
)
