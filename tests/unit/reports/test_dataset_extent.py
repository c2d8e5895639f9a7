"""Where data lies, as a map shows it: nothing is lost in its cells, and what may not be told is not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm.reports.dataset_extent import Box, DatasetExtent, Footprint, binned, dataset_extent, view_of
from tests.unit.reports.tables import Store

WEST, SOUTH = st.floats(-180, 179, allow_nan=False), st.floats(-90, 89, allow_nan=False)
SIZE = st.floats(0, 60, allow_nan=False)
BOXES = st.builds(
    lambda west, south, wide, high: (west, south, min(west + wide, 180.0), min(south + high, 90.0)),
    WEST, SOUTH, SIZE, SIZE,
)  # fmt: skip


def _points(*places: tuple[float, float]) -> bytes:
    made = [
        {"type": "Feature", "properties": {}, "geometry": {"type": "Point", "coordinates": list(place)}}
        for place in places
    ]
    return json.dumps({"type": "FeatureCollection", "features": made}).encode()


def test_features_are_footprints_and_items_where_there_are_none() -> None:
    """The features of the newest file are drawn; without one, the boxes of the items."""
    store = Store()
    item = store.item(
        {"a.geojson": _points((-98, 38), (-98, 38), (-97, 39))}, bbox=("-98", "38", "-97", "39")
    )
    found = dataset_extent(store.version(item), ["s"], store.open)
    assert (found.box, found.what) == ((-98.0, 38.0, -97.0, 39.0), "3 features of 1 GeoJSON file")
    assert {one.box: one.count for one in found.footprints} == {
        (-98, 38, -98, 38): 2,
        (-97, 39, -97, 39): 1,
    }
    boxes = [store.item({f"{day}.csv": b"id\n1\n"}, day, ("-102", "37", "-95", "40")) for day in range(3)]
    again = dataset_extent(store.version(*boxes), ["s"], store.open)
    assert [(one.box, one.count) for one in again.footprints] == [((-102.0, 37.0, -95.0, 40.0), 3)]


@pytest.mark.parametrize("level", ["restricted", "blocked"])
def test_where_protected_data_lies_is_not_told(level: str) -> None:
    """Data of these levels has a span of time, and no place."""
    store = Store()
    item = store.item({"a.geojson": _points((-98, 38))}, bbox=("-98", "38", "-98", "38"))
    found = dataset_extent(store.version(item, level=level), ["s"], store.open)  # type: ignore[arg-type]
    assert (found.box, found.footprints) == (None, ())
    assert level in (found.why_not or "")
    assert found.start_ms == 0


@given(st.lists(BOXES, min_size=1, max_size=12), st.integers(1, 40), st.integers(1, 40))
def test_every_footprint_is_in_a_cell(boxes: list[Box], columns: int, rows: int) -> None:
    """Whatever lies in the view is in at least one cell, and there are no more cells than the grid has."""
    footprints = [Footprint(box=box, count=1) for box in boxes]
    extent = DatasetExtent(
        start_ms=None, end_ms=None, box=None, items=0, why_not=None, footprints=tuple(footprints)
    )
    view = view_of(extent)
    assert min(view[0] + 180, view[1] + 90, 180.0001 - view[2], 90.0001 - view[3]) >= 0
    cells = binned(footprints, view, columns, rows)
    assert sum(cell.count for cell in cells) >= len(boxes)
    assert len({(cell.column, cell.row) for cell in cells}) == len(cells) <= columns * rows
    assert all(0 <= cell.column < columns and 0 <= cell.row < rows for cell in cells)


def test_what_crosses_the_date_line_is_drawn_on_both_sides() -> None:
    """A box from 172° to -172° is at the two edges of the world, not around it."""
    box: Box = (172.0, -8.0, -172.0, 8.0)
    extent = DatasetExtent(start_ms=None, end_ms=None, box=box, items=1, why_not=None)
    assert view_of(extent) == (-180.0, -90.0, 180.0, 90.0)
    cells = binned([Footprint(box=box, count=1)], view_of(extent), 36, 18)
    assert {cell.column for cell in cells} == {0, 35}
