"""The exit code of a command: streams and logging around it, every ending shown and numbered.

Free of click and, for `kfm status`, of logging: both take time that is felt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress

from kfm.cli import streams
from kfm.cli.signals import mask, unmask
from kfm.cli.streams import forgiving


def guarded(run: Callable[[], int], arguments: Sequence[str], *, logs: bool = True) -> int:
    """Run with streams, logging and errors set up. `logs=False` saves the import of `logging`."""
    streams.begin()
    log_format = _log_format(arguments)
    with forgiving(log_format) as out, _logging(log_format) if logs else nullcontext():
        code = _ended(run, arguments)
        out.flush()
        # A closed pipe is the reader's choice; a full disk has lost a result.
        if code == 0 and isinstance(out.lost, OSError) and not isinstance(out.lost, BrokenPipeError):
            code = _show(_unwritten(out.lost), ())
    return code


def _log_format(arguments: Sequence[str]) -> str:
    from kfm.config.loader import log_format

    configured = log_format()
    if configured is None and not any(argument.startswith("--log-format") for argument in arguments):
        return "text"  # the usual case imports nothing
    from kfm.cli.logs import wanted_log_format

    return wanted_log_format(arguments, configured)


def _logging(log_format: str) -> AbstractContextManager[None]:
    from kfm.cli.logs import stderr_logging

    return stderr_logging(log_format)


def _ended(run: Callable[[], int], arguments: Sequence[str]) -> int:
    try:
        unmask()
        _require_text(arguments)
        _require_log_format()
        return run()
    except (KeyboardInterrupt, Exception) as problem:  # noqa: BLE001 - the last place where it can be shown
        mask()
        try:
            return _show(problem, arguments)
        finally:
            with suppress(KeyboardInterrupt):  # asked to stop twice, and we are stopping
                unmask()


def _show(problem: BaseException, arguments: Sequence[str]) -> int:
    from kfm.cli.errors import as_error, show_error
    from kfm.cli.output import wanted_format

    verbose = any(argument in ("-v", "-vv", "--verbose") for argument in arguments)
    return show_error(as_error(problem), output=wanted_format(arguments), verbose=verbose, cause=problem)


def _require_text(arguments: Sequence[str]) -> None:
    """Everything that is kept or shown is UTF-8; other bytes could be neither."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            from kfm.model.errors import UsageError

            shown = argument.encode("utf-8", "surrogateescape")
            raise UsageError(
                f"An argument is not valid UTF-8: {ascii(shown)[1:]}.", remedy="Write it in UTF-8."
            ) from None


def _require_log_format() -> None:
    from kfm.config.loader import log_format

    if log_format() not in (None, "text", "json"):
        from kfm.model.errors import UsageError

        raise UsageError(
            "KFM_LOG_FORMAT is neither text nor json.", remedy="Set it to one of them, or unset it."
        )


def _unwritten(lost: OSError) -> Exception:
    from kfm.model.errors import BackendUnavailable

    return BackendUnavailable(
        f"The work is done, but its result could not be written: {(lost.strerror or str(lost)).lower()}.",
        remedy="Make room where standard output goes; `kfm runs` shows what was done.",
    )
