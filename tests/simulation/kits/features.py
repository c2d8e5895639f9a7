"""GeoJSON: geometries of every kind, features good and bad, and hostile documents."""

from __future__ import annotations

import json
import random
from typing import Any

from kfm.model.records import Window
from tests.simulation.kits.tables import HEADER

RING = [[-99.0, 38.0], [-98.0, 38.0], [-98.0, 39.0], [-99.0, 38.0]]  # counterclockwise
HOLE = [[-98.5, 38.2], [-98.5, 38.3], [-98.4, 38.3], [-98.5, 38.2]]  # clockwise
NAMED = {"type": "name", "properties": {"name": "urn:ogc:def:crs:OGC:1.3:CRS84"}}

GEOMETRIES: tuple[dict[str, Any], ...] = (
    {"type": "Point", "coordinates": [-98.5, 38.5]},
    {"type": "Point", "coordinates": [-98.5, 38.5, 400]},
    {"type": "Point", "coordinates": []},
    {"type": "MultiPoint", "coordinates": [[-98, 38], [-97, 39]]},
    {"type": "LineString", "coordinates": [[-98, 38], [-97.5, 39]], "bbox": [-98, 38, -97.5, 39]},
    {"type": "MultiLineString", "coordinates": [[[-98, 38], [-97, 39]], [[-96, 38], [-95, 39]]]},
    {"type": "Polygon", "coordinates": [RING, HOLE]},
    {"type": "MultiPolygon", "coordinates": [[RING], [RING, HOLE]]},
    {"type": "GeometryCollection", "geometries": [{"type": "Point", "coordinates": [1, 2]}]},
)

BAD_GEOMETRIES: tuple[Any, ...] = (
    "Point",
    {"type": "Circle", "coordinates": [0, 0]},
    {"type": 3},
    {"type": "Point"},
    {"type": "Point", "coordinates": [500.0, 38]},
    {"type": "Point", "coordinates": [0, 95]},
    {"type": "Point", "coordinates": [0]},
    {"type": "Point", "coordinates": ["0", 1]},
    {"type": "Point", "coordinates": [0, 1, 2, 3]},
    {"type": "MultiPoint", "coordinates": [3]},
    {"type": "LineString", "coordinates": [[0, 0]]},
    {"type": "Polygon", "coordinates": [[0, 0]]},
    {"type": "Polygon", "coordinates": ["ring"]},
    {"type": "Polygon", "coordinates": [RING[:3]]},
    {"type": "Polygon", "coordinates": [[*RING[:3], [0, 0]]]},
    {"type": "MultiPolygon", "coordinates": [3]},
    {"type": "GeometryCollection"},
    {"type": "GeometryCollection", "geometries": [None]},
    {"type": "Point", "coordinates": [0, 0], "bbox": [0, 1, 2]},
)


def _nested(depth: int) -> dict[str, Any]:
    geometry: dict[str, Any] = {"type": "Point", "coordinates": [0, 0]}
    for _ in range(depth):
        geometry = {"type": "GeometryCollection", "geometries": [geometry]}
    return geometry


BAD_MEMBERS: tuple[dict[str, Any], ...] = (
    {"type": "Thing"},
    {"properties": [1]},
    {"id": [1]},
    {"crs": {"type": "name", "properties": {"name": "EPSG:3857"}}},
    {"crs": 5},
    {"bbox": [0, 2, 1, 1]},
    {"bbox": [0, 0, 500, 1]},
    {"bbox": [0, 0, "x", 1]},
    {"bbox": "everywhere"},
    {"properties": {"name": 7}},
    {"properties": {"name": "x", "more": 1}},
    {"geometry": None},
    {"geometry": _nested(20)},
)


