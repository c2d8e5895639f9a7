"""A graph of nodes as a picture: where each box stands, and the curves between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from kfm.core.records import Record
from kfm.core.wording import counted, duration
from kfm.runs.layout import lay_out
from kfm.serving.console.words import Word

NODES_MAX = 200  # of more only the table is shown
NAME_CHARS_MAX = 28
BOX_HEIGHT, GAP, APART, MARGIN = 44, 14, 48, 8
CHAR_WIDTH, SMALL_WIDTH = 7.4, 6.3


class NodeSeen(Record, frozen=True):
    name: str
    word: Word
    reason: str = ""
    took_ms: int | None = None
    reads: tuple[str, ...] = ()
    href: str | None = None


class Box(Record, frozen=True):
    x: float
    y: float
    width: float
    name: str
    small: str
    title: str
    word: Word


class Graph(Record, frozen=True):
    width: float
    height: float
    boxes: tuple[Box, ...]
    curves: tuple[str, ...]
    said: str
    nodes: tuple[NodeSeen, ...]
    drawn: bool


def graph(nodes: Sequence[NodeSeen]) -> Graph:
    """`nodes` in an order in which each comes after what it reads from."""
    said = _said(nodes)
    if not nodes or len(nodes) > NODES_MAX:
        return Graph(width=0, height=0, boxes=(), curves=(), said=said, nodes=tuple(nodes), drawn=False)
    layout = lay_out({node.name: node.reads for node in nodes})
    known = {node.name: node for node in nodes}
    places: dict[str, tuple[float, float, float]] = {}  # left, right, middle
    x: float = MARGIN
    for layer in layout.layers:
        width = max(_width(known[name]) for name in layer if name in known)
        for name in layer:
            y = MARGIN + layout.places[name] * (BOX_HEIGHT + GAP)
            places[name] = (x, x + width, y + BOX_HEIGHT / 2)
        x += width + APART
    boxes = tuple(_box(node, places[node.name]) for node in nodes)
    return Graph(
        width=round(x - APART + MARGIN, 1),
        height=round(MARGIN * 2 + (layout.height - 1) * (BOX_HEIGHT + GAP) + BOX_HEIGHT, 1),
        boxes=boxes,
        curves=tuple(_curve([places[name] for name in line]) for line in layout.lines),
        said=said,
        nodes=tuple(nodes),
        drawn=True,
    )


def _box(node: NodeSeen, place: tuple[float, float, float]) -> Box:
    left, right, middle = place
    told = [node.name, node.word.text, node.reason]
    told += [f"took {duration(node.took_ms)}"] if node.took_ms is not None else []
    return Box(
        x=round(left, 1),
        y=round(middle - BOX_HEIGHT / 2, 1),
        width=round(right - left, 1),
        name=_cut(node.name),
        small=_small(node),
        title="; ".join(part for part in told if part),
        word=node.word,
    )


def _small(node: NodeSeen) -> str:
    took = [duration(node.took_ms)] if node.took_ms is not None else []
    return " · ".join([f"{node.word.sign} {node.word.text}", *took])


def _width(node: NodeSeen) -> float:
    return max(len(_cut(node.name)) * CHAR_WIDTH, len(_small(node)) * SMALL_WIDTH) + 24


def _cut(name: str) -> str:
    """The end of a name tells more than its middle."""
    half = (NAME_CHARS_MAX - 1) // 2
    return name if len(name) <= NAME_CHARS_MAX else f"{name[:half]}…{name[-half:]}"


def _curve(stops: Sequence[tuple[float, float, float]]) -> str:
    path = [f"M{stops[0][1]:.1f} {stops[0][2]:.1f}"]
    for before, after in pairwise(stops):
        middle = (before[1] + after[0]) / 2
        path.append(
            f"C{middle:.1f} {before[2]:.1f} {middle:.1f} {after[2]:.1f} {after[0]:.1f} {after[2]:.1f}"
        )
        if after is not stops[-1]:
            path.append(f"H{after[1]:.1f}")
    return "".join(path)


def _said(nodes: Sequence[NodeSeen]) -> str:
    counts: dict[str, int] = {}
    for node in nodes:
        counts[node.word.text] = counts.get(node.word.text, 0) + 1
    told = ", ".join(f"{count} {text}" for text, count in counts.items())
    return f"{counted(len(nodes), 'node')}: {told}" if nodes else "no nodes"


def chain(names: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Nodes one after the other."""
    return {name: (names[index - 1],) if index else () for index, name in enumerate(names)}
