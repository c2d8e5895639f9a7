"""`kfm pipeline` and `kfm graph`: run, plan, check and draw pipelines of plain functions."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import click

from kfm.cli.errors import annotate
from kfm.cli.options import CommandGroup, config_in, directory_option, opened, session_options
from kfm.cli.output import Level, clipped, duration, message, one_line, short_id
from kfm.cli.process import data, keep_data_apart
from kfm.cli.progress import LiveLine
from kfm.cli.session import CommandSession
from kfm.cli.signals import masked
from kfm.model.errors import Cancelled, KfmError, UsageError
from kfm.model.quantities import counted, moment
from kfm.reports.pipeline_runs import cells_of, find_pass, graph_document
from kfm.reports.state_words import of_pipeline_run
from kfm.system import SystemClock

if TYPE_CHECKING:
    from kfm.model.records import NodeOutcome
    from kfm.pipelines.draw import NodeCell

JOBS_MAX = 256
NAME_CHARS = 40
FAILURES_SHOWN_MAX = 10
REASON_CHARS_MAX = 60
_WORD_CHARS = 10
Word = Literal[
    "ran", "partial", "failed", "unchanged", "done", "blocked", "skipped", "would run", "would fail"
]
# unchanged: made by an earlier run; done: this very run made it before;
# blocked: something before it did not succeed; skipped: not asked for.
ORDER: tuple[Word, ...] = (
    "would run",
    "would fail",
    "ran",
    "partial",
    "failed",
    "blocked",
    "done",
    "unchanged",
    "skipped",
)
PLANNED = ("would run", "would fail", "blocked", "done", "unchanged", "skipped")
QUIET = ("done", "unchanged")
COLOURS = {"ran": 32, "partial": 33, "failed": 31, "blocked": 33, "would run": 36, "would fail": 31}
file_argument = click.argument("file", metavar="FILE[:NAME]")


@click.group(name="pipeline", cls=CommandGroup)
def command() -> None:
    """Run pipelines of plain functions: only what must run does.

    A pipeline is a Python file that makes a kfm.Pipeline and declares functions as its nodes. What a node
    made is kept, with a hash of what it was made from; a node whose inputs, parameters and code are the same,
    and whose outputs are still there, is skipped.
    """


# --- run, plan and check -----------------------------------------------------------


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
@click.option(
    "--executor",
    metavar="WHERE",
    help="Run nodes in threads, processes, or on dask://HOST:PORT; else threads.",
)
@click.option("--processes", is_flag=True, help="The same as --executor processes.")
@click.option("--keep-going", is_flag=True, help="After a failure, run whatever does not depend on it.")
@click.option(
    "--verify", is_flag=True, help="Read files and stored results again, whatever their size and times say."
)
@click.option("--all", "all_nodes", is_flag=True, help="In JSON, list the unchanged nodes, too.")
@directory_option
@session_options
def run(
    session: CommandSession,
    file: str,
    directory: str | None,
    all_nodes: bool,
    executor: str | None,
    processes: bool,
    **arguments: Any,
) -> int:
    """Run what must run, and record each node as it ends.

    One line for each node that ran, failed or was blocked, then a line that sums it up; nothing for nodes
    that are unchanged. After Ctrl-C, a failure or a kill, `--resume RUN` or simply the same command goes on:
    what is finished is not repeated.
    """
    executor = _executor(executor, processes=processes)
    pipeline, order = _loaded(file)
    with opened(session, directory, read_only=False) as place:
        began_ms = place.clock.monotonic_ms()
        live = _live(session, order)
        with masked():
            from kfm.pipelines.execution import PipelineExecutor
            from kfm.pipelines.planner import PipelinePlanner
            from kfm.pipelines.project import make_options, with_workers
        _whole_ids(place, arguments)
        options = make_options(pipeline, place, **arguments)
        with live.attached(quiet=session.quiet):
            kernel = with_workers(place.kernel(live.node), place, pipeline, executor, arguments["jobs"])
            report = PipelineExecutor(PipelinePlanner(kernel, pipeline, options)).run()
        took_ms = place.clock.monotonic_ms() - began_ms
    words = _words(report, order)
    code = _exit_code(report)
    if session.output == "text":
        blocked = [each for each in report.nodes.values() if each.outcome is None]
        shown = [node_line("blocked", each.id, each.reason, width=_width(order)) for each in blocked]
        session.emit(None, [*shown, summary_line(report, words, took_ms)])
    else:
        document = pass_document(report, words, took_ms, code, with_unchanged=all_nodes)
        session.emit(document, (), rows=document["nodes"])
    if code:
        again = _again(file, report.run_id, directory, session, executor)
        for level, line in failure_lines(report, again, verbose=bool(session.verbose)):
            message(line, level)
        for each in failures(report):
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
@click.option(
    "--verify", is_flag=True, help="Read files and stored results again, whatever their size and times say."
)
@click.option("--all", "all_nodes", is_flag=True, help="List the unchanged nodes, too.")
@directory_option
@session_options
def plan(
    session: CommandSession, file: str, directory: str | None, all_nodes: bool, **arguments: Any
) -> None:
    """Show what would run, and why. Nothing is changed.

    The decisions are those of `kfm pipeline run`. A node that reads from one that would run is listed, too:
    if that one makes the same as before, it will be skipped after all.
    """
    pipeline, order = _loaded(file)
    with opened(session, directory) as place:
        with masked():
            from kfm.pipelines.project import make_options, plan_in_project
        _whole_ids(place, arguments)
        options = make_options(pipeline, place, **arguments)
        report = plan_in_project(place, pipeline, options)
    words: Counter[str] = Counter({"skipped": len(order) - len(report.nodes)})
    rows = []
    for each in report.nodes.values():
        word = _foreseen(each)
        words[word] += 1
        if word not in QUIET or all_nodes:
            rows.append(node_document(each, word))
    width = max((len(row["node"]) for row in rows), default=0)
    shown = [node_line(row["word"], row["node"], row["reason"], width=width) for row in rows]
    document = {
        "pipeline_id": pipeline.id,
        "branch": options.branch,
        "counts": {word.replace(" ", "_"): words[word] for word in PLANNED},
        "nodes": rows,
    }
    session.emit(document, [*shown, counted_words(words)], rows=rows)


@command.command()
@file_argument
@session_options
def check(session: CommandSession, file: str) -> None:
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
    summary = f"{counted(len(order), 'node')}, {counted(edges, 'edge')}, {counted(layers, 'layer')}"
    session.emit(document, [f"ok: {pipeline.id}: {summary}"])


def _foreseen(report: Any) -> str:
    if report.outcome is None:
        return "would run" if report.error is None else "blocked"
    return "would fail" if report.outcome == "failed" else word_of(report)


def _loaded(file: str) -> tuple[Any, list[str]]:
    """The pipeline, and its nodes as they were declared."""
    with masked():
        from kfm.pipelines.project import load_pipeline
    # What was loaded so far, and what the file declares, stays to the end: no need to look through it again.
    keep_data_apart()  # what files and nodes print is theirs to say, but it is not the result
    gc.disable()
    try:
        pipeline = load_pipeline(file)
    finally:
        gc.freeze()
        gc.enable()
    return pipeline, list(pipeline.nodes)


def _whole_ids(place: Any, arguments: dict[str, Any]) -> None:
    """The beginning of a run's id is enough."""
    for name in ("resume", "fork"):
        if arguments.get(name) is not None:
            arguments[name] = find_pass(place.tables, arguments[name]).run_id


