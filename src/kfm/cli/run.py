"""`kfm run`: bring sources up to date."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from kfm.cli.failures import annotate, as_error, error_lines
from kfm.cli.options import session_options
from kfm.cli.output import duration, instant, one_line, span
from kfm.cli.progress import Silent, watcher
from kfm.cli.session import Session
from kfm.core.errors import KfmError, PlanError, RationaleRequired, UsageError

# With several sources the worst ending decides, in this order: something is wrong with us, with a
# backend, with permission, with the work; then only busy; then fine.
WORST_FIRST = (130, 2, 4, 3, 1, 5, 0)

_SELECTION = (
    click.option(
        "--source", "sources", multiple=True, metavar="ID", help="Only this source; may be repeated."
    ),
    click.option(
        "--window", metavar="SPEC", help="P1D, PT6H, 2026-01-01/P1D or START/END; else the source's own."
    ),
    click.option("--correction", metavar="ID", help="Redo the window as this correction: opens a revision."),
    click.option("--artifacts", metavar="DIR", help="Where the run's artifacts go."),
    click.option(
        "--actor", metavar="NAME", help="On whose behalf; recorded beside the account that runs this."
    ),
    click.option("--rationale", metavar="TEXT", help="Why; kept in the governance ledger."),
    click.option("--ticket", metavar="ID", help="The ticket that this belongs to."),
)


def selection_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """What `run` and `diff` are about, said in the same words."""
    for option in reversed(_SELECTION):
        function = option(function)
    return function


@click.command()
@selection_options
@click.option("--dry-run", is_flag=True, help="Decide and fetch, but change nothing; print the plan.")
@click.option(
    "--force", is_flag=True, help="Pass a duplicate key, a spent budget or a freeze; needs reasons."
)
@click.option(
    "--plan", metavar="FILE", help="Apply a plan made with `kfm diff --plan`; refuse if it has drifted."
)
@session_options
def command(session: Session, force: bool, **wish: Any) -> int:
    """Bring sources up to date and publish what changed.

    Without --source: every source that is not a member of a sync. One line is printed for each source:
    published, unchanged, planned, blocked, busy or failed. With several, the exit code is that of the
    worst: 2, 4, 3, 1, 5, then 0.
    """
    if force:
        require_reasons(wish)
    progress = (
        watcher(is_tty=sys.stderr.isatty()) if session.output == "text" or session.verbose else Silent()
    )
    with session.app(read_only=wish["dry_run"], progress=progress) as app:
        if session.verbose:
            app.announce = session.note
        requests = make_requests(app.settings, force=force, **wish)
        reports = []
        for request in requests:
            reports.append(attempt(app, request))
            progress.done()
            tell(session, reports[-1])
    documents = [report_document(report) for report in reports]
    code = worst([exit_code(report) for report in reports])
    if session.output == "json":
        session.emit({"results": documents, "exit_code": code}, ())
    summarise(reports)
    return code


def require_reasons(wish: dict[str, Any]) -> None:
    missing = [f"--{name}" for name in ("rationale", "ticket") if not (wish.get(name) or "").strip()]
    if missing:
        raise RationaleRequired(f"A force needs {' and '.join(missing)}.")


def make_requests(settings: Any, **wish: Any) -> list[Any]:
    """One request for each chosen source."""
    from kfm.config import actor
    from kfm.engine.requests import RunRequest

    sources, window = wish["sources"], wish["window"]
    if wish.get("plan"):
        sources, window = planned(wish["plan"], sources, window)
    return [
        RunRequest(
            source_id=source_id,
            window_spec=window,
            dry_run=wish.get("dry_run", False),
            force=wish.get("force", False),
            correction=wish["correction"],
            artifacts_dir=place_artifacts(wish["artifacts"], source_id, settings, sources),
            actor=actor(),
            claimed_actor=wish["actor"],
            rationale=wish["rationale"],
            ticket=wish["ticket"],
            plan_path=wish.get("plan"),
        )
        for source_id in choose(settings, sources)
    ]


def choose(settings: Any, wanted: Sequence[str]) -> list[str]:
    """The sources to run. Members of a sync run through it, unless they are named."""
    known = [source.id for source in settings.sources]
    if not known:
        raise UsageError("The configuration has no sources.", remedy="Add one under `sources:`.")
    for source_id in wanted:
        if source_id not in known:
            from kfm.configuration.shape import nearest

            raise UsageError(f"There is no source `{source_id}`{nearest(source_id, known)}")
    members = {member for source in settings.sources for member in source.members}
    return list(dict.fromkeys(wanted)) or [source_id for source_id in known if source_id not in members]


def place_artifacts(folder: str | None, source_id: str, settings: Any, wanted: Sequence[str]) -> str | None:
    """Several sources must not write over each other's artifacts."""
    if folder is None:
        return None
    return folder if len(choose(settings, wanted)) == 1 else f"{folder}/{source_id}"


def planned(path: str, sources: Sequence[str], window: str | None) -> tuple[tuple[str, ...], str]:
    """What a plan file is about."""
    from kfm.core.times import rfc3339
    from kfm.publish import plan

    try:
        with open(path, "rb") as file:
            header = plan.read(file.read(plan.PLAN_BYTES_MAX + 1)).header
    except OSError as error:
        raise PlanError(f"{path} can't be read: {(error.strerror or str(error)).lower()}.") from None
    if window is not None or tuple(sources) not in ((), (header.source_id,)):
        raise UsageError(
            f"The plan is about source {header.source_id}; --source and --window can't change that."
        )
    spec = f"{rfc3339(header.window.start_ms)}/{rfc3339(header.window.end_ms)}"
    return (header.source_id,), spec


