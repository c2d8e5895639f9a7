"""What is shown of a large graph is a true part of it, whatever the graph is like."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kfm.pipelines.draw import lay_out
from kfm.pipelines.graph_view import GROUP_MIN, grouped, near, prefix_of

NAMES = st.tuples(st.sampled_from("abc"), st.sampled_from(["", ".", "_", "-"]), st.integers(0, 9)).map(
    lambda parts: f"{parts[0]}{parts[1]}{parts[2]}"
)


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, tuple[str, ...]]:
    """Nodes in an order in which each comes after what it reads from."""
    names = draw(st.lists(NAMES, unique=True, max_size=24))
    return {
        name: tuple(draw(st.lists(st.sampled_from(names[:index]), unique=True, max_size=3))) if index else ()
        for index, name in enumerate(names)
    }


@given(graphs(), st.data())
def test_what_is_near_is_closed_under_hops(reads: dict[str, tuple[str, ...]], data: st.DataObject) -> None:
    """One hop more never shows less, none shows the centres alone; every edge between nodes is shown."""
    centres = data.draw(st.sets(st.sampled_from(sorted(reads)), max_size=2)) if reads else set()
    shown = [near(reads, centres, hops) for hops in (0, 1, 2, len(reads))]
    assert set(shown[0]) == centres
    for fewer, more in pairwise(shown):
        assert set(fewer) <= set(more)
    for part in shown:
        assert list(part) == [name for name in reads if name in part]
        assert all(set(up) == {each for each in reads[name] if each in part} for name, up in part.items())


@given(graphs(), st.sets(st.sampled_from("abc")))
def test_groups_hold_every_node_once_and_can_be_drawn(
    reads: dict[str, tuple[str, ...]], opened: set[str]
) -> None:
    """Each node is a box or in one group of its prefix; each edge between boxes is there; there are no
    circles, since it can be laid out."""
    found = grouped(reads, opened)
    inside = [node for nodes in found.members.values() for node in nodes]
    assert sorted([*inside, *(set(found.reads) - set(found.members))]) == sorted(reads)
    box = {node: name for name, nodes in found.members.items() for node in nodes}
    for name, nodes in found.members.items():
        assert len(nodes) >= GROUP_MIN
        assert name not in opened
        assert {prefix_of(node) for node in nodes} == {name}
    edges = {(box.get(up, up), box.get(node, node)) for node, several in reads.items() for up in several}
    shown = {(up, name) for name, several in found.reads.items() for up in several}
    assert shown == {(first, second) for first, second in edges if first != second}
    lay_out(found.reads)
