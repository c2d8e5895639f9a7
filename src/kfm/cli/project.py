"""`kfm project`: make every target show what is promoted."""

from __future__ import annotations

import click

from kfm.cli.options import session_options
from kfm.cli.session import CommandSession
from kfm.model.errors import UsageError
from kfm.model.rationales import require_rationale
from kfm.model.records import governance_entry, justified
from kfm.runs.target_updates import projection_document


@click.command()
@click.argument("dataset", metavar="[DATASET]", required=False)
@click.option("--rationale", metavar="TEXT", help="Why; then it is kept in the audit log.")
@click.option("--ticket", metavar="ID", help="The ticket that this belongs to; with --rationale.")
@session_options
def command(session: CommandSession, dataset: str | None, rationale: str | None, ticket: str | None) -> int:
    """Make every target show what is promoted, of all datasets or of one.

    Safe at any time and by anyone: a target never goes back to an older version. Use it after a target was
    unreachable, or to fill one that is new or was emptied.
    """
    if rationale is not None:
        require_rationale(rationale, "A reason is given with --rationale TEXT.")
    elif ticket is not None:
        raise UsageError("--ticket goes with --rationale TEXT.")
    with session.app() as app:
        if dataset is not None:
            from kfm.service.dismissals import require_dataset

            dataset = require_dataset(app.settings, dataset)
        if rationale is not None:
            by = justified(app.loaded.discretion.said, app.actor, rationale, ticket)
            now_ms = app.writer.now_ms()
            app.writer.keep_entry(governance_entry("projected-again", dataset or "all", now_ms, by))
        reports = app.project(dataset, everything=True)
        targets = app.settings.publish
    rows = [projection_document(one) for one in reports]
    lines = []
    for row in rows:
        if row["error"]:
            lines.append(f"failed    {row['dataset_id']}  {row['target']}")
            error = row["error"]
            session.fail(f"error {error['code']}: {error['message']}", f"fix: {error['remedy']}")
        else:
            shown = f"version {row['version']}" if row["version"] is not None else "nothing promoted yet"
            lines.append(f"shown     {row['dataset_id']}  {row['target']}  {shown}")
    code = 4 if any(row["error"] for row in rows) else 0
    nothing = "nothing is promoted yet" if targets else "no target is configured"
    session.emit({"projections": rows, "exit_code": code}, lines or [nothing], rows=rows)
    return code
