"""Queries to the catalogue: what is understood, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm.model.catalogue import Search
from kfm.model.errors import UsageError
from kfm.nodd.catalogue import search as searching
from kfm.nodd.catalogue.geometry import POSITIONS_MAX, Shape
from kfm.nodd.catalogue.search import (
    LIMIT_MAX,
    NAMES_MAX,
    PAGE_ITEMS_MAX,
    parse_bbox,
    parse_datetime,
    parse_limit,
    parse_names,
    parse_token,
)
from tests.catalogue_samples import sample_catalogue

DAY = 1_704_067_200_000


@pytest.mark.parametrize(
    ("parts", "box"),
    [
        (["-102.1", "37", "-94.6", "40"], (-102.1, 37.0, -94.6, 40.0)),
        ([170, -5, -170.5, 5], (170.0, -5.0, -170.5, 5.0)),
        ([1, 2, -100, 3, 4, 100], (1.0, 2.0, 3.0, 4.0)),
        ([0, 0, 0, 0], (0.0, 0.0, 0.0, 0.0)),
    ],
)
def test_boxes(parts: list[Any], box: tuple[float, ...]) -> None:
    """Texts or numbers, with or without heights, over the antimeridian or not."""
    assert parse_bbox(parts) == box


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [1, 2, 3],
        [1, 2, 3, 4, 5],
        ["a", 1, 2, 3],
        ["", "", "", ""],
        ["1_0", 0, 20, 20],
        ["nan", 1, 2, 3],
        [math.inf, 1, 2, 3],
        [True, 1, 2, 3],
        [None, 1, 2, 3],
        [[1], 1, 2, 3],
        [-181, 0, 0, 1],
        [0, 0, 181, 1],
        [0, -91, 0, 1],
        [0, 5, 1, 4],
        [0, 0, 5, 1, 1, 4],
        [10**400, 0, 1, 1],
        ["1" * 100, 0, 1, 1],
        ["١", 0, 1, 1],
    ],
)
def test_boxes_that_are_none(parts: list[Any]) -> None:
    """Too few, no numbers, off the globe, upside down."""
    with pytest.raises(UsageError):
        parse_bbox(parts)


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("2024-01-01T00:00:00Z", (DAY, DAY)),
        ("2024-01-01t00:00:00.0009z", (DAY, DAY)),
        ("2024-01-01T01:00:00+01:00/2024-01-01T00:00:01Z", (DAY, DAY + 1000)),
        ("../2024-01-01T00:00:00Z", (None, DAY)),
        ("/2024-01-01T00:00:00Z", (None, DAY)),
        ("2024-01-01T00:00:00Z/..", (DAY, None)),
        ("2024-01-01T00:00:00Z/", (DAY, None)),
    ],
)
def test_times(text: str, span: tuple[int | None, int | None]) -> None:
    """A moment, a range, a range with an open end."""
    assert parse_datetime(text) == span


@pytest.mark.parametrize(
    "text",
    [
        "",
        "..",
        "/",
        "../..",
        "2024-01-01",
        "2024-01-01T00:00:00",
        "2024-13-01T00:00:00Z",
        "2024-01-02T00:00:00Z/2024-01-01T00:00:00Z",
        "2024-01-01T00:00:00Z/2024-01-02T00:00:00Z/2024-01-03T00:00:00Z",
        "1985-04-12T23:20:50,Z",
        "x" * 1000,
    ],
)
def test_times_that_are_none(text: str) -> None:
    """Not RFC 3339, open on both sides, or the wrong way round."""
    with pytest.raises(UsageError):
        parse_datetime(text)


@pytest.mark.parametrize(
    "value", [0, -1, LIMIT_MAX + 1, "0", "x", "1.5", "", "1" * 50, 1.0, True, None, [1], "²"]
)
def test_limits_that_are_none(value: Any) -> None:
    """A limit is a whole number within bounds."""
    with pytest.raises(UsageError):
        parse_limit(value)


def test_a_page_has_a_bound_of_its_own() -> None:
    """More may be asked for than one page gives."""
    assert (parse_limit("7"), parse_limit(LIMIT_MAX)) == (7, PAGE_ITEMS_MAX)


@pytest.mark.parametrize(
    "value", ["", "x", "1", "1.", ".1", "1.-1", "1.1.1", "1.1\n", "٣.1", "9" * 16 + ".1", 5, None]
)
def test_tokens_that_are_none(value: Any) -> None:
    """Only what was given out is taken."""
    with pytest.raises(UsageError):
        parse_token(value)


def test_names_are_bounded() -> None:
    """Many, empty or endless names are refused; one that is said twice counts once."""
    assert parse_names("ids", ["a", "b", "a"]) == ("a", "b")
    for values in (["x"] * (NAMES_MAX + 1), [""], ["x" * 257], [1], [None]):
        with pytest.raises(UsageError):
            parse_names("ids", values)


# --- pages ---------------------------------------------------------------------------

ALL_RADARS = {"type": "MultiPoint", "coordinates": [[-97.44, 37.65], [-96.37, 41.32]]}  # KICT and KOAX
CORNERS = {"type": "MultiPoint", "coordinates": [[-102, 31], [-90, 42]]}  # no radar, but all between


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_shaped_pages_lose_nothing_between_them(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a page ends because enough candidates were compared: only the last may be empty."""
    monkeypatch.setattr(searching, "_BATCH", 5)
    monkeypatch.setattr(searching, "_CANDIDATES_ENOUGH", 10)
    model, shape = sample_catalogue(), Shape(ALL_RADARS)
    search = Search(collections=("nexrad-l2",), limit=limit)
    found: list[str] = []
    pages = 0
    while True:
        items, token = searching.find_page(model, search, shape)
        found += (item.item_id for item in items)
        pages += 1
        if token is None:
            break
        assert items
        search = msgspec.structs.replace(search, after=parse_token(token))
    wanted = [each.item_id for each in model.visible() if each.item_id[:4] in ("KICT", "KOAX")]
    assert sorted(found) == sorted(wanted)
    assert pages > 3


