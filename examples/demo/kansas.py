"""Invented data about Kansas, made by arithmetic: the same bytes every time, and no real file.

Rivers and counties are real names; gauges, readings, outlines and rain are not.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

CENTRAL = ZoneInfo("America/Chicago")
READING_MINUTES = 15
PAGE_SIZE = 5


class Gauge(NamedTuple):
    site_no: str  # 99…: a range in which no agency numbers its gauges
    name: str
    basin: str
    lon: float
    lat: float
    usual_cfs: float
    usual_ft: float


GAUGES = (
    Gauge("99000101", "Kansas River at Topeka", "Kansas", -95.65, 39.07, 4200.0, 7.8),
    Gauge("99000102", "Kansas River at Lawrence", "Kansas", -95.23, 38.98, 4650.0, 6.9),
    Gauge("99000103", "Big Blue River near Manhattan", "Kansas", -96.57, 39.24, 1350.0, 9.1),
    Gauge("99000104", "Republican River at Clay Center", "Kansas", -97.13, 39.36, 610.0, 5.2),
    Gauge("99000105", "Smoky Hill River at Enterprise", "Kansas", -97.12, 38.90, 540.0, 11.4),
    Gauge("99000106", "Saline River near Russell", "Kansas", -98.85, 38.97, 62.0, 3.3),
    Gauge("99000201", "Arkansas River at Dodge City", "Arkansas", -100.02, 37.75, 18.0, 1.6),
    Gauge("99000202", "Arkansas River at Wichita", "Arkansas", -97.34, 37.64, 690.0, 2.7),
    Gauge("99000203", "Walnut River at Winfield", "Arkansas", -96.99, 37.22, 480.0, 4.4),
    Gauge("99000301", "Neosho River near Parsons", "Neosho", -95.11, 37.34, 1720.0, 8.5),
    Gauge("99000302", "Cottonwood River at Florence", "Neosho", -96.89, 38.24, 210.0, 3.9),
    Gauge("99000401", "Marais des Cygnes at Ottawa", "Osage", -95.27, 38.62, 380.0, 5.8),
)


def streamflow(day: date, *, silent_from: dict[str, int] | None = None, broken: str | None = None) -> bytes:
    """A day of readings as CSV, every quarter of an hour.

    `silent_from` maps a site to the hour at which its telemetry fell silent. `broken` is a site whose
    logger writes its fill value instead of the discharge, and one reading twice.
    """
    lines = ["site_no,datetime,discharge_cfs,gage_height_ft,qualifier"]
    for number, gauge in enumerate(GAUGES):
        until = (silent_from or {}).get(gauge.site_no, 24)
        for moment in _quarters(day, until):
            share = _flow(number, moment)
            cfs, height = gauge.usual_cfs * share, gauge.usual_ft * (0.6 + 0.4 * share)
            shown = "-999999" if gauge.site_no == broken and moment.hour in (9, 10) else _significant(cfs)
            line = f"{gauge.site_no},{moment.isoformat()},{shown},{height:.2f},P"
            lines.append(line)
            if gauge.site_no == broken and (moment.hour, moment.minute) == (11, 0):
                lines.append(line)
    return ("\n".join(lines) + "\n").encode()


def _quarters(day: date, until_hour: int) -> Iterator[datetime]:
    midnight = datetime(day.year, day.month, day.day, tzinfo=CENTRAL)
    for minutes in range(0, until_hour * 60, READING_MINUTES):
        yield midnight + timedelta(minutes=minutes)


def _flow(number: int, moment: datetime) -> float:
    """The share of the usual flow: a slow swing, and a pulse of rain that travels downstream."""
    hours = (moment.toordinal() - 739_000) * 24 + moment.hour + moment.minute / 60
    swing = 0.12 * math.sin(hours / 19 + number)
    pulse = 0.9 * math.exp(-(((hours % 72) - 20 - 2 * number) ** 2) / 60)
    return 1 + swing + pulse


def _significant(value: float) -> str:
    """Three significant digits, as discharge is usually given."""
    digits = 2 - math.floor(math.log10(value))
    return f"{round(value, digits):.{max(digits, 0)}f}"


def gauges_page(number: int) -> dict[str, Any]:
    """One page of the gauges, with the address of the next."""
    first = (number - 1) * PAGE_SIZE
    chosen = GAUGES[first : first + PAGE_SIZE]
    more = first + PAGE_SIZE < len(GAUGES)
    return {
        "gauges": [
            {"site_no": g.site_no, "name": g.name, "basin": g.basin, "lon": g.lon, "lat": g.lat}
            for g in chosen
        ],
        "next": f"/api/gauges?page={number + 1}" if more else None,
    }


# Counter-clockwise and closed, as RFC 7946 asks; coarse on purpose.
_COUNTIES: dict[str, tuple[str, list[tuple[float, float]]]] = {
    "Douglas": (
        "20045",
        [(-95.50, 38.74), (-95.06, 38.74), (-95.06, 39.02), (-95.27, 39.06), (-95.50, 39.06)],
    ),
    "Ellis": ("20051", [(-99.60, 38.70), (-99.04, 38.70), (-99.04, 39.13), (-99.60, 39.13)]),
    "Finney": ("20055", [(-101.13, 37.73), (-100.23, 37.73), (-100.23, 38.26), (-101.13, 38.26)]),
    "Geary": ("20061", [(-96.96, 38.86), (-96.50, 38.86), (-96.50, 39.04), (-96.65, 39.22), (-96.96, 39.09)]),
    "Riley": ("20161", [(-96.96, 39.09), (-96.65, 39.22), (-96.39, 39.17), (-96.58, 39.57), (-96.96, 39.57)]),
    "Sedgwick": ("20173", [(-97.81, 37.47), (-97.15, 37.47), (-97.15, 37.91), (-97.81, 37.91)]),
    "Shawnee": ("20177", [(-96.04, 38.87), (-95.50, 38.87), (-95.50, 39.21), (-96.04, 39.21)]),
}


def counties() -> bytes:
    """A few counties as a GeoJSON FeatureCollection."""
    features = [
        {
            "type": "Feature",
            "id": geoid,
            "properties": {"geoid": geoid, "name": name},
            "geometry": {"type": "Polygon", "coordinates": [[list(p) for p in [*corners, corners[0]]]]},
        }
        for name, (geoid, corners) in sorted(_COUNTIES.items())
    ]
    return (json.dumps({"type": "FeatureCollection", "features": features}, indent=1) + "\n").encode()


# The rain grid: about a kilometre, like the mosaics of weather radars.
WEST, SOUTH, CELL = -102.05, 36.95, 0.01
COLUMNS, ROWS = 750, 310


@lru_cache(maxsize=8)
def rainfall(day: date) -> bytes:
    """The day's rain in millimetres as an ESRI ASCII grid: six header lines, then rows from the north."""
    across = [math.sin(column / 61 + day.toordinal()) for column in range(COLUMNS)]
    header = (
        f"ncols {COLUMNS}\nnrows {ROWS}\nxllcorner {WEST}\nyllcorner {SOUTH}\n"
        f"cellsize {CELL}\nNODATA_value -9999\n"
    )
    lines = []
    for row in range(ROWS):
        down = math.cos(row / 37)
        lines.append(" ".join(f"{max(0.0, 18 * down * each):.1f}" for each in across))
    return (header + "\n".join(lines) + "\n").encode()