def _live(session: CommandSession, order: list[str]) -> Live:
    def show(word: str, report: Any) -> None:
        if session.output == "text":
            session.emit(None, [node_line(word, report.id, report.reason, report.duration_ms, width)])
            data().flush()

    width = _width(order)
    return Live(show, len(order), is_tty=sys.stderr.isatty() and session.output == "text")


def _width(order: list[str]) -> int:
    """Width of the column of names; a few longer ones are not aligned."""
    return min(NAME_CHARS, max(map(len, order), default=0))


def _words(report: Any, order: list[str]) -> Counter[str]:
    words: Counter[str] = Counter()
    alike = Counter((each.outcome, each.ran) for each in report.nodes.values())
    for (outcome, ran), number in alike.items():
        words[word_for(outcome, ran=ran)] += number
    words["skipped"] = len(order) - len(report.nodes)
    return words


def _exit_code(report: Any) -> int:
    if report.error is not None:
        return int(report.error.exit_code)
    return 0


def _executor(asked: str | None, *, processes: bool) -> str | None:
    """What --executor and --processes say together."""
    if asked is None:
        return "processes" if processes else None
    from kfm.pipelines.executor_address import executor_of

    kind = executor_of(asked).kind  # what is none is refused before anything is loaded
    if processes and kind != "processes":
        raise UsageError("--processes and --executor name different executors.", remedy="Use one of them.")
    return asked


