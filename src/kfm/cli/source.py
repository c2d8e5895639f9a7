"""`kfm source`: another window length for a source, as a planned migration."""

from __future__ import annotations

from typing import Any

import click

from kfm.cli.dataset import carry_out, change_options
from kfm.cli.options import CommandGroup, session_options
from kfm.cli.session import CommandSession


@click.group(name="source", cls=CommandGroup)
def command() -> None:
    """Give a source another window length."""


@command.command(name="rewindow", short_help="Give a source another window length.")
@click.argument("source_id", metavar="SOURCE")
@click.option("--window", "length", metavar="LENGTH", required=True, help="How long: P1D, P1W, PT6H, …")
@change_options
@session_options
def rewindow_command(session: CommandSession, source_id: str, length: str, **options: Any) -> int:
    """Give a source that merges windows another window length.

    Windows of the new length count from then on. Published windows stay: where they cover one of the new
    length, it counts as published; where they do not, it is asked for, and takes their place in one version.
    Requests that wait for windows of the earlier length are cancelled. Runs are refused as long as the
    configuration has another length than the one on record.

    Weeks and months do not fit into each other: go by days.

    Without --yes or --digest DIGEST the change is only shown, with its digest.

    \b
    Examples:
      kfm source rewindow gauges --window P1W
      kfm source rewindow gauges --window P1W --yes --rationale "upstream publishes by week now"
    """
    from kfm.datasets.rewindow import plan_rewindow
    from kfm.model.window_rules import narrow_names

    narrow: tuple[str, ...] = ()

    def plan(kernel: Any) -> Any:
        nonlocal narrow
        prepared = plan_rewindow(kernel, source_id, length)
        source = kernel.settings_as_of_now().source(prepared.plan.source_id)
        narrow = narrow_names(source, length, kernel.ledger.now_ms())
        return prepared

    code = carry_out(session, plan, **options)
    if narrow:
        session.note(
            f"{' and '.join(f'`{name}`' for name in narrow)} of {source_id} may find but a part of a window "
            f"of {length}: what is named there is shorter"
        )
    return code
