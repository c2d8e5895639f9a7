"""GRIB2: the first message's reference time, grid and forecast, and where the grid lies."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from math import atan, atan2, ceil, cos, degrees, floor, hypot, log, pi, radians, sin, tan

import msgspec

from kfm.nodd.catalogue.geometry import Box, Footprint
from kfm.nodd.inspect.header_facts import BASIS, Bytes, HeaderFacts, HeaderInvalid, HeaderUnread, box
from kfm.nodd.messages.refusals import RecordRefusal
from kfm.nodd.spans import HOUR_MS, MINUTE_MS, at, digits, shifted

SECTIONS_MAX = 8
SECTION_BYTES_MAX = 64 * 1024
HEADING_BYTES_MAX = 4096
_UNITS_MS = {
    0: MINUTE_MS,
    1: HOUR_MS,
    2: 24 * HOUR_MS,
    10: 3 * HOUR_MS,
    11: 6 * HOUR_MS,
    12: 12 * HOUR_MS,
    13: 1000,
}
# Templates of section 4 with unit and time at octets 18 and 19 → where an interval's end stands, if any.
_FORECASTS = {0: None, 1: None, 2: None, 5: None, 6: None, 8: 34, 9: 47, 10: 35, 11: 37, 12: 36, 15: None}
_INDEX_LINE = re.compile(
    r"\d{1,9}(?:\.\d{1,4})?:\d{1,15}:d=(?P<ymdh>\d{10})(?P<more>\d{2,4})?:[^:]*:[^:]*:(?P<when>[^:]*)"
)
_WHEN = re.compile(
    r"(?:(?P<from>\d{1,5})-)?(?P<until>\d{1,5}) (?P<unit>min|hour|day)\b(?: .{0,40})?\bfcst", re.ASCII
)
_INDEX_UNITS = {"min": MINUTE_MS, "hour": HOUR_MS, "day": 24 * HOUR_MS}


def message(file: Bytes) -> HeaderFacts:
    """The first message; a bulletin's heading may stand before it."""
    start = _start(file)
    head = file.at(start, 16)
    edition, length = head[7], int.from_bytes(head[8:16], "big")
    if edition == 1:
        raise HeaderUnread("It is of edition 1.")
    if edition != 2 or not 16 < length <= file.size - start:
        raise HeaderInvalid(f"A message of edition {edition} with {length} bytes.")
    sections = _sections(file, start + 16, start + length)
    try:
        reference = _reference(sections[1])
        first, last = _span(sections.get(4), reference)
    except (KeyError, RecordRefusal):
        raise HeaderInvalid("It has no reference time, or one that does not exist.") from None
    area = bounds(sections.get(3))
    return HeaderFacts(
        start_ms=first,
        end_ms=last,
        reference_ms=reference,
        footprint=Footprint(basis=BASIS, box=area) if area is not None else None,
    )


def _start(file: Bytes) -> int:
    heading = file.at(0, min(HEADING_BYTES_MAX, file.size))
    start = heading.find(b"GRIB")
    if start < 0 or start + 16 > file.size:
        raise HeaderInvalid("There is no message at its beginning.")
    return start


def _sections(file: Bytes, position: int, end: int) -> dict[int, bytes]:
    """Sections 1 to 4 of the first field, in their order."""
    found: dict[int, bytes] = {}
    for _ in range(SECTIONS_MAX):
        if position + 5 > end:
            raise HeaderInvalid("Its sections end too early.")
        length, number = struct.unpack(">IB", file.at(position, 5))
        if length < 5 or position + length > end or not 1 <= number <= 7:
            raise HeaderInvalid(f"Section {number} has {length} bytes.")
        if number > 4:
            return found
        if number in found or (found and number < max(found)):
            raise HeaderInvalid(f"Section {number} comes out of order.")
        found[number] = file.at(position, min(length, SECTION_BYTES_MAX))
        position += length
    raise HeaderInvalid("It has too many sections.")


def _reference(section: bytes) -> int:
    if len(section) < 21:
        raise KeyError(1)
    return _moment(section[12:19])


def _moment(octets: bytes) -> int:
    if len(octets) < 7:
        raise HeaderInvalid("A time is cut off.")
    year, *rest = struct.unpack(">H5B", octets)
    return at(str(year), *(str(each) for each in rest))


