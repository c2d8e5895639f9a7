"""Parts of a large graph that a person can read: what is near some nodes, and groups in their place."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from kfm.pipelines.draw import Reads

GROUP_MIN = 3  # fewer of one prefix stay nodes
_PARTS = re.compile(r"[^./:_-]+", re.ASCII)


def near(reads: Reads, centres: Collection[str], hops: int) -> dict[str, tuple[str, ...]]:
    """The nodes at most so many edges before or behind one of `centres`, with the edges between them."""
    readers: dict[str, list[str]] = {}
    for node, upstream in reads.items():
        for each in upstream:
            readers.setdefault(each, []).append(node)
    found = _within(reads, centres, hops) | _within(readers, centres, hops)
    return {
        node: tuple(each for each in upstream if each in found)
        for node, upstream in reads.items()
        if node in found
    }


def _within(links: Mapping[str, Collection[str]], centres: Collection[str], hops: int) -> set[str]:
    found = set(centres)
    edge = found
    for _ in range(hops):
        edge = {each for node in edge for each in links.get(node, ())} - found
        found |= edge
    return found


class GroupedGraph(NamedTuple):
    """A graph in which some boxes stand for several nodes."""

    reads: dict[str, tuple[str, ...]]  # in an order in which each box comes after what it reads from
    members: dict[str, tuple[str, ...]]  # of the boxes that are groups


def grouped(reads: Reads, opened: Collection[str] = ()) -> GroupedGraph:
    """Nodes that share the first part of their names become one box, but for groups that are `opened`.

    A group that would read from itself by way of others stays open: the drawing has layers, and no circles.
    """
    names: dict[str, list[str]] = {}
    for node in reads:
        names.setdefault(prefix_of(node), []).append(node)
    closed = {
        name: tuple(nodes)
        for name, nodes in names.items()
        if len(nodes) >= GROUP_MIN and name not in opened and name not in reads
    }
    while True:
        boxes = _boxes(reads, closed)
        try:
            order = tuple(TopologicalSorter(boxes).static_order())
        except CycleError as error:
            circle: list[str] = error.args[1]
            for name in circle:
                closed.pop(name, None)
            continue
        return GroupedGraph({name: boxes[name] for name in order}, closed)


def prefix_of(node: str) -> str:
    """What comes before the first `.`, `/`, `:`, `_` or `-` of a name."""
    match = _PARTS.search(node)
    return match[0] if match is not None else node


def _boxes(reads: Reads, closed: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    box = {node: name for name, nodes in closed.items() for node in nodes}
    found: dict[str, dict[str, None]] = {}
    for node, upstream in reads.items():
        own = box.get(node, node)
        links = found.setdefault(own, {})
        links.update(dict.fromkeys(_others(own, upstream, box)))
    return {name: tuple(links) for name, links in found.items()}


def _others(own: str, upstream: Collection[str], box: Mapping[str, str]) -> Iterator[str]:
    return (name for each in upstream if (name := box.get(each, each)) != own)
