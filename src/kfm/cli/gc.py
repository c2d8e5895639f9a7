"""`kfm gc`: remove what no kept version needs."""

from __future__ import annotations

import sys
from typing import Any

import click

from kfm.cli.options import session_options
from kfm.cli.progress import Silent, watcher
from kfm.cli.session import CommandSession
from kfm.model.errors import RationaleRequired, UsageError
from kfm.model.quantities import counted, readable_size

SHOWN_MAX = 20


@click.command()
@click.option("--apply", is_flag=True, help="Remove it; needs --rationale.")
@click.option("--dry-run", is_flag=True, help="Only list what would be removed: the default.")
@click.option(
    "--grace", metavar="HOURS", type=click.FloatRange(0), help="Spare what is younger (default: 1)."
)
@click.option("--rationale", metavar="TEXT", help="Why; kept in the audit log. Required to remove.")
@session_options
def command(
    session: CommandSession, apply: bool, dry_run: bool, grace: float | None, rationale: str | None
) -> None:
    """Show, or remove, stored bytes that no kept version needs.

    Kept are the last versions of each dataset (limits.versions_kept), everything staged since the oldest run
    in progress began, everything younger than the grace time, and everything that a commit of a branch or tag
    names. Commits that no branch or tag reaches go after seven days, or after --grace. Without --apply (or
    --yes) nothing is removed: what would go is listed.
    """
    apply = apply or session.yes
    if apply and dry_run:
        raise UsageError("Either --apply or --dry-run.")
    if apply and not (rationale or "").strip():
        raise RationaleRequired("Removing needs --rationale TEXT; without --apply it is only listed.")
    grace_ms = None if grace is None else round(grace * 3_600_000)
    from kfm.runs import gc

    with session.app(read_only=True, bare=True) as app:
        collection = gc.plan(app.kernel, app.local_objects, grace_ms)
    found = bool(_amounts(collection))
    removed = _carry_out(session, grace_ms, rationale or "") if apply and found else None
    document = {
        "dry_run": not apply,
        "objects": [{"sha256": one.sha256, "size": one.size} for one in collection.objects],
        "leftovers": [{"name": one.name, "size": one.size} for one in collection.leftovers],
        "versions": list(collection.versions),
        "commits": collection.commits,
        "trees": collection.trees,
        "kept": collection.objects_kept,
        "size": collection.size,
        "removed": removed,
    }
    session.emit(document, [_told(removed)] if removed else listing(collection))
    if found and not apply:
        spared = "" if grace is None else f" --grace {grace:g}"
        session.note(f"remove it with: kfm gc --apply{spared} --rationale TEXT")


def _carry_out(session: CommandSession, grace_ms: int | None, rationale: str) -> Any:
    progress = watcher(is_tty=sys.stderr.isatty()) if session.output == "text" else Silent()
    from kfm.runs import gc, purges

    with session.app(progress=progress, bare=True) as app:
        _, removed = gc.carry_out(
            app.kernel,
            app.local_objects,
            actor=app.actor,
            rationale=app.loaded.discretion.said(rationale),
            grace_ms=grace_ms,
        )
        purges.finish(app.kernel, again=True)
    return removed


def listing(collection: Any) -> list[str]:
    """What would go: the totals first, then the largest."""
    kept = (
        f"{counted(collection.objects_kept, 'object')} {'is' if collection.objects_kept == 1 else 'are'} kept"
    )
    if not _amounts(collection):
        return [f"nothing to remove; {kept}"]
    lines = [f"would remove {_amounts(collection)}: {readable_size(collection.size)}; {kept}"]
    largest = sorted(collection.objects, key=lambda one: -one.size)
    lines += [f"  {one.sha256}  {readable_size(one.size)}" for one in largest[:SHOWN_MAX]]
    if len(largest) > SHOWN_MAX:
        lines.append(f"  … and {len(largest) - SHOWN_MAX} more")
    lines += [f"  {one.target}: {one.dataset_id} {one.name}" for one in collection.versions[:SHOWN_MAX]]
    return lines


def _told(removed: Any) -> str:
    spared = f"; {counted(removed.spared, 'object')} needed again meanwhile" if removed.spared else ""
    what = _sum(removed.objects, removed.leftovers, removed.versions, removed.commits, removed.trees)
    return f"removed {what}: {readable_size(removed.size)}{spared}"


def _amounts(collection: Any) -> str:
    return _sum(
        len(collection.objects),
        len(collection.leftovers),
        len(collection.versions),
        collection.commits,
        collection.trees,
    )


def _sum(objects: int, leftovers: int, versions: int, commits: int, trees: int) -> str:
    """Whatever there is of each; nothing, if there is nothing of any."""
    if not (objects or leftovers or versions or commits or trees):
        return ""
    summary = (
        f"{counted(objects, 'object')}, {counted(leftovers, 'leftover')} "
        f"and {counted(versions, 'old version')} at targets"
    )
    if commits or trees:
        summary += (
            f", {counted(commits, 'commit')} and {counted(trees, 'tree')} that no branch or tag reaches"
        )
    return summary
