"""Pages of pipeline runs: the graph with the outcome of each node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from kfm.model.records import Node, Record
from kfm.model.run_state import Pass
from kfm.model.wording import counted, duration
from kfm.pipelines.draw import NodeCell, SvgStyle, draw_graph
from kfm.reports.pipeline_runs import cells_of
from kfm.web.console import state_words
from kfm.web.console.state_words import Word
from kfm.web.console.views import explanation
from kfm.web.console.visit import ROWS, NotHere, Paging, Visit, paged, short

FILTERS = ("page",)
_STATES = {"success": "succeeded"}


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
    why: explanation.ShownExplanation
    command: str


def pipeline_run_view(visit: Visit, run_id: str) -> PipelineRunView | None:
    """None: no pipeline run has that id."""
    from kfm.reports.pipeline_runs import read_pass

    with visit.context.app(visit.identity, read_only=True) as app:
        seen = read_pass(app, run_id)
    if seen is None or _is_hidden(visit, seen.found.pipeline_id):
        return None
    return PipelineRunView(
        run_id=seen.found.run_id,
        title=f"Pipeline {seen.found.pipeline_id}",
        pipeline_id=seen.found.pipeline_id,
        branch=seen.found.branch,
        word=state_words.word(_STATES.get(seen.found.state, seen.found.state)),
        started_ms=seen.found.started_at_ms,
        ended_ms=seen.found.ended_at_ms,
        attempt=seen.found.attempt,
        graph=graph(nodes_of(seen.found, seen.nodes)),
        why=explanation.shown(visit, seen.account),
        command=f"kfm graph {short(seen.found.run_id)}",
    )


def view(visit: Visit) -> PipelineRunList:
    """All pipeline runs, newest first."""
    from kfm.reports.pipeline_runs import list_passes

    skipped = (visit.page() - 1) * ROWS
    with visit.context.app(visit.identity, read_only=True) as app:
        found = list_passes(app, skipped + ROWS + 1)[skipped:]
    rows = [_row(visit, each) for each in found[:ROWS] if not _is_hidden(visit, each.pipeline_id)]
    return PipelineRunList(rows=tuple(rows), paging=paged(visit, len(found), "pipeline runs"))


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
        word=state_words.word(_STATES.get(found.state, found.state)),
        started_ms=found.started_at_ms,
        took_ms=ended - found.started_at_ms if ended is not None else None,
        counts=", ".join(
            f"{count:,} {state_words.of_node(name).text}" for name, count in found.counts.items() if count
        ),
    )


def _is_hidden(visit: Visit, pipeline_id: str) -> bool:
    from kfm.model.redaction import hidden_names

    hidden = None if "operate" in visit.identity.roles else hidden_names(visit.context.settings.datasets)
    return hidden is not None and hidden(pipeline_id)


def nodes_of(found: Pass, records: dict[str, Node]) -> list[NodeSeen]:
    """Each node with the word for what is on record of it; of what has not ended nothing is."""
    reads = dict(found.graph)
    return [
        NodeSeen(
            name=cell.id,
            word=state_words.word(cell.word),
            reason=cell.reason,
            took_ms=cell.took_ms,
            reads=reads[cell.id],
        )
        for cell in cells_of(found, records)
    ]


NODES_MAX = 200  # of more only the table is shown


class NodeSeen(Record, frozen=True):
    name: str
    word: Word
    reason: str = ""
    took_ms: int | None = None
    reads: tuple[str, ...] = ()


class Graph(Record, frozen=True):
    width: float
    height: float
    elements: Markup  # of SVG; the style sheet gives them their colours
    said: str
    nodes: tuple[NodeSeen, ...]
    drawn: bool


def graph(nodes: Sequence[NodeSeen]) -> Graph:
    """`nodes` in an order in which each comes after what it reads from."""
    said = _said(nodes)
    if not nodes or len(nodes) > NODES_MAX:
        return Graph(width=0, height=0, elements=Markup(), said=said, nodes=tuple(nodes), drawn=False)
    cells = [NodeCell(node.name, node.word.text, node.reason, node.took_ms) for node in nodes]
    style = _style({node.name: node.word for node in nodes})
    drawing = draw_graph(cells, {node.name: node.reads for node in nodes}, style)
    return Graph(
        width=round(drawing.width, 1),
        height=round(drawing.height, 1),
        elements=Markup("\n".join(drawing.elements)),
        said=said,
        nodes=tuple(nodes),
        drawn=True,
    )


def _style(words: Mapping[str, Word]) -> SvgStyle:
    def small(cell: NodeCell) -> str:
        took = [duration(cell.took_ms)] if cell.took_ms is not None else []
        return " · ".join([f"{words[cell.id].sign} {cell.word}", *took])

    return SvgStyle(
        margin=8,
        top=0,
        box=44,
        gap=14,
        layers_apart=48,
        radius=4,
        padding=24,
        inset=12,
        name_y=19,
        small_y=35,
        char=7.4,
        small_char=6.3,
        name_chars_max=28,
        name='class="name"',
        small='class="small"',
        edges='class="curve"',
        node=lambda cell: (f' class="box {words[cell.id].tone}"', ""),
        small_text=small,
    )


def _said(nodes: Sequence[NodeSeen]) -> str:
    if not nodes:
        return "no nodes"
    counts = Counter(node.word.text for node in nodes)
    words = ", ".join(f"{count} {text}" for text, count in counts.items())
    return f"{counted(len(nodes), 'node')}: {words}"
