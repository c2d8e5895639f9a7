"""`kfm status`: what is blocked, what is running, what is published."""

from __future__ import annotations

import click

from kfm.cli.options import session_options
from kfm.cli.session import CommandSession
from kfm.cli.status_fast import show_status


@click.command()
@session_options
def command(session: CommandSession) -> int:
    """Show what is blocked, what is running and what is published.

    The first line names the one thing that blocks work, who can lift it and the command that does;
    or says "all clear". Nothing is changed.
    """
    return show_status(session)
