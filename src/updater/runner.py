"""`python -m updater.runner run --config C --window P1D …`: the same command as `kfm run`."""

from __future__ import annotations

import sys

import click

from kfm.cli.command_line import COMMANDS, SETTINGS, LazyGroup, run_command_line


class RunnerGroup(LazyGroup):
    table = {"run": COMMANDS["run"]}
    headings = {"Commands": ("run",)}
    older: dict[str, str] = {}


@click.group(cls=RunnerGroup, context_settings=SETTINGS, no_args_is_help=True)
def runner() -> None:
    """Run updates: idempotent, governed, previewed with --dry-run."""


def main(arguments: list[str] | None = None) -> None:
    """Ends the process with the command's exit code."""
    sys.exit(run_command_line(sys.argv[1:] if arguments is None else arguments, runner, "updater.runner"))


if __name__ == "__main__":
    main()
