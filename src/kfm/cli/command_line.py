"""From arguments to an exit code: find the command, run it, print errors."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from types import FrameType
from typing import Any

import click

from kfm import __version__
from kfm.cli import streams
from kfm.cli.signals import held, hold, release
from kfm.cli.streams import forgiving
from kfm.config.loader import COMPLETE_VARIABLE, completion_instruction

# Command → where it is (`module`, or `module:name` if it is not `command`) and one line of help, so that
# listing commands imports none of them.
COMMANDS = {
    "init": ("kfm.cli.init", "Begin a project: write a commented configuration that runs."),
    "run": ("kfm.cli.run", "Bring sources up to date and publish what changed."),
    "schedule": ("kfm.cli.schedule", "See when sources are brought up to date; export the schedules."),
    "retry": ("kfm.cli.retry", "Try a failed run again, or all whose time has come."),
    "pipeline": ("kfm.cli.pipeline", "Run pipelines of plain functions: only what must run does."),
    "run-state": ("kfm.cli.run_state", "See what is on record of pipelines and their nodes."),
    "graph": ("kfm.cli.pipeline:graph_command", "Draw a pass: its nodes, and what became of each."),
    "diff": ("kfm.cli.diff", "Show what a run would publish, without doing it."),
    "status": ("kfm.cli.status", "What stands in the way, what runs, what is published."),
    "runs": ("kfm.cli.runs", "List runs, newest first."),
    "show": ("kfm.cli.runs:show_command", "Show one run with the calls that asked for it."),
    "explain": ("kfm.cli.explain", "Explain an error code, or why something is as it is."),
    "switch": ("kfm.cli.switch", "Set and list kill switches."),
    "breaker": ("kfm.cli.breaker", "List and reset circuit breakers of providers."),
    "incident": ("kfm.cli.incident", "List, show and close incidents; tell the hooks of them."),
    "quarantine": ("kfm.cli.quarantine", "List, show and resume what was given up."),
    "approvals": ("kfm.cli.approvals", "Ask for approvals; list, show, approve and reject them."),
    "whoami": ("kfm.cli.whoami", "Show who you are here, and what you may do."),
    "project": ("kfm.cli.project", "Make every target show what is promoted."),
    "branch": ("kfm.cli.branch", "List, compare, merge and revert branches of data."),
    "nodd": ("kfm.cli.nodd", "Read announcements of NOAA's open data; see what became of them."),
    "catalogue": ("kfm.cli.catalogue", "Search, show, serve and export the catalogue (STAC)."),
    "serve": ("kfm.cli.serve", "Run the scheduler, webhooks, workers, API and console."),
    "webhook": ("kfm.cli.webhook", "Make secrets for webhooks; sign and send one."),
    "requests": ("kfm.cli.requests", "See and cancel what schedules and webhooks asked for."),
    "worker": ("kfm.cli.worker", "Take in what queues announce, and work it off."),
    "replay": ("kfm.cli.replay", "Bring back units: plan, run, inspect; drain dead letters."),
    "gc": ("kfm.cli.gc", "Remove stored bytes that no kept version needs."),
    "export": ("kfm.cli.export", "Bundle the evidence of a run, or check such a bundle."),
    "audit": ("kfm.cli.audit", "Verify, anchor, list and export the governance ledger."),
    "compliance": ("kfm.cli.compliance", "Check every retry in the ledger against the rules."),
    "lineage": ("kfm.cli.lineage", "Show, deliver and count OpenLineage events."),
    "lint": ("kfm.cli.lint", "Find forbidden retry behaviour in Python code."),
    "gate": ("kfm.cli.gate", "Test policies against fixtures."),
    "release": ("kfm.cli.release", "Make a release: telemetry, SBOM, manifest, attestation."),
    "config": ("kfm.cli.config", "Show or check the configuration."),
    "metrics": ("kfm.cli.metrics", "Print metrics for Prometheus, or serve them."),
    "doctor": ("kfm.cli.doctor", "Check this machine, the store, sources and targets."),
    "completion": ("kfm.cli.completion", "Print a completion script for a shell."),
    "man": ("kfm.cli.man", "Write manual pages into a folder."),
}


# Older spellings, which no help shows: command → where it is.
OLDER = {"approve": "kfm.cli.approve", "request": "kfm.cli.request"}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used."""

    table: dict[str, tuple[str, str]] = COMMANDS
    older: dict[str, str] = OLDER

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        where = self.table[cmd_name][0] if cmd_name in self.table else self.older.get(cmd_name)
        if where is None:
            return None
        from importlib import import_module

        module, _, name = where.partition(":")
        with held():
            command: click.Command = getattr(import_module(module), name or "command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in (*self.table, *self.older):
            from difflib import get_close_matches

            close = get_close_matches(args[0], self.table, n=1)
            hint = f" Did you mean `{close[0]}`?" if close else ""
            ctx.fail(f"There is no command `{args[0]}`.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.table.items()])


SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(
    cls=LazyGroup,
    context_settings=SETTINGS,
    invoke_without_command=True,
    epilog="Exit codes: 0 done or nothing to do · 1 failed, or findings · 2 usage or configuration · "
    "3 refused by governance · 4 a backend is unavailable · 5 busy · 130 cancelled.",
)
@click.version_option(__version__, "-V", "--version", prog_name="kfm", message="%(prog)s %(version)s")
@click.pass_context
def kfm(ctx: click.Context) -> None:
    """Keep datasets up to date: each update takes effect once, and can be previewed and explained."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run_command_line(arguments: list[str], group: click.Group = kfm, name: str = "kfm") -> int:
    """Run one command; every way it can end is an exit code."""

    def run() -> int:
        # Not `group.main`: it would turn a closed pipe into a failure, and Ctrl-C into an error of its own.
        try:
            with group.make_context(name, list(arguments)) as context:
                result = group.invoke(context)
        except click.exceptions.Exit as end:
            return end.exit_code
        return result if isinstance(result, int) else 0

    instruction = completion_instruction()
    if instruction is not None:
        from click.shell_completion import shell_complete

        return shell_complete(group, {}, name, COMPLETE_VARIABLE, instruction)

    previous = _on_terminate(_cancel)
    try:
        return guarded(run, arguments)
    finally:
        _on_terminate(previous)


def _cancel(_signal: int, _frame: FrameType | None) -> None:
    """SIGTERM is a wish to stop, as Ctrl-C is: let every `finally` do its work."""
    raise KeyboardInterrupt


def _on_terminate(handler: Any) -> Any:
    try:
        return signal.signal(signal.SIGTERM, handler)
    except ValueError:  # not the main thread: whoever embeds us handles signals
        return None


def guarded(run: Callable[[], int], arguments: Sequence[str], *, logs: bool = True) -> int:
    """`logs`: does anything log? Importing `logging` is a part of starting up that is felt."""
    streams.begin()
    log_format = _log_format(arguments)
    with forgiving(log_format) as out, _logging(log_format) if logs else nullcontext():
        code = _ended(run, arguments)
        out.flush()
        # Nobody reads a closed pipe, and that is their choice; a full disk has lost what somebody wanted.
        if code == 0 and isinstance(out.lost, OSError) and not isinstance(out.lost, BrokenPipeError):
            code = _told(_unwritten(out.lost), ())
    return code


def _log_format(arguments: Sequence[str]) -> str:
    from kfm.config.loader import log_format

    wish = log_format()
    if wish is None and not any(argument.startswith("--log-format") for argument in arguments):
        return "text"  # the usual case imports nothing
    from kfm.cli.logs import wanted_log_format

    return wanted_log_format(arguments, wish)


def _logging(log_format: str) -> AbstractContextManager[None]:
    from kfm.cli.logs import stderr_logging

    return stderr_logging(log_format)


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
