"""`kfm run-state`: the records of pipeline runs and their nodes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from typing import Any

import click

from kfm.cli.options import CommandGroup, StateChoice, directory_option, opened, session_options
from kfm.cli.output import duration, one_line, short_id, table
from kfm.cli.pipeline import counted_words
from kfm.cli.session import CommandSession
from kfm.model.errors import UsageError
from kfm.model.quantities import counted, moment, readable_size
from kfm.reports.pipeline_runs import find_pass, node_document, pass_document
from kfm.reports.state_words import NODES, by_word, of_node, of_pipeline_run

LIMIT_MAX = 10_000
NAMED_MAX = 5


@click.group(name="run-state", cls=CommandGroup)
def command() -> None:
    """Show the records of pipelines: pipeline runs, their nodes, and a node's history.

    RUN is a pipeline run's id, the beginning of one, or `last`.
    """


filters = (
    click.option("--pipeline", metavar="ID", help="Only runs of this pipeline."),
    click.option("--branch", metavar="NAME", help="Only on this branch."),
)
limit_option = click.option(
    "--limit", type=click.IntRange(1, LIMIT_MAX), default=20, help="At most so many.", show_default=True
)


@command.command(name="list")
@filters[0]
@filters[1]
@limit_option
@directory_option
@session_options
def list_passes(
    session: CommandSession, directory: str | None, pipeline: str | None, branch: str | None, limit: int
) -> None:
    """List pipeline runs, newest first."""
    with opened(session, directory) as place:
        found = place.tables.passes(pipeline_id=pipeline, branch=branch, limit=limit + 1)
    more = len(found) > limit
    documents = [pass_document(each) for each in found[:limit]]
    header = ("STARTED (UTC)", "STATE", "PIPELINE", "BRANCH", "TOOK", "NODES", "RUN ID")
    rows = [_pass_row(each) for each in found[:limit]]
    lines = table(header, rows, spare=("BRANCH", "NODES")) if rows else ["no pipeline runs"]
    session.emit({"passes": documents, "more": more}, lines, rows=documents)
    if more and session.output == "text":
        session.note(f"more pipeline runs are not shown: use --limit (now {limit})")


@command.command()
@click.argument("run")
@click.argument("node", required=False)
@click.option("--outcome", type=StateChoice(NODES.values(), NODES), help="Only nodes that ended like this.")
@directory_option
@session_options
def show(
    session: CommandSession, directory: str | None, run: str, node: str | None, outcome: str | None
) -> None:
    """Show one pipeline run with its nodes, or one node with its whole record."""
    with opened(session, directory) as place:
        found = find_pass(place.tables, run)
        if node is not None:
            record = find_node(place.tables, found, node)
            document = node_document(record)
            session.emit(document, _node_lines(record))
            return
        records = [
            each for each in place.tables.of_run(found.run_id) if outcome is None or each.outcome == outcome
        ]
    recorded = {each.dataset_id for each in records}
    without = [name for name, _ in found.graph if name not in recorded] if outcome is None else []
    documents = [node_document(each) for each in _in_order(found, records)]
    lines = [*_pass_lines(found), ""]
    header = ("NODE", "OUTCOME", "TOOK", "REASON", "MADE BY", "ERROR")
    rows = [_node_row(each) for each in _in_order(found, records)]
    word = "running" if found.state == "running" else "blocked"
    rows += [(name, word, "-", "no record: it has not ended in this run", "-", "-") for name in without]
    lines += table(header, rows, spare=("ERROR", "TOOK"))
    session.emit(
        {"pass": pass_document(found), "nodes": documents, "without_record": without}, lines, rows=documents
    )


@command.command()
@click.argument("node")
@filters[1]
@limit_option
@directory_option
@session_options
def history(
    session: CommandSession, directory: str | None, node: str, branch: str | None, limit: int
) -> None:
    """Show the history of one node, run after run, newest first."""
    with opened(session, directory) as place:
        found = place.tables.history(node, branch=branch, limit=limit + 1)
        known = _known_nodes(place.tables) if not found else []
    if not found and known:
        from kfm.model.quantities import did_you_mean, stopped

        raise UsageError(
            stopped(f"There is no record of a node `{node}`{did_you_mean(node, known)}"),
            remedy="`kfm run-state show RUN` lists the nodes of a pipeline run.",
        )
    more = len(found) > limit
    documents = [node_document(each) for each in found[:limit]]
    header = ("RECORDED (UTC)", "OUTCOME", "BRANCH", "TOOK", "REASON", "INPUTS", "CODE", "RUN ID")
    lines = (
        table(
            header, [_history_row(each) for each in found[:limit]], spare=("BRANCH", "CODE", "INPUTS", "TOOK")
        )
        if found
        else ["no records"]
    )
    session.emit({"node": node, "records": documents, "more": more}, lines, rows=documents)
    if more and session.output == "text":
        session.note(f"more records are not shown: use --limit (now {limit})")


@command.command()
@click.argument("file")
@filters[0]
@filters[1]
@directory_option
@session_options
def export(
    session: CommandSession, directory: str | None, file: str, pipeline: str | None, branch: str | None
) -> None:
    """Write every record to FILE: .parquet, .feather or .jsonl, one row for each node of each pipeline run.

    DuckDB reads it as it is: SELECT outcome, count(*) FROM 'FILE' GROUP BY outcome. A FILE that ends in
    .delta becomes a Delta table with all records, made anew each time. kfm never reads what it wrote here.
    """
    if file.endswith(".delta") and (pipeline or branch):
        raise UsageError("A Delta table holds all records: leave out --pipeline and --branch.")
    with opened(session, directory) as place:
        if file.endswith(".delta"):
            from kfm.pipelines.run_state_store import mirror

            count = mirror(place.store_parts(), place.tables, os.path.abspath(file))
        else:
            from kfm.pipelines.record_export import export_run_states

            count = export_run_states(place.tables, file, pipeline_id=pipeline, branch=branch)
    session.emit({"written": file, "records": count}, [f"{file}: {counted(count, 'record')}"])


@command.command()
@click.option(
    "--to",
    "store",
    type=click.Choice(("relational", "delta", "branch")),
    help="The store to move to; else the one that the configuration names.",
)
@click.option("--path", metavar="PATH", help="Where the Delta table is to be; else in the state folder.")
@directory_option
@session_options
def migrate(session: CommandSession, directory: str | None, store: str | None, path: str | None) -> None:
    """Move all records to another store, and let it decide from now on.

    Nothing else runs meanwhile. Both sides are counted and compared before the environment switches, in
    one step; the old store stays as it is. Interrupted, it goes on where it was when called again.
    Afterwards, run_state in the configuration must name the new store.
    """
    from kfm.config.loader import actor as account
    from kfm.model.settings import RunStateSettings

    with opened(session, directory, read_only=False, moving=True) as place:
        from kfm.pipelines.run_state_store import migrate as move

        chosen = place.loaded.settings.run_state if place.loaded else RunStateSettings()
        target = chosen
        if store is not None and (store != chosen.store or path is not None):
            target = RunStateSettings(
                store=store,  # type: ignore[arg-type]
                path=path,
                options=chosen.options if store == "delta" else {},
            )
        if path is not None and target.store != "delta":
            raise UsageError("--path is for --to delta.")
        actor = place.loaded.identity().subject if place.loaded else account()
        moved = move(place, target, actor=actor, on_page=lambda _count: None)
        said = "" if target == chosen else f"now write in the configuration: run_state: {_as_setting(target)}"
    session.emit(
        {"before": moved.before, "after": moved.after, "records": moved.records, "digest": moved.digest},
        [f"{moved.after}: {counted(moved.records, 'record')}, as in {moved.before}"],
    )
    if said:
        session.note(said)


def _as_setting(target: Any) -> str:
    path = f", path: {target.path}" if target.path else ""
    return f"{{store: {target.store}{path}}}"


# --- finding -----------------------------------------------------------------------------


def find_node(tables: Any, found: Any, node: str) -> Any:
    record = tables.one(found.run_id, node)
    if record is not None:
        return record
    from kfm.model.quantities import did_you_mean, stopped

    known = [name for name, _ in found.graph]
    if node in known:
        raise UsageError(
            f"There is no record of {node} in run {found.run_id}: it has not ended there.",
            remedy=f"`kfm graph {found.run_id}` shows what it waits for.",
        )
    raise UsageError(
        stopped(f"Run {found.run_id} has no node `{node}`{did_you_mean(node, known)}"),
        remedy=f"`kfm run-state show {found.run_id}` lists them.",
    )


def _known_nodes(tables: Any) -> list[str]:
    """Of the newest pipeline runs: enough to suggest a name."""
    known: dict[str, None] = {}
    for each in tables.passes(limit=NAMED_MAX):
        whole = tables.get(each.run_id)
        known |= dict.fromkeys(name for name, _ in whole.graph)
    return list(known)


def _in_order(found: Any, records: Iterable[Any]) -> list[Any]:
    place = {name: number for number, (name, _) in enumerate(found.graph)}
    return sorted(records, key=lambda each: (place.get(each.dataset_id, len(place)), each.dataset_id))


# --- for people --------------------------------------------------------------------------


def words_of(counts: dict[str, int]) -> Counter[str]:
    """A pipeline run's counts by the words that people read."""
    return Counter(by_word(counts, NODES))