class FeatureKit:
    """A contract for features, drawn from the seed."""

    suffix = "geojson"

    def __init__(self, rng: random.Random, *, plain: bool = False) -> None:
        self.winding = "ignore" if plain else rng.choice(("ignore", "warn", "refuse"))
        self.bare = not plain and rng.random() < 0.15
        self.media_type = rng.choice(("application/geo+json", "application/json"))
        name: dict[str, Any] = {"name": "name", "logicalType": "string", "required": not self.bare}
        custom = [{"property": "kfmWinding", "value": self.winding}]
        if self.bare:
            custom.append({"property": "kfmNullGeometry", "value": "allow"})
        table: dict[str, Any] = {"name": "counties", "properties": [name, {"name": "id"}]}
        if not plain:
            table |= {"physicalName": "*.geojson", "customProperties": custom}
        self.contract = json.dumps({**HEADER, "schema": [table]}).encode()

    def files(self, rng: random.Random, start: int, window: Window, *, good: bool) -> dict[str, bytes]:
        del window
        count = rng.randrange(1, 3)
        parts = {f"part{index}.geojson": self._document(rng, start + index) for index in range(count)}
        if not good:
            name = rng.choice(sorted(parts))
            parts[name] = self._wrong(rng, start)
        return parts

    def _feature(self, rng: random.Random, number: int) -> dict[str, Any]:
        geometry = rng.choice(GEOMETRIES)
        if self.winding == "warn" and rng.random() < 0.3:
            geometry = {"type": "Polygon", "coordinates": [RING[::-1]]}
        if self.bare and rng.random() < 0.5:
            geometry = None  # type: ignore[assignment]
        feature = {
            "type": "Feature",
            "id": number,
            "properties": {"name": f"county {number}"},
            "geometry": geometry,
        }
        if rng.random() < 0.2:
            feature["bbox"] = [170, -10, 0, -170, 10, 5]
        return feature

    def _document(self, rng: random.Random, number: int) -> bytes:
        if self.bare and rng.random() < 0.3:
            return json.dumps(rng.choice(GEOMETRIES)).encode()
        if rng.random() < 0.15:
            return json.dumps(self._feature(rng, number)).encode()
        features = [self._feature(rng, number * 10 + index) for index in range(rng.randrange(1, 3))]
        more: dict[str, Any] = {"crs": NAMED, "bbox": [-99, 38, -97, 39]} if rng.random() < 0.3 else {}
        return json.dumps({"type": "FeatureCollection", **more, "features": features}).encode()

    def _wrong(self, rng: random.Random, number: int) -> bytes:
        good: dict[str, Any] = {
            "type": "Feature",
            "properties": {"name": "x"},
            "geometry": {"type": "Point", "coordinates": [0, 0]},
        }
        wrong: dict[str, Any] = {**good, "geometry": rng.choice(BAD_GEOMETRIES)}
        kind = rng.randrange(5)
        if kind == 1:
            members = [one for one in BAD_MEMBERS if not (self.bare and one.get("geometry", 1) is None)]
            wrong = {**good, **rng.choice(members)}
        if kind == 2 and self.winding == "refuse":
            wrong = {**good, "geometry": {"type": "Polygon", "coordinates": [RING[::-1], HOLE[::-1]]}}
        if kind == 3:
            return self._hostile(rng, good, number)
        if kind == 4:
            head = rng.choice(({"bbox": [1]}, {"crs": {"properties": 3}}))
            return json.dumps({"type": "FeatureCollection", "features": [good], **head}).encode()
        return json.dumps({"type": "FeatureCollection", "features": [good, wrong]}).encode()

    def _hostile(self, rng: random.Random, good: dict[str, Any], number: int) -> bytes:
        text = json.dumps({"type": "FeatureCollection", "features": [good]})
        return rng.choice(
            (
                b"",
                text[:-3].encode(),
                text.replace('"name"', '"na\\ud800me"').encode() + b"x",
                b'{"type": "FeatureCollection", "type": "Feature", "features": []}',
                b'{"type": "FeatureCollection", "features": {}}',
                b'{"type": "Topology"}',
                b'{"features": [1]}',
                b'{"type" "Feature"}',
                b'{"type": "FeatureCollection", 3: 4}',
                b'{"type": "FeatureCollection", "features": [1 2]}',
                b"\xef\xbb\xbf" + text.encode(),
                text.encode() + b"\xff",
                b"[]",
                ("{" + ",".join(f'"m{i}": {i}' for i in range(1_100)) + "}").encode(),
                text.replace("[0, 0]", "[NaN, 0]").encode(),
                f'{{"type": "FeatureCollection", "features": [], "n": {number}'.encode(),
            )
        )