def _again(
    file: str, run_id: str, directory: str | None, session: CommandSession, executor: str | None
) -> str:
    from shlex import quote

    words = ["kfm pipeline run", quote(file), "--resume", run_id]
    words += ["--executor", quote(executor)] if executor is not None else []
    words += ["--directory", quote(directory)] if directory is not None else []
    words += ["--config", quote(session.config)] if session.config is not None else []
    return " ".join(words)


# --- lines -------------------------------------------------------------------------


class Live:
    """Node by node, as they end. On a terminal a line on stderr says how far it is; it leaves no trace."""

    def __init__(self, show: Any, total: int, *, is_tty: bool) -> None:
        self._show = show  # writes one line of the result
        self._total = total
        self._seen = 0
        self._clock = SystemClock()
        self._began_ms = self._clock.monotonic_ms()
        self._line = LiveLine(self._told) if is_tty else None

    def _told(self) -> str:
        took = duration(self._clock.monotonic_ms() - self._began_ms)
        return f"{self._seen:,} of at most {self._total:,} nodes · {took} …"

    def node(self, report: Any) -> None:
        self._seen += 1
        word = word_of(report)
        if word not in ("unchanged", "done"):
            with self._line.hidden() if self._line is not None else nullcontext():
                self._show(word, report)
        if self._line is not None:
            self._line.draw()

    @contextmanager
    def attached(self, *, quiet: bool) -> Iterator[None]:
        """While nodes run, show what they log, too."""
        from kfm.pipelines.context import logger

        before = logger.level
        logger.setLevel(logging.WARNING if quiet else logging.INFO)
        try:
            with self._line.drawn() if self._line is not None else nullcontext():
                yield
        finally:
            logger.setLevel(before)


def word_of(report: Any) -> Word:
    return word_for(report.outcome, ran=report.ran)


def word_for(outcome: NodeOutcome | None, *, ran: bool) -> Word:
    if outcome is None:
        return "blocked"
    if outcome == "skipped":
        return "unchanged"
    if not ran:
        return "done"
    return "ran" if outcome == "success" else outcome


def node_line(word: str, node: str, reason: str, took_ms: int | None = None, width: int = 0) -> str:
    shown = f"{word.ljust(_WORD_CHARS)}  {one_line(node).ljust(width)}  {clipped(reason, REASON_CHARS_MAX)}"
    return coloured(word, f"{shown}  {duration(took_ms)}" if took_ms is not None else shown)


def coloured(word: str, line: str) -> str:
    """Coloured by the word of its node; the stream removes colours where they are not wanted."""
    return f"\x1b[{COLOURS[word]}m{line}\x1b[0m" if word in COLOURS else line


def counted_words(words: Counter[str]) -> str:
    """3 ran, 9,997 unchanged."""
    return ", ".join(f"{words[word]:,} {word}" for word in ORDER if words[word]) or "no nodes"


def summary_line(report: Any, words: Counter[str], took_ms: int) -> str:
    state = "" if report.state == "success" else f"{report.state}: "
    place = f"run {short_id(report.run_id)} on {one_line(report.branch)}"
    return f"{state}{counted_words(words)}; {place}, {duration(took_ms)}"


