"""Errors on stderr: one line with a code, one with the way out; tracebacks only on request."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from kfm.model.errors import BackendUnavailable, Cancelled, ConfigError, KfmError, UsageError

NO_TRACEBACK = (UsageError.exit_code, Cancelled.exit_code)  # what a person did is no place in the code


@contextmanager
def no_run() -> Iterator[None]:
    """Around a command that makes no run: who stops it is not told of one."""
    try:
        yield
    except KeyboardInterrupt as problem:
        raise Cancelled(stopped="command") from problem


def as_error(problem: BaseException) -> KfmError:
    """Any exception as an error with a code and a remedy."""
    if isinstance(problem, KfmError):
        return problem
    if isinstance(problem, KeyboardInterrupt | click.exceptions.Abort):
        return Cancelled()
    if isinstance(problem, click.UsageError):
        return _usage_error(problem)
    if isinstance(problem, click.ClickException):
        return UsageError(problem.format_message())
    if isinstance(problem, OSError):
        from kfm.system import os_trouble

        trouble = os_trouble(problem)
        return BackendUnavailable(trouble.text, remedy=trouble.remedy)
    return KfmError(
        f"{type(problem).__name__}: {problem}",
        remedy="This is a defect. Run it again with --verbose for the traceback, and report it.",
    )


def _usage_error(problem: click.UsageError) -> UsageError:
    context = problem.ctx
    if context is None:
        return UsageError(problem.format_message())
    remedy = f"Read `{context.command_path} --help`."
    if isinstance(problem, click.exceptions.NoArgsIsHelpError) and isinstance(context.command, click.Group):
        commands = ", ".join(context.command.list_commands(context))
        return UsageError(f"`{context.command_path}` needs one of: {commands}.", remedy=remedy)
    if isinstance(problem, click.NoSuchOption) and context.parent is None:
        remedy = f"Options come after the command: `kfm status --json`. {remedy}"
    return UsageError(" ".join(problem.format_message().split()), remedy=remedy)


def show_error(error: KfmError, *, output: str, verbose: bool, cause: BaseException | None = None) -> int:
    """Tell it and return the exit code.

    With JSON output the error document is the result, on stdout; people read it on stderr in any case.
    """
    from kfm.cli.output import encode, message

    if output != "text":
        from kfm.cli.process import cleaned, data

        data().write(encode(cleaned(error.as_document()), output))
        data().flush()
    what, way_out = error_lines(error)
    message(what, "error")
    message(way_out)
    annotate(error)
    if verbose and cause is not None and error.exit_code not in NO_TRACEBACK:
        import traceback

        message("".join(traceback.format_exception(cause)).rstrip("\n"), "error")
    return error.exit_code


def error_lines(error: KfmError) -> tuple[str, str]:
    """What went wrong, and the way out. A message may quote anybody: a terminal must not obey it."""
    from kfm.cli.output import one_line

    message = "\n".join(one_line(line) for line in error.message.splitlines())
    return f"error {error.code}: {message}", f"fix: {error.way_out}"


def annotate(error: KfmError, title: str | None = None, way: str | None = None) -> None:
    """An annotation in a GitHub Actions log. It is read from stderr too, so stdout stays data."""
    from kfm.config.loader import github

    if github() is None or getattr(sys.stderr, "is_json", False):  # an annotation is no JSON
        return
    place = error.place if isinstance(error, ConfigError) else {}
    facts = {"title": title or error.code, **place}
    properties = ",".join(f"{name}={_escape(str(value), ':,')}" for name, value in facts.items())
    click.echo(f"::error {properties}::{_escape(f'{error.message} {way or error.way_out}')}", err=True)


def _escape(text: str, more: str = "") -> str:
    for char in "%\r\n" + more:
        text = text.replace(char, f"%{ord(char):02X}")
    return text
