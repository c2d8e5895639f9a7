"""Integrated Surface Database: a station's hourly observations of a year, written again as they come."""

from __future__ import annotations

from kfm.nodd.grammar import Dataset, Place, Rule
from kfm.nodd.patterns import Fields, Pattern, Template
from kfm.nodd.spans import Span, unknown, whole_year


def _folders(fields: Fields, _span: Span) -> Fields:
    return {"d_year": fields["year"]}


DATASET = Dataset(
    name="isd",
    title="Integrated Surface Database",
    places=(Place(bucket="noaa-isd-pds"),),
    topics=(),  # no topic is published for this bucket
    rules=(
        Rule(
            pattern=Pattern(
                "[data/{d_year:yyyy}/]{usaf:usaf}-{wban:wban}-{year:yyyy}[{gz:packed}]",
                {"usaf": r"[A-Z0-9]{6}", "wban": r"\d{5}", "packed": r"\.gz"},
            ),
            product=Template("isd"),
            platform=Template("{usaf}-{wban}"),
            times=whole_year,
            folders=_folders,
        ),
        Rule(
            pattern=Pattern("{file:document}.{ext:csv|txt|pdf}", {"document": r"isd-[a-z-]+"}),
            product=Template("document"),
            times=unknown,
        ),
    ),
)