def test_a_shape_with_nothing_in_it_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than comparing a whole archive, it is asked to be narrowed."""
    monkeypatch.setattr(searching, "_BATCH", 5)
    monkeypatch.setattr(searching, "CANDIDATES_MAX", 20)
    search = Search(collections=("nexrad-l2",))
    with pytest.raises(UsageError, match="name a time or a collection"):
        searching.find_page(sample_catalogue(), search, Shape(CORNERS))


# --- shapes --------------------------------------------------------------------------


SQUARE = [[[0, 0], [10, 0], [10, 10], [0, 10], [0, 0]]]
HOLED = [*SQUARE, [[2, 2], [8, 2], [8, 8], [2, 8], [2, 2]]]


@pytest.mark.parametrize(
    ("geometry", "box", "touches"),
    [
        ({"type": "Point", "coordinates": [5, 5, 100]}, (0, 0, 5, 5), True),
        ({"type": "Point", "coordinates": [5.001, 5]}, (0, 0, 5, 5), False),
        ({"type": "Point", "coordinates": [-175, 0]}, (170, -5, -170, 5), True),
        ({"type": "Polygon", "coordinates": SQUARE}, (4, 4, 5, 5), True),
        ({"type": "Polygon", "coordinates": SQUARE}, (-5, -5, 20, 20), True),
        ({"type": "Polygon", "coordinates": HOLED}, (4, 4, 5, 5), False),
        ({"type": "Polygon", "coordinates": HOLED}, (1, 1, 1, 1), True),
        ({"type": "Polygon", "coordinates": HOLED}, (4, 4, 5, 9), True),
        ({"type": "MultiPolygon", "coordinates": [SQUARE]}, (10, 10, 12, 12), True),
        ({"type": "LineString", "coordinates": [[0, 0], [10, 10]]}, (4, 5, 5, 6), True),
        ({"type": "LineString", "coordinates": [[0, 0], [10, 10]]}, (0, 5, 4, 6), False),
        (
            {"type": "GeometryCollection", "geometries": [{"type": "Point", "coordinates": [1, 1]}]},
            (1, 1, 1, 1),
            True,
        ),
    ],
)
def test_shapes(geometry: dict[str, Any], box: tuple[float, float, float, float], touches: bool) -> None:
    """Edges count, holes do not, and a box may cross the antimeridian."""
    assert Shape(geometry).touches(box) is touches


@pytest.mark.parametrize(
    "geometry",
    [
        None,
        [],
        {"type": "Circle", "coordinates": [0, 0]},
        {"type": "Point", "coordinates": []},
        {"type": "Point", "coordinates": [1]},
        {"type": "Point", "coordinates": ["1", 2]},
        {"type": "Point", "coordinates": [181, 0]},
        {"type": "Point", "coordinates": [float("nan"), 0]},
        {"type": "LineString", "coordinates": [[0, 0]]},
        {"type": "Polygon", "coordinates": []},
        {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1]]]},
        {"type": "MultiPoint", "coordinates": []},
        {"type": "MultiPoint", "coordinates": [[0, 0]] * (POSITIONS_MAX + 1)},
        {"type": "GeometryCollection"},
    ],
)
def test_shapes_that_are_none(geometry: Any) -> None:
    """What is no GeoJSON geometry, or too much of one, is refused."""
    with pytest.raises(UsageError):
        Shape(geometry)


_SMALL = st.integers(-4, 4)
_POINTS = st.lists(st.tuples(_SMALL, _SMALL), min_size=3, max_size=6, unique=True)


@given(_POINTS, _SMALL, _SMALL, st.integers(0, 4), st.integers(0, 4))
@settings(max_examples=300, deadline=None)
def test_shapes_agree_with_geos(points: list[tuple[int, int]], x: int, y: int, wide: int, high: int) -> None:
    """Polygons that do not cross themselves touch the boxes that GEOS says they touch."""
    polygon = shapely.Polygon(points)
    if not polygon.is_valid:
        return
    box = (float(x), float(y), float(x + wide), float(y + high))
    ours = Shape({"type": "Polygon", "coordinates": [[list(point) for point in (*points, points[0])]]})
    assert ours.touches(box) == polygon.intersects(shapely.box(*box))
