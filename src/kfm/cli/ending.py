"""However a command ends, it is an exit code and, where something went wrong, a sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from kfm.cli import discretion
from kfm.cli.signals import hold, release
from kfm.cli.streams import forgiving


def guarded(run: Callable[[], int], arguments: Sequence[str]) -> int:
    discretion.begin()
    with forgiving(_log_format(arguments)) as out:
        code = _ended(run, arguments)
        out.flush()
        # Nobody reads a closed pipe, and that is their choice; a full disk has lost what somebody wanted.
        if code == 0 and isinstance(out.lost, OSError) and not isinstance(out.lost, BrokenPipeError):
            code = _told(_unwritten(out.lost), ())
    return code


def _log_format(arguments: Sequence[str]) -> str:
    from kfm.config import log_format

    wish = log_format()
    if wish is None and not any(argument.startswith("--log-format") for argument in arguments):
        return "text"  # the usual case imports nothing
    from kfm.cli.logs import wanted_log_format

    return wanted_log_format(arguments, wish)


def _ended(run: Callable[[], int], arguments: Sequence[str]) -> int:
    try:
        release()
        _require_text(arguments)
        _require_log_format()
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


def _require_log_format() -> None:
    from kfm.config import log_format

    if log_format() not in (None, "text", "json"):
        from kfm.core.errors import UsageError

        raise UsageError(
            "KFM_LOG_FORMAT is neither text nor json.", remedy="Set it to one of them, or unset it."
        )


def _unwritten(lost: OSError) -> Exception:
    from kfm.core.errors import BackendUnavailable

    return BackendUnavailable(
        f"The work is done, but its result could not be written: {(lost.strerror or str(lost)).lower()}.",
        remedy="Make room where standard output goes; `kfm runs` shows what was done.",
    )