def failure_lines(report: Any, again: str, *, verbose: bool) -> Iterable[tuple[Level, str]]:
    """Every failed node's error and the way out; then how to go on."""
    failed = [each for each in report.nodes.values() if each.outcome == "failed" and each.error is not None]
    for each in failures(report):
        yield "error", f"error {each.error.code}: {_text(each.error)}"
        cause = each.error.__cause__
        if cause is None or isinstance(each.error, Cancelled):
            yield "info", f"  fix: {each.error.way_out}"
            continue
        yield "info", f"  at: {_where(cause)}"
        if verbose:
            import traceback

            elsewhere: str | None = getattr(cause, "trace", None)
            trace = elsewhere or "".join(traceback.format_exception(cause))
            yield from (("info", line) for line in trace.rstrip().splitlines())
        else:
            yield "info", "  fix: Mend the function; with --verbose the traceback is printed."
    if len(failed) > FAILURES_SHOWN_MAX:
        yield "info", f"… and {len(failed) - FAILURES_SHOWN_MAX} more: kfm graph {short_id(report.run_id)}"
    stopped = report.error is not None and not isinstance(report.error, Cancelled)
    if stopped and (report.state == "cancelled" or not failed):
        yield "error", f"error {report.error.code}: {_text(report.error)}"
        yield "info", f"fix: {report.error.way_out}"
    if report.state == "cancelled":
        yield "info", "cancelled: what was finished is kept"
    yield "info", f"go on with: {again}"


def failures(report: Any) -> list[Any]:
    """Failures that are shown one by one."""
    failed = (each for each in report.nodes.values() if each.outcome == "failed" and each.error is not None)
    return list(islice(failed, FAILURES_SHOWN_MAX))


def _where(cause: BaseException) -> str:
    """The innermost line outside of libraries, as far as can be shown; else the innermost."""
    import os
    import traceback

    shown: str | None = getattr(cause, "place", None)  # it was raised in another process
    if shown is not None:
        return shown
    frames = traceback.extract_tb(cause.__traceback__)
    own = [each for each in frames if f"{os.sep}site-packages{os.sep}" not in each.filename]
    kernel = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    own = [each for each in own if not each.filename.startswith(kernel)] or own or list(frames)
    if not own:
        return "a place that is not known"
    last = own[-1]
    return f"{min(last.filename, os.path.relpath(last.filename), key=len)}:{last.lineno} in {last.name}"


def _text(error: KfmError) -> str:
    return "\n".join(one_line(line) for line in error.message.splitlines())


# --- documents ---------------------------------------------------------------------


def node_document(report: Any, word: str) -> dict[str, Any]:
    return {
        "node": report.id,
        "word": word,
        "outcome": report.outcome,
        "reason": report.reason,
        "inputs_hash": report.inputs_hash or None,
        "made_by": report.made_by,
        "duration_ms": report.duration_ms if report.ran else None,
        "error": report.error.as_document() if report.error else None,
    }


def pass_document(
    report: Any, words: Counter[str], took_ms: int, exit_code: int, *, with_unchanged: bool
) -> dict[str, Any]:
    return {
        "run_id": report.run_id,
        "pipeline_id": report.pipeline_id,
        "branch": report.branch,
        "state": report.state,
        "attempt": report.attempt,
        "commit": report.commit,
        "counts": {word.replace(" ", "_"): words[word] for word in ORDER if not word.startswith("would")},
        "nodes": [
            node_document(each, word)
            for each in report.nodes.values()
            if (word := word_of(each)) != "unchanged" or with_unchanged
        ],
        "error": report.error.as_document() if report.error else None,
        "duration_ms": took_ms,
        "exit_code": exit_code,
    }


# --- graph -------------------------------------------------------------------------


