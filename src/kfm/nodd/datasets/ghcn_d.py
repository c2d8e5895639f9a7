"""Global Historical Climatology Network, daily: by year and by station, written again every day."""

from __future__ import annotations

from kfm.nodd.grammar import Dataset, Place, Rule
from kfm.nodd.patterns import Pattern, Template
from kfm.nodd.spans import unknown, whole_year

_STATION = {"station": r"[A-Z]{2}[A-Z0-9_-]{9}", "packed": r"\.gz"}
DATASET = Dataset(
    name="ghcn-d",
    title="Global Historical Climatology Network, daily",
    places=(Place(bucket="noaa-ghcn-pds"),),
    topics=("arn:aws:sns:us-east-1:123901341784:NewGHCNObject",),
    media_type="text/csv",
    rules=(
        Rule(
            pattern=Pattern(
                "[{form:csv|csv.gz}/[{by:by_year|by-year}/]]{year:yyyy}.csv[{gz:packed}]", _STATION
            ),
            product=Template("by_year"),
            times=whole_year,
        ),
        Rule(
            pattern=Pattern("[{form:csv|csv.gz}/by_station/]{station:station}.csv[{gz:packed}]", _STATION),
            product=Template("by_station"),
            platform=Template("{station}"),
            times=unknown,
        ),
        Rule(
            pattern=Pattern("parquet/by_year/YEAR={year:yyyy}/ELEMENT={element:word}/{file:name}.parquet"),
            product=Template("by_year/{element}"),
            times=whole_year,
        ),
        Rule(
            pattern=Pattern(
                "parquet/by_station/STATION={station:station}/ELEMENT={element:word}/{file:name}.parquet",
                _STATION,
            ),
            product=Template("by_station/{element}"),
            platform=Template("{station}"),
            times=unknown,
        ),
        Rule(
            pattern=Pattern(
                "{file:document}.{ext:txt|pdf|csv}", {"document": r"(?:ghcnd|readme|status|mingle)[a-z_-]*"}
            ),
            product=Template("document"),
            times=unknown,
        ),
    ),
)
