"""The picture of a pipeline run: deterministic, readable without colour, safe for any names."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm.pipelines.draw import LOOKS, NodeCell, apart, depths, lay_out, picture, sketch

GOLDEN = Path(__file__).parent / "golden"
SVG = "{http://www.w3.org/2000/svg}"
CELLS = [
    NodeCell("soil.samples", "ran", "inputs changed", 1234),
    NodeCell("soil.cells", "unchanged", "unchanged"),
    NodeCell('soil.<map> & "more"', "failed", "KFM607", 40),
    NodeCell("soil.report", "blocked", 'soil.<map> & "more" failed'),
    NodeCell("soil.index", "partial", "first run", 61_000),
]
READS = {
    "soil.samples": (),
    "soil.cells": (),
    'soil.<map> & "more"': ("soil.samples", "soil.cells"),
    "soil.report": ('soil.<map> & "more"', "soil.samples"),
    "soil.index": ("soil.cells",),
}
TITLE, DESCRIPTION = "soil, run 0190c2f0-0000 on main: failed", "1 ran, 1 failed, 1 blocked, 1 unchanged"

words = st.sampled_from([*LOOKS, "something new"])
names = st.text(min_size=1, max_size=12).filter(lambda name: "/" not in name)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[NodeCell], dict[str, tuple[str, ...]]]:
    """Any names, any words, edges to earlier nodes only."""
    found = draw(st.lists(names, max_size=14, unique=True))
    reads: dict[str, tuple[str, ...]] = {}
    for number, name in enumerate(found):
        upstream = draw(st.lists(st.sampled_from(found[:number]), unique=True, max_size=4)) if number else []
        reads[name] = tuple(upstream)
    took = st.none() | st.integers(0, 10**12)
    return [NodeCell(name, draw(words), draw(st.text(max_size=90)), draw(took)) for name in found], reads


@pytest.mark.parametrize("direction", ["right", "down"])
def test_golden(direction: str, request: pytest.FixtureRequest) -> None:
    """A pipeline run is drawn byte for byte like the file that was reviewed."""
    drawn = picture(CELLS, READS, title=TITLE, description=DESCRIPTION, direction=direction)  # type: ignore[arg-type]
    assert drawn == (GOLDEN / f"pass-{direction}.svg").read_text(encoding="utf-8")


def test_nothing_is_said_by_colour_alone() -> None:
    """Each box names its node and its word; the whole has a title, a description and a legend."""
    root = ElementTree.fromstring(picture(CELLS, READS, title=TITLE, description=DESCRIPTION))
    assert root.get("role") == "img"
    assert root.findtext(f"{SVG}title") == TITLE
    assert root.findtext(f"{SVG}desc") == DESCRIPTION
    boxes = root.findall(f"{SVG}g[@role='img']")
    for cell, box in zip(CELLS, boxes, strict=True):
        shown = [text.text or "" for text in box.iter(f"{SVG}text")]
        assert shown[0] == cell.id
        assert shown[1].startswith(cell.word)
        assert cell.id in (box.get("aria-label") or "")
    legend = [text.text or "" for text in root.findall(f"{SVG}text")]
    assert {"1 ran", "1 failed", "1 blocked", "1 unchanged", "1 partial"} <= set(legend)


def _luminance(colour: str) -> float:
    parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_contrast() -> None:
    """Text stands out from each colour by 7 to 1 at least, and each border from the page by 3 to 1."""
    ink, page = _luminance("#1b1b1b"), _luminance("#ffffff")
    for fill, line, _, _ in LOOKS.values():
        assert (_luminance(fill) + 0.05) / (ink + 0.05) >= 7
        assert (page + 0.05) / (_luminance(line) + 0.05) >= 3


@given(graphs())
def test_odd_names(graph: tuple[list[NodeCell], dict[str, tuple[str, ...]]]) -> None:
    """No name, reason or shape of graph makes a drawing fail, hold a script, or give a terminal an order."""
    cells, reads = graph
    for direction in ("right", "down"):
        root = ElementTree.fromstring(picture(cells, reads, title="t", description="d", direction=direction))  # type: ignore[arg-type]
        assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
            "svg", "title", "desc", "rect", "text", "g", "path", "defs", "marker",
        }  # fmt: skip
        assert len(root.findall(f"{SVG}g[@role='img']")) == len(cells)
        assert not [name for element in root.iter() for name in element.keys() if name.startswith("on")]  # noqa: SIM118
    for limit in (300, 0):
        lines = sketch(cells, reads, limit)
        assert all(line.isprintable() for _, line in lines)
    assert len([line for _, line in sketch(cells, reads) if line.startswith("  ")]) == len(cells)


@given(graphs())
def test_layers(graph: tuple[list[NodeCell], dict[str, tuple[str, ...]]]) -> None:
    """Every node stands in a layer after all that it reads from, and no two stand in one place."""
    _, reads = graph
    depth, layout = depths(reads), lay_out(reads)
    assert all(depth[each] < depth[node] for node, upstream in reads.items() for each in upstream)
    seen = Counter(
        (number, layout.places[name]) for number, layer in enumerate(layout.layers) for name in layer
    )
    assert all(count == 1 for count in seen.values())
    assert all(place >= 0 for place in layout.places.values())


@given(st.lists(st.integers(-50, 50).map(float), max_size=30))
def test_apart(wanted: list[float]) -> None:
    """Neighbours keep their order and a distance of one; where that is so already, nothing moves."""
    found = apart(wanted)
    assert all(second - first >= 1 - 1e-9 for first, second in pairwise(found))
    spread = [float(index * 2) for index in range(len(wanted))]
    assert apart(spread) == spread


def test_large_graphs_are_summed_up() -> None:
    """Of too many nodes, text tells each layer and what happened; a picture has a box for each layer."""
    cells = [NodeCell(f"n{number}", "failed" if number == 7 else "unchanged", "") for number in range(2000)]
    reads = {cell.id: () if index < 1000 else (f"n{index - 1000}",) for index, cell in enumerate(cells)}
    lines = [line for _, line in sketch(cells, reads)]
    assert lines[:2] == [
        "layer 1: 1000 nodes: 1 failed, 999 unchanged",
        "layer 2: 1000 nodes: 1,000 unchanged",
    ]
    assert [line for line in lines if "n7" in line]
    assert len(lines) < 10
    drawn = picture(cells, reads, title="t", description="d")
    assert len(re.findall(r'<g role="img"', drawn)) == 2
    assert "layer 2: 1,000 nodes" in drawn
