"""Footprints from keys and public facts, and whether a geometry meets an item's box."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from math import isfinite
from typing import Any

from kfm.model.catalogue import Bbox
from kfm.model.errors import UsageError
from kfm.model.records import Record
from kfm.nodd.spans import at

Box = tuple[float, float, float, float]


class Footprint(Record, frozen=True):
    """A point or a box. `basis` names its origin, for the item's reader."""

    basis: str
    point: tuple[float, float] | None = None  # longitude, latitude
    box: Box | None = None


GLOBE = Footprint(basis="the whole globe", box=(-180.0, -90.0, 180.0, 90.0))

# Orbital slots: (platform, from, until, slot); outside of these a satellite was moving or in store.
_SLOTS = (
    ("GOES-16", at("2017", "12", "18"), at("2025", "4", "7"), "east"),
    ("GOES-19", at("2025", "4", "7"), None, "east"),
    ("GOES-17", at("2019", "2", "12"), at("2023", "1", "4"), "west"),
    ("GOES-18", at("2023", "1", "4"), None, "west"),
)
_SECTORS = {
    ("east", "F"): (-156.2995, -81.3282, 6.2995, 81.3282),
    ("west", "F"): (141.7005, -81.3282, -55.7005, 81.3282),
    ("east", "C"): (-152.1093, 14.5713, -52.9469, 56.7615),
}


def goes_sector(platform: str | None, sector: str | None, start_ms: int | None) -> Footprint | None:
    """Full disk and CONUS stand still while a satellite is in its slot; mesoscale sectors move at will."""
    if start_ms is None:
        return None
    for name, since, until, slot in _SLOTS:
        if name == platform and since <= start_ms and (until is None or start_ms < until):
            return _sector(slot, sector or "")
    return None


@cache
def _sector(slot: str, sector: str) -> Footprint | None:
    box = _SECTORS.get((slot, sector))
    return Footprint(basis=f"sector {sector} as seen from GOES-{slot}", box=box) if box else None


POSITIONS_MAX = 10_000
NESTING_MAX = 4
Position = tuple[float, float]
Ring = list[Position]


class Shape:
    """A geometry that was checked: lines (of one position or more), and polygons of rings."""

    def __init__(self, geometry: object) -> None:
        self._lines: list[Ring] = []
        self._polygons: list[list[Ring]] = []
        self._count = 0
        self._take(geometry, 0)
        every = [position for ring in self._rings() for position in ring]
        if not every:
            raise _wrong("It has no positions.")
        east_west, north_south = zip(*every, strict=True)
        self.bbox: Bbox = (min(east_west), min(north_south), max(east_west), max(north_south))

    def touches(self, box: Bbox) -> bool:
        """West may be greater than east: over the antimeridian."""
        west, south, east, north = box
        if west > east:
            return self._touches(west, south, 180.0, north) or self._touches(-180.0, south, east, north)
        return self._touches(west, south, east, north)

    def _touches(self, west: float, south: float, east: float, north: float) -> bool:
        for ring in self._rings():
            if len(ring) == 1 and west <= ring[0][0] <= east and south <= ring[0][1] <= north:
                return True
            if any(_cuts(ring[at], ring[at + 1], west, south, east, north) for at in range(len(ring) - 1)):
                return True
        # No border of ours meets the box: it lies wholly inside or wholly outside.
        return any(_inside((west, south), rings) for rings in self._polygons)

    def _rings(self) -> Iterator[Ring]:
        yield from self._lines
        for rings in self._polygons:
            yield from rings

    # --- checking ----------------------------------------------------------------------

    def _take(self, geometry: object, depth: int) -> None:
        if not isinstance(geometry, dict) or depth > NESTING_MAX:
            raise _wrong("It is no GeoJSON geometry.")
        kind, parts = geometry.get("type"), geometry.get("coordinates")
        if kind == "GeometryCollection":
            for one in _list(geometry.get("geometries")):
                self._take(one, depth + 1)
        elif kind == "Point":
            self._lines.append([self._position(parts)])
        elif kind == "MultiPoint":
            self._lines += ([self._position(part)] for part in _list(parts))
        elif kind == "LineString":
            self._lines.append(self._line(parts, 2))
        elif kind == "MultiLineString":
            self._lines += (self._line(part, 2) for part in _list(parts))
        elif kind == "Polygon":
            self._polygons.append(self._polygon(parts))
        elif kind == "MultiPolygon":
            self._polygons += (self._polygon(part) for part in _list(parts))
        else:
            raise _wrong("Its type is none of GeoJSON's geometries.")

    def _polygon(self, parts: object) -> list[Ring]:
        rings = [self._line(part, 4) for part in _list(parts)]
        if not rings or any(ring[0] != ring[-1] for ring in rings):
            raise _wrong("A ring of a polygon ends where it began.")
        return rings

    def _line(self, parts: object, least: int) -> Ring:
        line = [self._position(part) for part in _list(parts)]
        if len(line) < least:
            raise _wrong(f"A line or ring of it has fewer than {least} positions.")
        return line

    def _position(self, parts: object) -> Position:
        self._count += 1
        if self._count > POSITIONS_MAX:
            raise _wrong(f"It has more than {POSITIONS_MAX:,} positions.")
        numbers = _list(parts)
        if not 2 <= len(numbers) <= 4 or not all(_is_number(number) for number in numbers):
            raise _wrong("A position is two or three numbers.")
        longitude, latitude = float(numbers[0]), float(numbers[1])
        if not -180.0 <= longitude <= 180.0 or not -90.0 <= latitude <= 90.0:
            raise _wrong("A position is outside of -180…180 and -90…90 degrees.")
        return longitude, latitude


def _list(value: object) -> Sequence[Any]:
    if not isinstance(value, list):
        raise _wrong("Coordinates are lists.")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _wrong(detail: str) -> UsageError:
    return UsageError(f"`intersects` can't be used. {detail}", remedy="Give a GeoJSON geometry.")


def _cuts(one: Position, other: Position, west: float, south: float, east: float, north: float) -> bool:
    """Liang and Barsky: which part of the segment is within the box?"""
    (x, y), (dx, dy) = one, (other[0] - one[0], other[1] - one[1])
    first, last = 0.0, 1.0
    for step, room in ((-dx, x - west), (dx, east - x), (-dy, y - south), (dy, north - y)):
        if step == 0.0:
            if room < 0.0:
                return False
            continue
        ratio = room / step
        if step < 0.0:
            first = max(first, ratio)
        else:
            last = min(last, ratio)
        if first > last:
            return False
    return True


def _inside(point: Position, rings: Sequence[Ring]) -> bool:
    """Even and odd: holes are rings like the others."""
    x, y = point
    inside = False
    for ring in rings:
        for (x1, y1), (x2, y2) in pairwise(ring):
            if (y1 > y) != (y2 > y) and x < (x2 - x1) * (y - y1) / (y2 - y1) + x1:
                inside = not inside
    return inside
