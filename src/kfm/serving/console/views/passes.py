"""A pipeline's pass: its graph with what became of each node, and why."""

from __future__ import annotations

from kfm.core.records import Node, Record
from kfm.core.run_states import Pass
from kfm.serving.console import words
from kfm.serving.console.views import telling
from kfm.serving.console.views.graphs import Graph, NodeSeen, graph
from kfm.serving.console.visits import Visit, short
from kfm.serving.console.words import Word

_STATES = {"success": "succeeded"}


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
    alone: bool = True  # what a template asks: is this all there is?


def pass_view(visit: Visit, run_id: str) -> PassView | None:
    """None: nothing of that id is a pass."""
    from kfm.core.masking import hidden_names
    from kfm.wiring.pass_reading import read_pass

    with visit.place.app(visit.identity, read_only=True) as app:
        seen = read_pass(app, run_id)
    if seen is None:
        return None
    hidden = hidden_names(visit.place.settings.datasets)
    if hidden is not None and hidden(seen.found.pipeline_id) and "operate" not in visit.identity.roles:
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