def attempt(app: Any, request: Any) -> Any:
    """One source's report. One source's failure does not keep the others from running."""
    from kfm.engine.requests import RunReport

    try:
        return app.preview(request) if request.dry_run else app.run(request)
    except KfmError as error:
        outcomes = {3: ("refused", "blocked"), 5: ("busy", "busy")}
        outcome, word = outcomes.get(error.exit_code, ("failed", "failed"))
        if error.exit_code == 130:
            raise
        dataset_id = app.settings.source(request.source_id).dataset
        return RunReport(
            outcome=outcome,  # type: ignore[arg-type]
            word=word,
            source_id=request.source_id,
            dataset_id=dataset_id,
            window_start_ms=0,
            window_end_ms=0,
            invocation_id=None,
            reason=error.message,
            error=error,
        )


# --- endings -------------------------------------------------------------------------


def exit_code(report: Any) -> int:
    if report.error is not None:
        return int(report.error.exit_code)
    if any(projection.error for projection in report.projections):
        return 4
    return {"failed": 1, "refused": 3, "busy": 5}.get(report.outcome, 0)


def worst(codes: Sequence[int]) -> int:
    return min(codes, key=WORST_FIRST.index, default=0)


def tell(session: Session, report: Any) -> None:
    """One source's result, as soon as it is known."""
    if session.output == "jsonl":
        session.emit(None, (), rows=[report_document(report)])
    elif session.output == "text":
        session.emit(
            None, [click.style(result_line(report), fg=COLOURS.get(report.word)), *plan_lines(report)]
        )
    if report.error is not None:
        for line in error_lines(report.error):
            session.note(line)
        annotate(report.error, title=f"{report.source_id}: {report.word}")
    elif report.outcome in ("refused", "busy", "failed") or session.verbose:
        session.note(f"  {one_line(report.reason)}")
    for projection in report.projections:
        if projection.error:
            session.note(f"error {projection.error['code']}: {projection.error['message']}")
            session.note(f"fix: {projection.error['remedy']}")
    if session.verbose:
        for line in details(report):
            session.note(line)


COLOURS = {
    "published": "green",
    "unchanged": "green",
    "planned": "cyan",
    "blocked": "yellow",
    "busy": "yellow",
    "failed": "red",
}


def result_line(report: Any) -> str:
    window = span(report.window_start_ms, report.window_end_ms) if report.window_end_ms else "-"
    version = f"version {report.sequence}" if report.sequence is not None else "no version"
    if report.sequence is None and report.version_id:
        version = f"version {report.version_id.removeprefix('sha256:')[:12]}"
    run_id = f"run {report.run.run_id}" if report.run else "no run"
    return "  ".join(
        (report.word.ljust(9), report.dataset_id, window, version, run_id, duration(report.duration_ms))
    )


def plan_lines(report: Any) -> list[str]:
    if report.plan is None:
        return []
    from kfm.cli.diff import coloured_plan

    return coloured_plan(report.plan)


def details(report: Any) -> list[str]:
    lines = []
    for gate in report.gates:
        said = "overridden" if gate.overridden else "allowed" if gate.allowed else "refused"
        lines.append(f"  gate {gate.gate}: {said}: {one_line(gate.reason)}")
    for projection in report.projections:
        if not projection.error:
            lines.append(f"  target {projection.target} shows version {projection.sequence}")
    if report.artifacts_dir:
        lines.append(f"  artifacts in {report.artifacts_dir}")
    return lines


def report_document(report: Any) -> dict[str, Any]:
    """The JSON shape of one result."""
    from kfm.cli.diff import plan_document

    return {
        "outcome": report.outcome,
        "word": report.word,
        "source_id": report.source_id,
        "dataset_id": report.dataset_id,
        "window_start": instant(report.window_start_ms) if report.window_end_ms else None,
        "window_end": instant(report.window_end_ms) if report.window_end_ms else None,
        "run_id": report.run.run_id if report.run else None,
        "invocation_id": report.invocation_id,
        "reason": report.reason,
        "error": report.error.as_document() if report.error else None,
        "gates": list(report.gates),
        "version": report.sequence,
        "version_id": report.version_id,
        "projections": list(report.projections),
        "artifacts": report.artifacts_dir,
        "plan": plan_document(report.plan) if report.plan is not None else None,
        "duration_ms": report.duration_ms,
    }


def summarise(reports: Sequence[Any]) -> None:
    """Tell a GitHub Actions job what happened, where it looks for it."""
    from kfm.config import github

    job = github()
    if job is None:
        return
    if job.step_summary:
        rows = [
            f"| {report.word} | {report.dataset_id} | {report.source_id} | {report.sequence or '-'} |"
            for report in reports
        ]
        text = "\n".join(("| result | dataset | source | version |", "|---|---|---|---|", *rows, "", ""))
        _append(job.step_summary, text)
    if job.output:
        changed = any(report.word == "published" for report in reports)
        ids = ",".join(report.run.run_id for report in reports if report.run)
        _append(job.output, f"changed={str(changed).lower()}\nrun_ids={ids}\n")


def _append(path: str, text: str) -> None:
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        click.echo(f"warning: {as_error(error).message}", err=True)
