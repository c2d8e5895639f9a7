"""`kfm run`: bring sources up to date."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Any

import click

from kfm.cli.failures import as_error
from kfm.cli.options import session_options
from kfm.cli.progress import watched
from kfm.cli.results import Lineup, exit_code, report_document, tell, worst
from kfm.cli.selection import make_requests, selection_options
from kfm.cli.session import Session
from kfm.core.errors import Cancelled, KfmError, RationaleRequired

SEAL_EVENTS_MIN = 500  # so many events are worth an entry in the chain


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
    progress = watched(session)
    with session.app(read_only=wish["dry_run"], progress=progress) as app:
        if session.verbose:
            app.announce = session.note
        requests = make_requests(app, force=force, **wish)
        lineup = Lineup(app.settings, [request.source_id for request in requests])
        reports, code = attempt_all(
            session, app, requests, progress, lambda report: tell(session, lineup, report)
        )
        if session.output == "json":
            documents = [report_document(report) for report in reports]
            session.emit({"results": documents, "exit_code": code}, ())
        summarise(reports)
        if not wish["dry_run"]:
            hand_over(session, app, reports)
    return code


def hand_over(session: Session, app: Any, reports: Sequence[Any]) -> bool:
    """Send the events that wait, now that the work is done and told. What can't go stays in the outbox.

    Nothing of this may change how the work ended: trouble is a line, and the next run tries again.
    False if somebody wanted us to stop meanwhile.
    """
    if not tell_hooks(session, app):
        return False
    try:
        for report in reports:
            app.leave_provenance(report)
        delivered = app.deliver()
        app.seal(actor="kfm", minimum=SEAL_EVENTS_MIN)
    except OSError as error:
        session.note(f"artifacts: {as_error(error).message}")
        return True
    except KfmError as error:
        session.note(
            f"evidence: {error.message} The work is done; the next run, or `kfm audit seal`, goes on."
        )
        return True
    except KeyboardInterrupt:
        return False  # nothing is lost, and the work has its own exit code
    if delivered.trouble:
        session.note(f"lineage: {delivered.trouble}; `kfm lineage deliver` sends what waits")
    return True


def tell_hooks(session: Session, app: Any) -> bool:
    """Tell the hooks of incidents that changed. A hook in trouble is a line, and never an exit code."""
    try:
        passes = app.tell_incidents()
    except KfmError as error:
        session.note(f"incidents: {error.message} `kfm incident deliver` tells what waits")
        return True
    except KeyboardInterrupt:
        return False
    for each in passes:
        if each.delivered.trouble:
            session.note(
                f"incidents: hook {each.hook}: {each.delivered.trouble}; `kfm incident deliver` tries again"
            )
    return True


def require_reasons(wish: dict[str, Any]) -> None:
    missing = [f"--{name}" for name in ("rationale", "ticket") if not (wish.get(name) or "").strip()]
    if missing:
        raise RationaleRequired(f"A force needs {' and '.join(missing)}.")


def attempt_all(
    session: Session, app: Any, requests: Sequence[Any], progress: Any, show: Callable[[Any], None]
) -> tuple[list[Any], int]:
    """The reports, each shown as soon as it is known, and the exit code of them all.

    One source's failure does not keep the others from running. A wish to stop does: it is meant for the
    whole call, whichever source it met.
    """
    reports: list[Any] = []
    codes: list[int] = []
    try:
        for request in requests:
            reports.append(attempt(session, app, request))
            codes.append(exit_code(reports[-1]))
            progress.done()
            show(reports[-1])
            if isinstance(reports[-1].error, Cancelled):
                break
    except KeyboardInterrupt:  # between two sources
        codes.append(Cancelled.exit_code)
    left = [request.source_id for request in requests[len(reports) :]]
    if left and Cancelled.exit_code in codes:
        session.note(f"cancelled; not run: {', '.join(left)}")
    return reports, worst(codes)


def attempt(session: Session, app: Any, request: Any) -> Any:
    """One source's report, whatever happens."""
    from kfm.engine.requests import RunReport

    try:
        return app.preview(request) if request.dry_run else app.run(request)
    except (Exception, KeyboardInterrupt) as problem:  # noqa: BLE001 - told as this source's failure
        error = as_error(problem)
        if session.verbose and not isinstance(problem, KfmError | KeyboardInterrupt):
            session.note("".join(traceback.format_exception(problem)).rstrip())
    outcomes = {3: ("refused", "blocked"), 5: ("busy", "busy")}
    outcome, word = outcomes.get(error.exit_code, ("failed", "failed"))
    return RunReport(
        outcome=outcome,  # type: ignore[arg-type]
        word=word,
        source_id=request.source_id,
        dataset_id=app.settings.source(request.source_id).dataset,
        window_start_ms=0,
        window_end_ms=0,
        invocation_id=None,
        reason=error.message,
        error=error,
    )


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
