"""`kfm runs` and `kfm show`: runs, newest first; one run with its invocations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from kfm.cli.options import StateChoice, session_options
from kfm.cli.output import PAGE, between, duration, matching, one_line, short_id, table, utc
from kfm.cli.session import CommandSession
from kfm.model.errors import UsageError
from kfm.model.quantities import counted, moment, span
from kfm.model.requests import ADOPTED, CHANGES, SYNCHRONOUS
from kfm.reports.explain.invocations import refused
from kfm.reports.lookup import begins_wal_id
from kfm.reports.requests import named
from kfm.reports.runs import run_document, shown_run, word_of_run
from kfm.reports.state_words import of_invocation, of_request

LIMIT_MAX = 10_000
EXPORT_MAX = 10_000_000
WORDS = ("running", "published", "unchanged", "failed", "refused")
_STORED = {"published": "success", "unchanged": "success", "refused": "failed"}  # as another word is, too


@click.command()
@click.option("--dataset", metavar="ID", help="Only runs of this dataset.")
@click.option("--source", metavar="ID", help="Only runs of this source.")
@click.option(
    "--status",
    type=StateChoice(WORDS, {"success": "success"}),
    help="Only runs in this state; of failed runs also those that were refused.",
)
@click.option(
    "--limit", type=click.IntRange(1, LIMIT_MAX), default=20, help="At most so many.", show_default=True
)
@click.option("--export", "to", metavar="FILE", help="Write all to FILE (.jsonl, .parquet, .feather).")
@click.option(
    "--invocations",
    is_flag=True,
    help="With --export: every call that asked for a run, also those that became none.",
)
@session_options
def command(
    session: CommandSession,
    dataset: str | None,
    source: str | None,
    status: str | None,
    limit: int,
    to: str | None,
    invocations: bool,
) -> None:
    """List runs, newest first.

    REV is the revision of the work, TRY how often it was tried. The id is shortened; every command takes it
    like that, and JSON output has all of it.
    """
    if invocations and (to is None or status is not None):
        raise UsageError("--invocations goes with --export FILE, and without --status.")
    with session.app(read_only=True) as app:
        source, dataset = app.settings.source_id(source), app.settings.dataset_id(dataset)
        if to is not None and invocations:
            from kfm.pipelines.record_export import export_invocations

            number = export_invocations(_invocations(app.ledger, dataset, source), to)
            session.emit({"written": to, "invocations": number}, [f"{to}: {counted(number, 'invocation')}"])
            return
        if to is not None:
            found = _find(app.ledger, dataset, source, status, EXPORT_MAX)
            from kfm.pipelines.record_export import export_runs

            export_runs(found, to)
            session.emit({"written": to, "runs": len(found)}, [f"{to}: {counted(len(found), 'run')}"])
            return
        runs = _find(app.ledger, dataset, source, status, limit + 1)
        called = app.settings.called
        rows = [_row(run, word_of_run(app.ledger, run), called(run.source_id)) for run in runs[:limit]]
    more = len(runs) > limit
    documents = [run_document(run) for run in runs[:limit]]
    header = (
        "STARTED (UTC)",
        "STATUS",
        "DATASET",
        "SOURCE",
        "WINDOW (UTC)",
        "REV",
        "TRY",
        "TOOK",
        "ERROR",
        "RUN ID",
    )
    lines = table(header, rows, spare=("REV", "TRY", "TOOK", "SOURCE", "ERROR")) if runs else ["no runs"]
    session.emit({"runs": documents, "more": more}, lines, rows=documents)
    if not runs:
        for kind, wanted, things in (
            ("dataset", dataset, app.settings.datasets),
            ("source", source, app.settings.sources),
        ):
            if wanted is not None and wanted not in (known := [thing.id for thing in things]):
                from kfm.model.quantities import did_you_mean

                session.note(f"the configuration has no {kind} `{wanted}`{did_you_mean(wanted, known)}")
    if more and session.output == "text":
        session.note(f"more runs are not shown: use --limit (now {limit})")


def _invocations(ledger: Any, dataset: str | None, source: str | None) -> Iterator[Any]:
    """Oldest first."""
    after = 0
    while page := ledger.invocations_since(after, PAGE):
        after = page[-1][0]
        for _, call in page:
            if dataset in (None, call.dataset_id) and source in (None, call.source_id):
                yield call


def _find(ledger: Any, dataset: str | None, source: str | None, status: str | None, limit: int) -> list[Any]:
    """A word that is stored by itself is a matter of the query; of others each run is looked at."""
    wanted = {"dataset_id": dataset, "source_id": source}
    if status not in _STORED:
        found: list[Any] = ledger.runs(**wanted, status=status, limit=limit)
        return found
    return matching(
        lambda before: ledger.runs(**wanted, status=_STORED[status], before=before, limit=PAGE),
        lambda run: word_of_run(ledger, run) == status,
        lambda run: (run.start_time_ms, run.run_id),
        limit,
    )


def _row(run: Any, word: str, source: str) -> tuple[str, ...]:
    took = duration(run.end_time_ms - run.start_time_ms) if run.end_time_ms is not None else "-"
    return (
        moment(run.start_time_ms).removesuffix(" UTC"),
        word,
        run.dataset_id,
        source,
        span(run.window_start_ms, run.window_end_ms).removesuffix(" UTC"),
        str(run.revision),
        str(run.attempts),
        took,
        run.error_code or "-",
        short_id(run.run_id),
    )


# Told in one line of its own, or only of interest to programs.
_NOT_TOLD = ("window_start", "window_end", "version_id", "force")


@click.command()
@click.argument("run")
@session_options
def show_command(session: CommandSession, run: str) -> None:
    """Show one run with its invocations, and the requests and announced objects that asked for it.

    RUN is a run's id, or the beginning of one. The id of a unit (wal_id) shows that, as `kfm nodd show` does.
    """
    if begins_wal_id(run):
        from kfm.cli.nodd import show_unit

        show_unit(session, run)
        return
    with session.app(read_only=True) as app:
        document = shown_run(app.ledger, run, app.settings)
        word = word_of_run(app.ledger, app.ledger.run(document["run"]["run_id"]))
    session.emit(document, render(document, word))


def render(document: dict[str, Any], word: str) -> list[str]:
    """`word`: that people read for the state of the run."""
    run = document["run"]
    facts = [(name.replace("_", " "), value) for name, value in _facts(run, document["version"], word)]
    width = max(len(name) for name, _ in facts)
    lines = [f"{name.ljust(width)}  {one_line(str(value))}" for name, value in facts]
    for promotion in document["promotions"]:
        lines.append(
            f"{'promoted'.ljust(width)}  version {promotion['version']} at {utc(promotion['promoted_at'])}"
        )
    for pin in document["datasets_read"]:
        version = f"version {pin['version']}" if pin["version"] else "no version"
        lines.append(
            f"{'made of'.ljust(width)}  {one_line(pin['dataset_id'])} {version}, read as {pin['read_as']}"
        )
    if document["next_step"] is not None:
        lines.append(f"{'next'.ljust(width)}  {one_line(document['next_step'].line)}")
    lines += _request_lines(document)
    lines += ["", f"invocations ({len(document['invocations'])}):"]
    for call in document["invocations"]:
        claimed = f" for {one_line(call['claimed_actor'])}" if call["claimed_actor"] else ""
        why = f": {one_line(call['reason'])}" if call["reason"] else ""
        outcome = word if call["outcome"] == "success" else of_invocation(call["outcome"])
        asked = utc(call["requested_at"])
        lines.append(f"  {asked}  {outcome}  by {one_line(call['actor'])}{claimed}{why}")
        lines += [
            f"    gate {gate.gate} refused: {one_line(gate.reason)}"
            for gate in refused(call["gates"])[1:]  # the first is the invocation's reason
        ]
    return lines


def _request_lines(document: dict[str, Any]) -> list[str]:
    """The requests that it answers, and the objects that asked; its invocation says what a person asked."""
    found = [one for one in document["requests"] if SYNCHRONOUS not in one["details"]]
    lines = ["", f"requests ({len(found)}):"] if found else []
    for one in found:
        word = of_request(one["state"], one["outcome"], one["blocked_by"])
        what = "its promised attempt" if ADOPTED in one["details"] else one["kind"]
        by = counted(one["members"], "announced object") if one["members"] else f"by {one['actor']}"
        if changes := one["details"].get(CHANGES):
            by = "changed dataset " + ", ".join(
                f"{name} (version {number})" for name, number in changes.items()
            )
        lines.append(f"  {utc(one['accepted_at'])}  {word}  {what}, {one_line(by)}: {one['request_id']}")
        objects = [each for each in document["objects"] if each.request_id == one["request_id"]]
        lines += [f"    {one_line(named(objects, one['members']))}"] if objects else []
    return lines


def _facts(run: dict[str, Any], version: int | None, word: str) -> list[tuple[str, Any]]:
    """What people want to know of a run; JSON output has all of it."""
    facts: list[tuple[str, Any]] = []
    for name, value in run.items():
        if name == "window_start":
            facts.append(("window", between(value, run["window_end"])))
        elif name == "status":
            facts.append((name, word))
        elif name == "version_id" and version is not None:
            facts.append(("version", version))
        elif name == "force" and value:
            facts.append((name, f"number {value}"))
        elif name.endswith("_time_utc") and value is not None:
            facts.append(
                (
                    name.removesuffix("_time_utc").replace("start", "started").replace("end", "ended"),
                    utc(value),
                )
            )
        elif value is not None and name not in _NOT_TOLD:
            facts.append((name, value))
    return facts
