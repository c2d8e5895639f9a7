"""Makes the outlines of maps from packages of the npm registry: `tools/make_outlines.py FOLDER`.

FOLDER has `world-atlas/land-110m.json` and `us-atlas/states-10m.json`, as the packages have them. What is
made is coarse: a map of the console says where data lies, not where a border runs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

OUT = Path(__file__).parents[1] / "src" / "kfm" / "web" / "console" / "outlines"
UNITS = 100  # of a degree: whole numbers are short
SOURCES = {
    "land": ("world-atlas", "2.0.2", "land-110m.json", 0.25, "Natural Earth 4.1.0, public domain"),
    "states": (
        "us-atlas", "3.0.1", "states-10m.json", 0.06,
        "U.S. Census Bureau, cartographic boundaries of 2017, public domain",
    ),
}  # fmt: skip
Point = tuple[float, float]


def decoded(topology: Any) -> list[list[Point]]:
    """The arcs of a TopoJSON document, in degrees."""
    (scale_x, scale_y), (move_x, move_y) = topology["transform"]["scale"], topology["transform"]["translate"]
    arcs = []
    for arc in topology["arcs"]:
        x = y = 0
        points = []
        for dx, dy in arc:
            x, y = x + dx, y + dy
            points.append((x * scale_x + move_x, y * scale_y + move_y))
        arcs.append(points)
    return arcs


def simplified(points: Sequence[Point], tolerance: float) -> list[Point]:
    """Without points that lie near the line of their neighbours (Douglas, Peucker)."""
    keep = {0, len(points) - 1}
    waiting = [(0, len(points) - 1)]
    while waiting:
        first, last = waiting.pop()
        far, place = 0.0, None
        for number in range(first + 1, last):
            apart = distance(points[number], points[first], points[last])
            if apart > far:
                far, place = apart, number
        if place is not None and far > tolerance:
            keep.add(place)
            waiting += [(first, place), (place, last)]
    return [points[number] for number in sorted(keep)]


def distance(point: Point, start: Point, end: Point) -> float:
    (x, y), (x1, y1), (x2, y2) = point, start, end
    length = (x2 - x1) ** 2 + (y2 - y1) ** 2
    share = 0.0 if length == 0 else max(0.0, min(1.0, ((x - x1) * (x2 - x1) + (y - y1) * (y2 - y1)) / length))
    return ((x - x1 - share * (x2 - x1)) ** 2 + (y - y1 - share * (y2 - y1)) ** 2) ** 0.5


def rings(geometry: Any, arcs: Sequence[Sequence[Point]]) -> Iterator[list[Point]]:
    """Closed rings of polygons, whose arcs may be taken backwards."""
    if geometry["type"] == "GeometryCollection":
        for each in geometry["geometries"]:
            yield from rings(each, arcs)
        return
    polygons = geometry["arcs"] if geometry["type"] == "MultiPolygon" else [geometry["arcs"]]
    for polygon in polygons:
        for ring in polygon:
            points: list[Point] = []
            for number in ring:
                part = list(arcs[number]) if number >= 0 else list(arcs[~number])[::-1]
                points += part[1:] if points else part
            yield points


def whole(line: Sequence[Point]) -> list[int]:
    """The first point and the steps from there, in units of a degree."""
    made: list[int] = []
    x = y = 0
    for number, point in enumerate(line):
        new_x, new_y = round(point[0] * UNITS), round(point[1] * UNITS)
        if number and (new_x, new_y) == (x, y):
            continue
        made += [new_x - x, new_y - y]
        x, y = new_x, new_y
    return made


def main(folder: Path) -> None:
    made: dict[str, list[list[int]]] = {}
    origins = {}
    for name, (package, version, file, tolerance, data_of) in SOURCES.items():
        data = (folder / package / file).read_bytes()
        topology = json.loads(data)
        arcs = [simplified(arc, tolerance) for arc in decoded(topology)]
        if name == "land":
            lines = list(rings(topology["objects"]["land"], arcs))
        else:  # borders are lines: each is drawn once
            lines = [arc for arc in arcs if max(x for x, _ in arc) < 0]
        size = 3 if name == "land" else 2
        made[name] = [line for line in map(whole, lines) if len(line) >= 2 * size]
        origins[name] = {
            "package": package,
            "version": version,
            "file": file,
            "licence": "ISC",
            "data": data_of,
            "sha256": sha256(data).hexdigest(),
        }
    text = json.dumps({"units": UNITS, **made}, separators=(",", ":")) + "\n"
    OUT.mkdir(exist_ok=True)
    (OUT / "outlines.json").write_text(text)
    origins["outlines.json"] = {"sha256": sha256(text.encode()).hexdigest()}
    (OUT / "origins.json").write_text(json.dumps(origins, indent=2) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
