"""A pipeline's pass: its graph with what became of each node, and why."""

from __future__ import annotations

from kfm.core.records import Node, Record
from kfm.core.run_states import Pass
from kfm.serving.console import words
from kfm.serving.console.views import telling
from kfm.serving.console.views.graphs import Graph, NodeSeen, graph
from kfm.serving.console.visits import ROWS, NotHere, Paging, Visit, paged, short
from kfm.serving.console.words import Word

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


class Passes(Record, frozen=True):
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
    story: telling.Story
    command: str


def pass_view(visit: Visit, run_id: str) -> PassView | None:
    """None: nothing of that id is a pass."""
    from kfm.wiring.pass_reading import read_pass

    with visit.place.app(visit.identity, read_only=True) as app:
        seen = read_pass(app, run_id)
    if seen is None or _is_hidden(visit, seen.found.pipeline_id):
        return None
    return PassView(
        run_id=seen.found.run_id,
        title=f"Pipeline {seen.found.pipeline_id}",
        pipeline_id=seen.found.pipeline_id,
        branch=seen.found.branch,
        word=words.word(_STATES.get(seen.found.state, seen.found.state)),
        started_ms=seen.found.started_at_ms,
        ended_ms=seen.found.ended_at_ms,
        attempt=seen.found.attempt,
        graph=graph(nodes_of(seen.found, seen.nodes)),
        story=telling.story(visit, seen.account),
        command=f"kfm graph {short(seen.found.run_id)}",
    )


def view(visit: Visit) -> Passes:
    """All passes, newest first."""
    from kfm.wiring.pass_reading import list_passes

    skipped = (visit.page() - 1) * ROWS
    with visit.place.app(visit.identity, read_only=True) as app:
        found = list_passes(app, skipped + ROWS + 1)[skipped:]
    rows = [_row(visit, each) for each in found[:ROWS] if not _is_hidden(visit, each.pipeline_id)]
    return Passes(rows=tuple(rows), paging=paged(visit, len(found), "passes"))


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
        word=words.word(_STATES.get(found.state, found.state)),
        started_ms=found.started_at_ms,
        took_ms=ended - found.started_at_ms if ended is not None else None,
        counts=", ".join(
            f"{count:,} {words.of_node(name).text}" for name, count in found.counts.items() if count
        ),
    )


def _is_hidden(visit: Visit, pipeline_id: str) -> bool:
    from kfm.core.masking import hidden_names

    hidden = None if "operate" in visit.identity.roles else hidden_names(visit.place.settings.datasets)
    return hidden is not None and hidden(pipeline_id)


def nodes_of(found: Pass, records: dict[str, Node]) -> list[NodeSeen]:
    """Each node with the word for what is on record of it; of what has not ended nothing is."""
    made: dict[str, NodeSeen] = {}
    for name, upstream in found.graph:
        record = records.get(name)
        if record is not None:
            reason = record.error_code if record.outcome == "failed" else record.reason
            word, took = words.of_node(record.outcome), record.duration_ms
        elif found.state == "running":
            word, reason, took = words.word("running"), "no record yet", None
        else:
            bad = next((each for each in upstream if made[each].word.text in ("failed", "blocked")), None)
            reason = f"{bad} {made[bad].word.text}" if bad is not None else "the pass stopped before"
            word, took = words.word("blocked"), None
        made[name] = NodeSeen(name=name, word=word, reason=reason or "", took_ms=took, reads=upstream)
    return list(made.values())
