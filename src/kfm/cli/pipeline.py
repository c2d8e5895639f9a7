"""`kfm pipeline run|plan|check`: the pipelines that people write as plain functions."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from contextlib import redirect_stdout
from typing import Any

import click

from kfm.cli import pass_lines as lines
from kfm.cli.failures import annotate
from kfm.cli.options import session_options
from kfm.cli.places import directory_option, opened
from kfm.cli.session import Session
from kfm.cli.signals import held
from kfm.cli.streams import data_apart
from kfm.core.wording import counted
from kfm.documents.passes import find_pass

JOBS_MAX = 256
NAME_CHARS = 40
PLANNED = ("would run", "would fail", "blocked", "done", "unchanged", "skipped")
QUIET = ("done", "unchanged")


@click.group(name="pipeline")
def command() -> None:
    """Run pipelines of plain functions: only what must run does.

    A pipeline is a Python file that makes a kfm.Pipeline and declares functions as its nodes. What a node
    made is kept, with a hash of what it was made from; a node whose inputs, parameters and code are the same,
    and whose outputs are still there, is left alone.
    """


file_argument = click.argument("file", metavar="FILE[:NAME]")


@command.command()
@file_argument
@click.option("--branch", metavar="NAME", help="Work on this branch; else the pipeline's own, main.")
@click.option("--run-id", metavar="ID", help="Call the run this; else it gets a new id.")
@click.option("--resume", metavar="RUN", help="Go on with a run that failed or was stopped.")
@click.option("--fork", metavar="RUN", help="Begin a new run from what that run made; needs --from.")
@click.option("--from", "fork_from", metavar="NODE", help="With --fork: run this node and all that reads it.")
@click.option("--force", metavar="NODE", multiple=True, help="Run this node in any case; may be repeated.")
@click.option("--only", metavar="NODE", multiple=True, help="Only this and what it reads from; repeatable.")
@click.option("--jobs", type=click.IntRange(1, JOBS_MAX), help="So many nodes at a time.")
@click.option("--processes", is_flag=True, help="Run nodes in processes of their own, not in threads.")
@click.option("--keep-going", is_flag=True, help="After a failure, run whatever does not depend on it.")
@click.option("--verify", is_flag=True, help="Read files again, whatever their size and times say.")
@click.option("--all", "all_nodes", is_flag=True, help="In JSON, list the unchanged nodes, too.")
@directory_option
@session_options
def run(
    session: Session, file: str, directory: str | None, all_nodes: bool, processes: bool, **wish: Any
) -> int:
    """Run what must run, and record each node as it ends.

    One line for each node that ran, failed or was blocked, then a line that sums it up; nothing for nodes
    that are unchanged. After Ctrl-C, a failure or a kill, `--resume RUN` or simply the same command goes on:
    what is finished is not repeated.
    """
    pipeline, order = _loaded(file)
    with opened(session, directory, read_only=False) as place:
        began_ms = place.clock.monotonic_ms()
        live = _live(session, order)
        with held():
            from kfm.engine.passing import Passing
            from kfm.wiring.passes import make_wish, with_workers
        _whole_ids(place, wish)
        made = make_wish(pipeline, place, **wish)
        # What nodes print is theirs to say, but it is not the result.
        with data_apart():
            kernel = place.kernel(live.node, live.say)
            kernel = with_workers(kernel, place, pipeline, "processes" if processes else None, live.say)
            report = Passing(kernel, pipeline, made).run()
        live.clear()
        took_ms = place.clock.monotonic_ms() - began_ms
    words = _words(report, order)
    code = _exit_code(report)
    if session.output == "text":
        blocked = [each for each in report.nodes.values() if each.outcome is None]
        told = [lines.node_line("blocked", each.id, each.reason, width=_width(order)) for each in blocked]
        session.emit(None, [*told, lines.summary_line(report, words, took_ms)])
    else:
        document = lines.pass_document(report, words, took_ms, code, with_unchanged=all_nodes)
        session.emit(document, (), rows=document["nodes"])
    if code:
        again = _again(file, report.run_id, directory, session)
        for line in lines.failure_lines(report, again, verbose=session.verbose):
            session.note(line)
        for each in lines.failures(report):
            annotate(each.error, title=f"{each.id}: failed")
    return code


@command.command()
@file_argument
@click.option("--branch", metavar="NAME", help="As of this branch; else the pipeline's own, main.")
@click.option("--resume", metavar="RUN", help="What going on with this run would do.")
@click.option("--fork", metavar="RUN", help="What a fork of this run would do; needs --from.")
@click.option("--from", "fork_from", metavar="NODE", help="With --fork: the node to begin from.")
@click.option("--force", metavar="NODE", multiple=True, help="If this node ran in any case; may be repeated.")
@click.option("--only", metavar="NODE", multiple=True, help="Only this and what it reads from; repeatable.")
@click.option("--verify", is_flag=True, help="Read files again, whatever their size and times say.")
@click.option("--all", "all_nodes", is_flag=True, help="List the unchanged nodes, too.")
@directory_option
@session_options
def plan(session: Session, file: str, directory: str | None, all_nodes: bool, **wish: Any) -> None:
    """Show what would run, and why. Nothing is changed.

    The decisions are those of `kfm pipeline run`. A node that reads from one that would run is listed, too:
    if that one makes the same as before, it will be left alone after all.
    """
    pipeline, order = _loaded(file)
    with opened(session, directory) as place:
        with held():
            from kfm.wiring.passes import make_wish, planned
        _whole_ids(place, wish)
        made = make_wish(pipeline, place, **wish)
        report = planned(place, pipeline, made)
    words: Counter[str] = Counter({"skipped": len(order) - len(report.nodes)})
    rows = []
    for each in report.nodes.values():
        word = _foreseen(each)
        words[word] += 1
        if word not in QUIET or all_nodes:
            rows.append(lines.node_document(each, word))
    width = max((len(row["node"]) for row in rows), default=0)
    told = [lines.node_line(row["word"], row["node"], row["reason"], width=width) for row in rows]
    document = {
        "pipeline_id": pipeline.id,
        "branch": made.branch,
        "counts": {word.replace(" ", "_"): words[word] for word in PLANNED},
        "nodes": rows,
    }
    session.emit(document, [*told, lines.counted_words(words)], rows=rows)


@command.command()
@file_argument
@session_options
def check(session: Session, file: str) -> None:
    """Load a pipeline and check its graph: names, arguments, circles. Runs and reads nothing else."""
    pipeline, order = _loaded(file)
    graph = pipeline.graph()
    reads = graph.reads
    edges = sum(map(len, reads.values()))
    depth: dict[str, int] = {}
    for node in graph.order:
        depth[node] = 1 + max((depth[each] for each in reads[node]), default=0)
    layers = max(depth.values(), default=0)
    document = {"pipeline_id": pipeline.id, "nodes": len(order), "edges": edges, "layers": layers}
    said = f"{counted(len(order), 'node')}, {counted(edges, 'edge')}, {counted(layers, 'layer')}"
    session.emit(document, [f"ok: {pipeline.id}: {said}"])


def _foreseen(report: Any) -> str:
    if report.outcome is None:
        return "would run" if report.error is None else "blocked"
    return "would fail" if report.outcome == "failed" else lines.word_of(report)


def _loaded(file: str) -> tuple[Any, list[str]]:
    """The pipeline, and its nodes as they were declared."""
    with held():
        from kfm.runs.opening import load_pipeline
    # What was loaded so far, and what the file declares, stays to the end: no need to look through it again.
    gc.disable()
    try:
        with data_apart():
            pipeline = load_pipeline(file)
    finally:
        gc.freeze()
        gc.enable()
    return pipeline, list(pipeline.nodes)


def _whole_ids(place: Any, wish: dict[str, Any]) -> None:
    """The beginning of a run's id is enough."""
    for name in ("resume", "fork"):
        if wish.get(name) is not None:
            wish[name] = find_pass(place.tables, wish[name]).run_id


