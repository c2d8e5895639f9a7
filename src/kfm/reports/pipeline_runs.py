"""Pipeline runs as documents."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from kfm.model.quantities import instant
from kfm.reports.lookup import SEARCHED_MAX, Sought, only
from kfm.reports.state_words import of_node

if TYPE_CHECKING:
    from kfm.app import App
    from kfm.model.records import Node
    from kfm.model.run_state import Pass
    from kfm.pipelines.draw import NodeCell
    from kfm.reports.explain.sentences import Explanation


NODES_MAX = 20_000


class PassSeen(NamedTuple):
    found: Pass
    nodes: dict[str, Node]  # those that have a record
    account: Explanation  # why it is as it is
    node: Explanation | None = None  # of the one that was asked for


def list_passes(app: App, limit: int, before: int | None = None) -> list[tuple[int, Pass]]:
    """The newest first, each with its number; `before`: that of the last one of the page before."""
    from kfm.db.run_state import RunStateTables

    return RunStateTables(app.ledger.database).pass_page(before=before, limit=limit)


def read_pass(app: App, run_id: str, node: str | None = None) -> PassSeen | None:
    """The pipeline run of this id, or of this governed run; None if there is none. `node` is explained."""
    from kfm.db.run_state import RunStateTables

    if RunStateTables(app.ledger.database).get(run_id) is None:
        return None
    from kfm.pipelines.run_state_store import read_run_states
    from kfm.reports.explain.pipeline_runs import explain_node, explain_pipeline_run

    tables = read_run_states(app)
    found = tables.get(run_id)
    if found is None:
        return None
    nodes = {node.dataset_id: node for node in islice(tables.of_run(run_id), NODES_MAX)}
    is_there = node is not None and any(name == node for name, _ in found.graph)
    told = explain_node(tables, found, node, app.ledger.run(found.run_id)) if node and is_there else None
    return PassSeen(found, nodes, explain_pipeline_run(tables, found), told)


def pass_document(found: Any) -> dict[str, Any]:
    return {
        "run_id": found.run_id,
        "pipeline_id": found.pipeline_id,
        "branch": found.branch,
        "state": found.state,
        "attempt": found.attempt,
        "started_at": instant(found.started_at_ms),
        "ended_at": instant(found.ended_at_ms),
        "counts": found.counts,
        "commit": found.commit,
        "error_code": found.error_code,
    }


def node_document(node: Any) -> dict[str, Any]:
    """The record as everybody knows it: run-state.schema.json."""
    from kfm.model.run_state import to_document

    return to_document(node)


def cells_of(found: Any, records: dict[str, Any]) -> list[NodeCell]:
    """Each node with the word for what is on record of it; nothing is on record of what has not ended."""
    from kfm.pipelines.draw import NodeCell

    cells: dict[str, NodeCell] = {}
    for name, upstream in found.graph:
        record = records.get(name)
        if record is not None:
            reason = record.error_code if record.outcome == "failed" else record.reason
            cells[name] = NodeCell(name, of_node(record.outcome), reason or "", record.duration_ms)
        elif found.state == "running":
            cells[name] = NodeCell(name, "running", "no record yet")
        else:
            bad = next((each for each in upstream if cells[each].word in ("failed", "blocked")), None)
            why = f"{bad} {cells[bad].word}" if bad is not None else "the pipeline run stopped before"
            cells[name] = NodeCell(name, "blocked", why)
    return list(cells.values())


def graph_document(found: Any, cells: list[NodeCell], svg: str | None) -> dict[str, Any]:
    from kfm.pipelines.draw import depths

    reads = dict(found.graph)
    layer = depths(reads)
    return {
        "run_id": found.run_id,
        "pipeline_id": found.pipeline_id,
        "branch": found.branch,
        "state": found.state,
        "nodes": [
            {
                "node": cell.id,
                "layer": layer[cell.id] + 1,
                "word": cell.word,
                "reason": cell.reason,
                "duration_ms": cell.took_ms,
                "reads": list(reads[cell.id]),
            }
            for cell in cells
        ],
        "svg": svg,
    }


def find_pass(tables: Any, wanted: str) -> Pass:
    """A pipeline run by its id, or by the beginning of it, if that is unambiguous; `last` is the newest."""
    found: Pass | None = tables.get(wanted)
    if found is not None:
        return found
    listed = tables.passes(limit=SEARCHED_MAX)
    if wanted == "last" and listed:
        run_id = listed[0].run_id
    else:
        sought = Sought("pipeline run", "pipeline runs", lambda _start: listed, lambda each: each.run_id)
        run_id = only(wanted, [sought], "`kfm run-state list` shows them.").run_id
    whole: Pass | None = tables.get(run_id)
    assert whole is not None
    return whole