def _span(section: bytes | None, reference: int) -> tuple[int | None, int | None]:
    """When the first field is valid: an instant, or an interval up to its end."""
    if section is None or len(section) < 34:
        return None, None
    template = int.from_bytes(section[7:9], "big")
    if template not in _FORECASTS or section[17] not in _UNITS_MS:
        return None, None
    first = shifted(reference, signed(section[18:22]) * _UNITS_MS[section[17]])
    where = _FORECASTS[template]
    if where is None:
        return first, first
    last = _moment(section[where : where + 7])
    if last < first:
        raise HeaderInvalid("A field's interval ends before it begins.")
    return first, last


# --- index text ----------------------------------------------------------------------


def index(file: Bytes) -> HeaderFacts:
    """The first line of a `.idx`: the reference time, and what the first field is valid for."""
    text = file.at(0, min(file.size, 1024)).partition(b"\n")[0].decode("latin-1")
    line = _INDEX_LINE.match(text)
    if line is None:
        raise HeaderInvalid("Its first line is no line of an index.")
    try:
        reference = digits(line["ymdh"] + (line["more"] or ""))
        valid = _WHEN.match(line["when"])
        if valid is None:
            instant = reference if line["when"].startswith("anl") else None
            return HeaderFacts(reference_ms=reference, start_ms=instant, end_ms=instant)
        unit = _INDEX_UNITS[valid["unit"]]
        last = shifted(reference, int(valid["until"]) * unit)
        first = shifted(reference, int(valid["from"] or valid["until"]) * unit)
    except RecordRefusal:
        raise HeaderInvalid("It names a time that does not exist.") from None
    return HeaderFacts(reference_ms=reference, start_ms=min(first, last), end_ms=last)


EDGE_POINTS = 128
POINTS_MAX = 100_000  # along a side
_MISSING = 0xFFFFFFFF
_RADII_M = {0: 6_367_470.0, 6: 6_371_229.0, 8: 6_371_200.0}


def bounds(section: bytes | None) -> Box | None:
    """Of section 3; None where it can't be derived exactly."""
    if section is None or len(section) < 65:
        return None
    template = int.from_bytes(section[12:14], "big")
    try:
        if template in (0, 40) and len(section) >= 72:
            return _by_degrees(section)
        if template == 10 and len(section) >= 72:
            return _corners(section[38:46] + section[51:59], 1e-6, _MISSING, section[59])
        if template == 20 or (template == 30 and len(section) >= 81):
            return _projected(section, template)
    except (ArithmeticError, ValueError):  # numbers that no grid has
        return None
    return None


def _by_degrees(section: bytes) -> Box | None:
    angle, parts = struct.unpack(">II", section[38:46])
    unit = angle / parts if angle not in (0, _MISSING) and parts not in (0, _MISSING) else 1e-6
    step = int.from_bytes(section[63:67], "big")
    return _corners(section[46:54] + section[55:63], unit, step, section[71])


def _corners(corners: bytes, unit: float, step: int, scan: int) -> Box | None:
    la1, lo1, la2, lo2 = (signed(corners[each : each + 4]) * unit for each in range(0, 16, 4))
    west, east = (lo2, lo1) if scan & 0x80 else (lo1, lo2)
    if step not in (0, _MISSING) and (east - west) % 360.0 + step * unit >= 360.0 - 1e-6:
        west, east = -180.0, 180.0
    return box(west, min(la1, la2), east, max(la1, la2))


def signed(octets: bytes) -> int:
    """GRIB writes a sign and a magnitude."""
    value = int.from_bytes(octets, "big")
    sign = 1 << (8 * len(octets) - 1)
    return -(value & (sign - 1)) if value & sign else value


# --- projected -----------------------------------------------------------------------


class _Projection(msgspec.Struct, frozen=True):
    """Between degrees, with longitudes counted from the central one, and metres from the pole."""

    forward: Callable[[float, float], tuple[float, float]]
    inverse: Callable[[float, float], tuple[float, float]]
    pole: float | None = None  # the latitude of the pole at the origin, if a grid may lie around it


