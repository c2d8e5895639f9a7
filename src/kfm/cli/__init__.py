"""The command line. Nothing heavy is imported here: starting up is part of how it feels."""

from __future__ import annotations

import sys
from gc import freeze, set_threshold  # not the module: a command of this package has its name
from os import environ

from kfm import __version__

YOUNG_MAX = 50_000  # new objects before garbage is looked for: what a command loads and reads mostly stays


def main(arguments: list[str] | None = None) -> None:
    """`kfm …`, `python -m kfm …`; ends the process with the command's exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments in (["--version"], ["-V"]) and _print_version():
        sys.exit(0)
    set_threshold(YOUNG_MAX)
    try:
        from kfm.cli.signals import mask, unmask

        mask()
        try:
            code = _run(arguments)
        finally:
            unmask()
    except KeyboardInterrupt:  # before there was anything to tidy up
        code = 130
    sys.exit(code)


def _load_msgspec() -> None:
    """Without `typing_extensions`, which it takes where that is installed: `typing` has the same names on
    every Python that is supported, and the other loads as much again as msgspec itself."""
    if "typing_extensions" in sys.modules or "msgspec" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules["typing_extensions"]


def _print_version() -> bool:
    """The quick way; where it fails, the long way knows what to do about it."""
    try:
        sys.stdout.write(f"kfm {__version__}\n")
        sys.stdout.flush()
    except (OSError, AttributeError):
        return False
    return True


def _run(arguments: list[str]) -> int:
    _load_msgspec()
    if arguments[:1] == ["status"] and "KFM_SERVER" not in environ:
        from kfm.cli.status_fast import quick_status

        code = quick_status(arguments[1:])
        if code is not None:
            freeze()  # it only reads: all that is left goes with the process, unseen
            return code
    from kfm.cli.command_line import run_command_line

    return run_command_line(arguments)