def _pass_row(found: Any) -> tuple[str, ...]:
    took = duration(found.ended_at_ms - found.started_at_ms) if found.ended_at_ms is not None else "-"
    nodes = counted_words(words_of(found.counts)) if found.counts else "-"
    return (
        moment(found.started_at_ms).removesuffix(" UTC"),
        of_pipeline_run(found.state),
        found.pipeline_id,
        found.branch,
        took,
        nodes,
        short_id(found.run_id),
    )


def _pass_lines(found: Any) -> list[str]:
    facts = [
        ("run", found.run_id),
        ("pipeline", found.pipeline_id),
        ("branch", found.branch),
        ("state", of_pipeline_run(found.state)),
        ("attempt", str(found.attempt)),
        ("started", moment(found.started_at_ms)),
        ("ended", moment(found.ended_at_ms) if found.ended_at_ms is not None else None),
        ("nodes", counted_words(words_of(found.counts)) if found.counts else None),
        ("commit", found.commit),
        ("error", found.error_code),
    ]
    return [f"{name.ljust(8)}  {one_line(value)}" for name, value in facts if value is not None]


def _node_row(node: Any) -> tuple[str, ...]:
    return (
        node.dataset_id,
        of_node(node.outcome),
        duration(node.duration_ms) if node.duration_ms is not None else "-",
        node.reason or "-",
        short_id(node.skipped_because) if node.skipped_because else "-",
        node.error_code or "-",
    )