def _projected(section: bytes, template: int) -> Box | None:
    radius = _radius_m(section)
    points = struct.unpack(">II", section[30:38])
    la1, lo1 = (signed(section[at : at + 4]) * 1e-6 for at in (38, 42))
    true, central = (signed(section[at : at + 4]) * 1e-6 for at in (47, 51))
    steps = [each / 1000.0 for each in struct.unpack(">II", section[55:63])]
    if radius is None or not all(2 <= each <= POINTS_MAX for each in points) or abs(la1) > 90.0:
        return None
    if template == 20:
        projection = _stereographic(radius, true, south=bool(section[63] & 0x80))
    else:
        latin = [signed(section[at : at + 4]) * 1e-6 for at in (65, 69)]
        projection = _lambert(radius, latin[0], latin[1])
    scan = section[64]
    if not scan & 0x40:
        return None  # from the top down: readers differ about which corner comes first
    x1, y1 = projection.forward(la1, _from_central(lo1, central))
    x2 = x1 + (-1 if scan & 0x80 else 1) * steps[0] * (points[0] - 1)
    y2 = y1 + steps[1] * (points[1] - 1)
    edge = [projection.inverse(x, y) for x, y in _edge(min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2))]
    latitudes, longitudes = [each[0] for each in edge], [each[1] for each in edge]
    south, north = _down(min(latitudes)), _up(max(latitudes))
    if projection.pole is not None and min(x1, x2) <= 0 <= max(x1, x2) and min(y1, y2) <= 0 <= max(y1, y2):
        south, north = (south, 90.0) if projection.pole > 0 else (-90.0, north)
        return box(-180.0, south, 180.0, north)
    west, east = central + min(longitudes), central + max(longitudes)
    turns = floor((west + 180.0) / 360.0) * 360.0
    return box(_down(west - turns), max(south, -90.0), _up(east - turns), min(north, 90.0))


def _down(degrees_: float) -> float:
    """To a hundredth, outwards: nothing of the grid is outside its box."""
    return floor(degrees_ * 100.0) / 100.0


def _up(degrees_: float) -> float:
    return ceil(degrees_ * 100.0) / 100.0


def _radius_m(section: bytes) -> float | None:
    if section[14] == 1:
        scale, value = section[15], int.from_bytes(section[16:20], "big")
        radius = value / 10.0**scale
        return radius if 6.3e6 < radius < 6.4e6 else None
    return _RADII_M.get(section[14])


def _from_central(longitude: float, central: float) -> float:
    return (longitude - central + 180.0) % 360.0 - 180.0


def _edge(x1: float, y1: float, x2: float, y2: float) -> Iterator[tuple[float, float]]:
    for number in range(EDGE_POINTS + 1):
        share = number / EDGE_POINTS
        x, y = x1 + (x2 - x1) * share, y1 + (y2 - y1) * share
        yield from ((x, y1), (x, y2), (x1, y), (x2, y))


def _stereographic(radius: float, true: float, *, south: bool) -> _Projection:
    sign = -1.0 if south else 1.0
    scale = radius * (1.0 + sin(radians(abs(true))))

    def forward(latitude: float, longitude: float) -> tuple[float, float]:
        distance = scale * tan(pi / 4 - sign * radians(latitude) / 2)
        return distance * sin(radians(longitude)), -sign * distance * cos(radians(longitude))

    def inverse(x: float, y: float) -> tuple[float, float]:
        latitude = sign * (pi / 2 - 2 * atan(hypot(x, y) / scale))
        return degrees(latitude), degrees(atan2(x, -sign * y))

    return _Projection(forward, inverse, pole=sign * 90.0)


def _lambert(radius: float, first: float, second: float) -> _Projection:
    one, two = radians(first), radians(second)
    if abs(first - second) < 1e-6:
        cone = sin(one)
    else:
        cone = log(cos(one) / cos(two)) / log(tan(pi / 4 + two / 2) / tan(pi / 4 + one / 2))
    if abs(cone) < 1e-3:
        raise ValueError("no cone")
    scale = radius * cos(one) * tan(pi / 4 + one / 2) ** cone / cone
    sign = 1.0 if cone > 0 else -1.0

    def forward(latitude: float, longitude: float) -> tuple[float, float]:
        distance = scale / tan(pi / 4 + radians(latitude) / 2) ** cone
        angle = cone * radians(longitude)
        return distance * sin(angle), -distance * cos(angle)

    def inverse(x: float, y: float) -> tuple[float, float]:
        distance = sign * hypot(x, y)
        latitude = 2 * atan((scale / distance) ** (1 / cone)) - pi / 2
        return degrees(latitude), degrees(atan2(sign * x, -sign * y) / cone)

    return _Projection(forward, inverse)
