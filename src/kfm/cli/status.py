"""`kfm status`: what needs someone, what is running, what is published."""

from __future__ import annotations

import click

from kfm.cli.options import session_options
from kfm.cli.session import CommandSession
from kfm.cli.status_fast import show_status, watch_status
from kfm.model.errors import UsageError


@click.command()
@click.option("--all", "everything", is_flag=True, help="Everything, also on a terminal.")
@click.option("--watch", "watched", is_flag=True, help="Read and draw it again every 5 seconds.")
@session_options
def command(session: CommandSession, *, everything: bool, watched: bool) -> int:
    """Show what needs someone, what is running and what is published.

    On a terminal it fits one screen: how things are, what needs someone by cause, the most harmful first,
    each with its command; then what runs. Elsewhere, and with --all, the first line names the one thing that
    blocks work, who can lift it and the command that does, or says "all clear"; then comes everything.
    Nothing is changed.
    """
    if not watched:
        return show_status(session, everything=everything)
    if everything:
        raise UsageError("--watch and --all exclude each other: all of it has more lines than a screen.")
    from kfm.system import SystemClock

    return watch_status(session, SystemClock())