def _history_row(node: Any) -> tuple[str, ...]:
    return (
        moment(node.recorded_at_ms).removesuffix(" UTC"),
        of_node(node.outcome),
        node.lakefs_branch,
        duration(node.duration_ms) if node.duration_ms is not None else "-",
        node.reason or "-",
        node.inputs_hash[7:19],
        (node.code_sha or "-")[:21],
        short_id(node.run_id),
    )


def _node_lines(node: Any) -> list[str]:
    summary = node.validation_summary
    checks = (
        f"{summary.get('checks', 0)}, {summary.get('passed', 0)} passed, {summary.get('failed', 0)} failed"
    )
    facts = [
        ("node", node.dataset_id),
        ("run", node.run_id),
        ("pipeline", node.pipeline_id),
        ("branch", node.lakefs_branch),
        ("outcome", of_node(node.outcome)),
        ("reason", node.reason),
        ("made by", node.skipped_because),
        ("recorded", moment(node.recorded_at_ms)),
        ("took", duration(node.duration_ms) if node.duration_ms is not None else None),
        ("attempt", str(node.attempt)),
        ("inputs", node.inputs_hash),
        ("code", node.code_sha),
        ("checks", checks),
        ("commit", node.output_commit),
        ("error", f"{node.error_code}: {node.error_message or ''}" if node.error_code else None),
    ]
    lines = [f"{name.ljust(8)}  {one_line(value)}" for name, value in facts if value is not None]
    for each in node.outputs:
        lines.append(
            f"output    {one_line(each.name)}  {readable_size(each.size)}  {each.checksum}  {each.kind}"
        )
    return lines


# --- for programs ------------------------------------------------------------------------
