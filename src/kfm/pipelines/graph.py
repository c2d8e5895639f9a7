"""A pipeline's graph: which node reads from which, and in what order they can run."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from kfm.model.errors import PipelineError
from kfm.model.quantities import did_you_mean

NODES_MAX = 1_000_000


def ordered(reads: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Every node after those that it reads from; otherwise in the order in which they were declared."""
    if len(reads) > NODES_MAX:
        raise PipelineError(f"{len(reads)} nodes in one pipeline; {NODES_MAX} are allowed.")
    if _is_ordered(reads):
        return list(reads)
    dependants: dict[str, list[str]] = {}
    waiting: dict[str, int] = {}
    order: list[str] = []
    for node, upstream in reads.items():
        if not upstream:
            order.append(node)
            continue
        waiting[node] = len(upstream)
        for each in upstream:
            if each in dependants:
                dependants[each].append(node)
            elif each in reads:
                dependants[each] = [node]
            else:
                raise PipelineError(_unknown(node, each, reads))
    ready = deque(order)
    while ready:
        for node in dependants.get(ready.popleft(), ()):
            waiting[node] -= 1
            if not waiting[node]:
                order.append(node)
                ready.append(node)
    if len(order) != len(reads):
        raise PipelineError(
            f"The nodes read from each other in a circle: {' → '.join(_circle(reads, set(order)))}."
        )
    return order


def _is_ordered(reads: Mapping[str, tuple[str, ...]]) -> bool:
    """Declared as they can run, as most pipelines are."""
    declared: set[str] = set()
    for node, upstream in reads.items():
        if upstream and not declared.issuperset(upstream):
            return False
        declared.add(node)
    return True


def descendants(reads: Mapping[str, tuple[str, ...]], roots: Iterable[str]) -> set[str]:
    """The nodes named, and all that read from them, directly or not."""
    found = set(roots)
    for node in ordered(reads):
        if node not in found and any(each in found for each in reads[node]):
            found.add(node)
    return found


def ancestors(reads: Mapping[str, tuple[str, ...]], leaves: Iterable[str]) -> set[str]:
    """The nodes named, and all that they read from, directly or not."""
    found: set[str] = set()
    ahead = list(leaves)
    while ahead:
        node = ahead.pop()
        if node not in found:
            found.add(node)
            ahead.extend(reads[node])
    return found


def _unknown(node: str, wanted: str, known: Iterable[str]) -> str:
    return f"{node} reads from {wanted}, which is no node of this pipeline{did_you_mean(wanted, known)}"


def _circle(reads: Mapping[str, tuple[str, ...]], settled: set[str]) -> list[str]:
    """One circle among the nodes that could not be ordered, its first node repeated at its end."""
    node = next(each for each in reads if each not in settled)
    path: list[str] = []
    while node not in path:
        path.append(node)
        node = next(each for each in reads[node] if each not in settled)
    return [*path[path.index(node) :], node]