def _live(session: Session, order: list[str]) -> lines.Live:
    out = sys.stdout  # nodes may print: theirs goes elsewhere while ours stays here

    def show(word: str, report: Any) -> None:
        if session.output == "text":
            with redirect_stdout(out):
                session.emit(
                    None, [lines.node_line(word, report.id, report.reason, report.duration_ms, width)]
                )
            out.flush()

    width = _width(order)
    return lines.Live(show, len(order), is_tty=sys.stderr.isatty() and session.output == "text")


def _width(order: list[str]) -> int:
    """Of the column of names; a few long ones stand out rather than push all others aside."""
    return min(NAME_CHARS, max(map(len, order), default=0))


def _words(report: Any, order: list[str]) -> Counter[str]:
    words: Counter[str] = Counter()
    alike = Counter((each.outcome, each.ran) for each in report.nodes.values())
    for (outcome, ran), number in alike.items():
        words[lines.word_for(outcome, ran=ran)] += number
    words["skipped"] = len(order) - len(report.nodes)
    return words


def _exit_code(report: Any) -> int:
    if report.error is not None:
        return int(report.error.exit_code)
    return 0


def _again(file: str, run_id: str, directory: str | None, session: Session) -> str:
    from shlex import quote

    words = ["kfm pipeline run", quote(file), "--resume", run_id]
    words += ["--directory", quote(directory)] if directory is not None else []
    words += ["--config", quote(session.config)] if session.config is not None else []
    return " ".join(words)
