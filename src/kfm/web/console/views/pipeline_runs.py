"""Pages of pipeline runs: the graph with the outcome of each node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from kfm.model.errors import UsageError
from kfm.model.quantities import counted
from kfm.model.records import Node, Record
from kfm.model.run_state import Pass
from kfm.pipelines.graph_view import GroupedGraph, grouped, near
from kfm.reports.pipeline_runs import cells_of
from kfm.web.console import state_words
from kfm.web.console.state_words import Word
from kfm.web.console.views import explanation
from kfm.web.console.views.timeline import Span, Timeline, gantt
from kfm.web.console.visit import (
    ROWS,
    Link,
    NotHere,
    Paging,
    Visit,
    before_number,
    paged_by_number,
    short,
)

if TYPE_CHECKING:
    from kfm.reports.pipeline_runs import PassSeen

FILTERS = ("before",)
GRAPH_FILTERS = ("focus", "hops", "open")
ONE_FILTERS = (*GRAPH_FILTERS, "node")
WHOLE = "all"
HOPS = ("1", "2", "3", "5")
SMALL = 12  # nodes that are always drawn as they are
GROUPED_FROM = 40
BOXES_MAX = 250  # of more only the table is shown
GANTT_MAX = 40
TONES = ("bad", "warn", "busy", "good", "quiet", "faint")  # the worst first


class PipelineRunRow(Record, frozen=True):
    run_id: str
    href: str
    pipeline_id: str
    branch: str
    word: Word
    started_ms: int
    took_ms: int | None
    counts: str


class PipelineRunList(Record, frozen=True):
    rows: tuple[PipelineRunRow, ...]
    paging: Paging


class PipelineRunView(Record, frozen=True):
    run_id: str
    title: str
    pipeline_id: str
    branch: str
    word: Word
    started_ms: int
    ended_ms: int | None
    attempt: int
    graph: Graph
    node: NodeView | None  # the one that was chosen
    why: explanation.ShownExplanation
    command: str


class NodeView(Record, frozen=True):
    name: str
    why: explanation.ShownExplanation
    log: str | None  # of the run that it was a part of


def pipeline_run_view(visit: Visit, run_id: str) -> PipelineRunView | None:
    """None: no pipeline run has that id."""
    from kfm.reports.pipeline_runs import read_pass

    with visit.context.app(visit.identity, read_only=True) as app:
        seen = read_pass(app, run_id, visit.query.get("node"))
    if seen is None or visit.visibility.hides_pipeline(seen.found.pipeline_id, seen.found.run_id):
        return None
    return PipelineRunView(
        run_id=seen.found.run_id,
        title=f"Pipeline {seen.found.pipeline_id}",
        pipeline_id=seen.found.pipeline_id,
        branch=seen.found.branch,
        word=state_words.of_pipeline_run(seen.found.state),
        started_ms=seen.found.started_at_ms,
        ended_ms=seen.found.ended_at_ms,
        attempt=seen.found.attempt,
        graph=graph(visit, nodes_of(seen.found, seen.nodes, lambda name: _node_href(visit, name))),
        node=_node(visit, seen),
        why=explanation.shown(visit, seen.account),
        command=f"kfm graph {short(seen.found.run_id)}",
    )


def view(visit: Visit) -> PipelineRunList:
    """All pipeline runs, newest first."""
    from kfm.reports.pipeline_runs import list_passes

    with visit.context.app(visit.identity, read_only=True) as app:
        found = list_passes(app, ROWS + 1, before_number(visit))
    shown = found[:ROWS]
    rows = [
        _row(visit, each)
        for _, each in shown
        if not visit.visibility.hides_pipeline(each.pipeline_id, each.run_id)
    ]
    last = shown[-1][0] if len(found) > ROWS else None
    return PipelineRunList(
        rows=tuple(rows), paging=paged_by_number(visit, len(rows), last, "pipeline run/pipeline runs")
    )


def view_one(visit: Visit) -> PipelineRunView:
    found = pipeline_run_view(visit, visit.params["run_id"])
    if found is None:
        raise NotHere("No pipeline run of that id is on record. `kfm run-state list` lists them.")
    return found


def _row(visit: Visit, found: Pass) -> PipelineRunRow:
    ended = found.ended_at_ms
    return PipelineRunRow(
        run_id=short(found.run_id),
        href=visit.at("pipelines", found.run_id),
        pipeline_id=found.pipeline_id,
        branch=found.branch,
        word=state_words.of_pipeline_run(found.state),
        started_ms=found.started_at_ms,
        took_ms=ended - found.started_at_ms if ended is not None else None,
        counts=", ".join(
            f"{count:,} {state_words.of_node(name).text}" for name, count in found.counts.items() if count
        ),
    )


def _node_href(visit: Visit, name: str) -> str:
    return f"{visit.with_query(node=name)}#node"


def _node(visit: Visit, seen: PassSeen) -> NodeView | None:
    name = visit.query.get("node")
    if name is None or seen.node is None:
        return None
    run = visit.reader.run(seen.found.run_id)
    log = f"{visit.run(run.run_id)}?tab=log&node=pipeline" if run is not None else None
    return NodeView(name=name, why=explanation.shown(visit, seen.node), log=log)


def nodes_of(found: Pass, records: dict[str, Node], href: Callable[[str], str] = str) -> list[NodeSeen]:
    """Each node with the state that is on record; a node that has not ended has no record."""
    reads = dict(found.graph)
    return [
        NodeSeen(
            name=cell.id,
            word=state_words.word(cell.word),
            reason=cell.reason,
            took_ms=cell.took_ms,
            reads=reads[cell.id],
            started_ms=_began(records.get(cell.id)),
            href=href(cell.id),
        )
        for cell in cells_of(found, records)
    ]


def _began(record: Node | None) -> int | None:
    """When it ran; what was unchanged did not."""
    if record is None or record.outcome == "skipped" or record.duration_ms is None:
        return None
    return record.recorded_at_ms - record.duration_ms


class NodeSeen(Record, frozen=True):
    """A box of a graph: one node, or a group of them."""

    name: str
    word: Word
    reason: str = ""
    took_ms: int | None = None
    reads: tuple[str, ...] = ()
    href: str = ""
    members: int = 0  # of a group
    started_ms: int | None = None


class Graph(Record, frozen=True):
    summary: str
    nodes: tuple[NodeSeen, ...]  # all of them
    drawn: tuple[NodeSeen, ...]  # boxes of the part that is drawn
    part: str  # which part that is
    links: tuple[Link, ...]  # to other parts
    gantt: Timeline | None


def graph(visit: Visit, nodes: Sequence[NodeSeen]) -> Graph:
    """`nodes` in an order in which each comes after what it reads from. Drawn is what `focus`, `hops` and
    `open` ask for; without them, of a large graph, what failed and two hops around it."""
    reads = {node.name: node.reads for node in nodes}
    seen = {node.name: node for node in nodes}
    bad = [node.name for node in nodes if node.word.tone == "bad"]
    focus, hops = visit.query.get("focus"), visit.choice("hops", HOPS) or HOPS[1]
    if focus not in (None, WHOLE, *reads):
        raise UsageError(f"There is no node `{focus}` in this graph.")
    centres = [] if focus == WHOLE else [focus] if focus else bad if len(nodes) > SMALL else []
    part = near(reads, centres, int(hops)) if centres else reads
    opened = tuple(filter(None, visit.query.get("open", "").split(",")))
    boxes = grouped(part, opened) if len(part) > GROUPED_FROM else GroupedGraph(dict(part), {})
    drawn = [_box(visit, name, seen, boxes, opened) for name in boxes.reads]
    text = f"{counted(len(part), 'node')} of {len(nodes)}" if len(part) < len(nodes) else "all nodes"
    around = f", {hops} hops around {_named(centres)}" if centres else ""
    groups = f", {len(boxes.members)} groups closed" if boxes.members else ""
    links = [
        *([Link(text="Whole graph", href=visit.with_query(focus=WHOLE, open=None))] if centres else []),
        *([Link(text="What failed", href=visit.with_query(focus=None, open=None))] if bad and focus else []),
        *(
            [Link(text="Close all groups", href=visit.with_query(open=None))]
            if opened and len(part) > GROUPED_FROM
            else []
        ),
    ]
    return Graph(
        summary=_summary(nodes),
        nodes=tuple(nodes),
        drawn=tuple(drawn) if len(drawn) <= BOXES_MAX else (),
        part=f"{text}{around}{groups}",
        links=tuple(links),
        gantt=_gantt(nodes),
    )


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}"


def _box(
    visit: Visit, name: str, seen: dict[str, NodeSeen], boxes: GroupedGraph, opened: Sequence[str]
) -> NodeSeen:
    """A node, which leads to its row, or a group, which leads to its nodes."""
    members = boxes.members.get(name)
    if members is None:
        return msgspec.structs.replace(
            seen[name], reads=boxes.reads[name], href=seen[name].href or f"#node-{name}"
        )
    counts = Counter(seen[each].word.text for each in members)
    worst = min((seen[each].word for each in members), key=lambda word: TONES.index(word.tone))
    took = [seen[each].took_ms or 0 for each in members]
    return NodeSeen(
        name=name,
        word=worst,
        reason=", ".join(f"{count} {text}" for text, count in counts.items()),
        took_ms=sum(took),
        reads=boxes.reads[name],
        href=visit.with_query(open=",".join((*opened, name))),
        members=len(members),
    )


def _gantt(nodes: Sequence[NodeSeen]) -> Timeline | None:
    """Where the time went: the nodes that took longest, in the order in which they began."""
    timed = [node for node in nodes if node.started_ms is not None and node.took_ms is not None]
    longest = sorted(timed, key=lambda node: -(node.took_ms or 0))[:GANTT_MAX]
    if not longest:
        return None
    spans = [Span(node.name, node.word, node.started_ms or 0, node.took_ms or 0) for node in longest]
    return gantt(sorted(spans, key=lambda each: each.started_ms), len(timed))


def _summary(nodes: Sequence[NodeSeen]) -> str:
    if not nodes:
        return "no nodes"
    counts = Counter(node.word.text for node in nodes)
    words = ", ".join(f"{count} {text}" for text, count in counts.items())
    return f"{counted(len(nodes), 'node')}: {words}"
