"""Where the nodes of a graph stand in a picture: in layers, each after what it reads from.

The same graph always gives the same places: no chance is involved, and ties go by the order in which
nodes were declared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

SWEEPS = 8
BENDS_MAX = 20_000  # points that long lines pass through; a graph with more is drawn with straight lines

Reads = Mapping[str, tuple[str, ...]]


class Cell(NamedTuple):
    """One node as it is drawn."""

    id: str
    word: str  # ran, unchanged, failed, …
    reason: str = ""
    took_ms: int | None = None


@dataclass(frozen=True)
class Layout:
    """Layers of names in order, and how far down each stands, in steps."""

    layers: list[list[str]]
    places: dict[str, float]
    lines: list[tuple[str, ...]]  # from, the bends in between, to
    height: float


def depths(reads: Reads) -> dict[str, int]:
    """Node → its layer, from 0: one more than the deepest that it reads from; those come first."""
    depth: dict[str, int] = {}
    for node, upstream in reads.items():
        depth[node] = 1 + max((depth[each] for each in upstream), default=-1)
    return depth


def lay_out(reads: Reads) -> Layout:
    """`reads` in an order in which every node comes after what it reads from."""
    depth = depths(reads)
    layers: list[list[str]] = [[] for _ in range(1 + max(depth.values(), default=-1))]
    for node, number in depth.items():
        layers[number].append(node)
    lines, links = _lines(reads, depth, layers)
    _sort(layers, links)
    places = _places(layers, links)
    return Layout(layers, places, lines, max(places.values(), default=0) + 1)


# A link is a piece of a line: between two names in neighbouring layers.
Links = tuple[dict[str, list[str]], dict[str, list[str]]]  # backwards, forwards


def _lines(
    reads: Reads, depth: Mapping[str, int], layers: list[list[str]]
) -> tuple[list[tuple[str, ...]], Links]:
    long = sum(depth[node] - depth[each] - 1 for node, upstream in reads.items() for each in upstream)
    lines: list[tuple[str, ...]] = []
    back: dict[str, list[str]] = {}
    ahead: dict[str, list[str]] = {}
    for node, upstream in reads.items():
        for each in upstream:
            bends = []
            if long <= BENDS_MAX:
                for number in range(depth[each] + 1, depth[node]):
                    bends.append(f"{each}/{node}/{number}")  # no node has a slash in its name
                    layers[number].append(bends[-1])
            line = (each, *bends, node)
            lines.append(line)
            for first, second in pairwise(line):
                back.setdefault(second, []).append(first)
                ahead.setdefault(first, []).append(second)
    return lines, (back, ahead)


def _sort(layers: list[list[str]], links: Links) -> None:
    """Fewer crossings: everything goes near the middle of what it is linked to, there and back again."""
    back, ahead = links
    for sweep in range(SWEEPS):
        forwards = sweep % 2 == 0
        order = range(1, len(layers)) if forwards else range(len(layers) - 2, -1, -1)
        for number in order:
            beside = layers[number - 1 if forwards else number + 1]
            place = {name: index for index, name in enumerate(beside)}
            near = back if forwards else ahead
            own = {name: index for index, name in enumerate(layers[number])}
            scale = len(beside) / max(1, len(own))
            layers[number].sort(key=lambda name: _middle(name, near, place, own[name] * scale))


def _middle(name: str, near: Mapping[str, Sequence[str]], place: Mapping[str, int], own: float) -> float:
    found = [place[each] for each in near.get(name, ()) if each in place]
    return sum(found) / len(found) if found else own


def _places(layers: list[list[str]], links: Links) -> dict[str, float]:
    """How far down each stands: as near to its neighbours as its order and a distance of 1 allow."""
    back, ahead = links
    tallest = max(map(len, layers), default=0)
    places = {
        name: index + (tallest - len(layer)) / 2 for layer in layers for index, name in enumerate(layer)
    }
    for sweep in range(SWEEPS):
        forwards = sweep % 2 == 0
        for number in range(1, len(layers)) if forwards else range(len(layers) - 2, -1, -1):
            near = back if forwards else ahead
            wanted = []
            for name in layers[number]:
                found = [places[each] for each in near.get(name, ())]
                wanted.append(sum(found) / len(found) if found else places[name])
            places |= zip(layers[number], apart(wanted), strict=True)
    top = min(places.values(), default=0)
    return {name: round(place - top, 3) for name, place in places.items()}


def apart(wanted: Sequence[float]) -> list[float]:
    """As near to what is wanted as can be (least squares), in this order and at least 1 apart."""
    blocks: list[tuple[float, int]] = []  # sum, count of wishes that share one value
    for index, value in enumerate(wanted):
        total, count = value - index, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / count:
            more, members = blocks.pop()
            total, count = total + more, count + members
        blocks.append((total, count))
    found: list[float] = []
    for total, count in blocks:
        for _ in range(count):
            found.append(total / count + len(found))
    return found
