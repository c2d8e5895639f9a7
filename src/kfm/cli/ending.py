"""However a command ends, it is an exit code and, where something went wrong, a sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from kfm.cli import discretion
from kfm.cli.signals import hold, release
from kfm.cli.streams import forgiving


def guarded(run: Callable[[], int], arguments: Sequence[str]) -> int:
    discretion.begin()
    with forgiving() as out:
        code = _ended(run, arguments)
        out.flush()
        # Nobody reads a closed pipe, and that is their choice; a full disk has lost what somebody wanted.
        if code == 0 and isinstance(out.lost, OSError) and not isinstance(out.lost, BrokenPipeError):
            code = _told(_unwritten(out.lost), ())
    return code


def _ended(run: Callable[[], int], arguments: Sequence[str]) -> int:
    try:
        release()
        _require_text(arguments)
        return run()
    except (KeyboardInterrupt, Exception) as problem:  # noqa: BLE001 - the last place where it can be told
        hold()
        try:
            return _told(problem, arguments)
        finally:
            with suppress(KeyboardInterrupt):  # asked to stop twice, and we are stopping
                release()


def _told(problem: BaseException, arguments: Sequence[str]) -> int:
    from kfm.cli.failures import as_error, show_error
    from kfm.cli.output import wanted_format

    verbose = "-v" in arguments or "--verbose" in arguments
    return show_error(as_error(problem), output=wanted_format(arguments), verbose=verbose, cause=problem)


def _require_text(arguments: Sequence[str]) -> None:
    """Everything that is kept or shown is UTF-8; other bytes could be neither."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            from kfm.core.errors import UsageError

            shown = argument.encode("utf-8", "surrogateescape")
            raise UsageError(
                f"An argument is not valid UTF-8: {ascii(shown)[1:]}.", remedy="Write it in UTF-8."
            ) from None


def _unwritten(lost: OSError) -> Exception:
    from kfm.core.errors import BackendUnavailable

    return BackendUnavailable(
        f"The work is done, but its result could not be written: {(lost.strerror or str(lost)).lower()}.",
        remedy="Make room where standard output goes; `kfm runs` shows what was done.",
    )
