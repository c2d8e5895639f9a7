"""`kfm migrate`: bring the ledger to the schema of this kfm."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import click
import msgspec

from kfm.cli import process
from kfm.cli.errors import no_run
from kfm.cli.options import session_options
from kfm.cli.output import one_line
from kfm.cli.session import CommandSession
from kfm.cli.store import staged
from kfm.model.errors import RationaleRequired, UsageError
from kfm.model.quantities import counted, readable_size
from kfm.model.times import rfc3339

if TYPE_CHECKING:
    from kfm.storage.upgrade import PlannedMigration, UpgradePlan


@click.command(name="migrate")
@click.option("--plan", "only_plan", is_flag=True, help="Only show what would be done, and beside whom.")
@click.option("--digest", metavar="DIGEST", help="Refuse if the plan is not the one of this digest.")
@click.option(
    "--stop-older", is_flag=True,
    help="Also while older processes are at work that can't go on: they end with KFM401. Needs --rationale.",
)  # fmt: skip
@click.option("--rationale", metavar="TEXT", help="Why; kept in the audit log.")
@session_options
def command(
    session: CommandSession, only_plan: bool, digest: str | None, stop_older: bool, rationale: str | None
) -> None:
    """Bring the ledger to the schema of this kfm.

    A migration expands or contracts. Beside one that expands, processes of the kfm before go on; the first
    process of a newer kfm applies it when it starts. One that contracts takes away what an older kfm needs:
    on PostgreSQL it is applied by this command alone, once the older processes are gone. So an upgrade is:
    start the new version beside the old one, stop the old one, run this.

    The plan has each migration with what it does, the tables that it touches with their rows, and the
    connections of processes that are at work, with the newest migration that each knows. Where older ones
    could not go on, it is refused (KFM505). With --stop-older they are stopped by it: what they have under
    way ends, the next transaction of each is refused, and they end; what they had claimed is taken over when
    its lease has lapsed. On SQLite processes are not listed; the first command of a newer kfm that writes
    applies everything.

    Killed, it goes on with the migration that it was in when it is run again.

    \b
    Examples:
      kfm migrate --plan
      kfm migrate --digest sha256:…      what was planned, or nothing

    Exit codes: 0 done, or nothing to do · 3 not the plan of the digest · 4 the ledger is unavailable, or of a
    newer kfm · 5 older processes are at work.
    """
    if stop_older and not (rationale or "").strip():
        raise RationaleRequired("--stop-older ends the work of others: it needs --rationale TEXT.")
    if only_plan and stop_older:
        raise UsageError("--plan changes nothing.", remedy="Leave --stop-older out.")
    from kfm.config.loader import require_role
    from kfm.config.state_folder import StateFolder
    from kfm.model.records import justified
    from kfm.storage.upgrade import carry_out, plan, require_same
    from kfm.system import SystemClock

    process.keep_data_apart()
    loaded = session.load()
    require_role(loaded, "read" if only_plan else "operate", "kfm migrate", SystemClock())
    folder = StateFolder.of(loaded)
    with no_run(), closing(folder.open_database()) as database:
        seen = plan(folder.place, database)
        if digest is not None:
            require_same(seen, digest)
        made: list[int] = []
        if not only_plan:
            by = justified(loaded.discretion.said, loaded.identity().subject, rationale)
            progress, now_ms = staged(session), folder.clock.now_ms()
            made = carry_out(database, seen, now_ms=now_ms, by=by, progress=progress, stop_older=stop_older)
    lines = _plan_lines(seen) if only_plan else _report_lines(seen, made)
    session.emit({"dry_run": only_plan, **_document(seen), "applied": made}, lines)
    if only_plan and seen.migrations:
        session.note(f"apply it with: kfm migrate --digest {seen.digest}")


def _document(seen: UpgradePlan) -> dict[str, Any]:
    document = msgspec.to_builtins(seen)
    for one in document["processes"] or ():
        one["since"] = rfc3339(one.pop("since_ms"))
        one["can_go_on"] = (one["level"] or 0) >= seen.floor_after
    return {**document, "floor_after": seen.floor_after}


def _plan_lines(seen: UpgradePlan) -> list[str]:
    lines = [f"{one_line(seen.place)}: at migration {seen.level}, this kfm knows up to {seen.newest}"]
    if not seen.migrations:
        return [*lines, "nothing to do"]
    for one in seen.migrations:
        lines += _migration_lines(one)
    older = seen.older
    for each in seen.processes or ():
        words = "stop it first" if each in older else "may go on"
        lines.append(
            f"at work: {one_line(each.name)} from {each.address or 'this machine'}, "
            f"{counted(each.connections, 'connection')} since {rfc3339(each.since_ms)}: {words}"
        )
    if seen.processes is None and any(one.kind == "contract" for one in seen.migrations):
        lines.append("older processes end when it is applied; end those from before migration 47 first")
    return [*lines, f"plan {seen.digest}"]


def _migration_lines(one: PlannedMigration) -> list[str]:
    lines = [f"{one.version} {one.kind}: {one.does}"]
    touched = [
        f"{table.table} ({counted(table.rows, 'row')}"
        + (f", {readable_size(table.bytes)})" if table.bytes is not None else ")")
        for table in one.tables
        if table.rows
    ]
    return [*lines, f"   touches {', '.join(touched)}"] if touched else lines


def _report_lines(seen: UpgradePlan, made: list[int]) -> list[str]:
    if not made:
        return [f"{one_line(seen.place)} is at migration {seen.newest}: nothing to do"]
    return [f"{one_line(seen.place)}: {counted(len(made), 'migration')} applied, up to {made[-1]}"]
