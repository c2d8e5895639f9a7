"""Pages of pipeline runs: the graph with the outcome of each node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from kfm.model.records import Node, Record
from kfm.model.run_state import Pass
from kfm.model.wording import counted, duration
from kfm.pipelines.draw import lay_out
from kfm.web.console import state_words
from kfm.web.console.state_words import Word
from kfm.web.console.views import explanation
from kfm.web.console.visit import ROWS, NotHere, Paging, Visit, paged, short

FILTERS = ("page",)
_STATES = {"success": "succeeded"}


class PassRow(Record, frozen=True):
    run_id: str
    href: str
    pipeline_id: str
    branch: str
    word: Word
    started_ms: int
    took_ms: int | None
    counts: str


class PipelineRunList(Record, frozen=True):
    rows: tuple[PassRow, ...]
    paging: Paging


class PassView(Record, frozen=True):
    run_id: str
    title: str
    pipeline_id: str
    branch: str
    word: Word
    started_ms: int
    ended_ms: int | None
    attempt: int
    graph: Graph
    story: explanation.Story
    command: str


def pass_view(visit: Visit, run_id: str) -> PassView | None:
    """None: nothing of that id is a pass."""
    from kfm.reports.pipeline_runs import read_pass

    with visit.place.app(visit.identity, read_only=True) as app:
        seen = read_pass(app, run_id)
    if seen is None or _is_hidden(visit, seen.found.pipeline_id):
        return None
    return PassView(
        run_id=seen.found.run_id,
        title=f"Pipeline {seen.found.pipeline_id}",
        pipeline_id=seen.found.pipeline_id,
        branch=seen.found.branch,
        word=state_words.word(_STATES.get(seen.found.state, seen.found.state)),
        started_ms=seen.found.started_at_ms,
        ended_ms=seen.found.ended_at_ms,
        attempt=seen.found.attempt,
        graph=graph(nodes_of(seen.found, seen.nodes)),
        story=explanation.story(visit, seen.account),
        command=f"kfm graph {short(seen.found.run_id)}",
    )


def view(visit: Visit) -> PipelineRunList:
    """All passes, newest first."""
    from kfm.reports.pipeline_runs import list_passes

    skipped = (visit.page() - 1) * ROWS
    with visit.place.app(visit.identity, read_only=True) as app:
        found = list_passes(app, skipped + ROWS + 1)[skipped:]
    rows = [_row(visit, each) for each in found[:ROWS] if not _is_hidden(visit, each.pipeline_id)]
    return PipelineRunList(rows=tuple(rows), paging=paged(visit, len(found), "passes"))


def view_one(visit: Visit) -> PassView:
    found = pass_view(visit, visit.params["run_id"])
    if found is None:
        raise NotHere("No pass of that id is on record. `kfm run-state list` shows them.")
    return found


def _row(visit: Visit, found: Pass) -> PassRow:
    ended = found.ended_at_ms
    return PassRow(
        run_id=short(found.run_id),
        href=visit.at("pipelines", found.run_id),
        pipeline_id=found.pipeline_id,
        branch=found.branch,
        word=state_words.word(_STATES.get(found.state, found.state)),
        started_ms=found.started_at_ms,
        took_ms=ended - found.started_at_ms if ended is not None else None,
        counts=", ".join(
            f"{count:,} {state_words.of_node(name).text}" for name, count in found.counts.items() if count
        ),
    )


def _is_hidden(visit: Visit, pipeline_id: str) -> bool:
    from kfm.model.redaction import hidden_names

    hidden = None if "operate" in visit.identity.roles else hidden_names(visit.place.settings.datasets)
    return hidden is not None and hidden(pipeline_id)


def nodes_of(found: Pass, records: dict[str, Node]) -> list[NodeSeen]:
    """Each node with the word for what is on record of it; of what has not ended nothing is."""
    made: dict[str, NodeSeen] = {}
    for name, upstream in found.graph:
        record = records.get(name)
        if record is not None:
            reason = record.error_code if record.outcome == "failed" else record.reason
            word, took = state_words.of_node(record.outcome), record.duration_ms
        elif found.state == "running":
            word, reason, took = state_words.word("running"), "no record yet", None
        else:
            bad = next((each for each in upstream if made[each].word.text in ("failed", "blocked")), None)
            reason = f"{bad} {made[bad].word.text}" if bad is not None else "the pipeline run stopped before"
            word, took = state_words.word("blocked"), None
        made[name] = NodeSeen(name=name, word=word, reason=reason or "", took_ms=took, reads=upstream)
    return list(made.values())


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


class GraphBox(Record, frozen=True):
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
    boxes: tuple[GraphBox, ...]
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


def _box(node: NodeSeen, place: tuple[float, float, float]) -> GraphBox:
    left, right, middle = place
    told = [node.name, node.word.text, node.reason]
    told += [f"took {duration(node.took_ms)}"] if node.took_ms is not None else []
    return GraphBox(
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
