"""Where and when the data of a dataset lies: its span of time, its box, and footprints to be drawn."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from kfm.model.errors import KfmError
from kfm.model.quantities import counted
from kfm.model.records import Record
from kfm.publish.contract.formats import format_of
from kfm.publish.contract.geojson import GeometryProblem, check_geometry, features, positions
from kfm.publish.contract.plain_rows import LOOK_LIMITS, Open
from kfm.publish.contract.streams import FileProblem, JsonStream
from kfm.reports.dataset_schema import newest_items

if TYPE_CHECKING:
    from kfm.model.records import Asset, Item
    from kfm.model.versions import Version

HIDDEN_LEVELS = ("restricted", "blocked")  # of CARE: where such data lies is told to no reader
ITEMS_MAX = 500  # of each source, the newest
FEATURES_MAX = 20_000
BYTES_MAX = 8 * 1024 * 1024
FILES_MAX = 20

Box = tuple[float, float, float, float]  # west, south, east, north; west of east unless it crosses 180°


class Footprint(Record, frozen=True):
    """A box, and how many features or items have it."""

    box: Box
    count: int


class DatasetExtent(Record, frozen=True):
    start_ms: int | None  # None: nothing is published
    end_ms: int | None
    box: Box | None
    items: int
    why_not: str | None  # no place is told
    footprints: tuple[Footprint, ...] = ()
    what: str = ""  # the footprints are of


def dataset_extent(version: Version, sources: Sequence[str], open: Open) -> DatasetExtent:
    """Of the features of the newest GeoJSON files; where there are none, of the items."""
    facts = version.facts()
    start_ms, end_ms = (facts.start_ms, facts.end_ms) if facts.files else (None, None)
    level = version.header.rights.care.level
    if level in HIDDEN_LEVELS:
        why = f"where data of the level {level} lies is not told"
        return DatasetExtent(start_ms=start_ms, end_ms=end_ms, box=None, items=len(version), why_not=why)
    box = _numbers(facts.bbox)
    items = [item for source_id in sources for item in newest_items(version, source_id, ITEMS_MAX)]
    found, what = _of_features(items, sources, open)
    if not found:
        boxes = [_numbers(item.bbox) for item in items]
        found = Counter(each for each in boxes if each is not None)
        what = f"{counted(sum(found.values()), 'item')}, the newest" if found else ""
    return DatasetExtent(
        start_ms=start_ms,
        end_ms=end_ms,
        box=box,
        items=len(version),
        why_not=None if box or found else "no file tells where it lies, and the dataset declares no `bbox`",
        footprints=tuple(Footprint(box=each, count=count) for each, count in found.items()),
        what=what,
    )


def _numbers(box: Sequence[str] | None) -> Box | None:
    if box is None:
        return None
    west, south, east, north = map(float, box)
    return (west, south, east, north)


def _of_features(items: Sequence[Item], sources: Sequence[str], open: Open) -> tuple[Counter[Box], str]:
    """The boxes of the features of the newest window of each source, as many as the bounds allow."""
    newest = {item.source_id: item for item in items}
    files = [
        asset
        for source_id in sources
        if source_id in newest
        for asset in newest[source_id].assets
        if format_of(asset) == "geojson"
    ]
    left, found, read = BYTES_MAX, Counter[Box](), 0
    for asset in files[:FILES_MAX]:
        if asset.size > left:
            continue
        left -= asset.size
        read += 1
        try:
            for box in _boxes(asset, open):
                found[box] += 1
                if found.total() == FEATURES_MAX:
                    break
        except (FileProblem, GeometryProblem, KfmError, OSError):
            continue
    of = f"{read} of " if read < len(files) else ""
    files_text = f"{of}{counted(len(files), 'GeoJSON file')}"
    return found, f"{counted(found.total(), 'feature')} of {files_text}" if found else ""


def _boxes(asset: Asset, open: Open) -> Iterator[Box]:
    reader = open(asset.sha256)
    try:
        for feature in features(JsonStream(reader, LOOK_LIMITS.element_chars_max), {}):
            geometry = feature.get("geometry") if isinstance(feature, dict) else None
            if geometry is None:
                continue
            check_geometry(geometry)
            places = list(positions(geometry))
            if places:
                across, along = zip(*places, strict=True)
                yield min(across), min(along), max(across), max(along)
    finally:
        reader.close()


# --- bins ------------------------------------------------------------------------------


class Bin(Record, frozen=True):
    """A cell of a grid over a view, and how many footprints touch it."""

    column: int
    row: int  # from the north
    count: int


def binned(footprints: Sequence[Footprint], view: Box, columns: int, rows: int) -> list[Bin]:
    """What a drawing shows in place of each footprint: at most as much as the grid has cells."""
    west, south, east, north = view
    wide, high = (east - west) / columns, (north - south) / rows
    found: Counter[tuple[int, int]] = Counter()
    for one in footprints:
        for box in uncrossed(one.box):
            first, last = _cell(box[0] - west, wide, columns), _cell(box[2] - west, wide, columns)
            top, bottom = _cell(north - box[3], high, rows), _cell(north - box[1], high, rows)
            if box[2] < west or box[0] > east or box[3] < south or box[1] > north:
                continue
            for column in range(first, last + 1):
                for row in range(top, bottom + 1):
                    found[column, row] += one.count
    return [Bin(column=column, row=row, count=count) for (column, row), count in sorted(found.items())]


def _cell(apart: float, size: float, cells: int) -> int:
    return max(0, min(cells - 1, math.floor(apart / size)))


def uncrossed(box: Box) -> tuple[Box, ...]:
    """One that crosses 180° as two."""
    west, south, east, north = box
    return (
        ((west, south, east, north),)
        if west <= east
        else ((west, south, 180, north), (-180, south, east, north))
    )


def view_of(extent: DatasetExtent) -> Box:
    """The part of the world that a map of it shows: what it covers and some of what is around."""
    boxes = [extent.box] if extent.box else [one.box for one in extent.footprints]
    parts = list(chain.from_iterable(uncrossed(box) for box in boxes))
    if not parts or any(box[0] > box[2] for box in boxes):
        return (-180.0, -90.0, 180.0, 90.0)
    west, south = min(box[0] for box in parts), min(box[1] for box in parts)
    east, north = max(box[2] for box in parts), max(box[3] for box in parts)
    wide = max((east - west) * 1.6, (north - south) * 3.2, 16.0)
    high = wide / 2
    middle, level = (west + east) / 2, (south + north) / 2
    if wide >= 300 or high >= 160:
        return (-180.0, -90.0, 180.0, 90.0)
    west = max(-180.0, min(180.0 - wide, middle - wide / 2))
    south = max(-90.0, min(90.0 - high, level - high / 2))
    return (west, south, west + wide, south + high)
