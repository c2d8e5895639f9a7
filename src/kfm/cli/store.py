"""`kfm store`: move the ledger, or the objects, to another place."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from kfm.cli import process
from kfm.cli.errors import no_run
from kfm.cli.options import CommandGroup, session_options
from kfm.cli.output import one_line
from kfm.cli.progress import ProgressLines, watched
from kfm.cli.session import CommandSession
from kfm.model.errors import StoreCorrupt, UsageError
from kfm.model.quantities import counted, readable_size
from kfm.model.redaction import redact

if TYPE_CHECKING:
    from kfm.config.loader import Loaded
    from kfm.ports import Progress

SHOWN_MAX = 10
ROWS = "copying rows"
TOLD = {ROWS: 100_000, "objects": 1_000}  # how many are worth a line


@click.group(name="store", cls=CommandGroup)
def command() -> None:
    """Move the ledger or the objects to another place."""


@command.command(name="copy")
@click.option(
    "--to",
    required=True,
    metavar="ADDRESS",
    help="postgresql://…, sqlite:PATH, or env:NAME that holds one; with --objects a bucket or a folder.",
)
@click.option("--objects", is_flag=True, help="Copy the objects, not the ledger.")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Of the bucket, as in `objects_options`; a secret as env:NAME. May be repeated.",
)
@click.option("--abandon", is_flag=True, help="Give up a copy that is under way: the old ledger goes on.")
@click.option("--dry-run", is_flag=True, help="Only show what would be copied.")
@click.option("--rationale", metavar="TEXT", help="Why; kept in the audit log.")
@session_options
def copy(
    session: CommandSession,
    to: str,
    objects: bool,
    options: tuple[str, ...],
    abandon: bool,
    dry_run: bool,
    rationale: str | None,
) -> None:
    """Copy the ledger to another database while work goes on, and cut over.

    Rows are copied page by page; what is written meanwhile is noted by triggers and copied again. Each table
    is compared on both sides. Then a fence in the old ledger refuses every write, the rest is copied, and the
    audit log is verified on arrival; only then the new ledger is live and the old one has moved. Versions go
    on with the next number, and targets do not notice. Set `store` to the new address afterwards, and start
    services again: until then they are refused with KFM412.

    Interrupted, it goes on when it is run again. An error behind the fence lifts it. The new place must be
    empty. With --objects the objects are copied instead, by their hashes and read back; what is there already
    with the same size is not copied or read again, so run it once while work goes on and once more when it is
    paused.
    """
    loaded = opened(session)
    if objects:
        with no_run():
            _copy_objects(session, loaded, to, bucket_options(options), dry_run=dry_run, abandon=abandon)
        return
    from kfm.storage.ledger_copy import open_copy

    with no_run(), ExitStack() as held:
        made = open_copy(loaded, to, staged(session), rationale, held, dry_run=dry_run)
        if abandon:
            move = made.abandon()
            lines = [f"given up: the copy to {one_line(move.place)}; this ledger goes on"]
            session.emit({"abandoned": move.move_id, "to": move.place}, lines)
        elif dry_run:
            _show_plan(session, made.plan())
        else:
            _show_report(session, made.run())


class StageNotes:
    """Where there is no terminal: a line for each stage, and now and then how far it is."""

    def __init__(self, session: CommandSession) -> None:
        self._session = session
        self._stage, self._count, self._told = "", 0, 0

    def phase(self, name: str, total: int | None = None) -> None:  # noqa: ARG002 - lines do not move
        stage = ROWS if name.startswith("copying ") else name
        if stage != self._stage:
            self._session.note(stage)
            self._stage, self._count = stage, 0
            self._told = TOLD.get(stage, 0)

    def advance(self, amount: int, note: str = "") -> None:  # noqa: ARG002 - rows have no names
        before, self._count = self._count, self._count + amount
        if self._told and before // self._told != self._count // self._told:
            self._session.note(f"{self._stage}: {self._count:,}")

    def done(self) -> None: ...


def staged(session: CommandSession) -> Progress:
    """Progress of work that has stages."""
    drawn = watched(session)
    return StageNotes(session) if isinstance(drawn, ProgressLines) else drawn


def opened(session: CommandSession) -> Loaded:
    """The configuration, for a caller that may change something."""
    from kfm.config.loader import require_role
    from kfm.system import SystemClock

    process.keep_data_apart()
    loaded = session.load()
    require_role(loaded, "operate", click.get_current_context().command_path, SystemClock())
    return loaded


def bucket_options(given: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    for name, equals, _ in pairs:
        if not equals or not name:
            raise UsageError(f"--option takes NAME=VALUE, not `{name}`.")
    return {name: value for name, _, value in pairs}


def _show_plan(session: CommandSession, plan: Any) -> None:
    largest = sorted(plan.tables, key=lambda one: -one[1])[:SHOWN_MAX]
    verb = "would go on copying" if plan.resumes else "would copy"
    session.emit(
        {
            "dry_run": True,
            "from": plan.source,
            "to": plan.target,
            "resumes": plan.resumes,
            "rows": plan.rows,
            "tables": [{"table": name, "rows": rows} for name, rows in plan.tables],
        },
        [
            f"{verb} {counted(plan.rows, 'row')} of {counted(len(plan.tables), 'table')}: "
            f"{one_line(plan.source)} → {one_line(plan.target)}",
            *(f"  {name}: {rows}" for name, rows in largest if rows),
        ],
    )


def _show_report(session: CommandSession, report: Any) -> None:
    lines = [
        f"moved: {one_line(report.source)} → {one_line(report.target)}",
        f"  {counted(report.rows, 'row')} of {counted(len(report.tables), 'table')}, the same on both sides",
        f"  {counted(report.noted, 'change')} while it was copied, in {counted(report.rounds, 'round')}",
        f"  the audit log is sound: {counted(report.chain_rows, 'row')}, hash {report.chain_hash}",
    ]
    if report.repaired:
        lines.append(f"  {counted(report.repaired, 'row')} copied again: no trigger had noted them")
    session.emit(
        {
            "dry_run": False,
            "from": report.source,
            "to": report.target,
            "move_id": report.move_id,
            "resumes": report.resumed,
            "rows": report.rows,
            "tables": report.tables,
            "noted": report.noted,
            "rounds": report.rounds,
            "repaired": report.repaired,
            "chain": {"rows": report.chain_rows, "hash": report.chain_hash},
            "fenced_ms": report.fenced_ms,
        },
        lines,
    )
    session.note("now set `store` to the new address, and start services again")


def _copy_objects(
    session: CommandSession,
    loaded: Loaded,
    to: str,
    options: dict[str, str],
    *,
    dry_run: bool,
    abandon: bool,
) -> None:
    if abandon:
        raise UsageError("There is nothing to give up: objects are only added to the other store.")
    from kfm.storage.objects_copy import copy_to

    found = copy_to(loaded, to, options, staged(session), dry_run=dry_run)
    amount = counted(found.copied, "object")
    if dry_run:
        lines = [f"would copy {amount}; {found.there} are there"]
    else:
        lines = [f"copied {amount}, {readable_size(found.bytes)}; {found.there} were there"]
    lines += [f"  gone meanwhile: sha256:{one}" for one in found.missing[:SHOWN_MAX]]
    lines += [f"  damaged here: sha256:{one}" for one in found.damaged[:SHOWN_MAX]]
    session.emit(
        {
            "dry_run": dry_run,
            "to": redact(to),
            "copied": found.copied,
            "bytes": found.bytes,
            "there": found.there,
            "missing": found.missing,
            "damaged": found.damaged,
        },
        lines,
    )
    if found.damaged:
        raise StoreCorrupt(
            f"{counted(len(found.damaged), 'object')} could not be copied: their bytes changed."
        )
    if not dry_run:
        session.note("pause work, run this once more, then set `objects`: docs/how-to/back-up-and-move.md")
