"""`kfm gc`: remove what no kept version needs."""

from __future__ import annotations

import sys
from typing import Any

import click

from kfm.cli.options import session_options
from kfm.cli.output import counted, readable_size
from kfm.cli.progress import Silent, watcher
from kfm.cli.session import Session
from kfm.core.errors import RationaleRequired

SHOWN_MAX = 20


@click.command()
@click.option("--dry-run", is_flag=True, help="Only list what would be removed.")
@click.option(
    "--grace", metavar="HOURS", type=click.FloatRange(0), help="Spare what is younger (default: 1)."
)
@click.option("--rationale", metavar="TEXT", help="Why; kept in the governance ledger. Required to remove.")
@session_options
def command(session: Session, dry_run: bool, grace: float | None, rationale: str | None) -> None:
    """Remove stored bytes that no kept version needs.

    Kept are the last versions of each dataset (limits.versions_kept), everything staged since the oldest run
    in progress began, and everything younger than the grace time. What would go is shown first; removing it
    is confirmed, or answered with --yes.
    """
    grace_ms = None if grace is None else round(grace * 3_600_000)
    if not dry_run and not (rationale or "").strip():
        raise RationaleRequired("Removing needs --rationale TEXT; --dry-run only lists.")
    with session.app(read_only=True) as app:
        collection = app.plan_collection(grace_ms)
    removed = None
    if not dry_run:
        for line in listing(collection):
            session.note(line)
        worth = collection.objects or collection.leftovers or collection.versions
        if worth and session.confirm("Remove them?"):
            removed = _carry_out(session, grace_ms, rationale or "")
    document = {
        "dry_run": dry_run,
        "objects": [{"sha256": one.sha256, "size": one.size} for one in collection.objects],
        "leftovers": [{"name": one.name, "size": one.size} for one in collection.leftovers],
        "versions": list(collection.versions),
        "kept": collection.objects_kept,
        "size": collection.size,
        "removed": removed,
    }
    session.emit(document, listing(collection) if dry_run else [_told(removed)])


def _carry_out(session: Session, grace_ms: int | None, rationale: str) -> Any:
    from kfm.config import actor

    progress = watcher(is_tty=sys.stderr.isatty()) if session.output == "text" else Silent()
    with session.app(progress=progress) as app:
        _, removed = app.collect(actor=actor(), rationale=rationale, grace_ms=grace_ms)
    return removed


def listing(collection: Any) -> list[str]:
    """What would go: the totals first, then the largest."""
    lines = [
        f"{counted(len(collection.objects), 'object')}, {counted(len(collection.leftovers), 'leftover')}, "
        f"{counted(len(collection.versions), 'old version')} at targets: {readable_size(collection.size)}; "
        f"{collection.objects_kept} kept"
    ]
    largest = sorted(collection.objects, key=lambda one: -one.size)
    lines += [f"  {one.sha256}  {readable_size(one.size)}" for one in largest[:SHOWN_MAX]]
    if len(largest) > SHOWN_MAX:
        lines.append(f"  … and {len(largest) - SHOWN_MAX} more")
    lines += [f"  {one.target}: {one.dataset_id} {one.name}" for one in collection.versions[:SHOWN_MAX]]
    return lines


def _told(removed: Any) -> str:
    if removed is None:
        return "nothing was removed"
    spared = f"; {removed.spared} were needed again meanwhile" if removed.spared else ""
    return (
        f"removed {counted(removed.objects, 'object')}, {counted(removed.leftovers, 'leftover')} "
        f"and {counted(removed.versions, 'old version')}: {readable_size(removed.size)}{spared}"
    )
