"""A small map of where the data of a dataset lies, drawn on the server from outlines that come with kfm."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import resources

from kfm.model.quantities import counted
from kfm.model.records import Record
from kfm.reports.dataset_extent import Bin, Box, DatasetExtent, binned, uncrossed, view_of

HERE = "kfm.web.console"
WIDTH = 720
COLUMNS = 60  # of the bins
STATES_WIDE_MAX = 90.0  # degrees: on a wider map the borders of states are too small
STEPS = 3  # shades of bins
Place = Callable[[tuple[float, float]], tuple[float, float]]
_AMERICA: Box = (-180.0, 15.0, -60.0, 72.0)


class MapShade(Record, frozen=True):
    """Bins of about the same count, as the data of one path; the most have the last shade."""

    shade: int
    path: str


class MapBox(Record, frozen=True):
    x: float
    y: float
    width: float
    height: float


class Map(Record, frozen=True):
    width: int
    height: int
    land: str  # the data of a path
    states: str
    shades: tuple[MapShade, ...]
    boxes: tuple[MapBox, ...]
    summary: str


@cache
def outlines() -> dict[str, list[list[tuple[float, float]]]]:
    """Lines of degrees; `origins.json` beside them says where they are from."""
    found = json.loads(resources.files(HERE).joinpath("outlines", "outlines.json").read_bytes())
    return {name: [_line(each, found["units"]) for each in found[name]] for name in ("land", "states")}


def _line(steps: Sequence[int], units: int) -> list[tuple[float, float]]:
    x = y = 0
    made = []
    for dx, dy in zip(steps[::2], steps[1::2], strict=True):
        x, y = x + dx, y + dy
        made.append((x / units, y / units))
    return made


def map_of(extent: DatasetExtent) -> Map | None:
    """None: no place is known, or none may be told."""
    if extent.box is None and not extent.footprints:
        return None
    view = view_of(extent)
    west, south, east, north = view
    # Near the poles a degree of longitude is short; a map of half the world stays as it is.
    squeeze = math.cos(math.radians((south + north) / 2)) if east - west < 180 else 1.0
    scale = WIDTH / (east - west)
    high = scale / max(squeeze, 0.3)
    height = round((north - south) * high)

    def place(point: tuple[float, float], /) -> tuple[float, float]:
        return round((point[0] - west) * scale, 1), round((north - point[1]) * high, 1)

    rows = max(1, round(COLUMNS * height / WIDTH))
    found = binned(extent.footprints, view, COLUMNS, rows)
    boxes = [_box(each, place) for each in uncrossed(extent.box)] if extent.box else []
    drawn = outlines()
    is_america = east - west <= STATES_WIDE_MAX and _meets(view, _AMERICA)
    return Map(
        width=WIDTH,
        height=height,
        land=_path(drawn["land"], view, place, close=True),
        states=_path(drawn["states"], view, place, close=False) if is_america else "",
        shades=tuple(_shades(found, WIDTH / COLUMNS, height / rows)),
        boxes=tuple(boxes),
        summary=_summary(extent, len(found)),
    )


def _shades(bins: Sequence[Bin], wide: float, high: float) -> Iterator[MapShade]:
    """Neighbours of one shade are one piece: a map stays small, whatever it shows."""
    counts = {one.count for one in bins}
    most = max(counts, default=1)
    runs: dict[int, list[list[int]]] = {}
    for one in sorted(bins, key=lambda each: (each.row, each.column)):
        shade = max(1, math.ceil(STEPS * math.log1p(one.count) / math.log1p(most))) if len(counts) > 1 else 1
        known = runs.setdefault(shade, [])
        if known and known[-1][0] == one.row and known[-1][2] == one.column:
            known[-1][2] += 1
        else:
            known.append([one.row, one.column, one.column + 1])
    for shade, found in sorted(runs.items()):
        pieces = (
            f"M{first * wide:g},{round(row * high, 1):g}h{(last - first) * wide:g}v{round(high, 1):g}"
            f"h-{(last - first) * wide:g}z"
            for row, first, last in found
        )
        yield MapShade(shade=shade, path="".join(pieces))


def _box(box: Box, place: Place) -> MapBox:
    left, top = place((box[0], box[3]))
    right, bottom = place((box[2], box[1]))
    return MapBox(x=left, y=top, width=max(right - left, 2.0), height=max(bottom - top, 2.0))


def _meets(one: Box, other: Box) -> bool:
    return one[0] < other[2] and one[2] > other[0] and one[1] < other[3] and one[3] > other[1]


def _path(lines: Sequence[Sequence[tuple[float, float]]], view: Box, place: Place, *, close: bool) -> str:
    parts: list[str] = []
    for line in lines:
        xs, ys = [x for x, _ in line], [y for _, y in line]
        if not _meets((min(xs), min(ys), max(xs), max(ys)), view):
            continue
        placed = dict.fromkeys(map(place, _near(line, view))) if close else map(place, _near(line, view))
        points = " ".join(f"{x:g},{y:g}" for x, y in placed)
        parts.append(f"M{points}{'z' if close else ''}")
    return "".join(parts)


def _near(line: Sequence[tuple[float, float]], view: Box) -> Iterator[tuple[float, float]]:
    """Without points far outside of the view, as far as its edges stay where they are."""
    last = None
    for number, (x, y) in enumerate(line):
        side = _side((x, y), view)
        following = line[number + 1] if number + 1 < len(line) else None
        if side != (0, 0) and side == last and following is not None and _side(following, view) == side:
            continue
        last = side
        yield x, y


def _side(point: tuple[float, float], view: Box) -> tuple[int, int]:
    west, south, east, north = view
    wide, high = east - west, north - south
    x, y = point
    return (
        -1 if x < west - wide else 1 if x > east + wide else 0,
        -1 if y < south - high else 1 if y > north + high else 0,
    )


def _summary(extent: DatasetExtent, bins: int) -> str:
    box = ""
    if extent.box is not None:
        west, south, east, north = extent.box
        box = f"{_degrees(west, 'W', 'E')} to {_degrees(east, 'W', 'E')}, "
        box += f"{_degrees(south, 'S', 'N')} to {_degrees(north, 'S', 'N')}"
    cells = f"{extent.what}, in {counted(bins, 'cell')} of a grid" if extent.footprints else ""
    return "; ".join(part for part in (box, cells) if part)


def _degrees(value: float, below: str, above: str) -> str:
    return f"{abs(value):g}°{below if value < 0 else above if value > 0 else ''}"
