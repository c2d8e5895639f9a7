"""`kfm worker`: take in what queues announce, and work it off."""

from __future__ import annotations

import signal
import sys
from math import isfinite
from typing import Any

import click
import msgspec

from kfm.cli.options import Finite, session_options
from kfm.cli.session import CommandSession
from kfm.cli.signals import GracefulStop
from kfm.model.errors import ExtraMissing, UsageError
from kfm.model.quantities import counted
from kfm.model.settings import CONCURRENCY_MAX, Ingest

CANCELLED = 130
TOLD_EVERY_S = 10.0


@click.command()
@click.option("--once", is_flag=True, help="One look into each queue, and whatever is due then.")
@click.option("--until-idle", is_flag=True, help="End when the queues are empty and nothing is due.")
@click.option("--stdin", "from_stdin", is_flag=True, help="Read messages from standard input, one a line.")
@click.option("--no-intake", is_flag=True, help="Leave the queues alone: only work off what is taken in.")
@click.option(
    "--concurrency", type=click.IntRange(1, CONCURRENCY_MAX), metavar="N",
    help="How many objects are looked at at once, where a policy asks for that; else `ingest.concurrency`.",
)  # fmt: skip
@click.option("--rate", type=Finite(0.001, 1_000_000), metavar="N", help="At most N units a second.")
@click.option("--batch", type=click.IntRange(1, 10_000), metavar="N", help="Units in one transaction.")
@session_options
def command(
    session: CommandSession,
    once: bool,
    until_idle: bool,
    from_stdin: bool,
    no_intake: bool,
    concurrency: int | None,
    rate: float | None,
    batch: int | None,
) -> int:
    """Run an ingest worker: receive announcements, process units.

    A message is acknowledged when each of its records is durable. From then on the ledger decides: units
    are claimed in batches, looked at as their dataset's policy asks, entered into the catalogue, and what
    fails is tried again later. Start as many as you like, on as many machines as share the ledger.

    SIGTERM, and Ctrl-C, let it end the objects that it is reading, put back what it has not begun, and stop;
    a second one stops it at once, and what it held is tried again when its lease has lapsed. A ledger that is
    unavailable is waited for, unless --once or --until-idle is given. One that a newer kfm has upgraded, so
    that this one may not write to it any more, ends it with KFM401.

    \b
    Examples:
      kfm worker                         until it is stopped
      kfm worker --until-idle            for a timer, or a test
      kfm worker --stdin --until-idle <announcements.jsonl

    Exit codes: 0 done, or stopped by SIGTERM · 4 the ledger is unavailable · 130 stopped by Ctrl-C.
    """
    _check(once, until_idle, from_stdin, no_intake, rate)
    from kfm.nodd.dataset_registry import require_known_datasets
    from kfm.nodd.worker_loop import WorkerOptions, run_worker

    loaded = session.load()
    require_known_datasets(loaded)
    _require_reader(loaded.settings.ingest)
    stop = GracefulStop()
    session.inform()
    with session.app() as app, stop.installed():
        if not app.settings.ingest.queues and not from_stdin and not no_intake:
            raise UsageError(
                "No queue is configured, so there is nothing to take in.",
                remedy="Name one under `ingest.queues`, or give --stdin, or --no-intake.",
            )
        options = WorkerOptions(
            mode="once" if once else "until-idle" if until_idle else "until-stopped",
            stream=sys.stdin.buffer if from_stdin else None,
            intake=not no_intake,
            concurrency=concurrency,
            rate=rate,
            batch=batch,
        )
        meter = WorkerProgress(session)
        report = run_worker(app, options, stop.event, meter.show)
        meter.end()
        code = CANCELLED if stop.by == signal.SIGINT else 0
    document = {**msgspec.to_builtins(report), "exit_code": code}
    session.emit(document, report_lines(report))
    return code


def _check(once: bool, until_idle: bool, from_stdin: bool, no_intake: bool, rate: float | None) -> None:
    if once and until_idle:
        raise UsageError("--once and --until-idle exclude each other.", remedy="Give one of them.")
    if from_stdin and no_intake:
        raise UsageError("--stdin is an intake.", remedy="Leave --no-intake out.")
    if from_stdin and sys.stdin is None:  # closed by the caller
        raise UsageError("Standard input is closed.", remedy="Give it a file, or /dev/null.")
    if rate is not None and not isfinite(rate):
        raise UsageError("--rate takes a number of units a second.", remedy="Leave it out for no limit.")


def _require_reader(ingest: Ingest) -> None:
    """Refused before anything is claimed, not for every unit."""
    if not ingest.reads_buckets:
        return
    from importlib.util import find_spec

    if find_spec("obstore") is None:
        raise ExtraMissing(
            "A policy under `ingest.policies` has objects looked at, and buckets are read with the extra "
            "`objects`.",
            remedy="pip install 'kfm-kernel[objects]', or ask for integrity: announced and metadata: key.",
        )


class WorkerProgress:
    """Live progress on stderr: one line that changes on a terminal, a line now and then elsewhere."""

    def __init__(self, session: CommandSession) -> None:
        self._quiet = session.quiet or (session.output != "text" and not session.verbose)
        self._tty = sys.stderr is not None and sys.stderr.isatty()
        self._last_s = 0.0
        self._shown = False

    def show(self, tasks: Any, elapsed_s: float) -> None:
        every_s = 0.2 if self._tty else TOLD_EVERY_S
        if self._quiet or elapsed_s - self._last_s < every_s:
            return
        self._last_s = elapsed_s
        rate = tasks.succeeded / elapsed_s if elapsed_s > 0 else 0.0
        text = (
            f"{tasks.created} taken in, {tasks.succeeded} done, {tasks.failed} failed, "
            f"{tasks.dead} dead letters, {rate:.0f}/s"
        )
        sys.stderr.write(f"\r\x1b[K{text}" if self._tty else f"{text}\n")
        sys.stderr.flush()
        self._shown = True

    def end(self) -> None:
        if self._tty and self._shown and not self._quiet:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def report_lines(report: Any) -> list[str]:
    tasks = report.tasks
    lines = [
        f"taken in: {counted(tasks.messages, 'message')}, {counted(tasks.created, 'new unit')}, "
        f"{tasks.duplicate} duplicate, {tasks.reissued} re-issued, {tasks.stale} stale, "
        f"{counted(tasks.reissues_ignored, 're-issue')} ignored by policy, "
        f"{tasks.removed} removed, {tasks.ignored} ignored, {counted(tasks.dead, 'dead letter')}",
        f"worked off: {tasks.succeeded} succeeded, {tasks.failed} failed, {tasks.lost} lost to others",
    ]
    if tasks.put_back:
        lines.append(f"put back untried: {counted(tasks.put_back, 'unit')}")
    if report.waiting:
        lines.append(f"still waiting: {counted(report.waiting, 'unit')}")
    lines += [f"blocked: {dataset}: {reason}" for dataset, reason in sorted(report.blocked.items())]
    return lines
