"""`kfm project`: make every target show what is promoted."""

from __future__ import annotations

import click

from kfm.cli.options import session_options
from kfm.cli.session import CommandSession


@click.command()
@session_options
def command(session: CommandSession) -> int:
    """Make every target show what is promoted.

    Safe at any time and by anyone: a target never goes back to an older version. Use it after a target was
    unreachable, or to fill one that is new or was emptied.
    """
    with session.app() as app:
        reports = app.project(everything=True)
        targets = app.settings.publish
    rows = [
        {"dataset_id": r.dataset_id, "target": r.target, "version": r.sequence, "error": r.error}
        for r in reports
    ]
    lines = []
    for row in rows:
        if row["error"]:
            lines.append(f"failed    {row['dataset_id']}  {row['target']}")
            session.note(f"error {row['error']['code']}: {row['error']['message']}")
            session.note(f"fix: {row['error']['remedy']}")
        else:
            shown = f"version {row['version']}" if row["version"] is not None else "nothing promoted yet"
            lines.append(f"shown     {row['dataset_id']}  {row['target']}  {shown}")
    code = 4 if any(row["error"] for row in rows) else 0
    nothing = "nothing is promoted yet" if targets else "no target is configured"
    session.emit({"projections": rows, "exit_code": code}, lines or [nothing], rows=rows)
    return code