@click.command()
@click.argument("run", required=False)
@click.option("--datasets", "of_datasets", is_flag=True, help="Draw datasets and sources, instead of a run.")
@click.option("--svg", metavar="FILE", help="Draw it into this file, as SVG; - is standard output.")
@click.option(
    "--direction",
    type=click.Choice(("right", "down")),
    default="right",
    help="Where the picture's layers go.",
    show_default=True,
)
@directory_option
@session_options
def graph_command(
    session: CommandSession,
    directory: str | None,
    run: str | None,
    of_datasets: bool,
    svg: str | None,
    direction: str,
) -> None:
    """Draw a pipeline run: its nodes and their results; or the datasets of a configuration.

    RUN is its id, the beginning of it, or `last`. As text: layer by layer, each node after what it
    reads from (←), with a sign (+ ran, = unchanged, ! failed, - blocked, ~ partial); of more than 300 nodes
    a summary by layer and the nodes at which something happened.

    With --datasets: sources, datasets and what is made of what (* source, # dataset, > derived, ! stale,
    ‖ paused, † withdrawn or retired).
    """
    if of_datasets and run is not None:
        raise UsageError(
            f"--datasets draws a configuration, and `{run[:40]}` names a pipeline run.",
            remedy="Use one of them: `kfm graph last`, `kfm graph --datasets`.",
        )
    if svg == "-" and session.output != "text":
        raise UsageError(
            "A picture and JSON can't both be printed.",
            remedy="Name a file with --svg FILE, or leave it out.",
        )
    if of_datasets:
        _dataset_graph(session, directory, svg, direction)
        return
    if run is None:
        raise UsageError(
            "Name a pipeline run, or use --datasets.", remedy="`kfm graph last`, `kfm graph --datasets`."
        )
    with opened(session, directory) as place:
        found = find_pass(place.tables, run)
        records = {each.dataset_id: each for each in place.tables.of_run(found.run_id)}
    from kfm.pipelines.draw import sketch

    cells = cells_of(found, records)
    reads = dict(found.graph)
    state = of_pipeline_run(found.state)
    title = f"{found.pipeline_id}, run {short_id(found.run_id)} on {found.branch}: {state}"
    summary = _summary(found, cells)
    if svg is not None:
        from kfm.pipelines.draw import picture

        direct: Any = direction
        drawn = picture(cells, reads, title=title, description=summary, direction=direct)
        if _is_printed(session, svg, drawn):
            return
    document = graph_document(found, cells, svg)
    lines = [one_line(title), one_line(summary), "", *(coloured(*each) for each in sketch(cells, reads))]
    session.emit(document, [f"{svg}: {summary}"] if svg is not None else lines, rows=document["nodes"])


def _is_printed(session: CommandSession, svg: str, drawn: str) -> bool:
    """Write a picture to its file, or to standard output."""
    if svg == "-":
        session.emit(None, drawn.splitlines())
        return True
    _write(svg, drawn)
    return False


def _summary(found: Any, cells: list[NodeCell]) -> str:
    from collections import Counter

    words: Counter[str] = Counter(cell.word for cell in cells)
    if found.state == "running":
        words.pop("running", None)
        left = len(cells) - words.total()
        open_nodes = f"{counted(left, 'node')} without a record"
        return f"{counted_words(words)}, {open_nodes}; since {moment(found.started_at_ms)}"
    return f"{counted_words(words)}; {moment(found.started_at_ms)}"


def _write(path: str, text: str) -> None:
    """The file appears whole or not at all."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "x", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error.strerror or error}.") from None
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def _dataset_graph(session: CommandSession, directory: str | None, svg: str | None, direction: str) -> None:
    """The datasets of a configuration, their sources, and what is made of what."""
    if directory is not None:
        if session.config is not None:
            raise UsageError("--directory and --config exclude each other.")
        found = config_in(directory)
        if found is None:
            raise UsageError(f"{directory} has no configuration.", remedy="Name a folder with a kfm.yml.")
        session = session._replace(config=found)
    from kfm.pipelines.draw import counted_word, picture, sketch
    from kfm.reports.derived import dataset_graph, dataset_graph_document

    with session.app(read_only=True) as app:
        cells, reads = dataset_graph(app.ledger, app.settings)
        title = f"datasets of environment {app.settings.environment}"
    words = _counted(cells)
    summary = ", ".join(counted_word(word, count) for word, count in words.items())
    if svg is not None:
        direct: Any = direction
        drawn = picture(cells, reads, title=title, description=summary, direction=direct)
        if _is_printed(session, svg, drawn):
            return
    document = dataset_graph_document(cells, reads, svg)
    lines = [one_line(title), one_line(summary), "", *(coloured(*each) for each in sketch(cells, reads))]
    session.emit(document, [f"{svg}: {summary}"] if svg is not None else lines, rows=document["nodes"])


def _counted(cells: list[NodeCell]) -> dict[str, int]:
    from collections import Counter

    return dict(sorted(Counter(cell.word for cell in cells).items()))
