"""The command line. Nothing heavy is imported here: starting up is part of how it feels."""

from __future__ import annotations

import sys

from kfm import __version__


def main(arguments: list[str] | None = None) -> None:
    """`kfm …`, `python -m kfm …`; ends the process with the command's exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments in (["--version"], ["-V"]):
        sys.stdout.write(f"kfm {__version__}\n")
        sys.exit(0)
    if arguments[:1] == ["status"]:
        from kfm.cli.quick import quick_status

        code = quick_status(arguments[1:])
        if code is not None:
            sys.exit(code)
    from kfm.cli.entry import run_command_line

    sys.exit(run_command_line(arguments))
