"""Graphs of 50, 200 and 1,000 nodes: what failed is drawn, and no drawing is too large to read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kfm.model.errors import UsageError
from kfm.web.console import state_words
from kfm.web.console.page_templates import drawing
from kfm.web.console.views.pipeline_runs import BOXES_MAX, GANTT_MAX, NodeSeen, graph
from kfm.web.console.visit import Visit


def _visit(**query: str) -> Visit:
    return Visit(*[cast(Any, SimpleNamespace())] * 4, "/console", "pipelines/x", 0, query, {})


def nodes_of(count: int, failed: str = "") -> list[NodeSeen]:
    """Basins, each a chain of five nodes, that all lead to one last node."""
    nodes, last = [], []
    for number in range(count - 1):
        basin, step = divmod(number, 5)
        name = f"basin{basin}_{step}"
        word = state_words.word("failed" if name == failed else "ran")
        reads = (f"basin{basin}_{step - 1}",) if step else ()
        nodes.append(NodeSeen(name=name, word=word, took_ms=number, reads=reads, started_ms=number * 10))
        if step == 4:
            last.append(name)
    return [*nodes, NodeSeen(name="merge", word=state_words.word("ran"), reads=tuple(last))]


@pytest.mark.parametrize("count", [50, 200, 1000])
def test_a_failed_node_is_drawn_with_two_hops_around_it(count: int) -> None:
    """Whatever the size of the graph; its box leads to its row, and the whole graph is a link away."""
    found = graph(_visit(), nodes_of(count, "basin3_2"))
    assert [box.name for box in found.drawn] == [f"basin3_{step}" for step in range(5)]
    assert next(box for box in found.drawn if box.word.text == "failed").href == "#node-basin3_2"
    assert [link.text for link in found.links] == ["Whole graph"]
    assert len(found.nodes) == count


@pytest.mark.parametrize("count", [50, 200, 1000])
def test_the_whole_is_drawn_in_groups(count: int) -> None:
    """One box for each basin, which leads to its nodes; beyond BOXES_MAX boxes only the table is left."""
    found = graph(_visit(focus="all"), nodes_of(count, "basin3_2"))
    groups = [box for box in found.drawn if box.members]
    assert len(found.drawn) <= BOXES_MAX
    assert len(groups) == {50: 10, 200: 40, 1000: 200}[count]
    worst = next(box for box in groups if box.name == "basin3")
    assert (worst.word.text, worst.reason) == ("failed", "4 ran, 1 failed")
    opened = graph(_visit(focus="all", open="basin3"), nodes_of(count, "basin3_2"))
    assert {f"basin3_{step}" for step in range(5)} <= {box.name for box in opened.drawn}


def test_where_the_time_went_is_to_scale() -> None:
    """The nodes that took longest, in the order in which they began; no more than can be read."""
    found = graph(_visit(), nodes_of(200))
    assert found.gantt is not None
    assert len(found.gantt.bars) == GANTT_MAX
    assert found.gantt.summary.startswith("the 40 longest of 199 nodes")
    assert [bar.x for bar in found.gantt.bars] == sorted(bar.x for bar in found.gantt.bars)


def test_a_drawing_fits_the_page() -> None:
    """A deep chain goes downwards; each edge has a head, and each box that leads somewhere is a link."""
    chain = [
        NodeSeen(name=f"n{number}", word=state_words.word("ran"), reads=(f"n{number - 1}",) if number else ())
        for number in range(20)
    ]
    drawn = drawing(graph(_visit(focus="all"), chain).drawn, "pipeline")
    assert drawn.width < 400
    assert 'marker-end="url(#pipeline-arrow)"' in drawn.elements
    assert drawn.elements.count("<a href=") == 20


def test_a_node_that_is_not_there_is_refused() -> None:
    """Nonsense in an address is told, not drawn."""
    with pytest.raises(UsageError, match="no node"):
        graph(_visit(focus="nowhere"), nodes_of(50))
