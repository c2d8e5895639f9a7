"""Pages of pipeline runs: the graph with the outcome of each node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kfm.model.quantities import counted
from kfm.model.records import Node, Record
from kfm.model.run_state import Pass
from kfm.reports.pipeline_runs import cells_of
from kfm.web.console import state_words
from kfm.web.console.state_words import Word
from kfm.web.console.views import explanation
from kfm.web.console.visit import ROWS, NotHere, Paging, Visit, paged, short

FILTERS = ("page",)
NODES_MAX = 200  # of more only the table is shown


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
    rows = [
        _row(visit, each)
        for each in found[:ROWS]
        if not visit.visibility.hides_pipeline(each.pipeline_id, each.run_id)
    ]
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
        word=state_words.of_pipeline_run(found.state),
        started_ms=found.started_at_ms,
        took_ms=ended - found.started_at_ms if ended is not None else None,
        counts=", ".join(
            f"{count:,} {state_words.of_node(name).text}" for name, count in found.counts.items() if count
        ),
    )


def nodes_of(found: Pass, records: dict[str, Node]) -> list[NodeSeen]:
    """Each node with the state that is on record; a node that has not ended has no record."""
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


class NodeSeen(Record, frozen=True):
    name: str
    word: Word
    reason: str = ""
    took_ms: int | None = None
    reads: tuple[str, ...] = ()


class Graph(Record, frozen=True):
    summary: str
    nodes: tuple[NodeSeen, ...]
    drawn: bool


def graph(nodes: Sequence[NodeSeen]) -> Graph:
    """`nodes` in an order in which each comes after what it reads from."""
    return Graph(summary=_summary(nodes), nodes=tuple(nodes), drawn=0 < len(nodes) <= NODES_MAX)


def _summary(nodes: Sequence[NodeSeen]) -> str:
    if not nodes:
        return "no nodes"
    counts = Counter(node.word.text for node in nodes)
    words = ", ".join(f"{count} {text}" for text, count in counts.items())
    return f"{counted(len(nodes), 'node')}: {words}"
