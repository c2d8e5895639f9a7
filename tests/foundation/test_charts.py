"""The charts in the documentation show what was measured, and what was measured is what is promised."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import pytest

from bench import charts
from bench.windows import Point, slopes

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", sorted(charts.CHARTS))
def test_a_chart_is_drawn_from_the_figures(name: str) -> None:
    """Figures that were measured anew are drawn anew (`python -m bench.charts`), and a page shows them."""
    drawn = charts.charts()[name]
    assert (charts.IMAGES / name).read_text(encoding="utf-8") == drawn
    assert f"images/{name}" in (charts.IMAGES.parent / "cost.md").read_text(encoding="utf-8")
    root = ElementTree.fromstring(drawn)
    assert root.findtext(f"{SVG}title"), "it is told in words, too"
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for line in root.iter(f"{SVG}polyline"):
        for x, y in (point.split(",") for point in line.attrib["points"].split()):
            assert 0 <= float(x) <= width
            assert 0 <= float(y) <= height


def test_axes_begin_at_nothing_and_end_above_everything() -> None:
    """Whatever the figures are: round steps from 0 to no less than the most."""
    for most in (0.0031, 0.7, 1, 19, 99.9, 100, 101, 5000, 123_456_789):
        ticks = charts._ticks(most, charts.Y_STEPS)
        assert ticks[0] == 0
        assert most <= ticks[-1] <= 2 * most
        steps = [after - before for before, after in pairwise(ticks)]
        assert max(steps) - min(steps) < 1e-6 * ticks[-1]


@pytest.mark.req("GRO-1")
def test_the_last_thousand_windows_cost_what_the_first_did() -> None:
    """Of 5,000 windows of a merged dataset, published by the product and collected: files, objects and bytes
    of the ledger that a window leaves differ by at most a tenth between the first and the last thousand."""
    points = [Point(**one) for one in charts.figures("windows.jsonl", "windows")]  # type: ignore[arg-type]
    assert (points[0].windows, points[-1].windows) == (1, 5000)
    for name in ("files", "objects", "ledger"):
        first, *_, last = slopes(points)[name]
        assert abs(last - first) <= first / 10, name
