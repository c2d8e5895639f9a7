"""`kfm diff`: what a run would publish, and a frozen plan of it."""

from __future__ import annotations

import os
from typing import Any

import click

from kfm.cli.options import session_options
from kfm.cli.output import one_line
from kfm.cli.progress import watched
from kfm.cli.run import (
    Lineup,
    attempt_all,
    make_requests,
    plan_lines,
    remark,
    report_document,
    selection_options,
    without_retired,
)
from kfm.cli.session import CommandSession
from kfm.model.errors import UsageError
from kfm.system import sync

_SIGN_COLOURS = {"+": "green", "~": "yellow", "-": "red", "!": "red"}


@click.command()
@selection_options
@click.option("--plan", "plan_path", metavar="FILE", help="Write the frozen plan here, for `kfm run --plan`.")
@session_options
def command(session: CommandSession, plan_path: str | None, **options: Any) -> int:
    """Show what a run would publish, without doing it.

    Gates are asked, upstream is read, bytes go to unlinked temporary files: nothing is admitted, locked
    or written. With --plan the plan is written to a file; `kfm run --plan FILE` applies exactly that, and
    refuses if anything has changed since.
    """
    progress = watched(session)
    with session.app(read_only=True, progress=progress) as app:
        requests = make_requests(app, dry_run=True, **options)
        requests = without_retired(session, app, requests, options)
        if plan_path and len(requests) > 1:
            raise UsageError("A plan is about one source.", remedy="Choose one with --source ID.")
        lineup = Lineup(app.settings, [request.source_id for request in requests])
        reports, code = attempt_all(
            session, app, requests, progress, lambda report: show(session, lineup, report)
        )
    if session.output == "json":
        documents = [report_document(report) for report in reports]
        session.emit({"results": documents, "exit_code": code}, ())
    if plan_path and code == 0 and reports[0].plan is not None:
        write_plan(plan_path, reports[0].plan)
        session.note(f"apply it with: kfm run --plan {plan_path}")
    elif plan_path:
        session.note(f"{plan_path} was not written: there is nothing to apply")
    return code


def show(session: CommandSession, lineup: Lineup, report: Any) -> None:
    """One source's plan, or why there is none."""
    if session.output == "jsonl":
        session.emit(None, (), rows=[report_document(report)])
    elif session.output == "text":
        session.emit(None, plan_lines(report) or [lineup.line(report)])
    if report.error is None and report.plan is None:
        session.note(f"  {one_line(report.reason)}")
    else:
        remark(session, report)


def write_plan(path: str, plan: Any) -> None:
    """All of the plan or none of it: a cut plan would be refused, but why leave one."""
    from kfm.runs.plan import write

    draft = f"{path}.{os.getpid()}.part"
    try:
        with open(draft, "xb") as file:
            file.write(write(plan))
            file.flush()
            sync(file.fileno())
        os.replace(draft, path)
    except OSError as error:
        raise UsageError(f"The plan can't be written to {path}: {(error.strerror or '').lower()}.") from None


def coloured_plan(plan: Any) -> list[str]:
    """The readable plan, each change in the colour of its sign, and its digest."""
    from kfm.runs.plan import signed_lines

    return [
        click.style(line, fg=_SIGN_COLOURS[sign]) if sign in _SIGN_COLOURS else line
        for sign, line in signed_lines(plan)
    ]
