"""`kfm runs`: the ledger, newest first."""

from __future__ import annotations

from typing import Any

import click

from kfm.cli.options import session_options
from kfm.cli.output import duration, short_id, table
from kfm.cli.session import Session
from kfm.core.wording import counted, moment, span
from kfm.documents.runs import run_document

LIMIT_MAX = 10_000
EXPORT_MAX = 10_000_000


@click.command()
@click.option("--dataset", metavar="ID", help="Only runs of this dataset.")
@click.option("--source", metavar="ID", help="Only runs of this source.")
@click.option(
    "--status", type=click.Choice(("running", "success", "failed")), help="Only runs in this state."
)
@click.option(
    "--limit", type=click.IntRange(1, LIMIT_MAX), default=20, help="At most so many.", show_default=True
)
@click.option("--export", "to", metavar="FILE", help="Write all to FILE (.jsonl, .parquet, .feather).")
@session_options
def command(
    session: Session, dataset: str | None, source: str | None, status: str | None, limit: int, to: str | None
) -> None:
    """List runs, newest first.

    REV is the revision of the work, TRY how often it was tried. The id is shortened; every command takes it
    like that, and JSON output has all of it.
    """
    with session.app(read_only=True) as app:
        if to is not None:
            found = app.ledger.runs(dataset_id=dataset, source_id=source, status=status, limit=EXPORT_MAX)
            app.export_runs(found, to)
            session.emit({"written": to, "runs": len(found)}, [f"{to}: {counted(len(found), 'run')}"])
            return
        runs = app.ledger.runs(dataset_id=dataset, source_id=source, status=status, limit=limit + 1)
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
    lines = table(header, [_row(run) for run in runs[:limit]]) if runs else ["no runs"]
    session.emit({"runs": documents, "more": more}, lines, rows=documents)
    if not runs:
        for kind, wanted, things in (
            ("dataset", dataset, app.settings.datasets),
            ("source", source, app.settings.sources),
        ):
            if wanted is not None and wanted not in (known := [thing.id for thing in things]):
                from kfm.configuration.shape import nearest

                session.note(f"the configuration has no {kind} `{wanted}`{nearest(wanted, known)}")
    if more and session.output == "text":
        session.note(f"more runs are not shown: use --limit (now {limit})")


def _row(run: Any) -> tuple[str, ...]:
    took = duration(run.end_time_ms - run.start_time_ms) if run.end_time_ms is not None else "-"
    return (
        moment(run.start_time_ms).removesuffix(" UTC"),
        run.status,
        run.dataset_id,
        run.source_id,
        span(run.window_start_ms, run.window_end_ms).removesuffix(" UTC"),
        str(run.revision),
        str(run.attempts),
        took,
        run.error_code or "-",
        short_id(run.run_id),
    )
