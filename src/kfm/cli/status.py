"""`kfm status`: what stands in the way, and everything else."""

from __future__ import annotations

import click

from kfm.cli.options import session_options
from kfm.cli.session import CommandSession
from kfm.cli.status_fast import show_status


@click.command()
@session_options
def command(session: CommandSession) -> int:
    """What stands in the way, what runs, what is published.

    The first line names the one thing that blocks work, who can lift it and the command that does;
    or says "all clear". Nothing is changed.
    """
    return show_status(session)
