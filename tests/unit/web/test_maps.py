"""Maps are drawn from outlines that we may ship, and stay small."""

from __future__ import annotations

import json
from hashlib import sha256
from importlib import resources

from hypothesis import given, settings
from hypothesis import strategies as st

from kfm.reports.dataset_extent import DatasetExtent, Footprint
from kfm.web.console.views.maps import map_of, outlines
from tests.unit.reports.test_dataset_extent import BOXES

BYTES_MAX = 70_000


def test_outlines_are_what_was_made_and_say_where_they_are_from() -> None:
    """The file is to the byte what its origins say, each of them with a licence that lets us ship it."""
    folder = resources.files("kfm.web.console").joinpath("outlines")
    origins = json.loads(folder.joinpath("origins.json").read_bytes())
    made = origins.pop("outlines.json")
    assert sha256(folder.joinpath("outlines.json").read_bytes()).hexdigest() == made["sha256"]
    assert {one["licence"] for one in origins.values()} == {"ISC"}
    assert all(one["data"].endswith("public domain") for one in origins.values())
    assert "Permission to use, copy, modify" in folder.joinpath("LICENSE.ISC").read_text()
    for line in (line for lines in outlines().values() for line in lines):
        assert all(-180 <= x <= 180 and -90 <= y <= 90 for x, y in line)


@settings(max_examples=60, deadline=None)
@given(st.lists(BOXES, min_size=1, max_size=20))
def test_a_map_is_small_wherever_it_is(boxes: list[tuple[float, float, float, float]]) -> None:
    """Whatever it shows: outlines and cells together leave the page below 100 kB."""
    footprints = tuple(Footprint(box=box, count=number + 1) for number, box in enumerate(boxes))
    extent = DatasetExtent(
        start_ms=None, end_ms=None, box=boxes[0], items=1, why_not=None, footprints=footprints
    )
    drawn = map_of(extent)
    assert drawn is not None
    size = len(drawn.land) + len(drawn.states) + sum(len(each.path) for each in drawn.shades)
    assert size <= BYTES_MAX
    assert drawn.height > 0


def test_nothing_is_drawn_without_a_place() -> None:
    """Where no place is known, or none may be told, there is no map."""
    assert map_of(DatasetExtent(start_ms=None, end_ms=None, box=None, items=0, why_not="x")) is None
