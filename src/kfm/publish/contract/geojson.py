"""GeoJSON by RFC 7946: features as a stream, geometry checks, bounding boxes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any

from kfm.model.records import Asset
from kfm.ports import Reader
from kfm.publish.contract.formats import format_of
from kfm.publish.contract.model import ContractLimits
from kfm.publish.contract.streams import FileProblem, JsonStream

Bbox = tuple[str, str, str, str]


def bbox_of(
    assets: Sequence[Asset], open: Callable[[str], Reader], limits: ContractLimits | None = None
) -> Bbox | None:
    """West, south, east, north of all GeoJSON assets; None if there is none, or if one can't be trusted.

    The plain smallest and largest values: a dataset across the antimeridian gets
    a box around the globe, which is large but not wrong.
    """
    bounds = limits or ContractLimits()
    box: list[float] | None = None
    for asset in assets:
        if format_of(asset) != "geojson":
            continue
        reader = open(asset.sha256)
        try:
            box = _grown(box, JsonStream(reader, bounds.element_chars_max))
        except (FileProblem, GeometryProblem):
            return None
        finally:
            reader.close()
    if box is None:
        return None
    west, south, east, north = (decimal_text(number) for number in box)
    return west, south, east, north


def _grown(box: list[float] | None, stream: JsonStream) -> list[float] | None:
    for feature in features(stream, {}):
        geometry = feature.get("geometry") if isinstance(feature, dict) else None
        if geometry is None:
            continue
        check_geometry(geometry)
        corners = list(positions(geometry))
        if box is not None:
            corners += [(box[0], box[1]), (box[2], box[3])]
        if corners:
            east_west, north_south = zip(*corners, strict=True)
            box = [min(east_west), min(north_south), max(east_west), max(north_south)]
    return box


def decimal_text(number: float | int) -> str:
    """The shortest decimal digits that mean this number: no exponent, no trailing zeros, no minus zero."""
    text = format(Decimal(repr(number)), "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


_NESTING_MAX = 16
_CRS84 = {"urn:ogc:def:crs:OGC:1.3:CRS84", "urn:ogc:def:crs:OGC::CRS84", "OGC:CRS84"}
_DEPTH = {
    "Point": 0,
    "MultiPoint": 1,
    "LineString": 1,
    "MultiLineString": 2,
    "Polygon": 2,
    "MultiPolygon": 3,
}
GEOMETRY_TYPES = frozenset({*_DEPTH, "GeometryCollection"})


class GeometryProblem(Exception):
    """What is wrong, and with which of the checks."""

    def __init__(self, check: str, problem: str) -> None:
        super().__init__(problem)
        self.check = check
        self.problem = problem


def check_geometry(geometry: Any, nesting: int = 0) -> None:
    """Raises the first problem of a geometry object."""
    if not isinstance(geometry, dict):
        raise GeometryProblem("structure", "the geometry is not an object")
    kind = geometry.get("type")
    if not isinstance(kind, str) or kind not in GEOMETRY_TYPES:
        raise GeometryProblem("structure", "the geometry has an unknown type")
    if geometry.get("bbox") is not None:
        check_bbox(geometry["bbox"])
    if kind == "GeometryCollection":
        members = geometry.get("geometries")
        if not isinstance(members, list):
            raise GeometryProblem("structure", "a GeometryCollection has no geometries")
        if nesting >= _NESTING_MAX:
            raise GeometryProblem("structure", "geometry collections are nested too deeply")
        for member in members:
            check_geometry(member, nesting + 1)
        return
    if not isinstance(geometry.get("coordinates"), list):
        raise GeometryProblem("structure", f"a {kind} has no coordinates")
    _check_coordinates(kind, geometry["coordinates"])


def _check_coordinates(kind: str, coordinates: list[Any]) -> None:
    if not coordinates:
        return  # RFC 7946 reads an empty array as a null geometry
    for line in _at_depth(coordinates, _DEPTH[kind] - 1) if _DEPTH[kind] else [[coordinates]]:
        for position in line:
            _check_position(position)
    if kind in ("LineString", "MultiLineString"):
        for line in [coordinates] if kind == "LineString" else coordinates:
            if len(line) < 2:
                raise GeometryProblem("structure", "a line has fewer than two positions")
    for ring in rings(kind, coordinates):
        if len(ring) < 4:
            raise GeometryProblem("rings", "a ring has fewer than four positions")
        if ring[0] != ring[-1]:
            raise GeometryProblem("rings", "a ring is not closed")


def _at_depth(coordinates: Any, depth: int) -> Iterator[list[Any]]:
    if not isinstance(coordinates, list):
        raise GeometryProblem("structure", "the coordinates are not nested as the type asks")
    if depth == 0:
        yield coordinates
        return
    for inner in coordinates:
        yield from _at_depth(inner, depth - 1)


def _check_position(position: Any) -> None:
    if not isinstance(position, list) or not 2 <= len(position) <= 3:
        raise GeometryProblem("positions", "a position is not two or three numbers")
    for number in position:
        if type(number) not in (float, int) or not -math.inf < number < math.inf:
            raise GeometryProblem("positions", "a coordinate is not a finite number")
    if not -180 <= position[0] <= 180:
        raise GeometryProblem("positions", "a longitude is beyond ±180")
    if not -90 <= position[1] <= 90:
        raise GeometryProblem("positions", "a latitude is beyond ±90")


def rings(kind: str, coordinates: list[Any]) -> Iterator[list[Any]]:
    if kind == "Polygon":
        yield from coordinates
    elif kind == "MultiPolygon":
        for polygon in coordinates:
            yield from polygon


def winds_right(geometry: dict[str, Any]) -> bool:
    """Outer rings counterclockwise, holes clockwise; call it on a checked geometry."""
    kind = geometry["type"]
    if kind == "GeometryCollection":
        return all(winds_right(member) for member in geometry["geometries"])
    coordinates = geometry.get("coordinates") or []
    polygons = {"Polygon": [coordinates], "MultiPolygon": coordinates}.get(kind, [])
    return all(
        (_doubled_area(ring) >= 0) == (index == 0)
        for polygon in polygons
        for index, ring in enumerate(polygon)
    )


def _doubled_area(ring: list[Any]) -> float:
    return math.fsum(before[0] * after[1] - after[0] * before[1] for before, after in pairwise(ring))


def check_bbox(bbox: Any) -> None:
    """Four or six numbers; south is not north of north. West may be east of east: the antimeridian."""
    if not isinstance(bbox, list) or len(bbox) not in (4, 6):
        raise GeometryProblem("bbox", "a bbox is not four or six numbers")
    if any(type(number) not in (float, int) or not -math.inf < number < math.inf for number in bbox):
        raise GeometryProblem("bbox", "a bbox holds something that is not a finite number")
    half = len(bbox) // 2
    if not all(-180 <= bbox[index] <= 180 for index in (0, half)):
        raise GeometryProblem("bbox", "a bbox has a longitude beyond ±180")
    if not -90 <= bbox[1] <= bbox[half + 1] <= 90:
        raise GeometryProblem("bbox", "a bbox has its latitudes in the wrong order or beyond ±90")


def check_crs(crs: Any) -> None:
    """The old `crs` member may only say what RFC 7946 says anyway."""
    name = crs.get("properties") if isinstance(crs, dict) else None
    word = name.get("name") if isinstance(name, dict) else None
    if not isinstance(word, str) or word not in _CRS84:
        raise GeometryProblem("crs", "there is a crs other than CRS84")


def positions(geometry: Any, nesting: int = 0) -> Iterator[tuple[float, float]]:
    """Longitude and latitude of every position of a checked geometry."""
    if geometry.get("type") == "GeometryCollection":
        for member in geometry["geometries"]:
            yield from positions(member, nesting + 1)
        return
    depth = _DEPTH[geometry["type"]]
    coordinates = geometry["coordinates"]
    if not coordinates:
        return
    lines = _at_depth(coordinates, depth - 1) if depth else iter([[coordinates]])
    for line in lines:
        for position in line:
            yield position[0], position[1]


_MEMBERS_MAX = 1000


def features(stream: JsonStream, head: dict[str, Any]) -> Iterator[Any]:
    """Every feature; the other members of the document are left in `head`.

    A collection is never held as a whole. A single feature or a bare geometry is
    a collection of one.
    """
    found = False
    for name in stream.named():
        if name == "features" and stream.peek() == "[":
            found = True
            yield from stream.elements()
        else:
            head[name] = stream.value()
        if len(head) > _MEMBERS_MAX:
            raise FileProblem(f"has more than {_MEMBERS_MAX} members at the top")
    stream.end()
    kind = head.get("type")
    if kind == "FeatureCollection" and found:
        return
    if found or kind == "FeatureCollection":
        raise FileProblem("is not a FeatureCollection with an array of features")
    if kind == "Feature":
        yield head
    elif isinstance(kind, str) and kind in GEOMETRY_TYPES:
        yield {"type": "Feature", "properties": None, "geometry": head}
    else:
        raise FileProblem("is not GeoJSON: it has no known type")
