"""The list of commands, and the way from arguments to an exit code."""

from __future__ import annotations

import click

from kfm import __version__
from kfm.cli.process import guarded
from kfm.cli.signals import cancelled_by_sigterm, masked
from kfm.config.loader import COMPLETE_VARIABLE, completion_instruction

# Command → where it is (`module`, or `module:name` if it is not `command`) and one line of help, so that
# listing commands imports none of them.
COMMANDS = {
    "init": ("kfm.cli.init", "Begin a project: write a commented configuration that runs."),
    "run": ("kfm.cli.run", "Bring sources up to date and publish what changed."),
    "schedule": ("kfm.cli.schedule", "Show, pause and backfill schedules; export them."),
    "retry": ("kfm.cli.retry", "Retry a failed run, or all that are due."),
    "cancel": ("kfm.cli.requests:cancel_command", "Cancel a run or a request."),
    "pipeline": ("kfm.cli.pipeline", "Run pipelines of plain functions: only what must run does."),
    "run-state": ("kfm.cli.run_state", "Show the records of pipelines and their nodes."),
    "graph": ("kfm.cli.pipeline:graph_command", "Draw a pipeline run: its nodes and their results."),
    "diff": ("kfm.cli.diff", "Show what a run would publish, without doing it."),
    "status": ("kfm.cli.status", "Show what needs someone, what is running and what is published."),
    "coverage": ("kfm.cli.coverage", "Show the state of every window, and how each dataset is."),
    "dismiss": ("kfm.cli.coverage:dismiss_command", "Settle windows that will never have data."),
    "runs": ("kfm.cli.runs", "List runs, newest first."),
    "show": ("kfm.cli.runs:show_command", "Show one run with its invocations."),
    "explain": ("kfm.cli.explain", "Explain an error code, a run, a dataset or a unit."),
    "switch": ("kfm.cli.switch", "Set and list kill switches."),
    "breaker": ("kfm.cli.breaker", "List and reset circuit breakers of providers."),
    "incident": (
        "kfm.cli.incident",
        "List, show, silence and close incidents.",
    ),
    "quarantine": ("kfm.cli.quarantine", "List, show and resume quarantined work."),
    "approvals": (
        "kfm.cli.approvals",
        "Request, list, show, give, reject and revoke approvals.",
    ),
    "whoami": ("kfm.cli.whoami", "Show who you are here, and what you may do."),
    "project": ("kfm.cli.project", "Make every target show what is promoted."),
    "dataset": ("kfm.cli.dataset", "List datasets and their versions; rename or retire one."),
    "source": ("kfm.cli.source", "Give a source another window length."),
    "rollback": ("kfm.cli.dataset:rollback_command", "Put an earlier version of a dataset back."),
    "withdraw": ("kfm.cli.dataset:withdraw_command", "Take data down, and purge it."),
    "branch": ("kfm.cli.branch", "List, compare, merge and revert branches of data."),
    "nodd": ("kfm.cli.nodd", "Read announcements of NOAA's open data; list their units."),
    "catalogue": ("kfm.cli.catalogue", "Search, show, serve and export the catalogue (STAC)."),
    "serve": ("kfm.cli.serve", "Run the scheduler, webhooks, workers, API and console."),
    "webhook": ("kfm.cli.webhook", "Make secrets for webhooks; sign and send one."),
    "requests": ("kfm.cli.requests", "List, show and cancel requests of every trigger."),
    "worker": ("kfm.cli.worker", "Run an ingest worker: receive announcements, process units."),
    "replay": ("kfm.cli.replay", "Replay units: plan, run, inspect; drain dead letters."),
    "backup": ("kfm.cli.backup", "Back up the ledger, objects and anchors, while work goes on."),
    "restore": ("kfm.cli.backup:restore_command", "Restore a backup into an empty place."),
    "store": ("kfm.cli.store", "Move the ledger or the objects to another place."),
    "migrate": ("kfm.cli.migrate", "Bring the ledger to the schema of this kfm."),
    "du": ("kfm.cli.du", "Show where the bytes are, and what gc would free."),
    "gc": ("kfm.cli.gc", "Remove stored bytes that no kept version needs."),
    "export": ("kfm.cli.export", "Bundle the evidence of a run, or check such a bundle."),
    "audit": ("kfm.cli.audit", "Verify, anchor, list and export the audit log."),
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


# The headings of `kfm --help`, each with its commands in the order in which one needs them.
HEADINGS = {
    "Start": ("init", "config", "doctor", "whoami", "completion", "man"),
    "Look": ("status", "coverage", "runs", "show", "explain"),
    "Work": ("diff", "run", "retry", "cancel", "requests", "schedule"),
    "Datasets": ("dataset", "source", "dismiss", "rollback", "withdraw", "project", "branch", "catalogue"),
    "Feeds of announced objects": ("nodd", "worker", "replay"),
    "Decide": ("approvals", "quarantine", "incident", "switch", "breaker"),
    "Pipelines": ("pipeline", "graph", "run-state"),
    "Evidence": ("audit", "lineage", "compliance", "export", "lint", "gate", "release"),
    "Operate": ("serve", "webhook", "metrics", "backup", "restore", "store", "migrate", "du", "gc"),
}


# Older spellings, which no help shows: command → where it is.
OLDER = {"approve": "kfm.cli.approvals:approve_command", "request": "kfm.cli.approvals:request_command"}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used."""

    table: dict[str, tuple[str, str]] = COMMANDS
    older: dict[str, str] = OLDER
    headings: dict[str, tuple[str, ...]] = HEADINGS

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        where = self.table[cmd_name][0] if cmd_name in self.table else self.older.get(cmd_name)
        if where is None:
            return None
        from importlib import import_module

        module, _, name = where.partition(":")
        with masked():
            command: click.Command = getattr(import_module(module), name or "command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in (*self.table, *self.older):
            from kfm.model.quantities import suggest

            close = suggest(args[0], self.table)
            hint = f" Did you mean `{close}`?" if close else ""
            ctx.fail(f"There is no command `{args[0]}`.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        width = max(map(len, self.table))  # the same for all, so that they are read as one list
        for heading, names in self.headings.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), self.table[name][1]) for name in names])


SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(
    cls=LazyGroup,
    context_settings=SETTINGS,
    invoke_without_command=True,
    epilog="Exit codes: 0 done or nothing to do · 1 failed, or findings · 2 usage or configuration · "
    "3 refused by governance · 4 a backend is unavailable · 5 busy · 130 cancelled.",
)
@click.option(
    "--server",
    metavar="URL|NAME",
    envvar="KFM_SERVER",
    help="Let a service do it, over its API, as the person of KFM_TOKEN; else KFM_SERVER.",
)
@click.version_option(__version__, "-V", "--version", prog_name="kfm", message="%(prog)s %(version)s")
@click.pass_context
def kfm(ctx: click.Context, server: str | None) -> None:  # noqa: ARG001 - the commands look at it
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

        from kfm.cli.completion_values import complete_values

        complete_values(instruction.partition("_")[0])
        return shell_complete(group, {}, name, COMPLETE_VARIABLE, instruction)

    with cancelled_by_sigterm():
        return guarded(run, arguments)
