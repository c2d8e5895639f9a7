"""`kfm gc`: remove what no kept version needs, and old rows of the ledger that no promise needs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from kfm.cli.options import Finite, session_options
from kfm.cli.progress import Silent, watcher
from kfm.cli.session import CommandSession
from kfm.model.errors import UsageError
from kfm.model.quantities import counted, readable_size
from kfm.model.rationales import require_rationale
from kfm.model.records import Record
from kfm.model.times import rfc3339

if TYPE_CHECKING:
    from kfm.model.retention import RetentionPlan
    from kfm.runs.gc import Collection

SHOWN_MAX = 20
HOURS_MAX = 876_000  # a century


@click.command()
@click.option("--apply", is_flag=True, help="Remove it; needs --rationale.")
@click.option("--dry-run", is_flag=True, help="Only list what would be removed: the default.")
@click.option(
    "--grace",
    metavar="HOURS",
    type=Finite(0, HOURS_MAX),
    help="Spare what is younger (default: 1), and five minutes more: clocks differ.",
)
@click.option(
    "--wait",
    "wait_minutes",
    type=click.FloatRange(min=0, max=24 * 60),
    default=5.0,
    show_default=True,
    metavar="MINUTES",
    help="Where runs overlap without a gap: hold new ones back for so long at most. 0: never, and a run in "
    "progress is an error.",
)
@click.option("--rationale", metavar="TEXT", help="Why; kept in the audit log. Required to remove.")
@click.option(
    "--digest", metavar="DIGEST", help="Refuse if the plan for old rows is not the one of this digest."
)
@click.option("--again", is_flag=True, help="Look again at old rows that an earlier pass has kept.")
@session_options
def command(
    session: CommandSession,
    apply: bool,
    dry_run: bool,
    grace: float | None,
    wait_minutes: float,
    rationale: str | None,
    digest: str | None,
    again: bool,
) -> None:
    """Show, or remove, what is not needed any more: stored bytes, published versions, old rows of the ledger.

    Kept are the last versions of each dataset (limits.versions_kept), everything staged since the oldest run
    in progress began, everything younger than the grace time, and everything that a commit of a branch or tag
    names. Commits that no branch or tag reaches go after seven days, or after --grace. Without --apply (or
    --yes) nothing is removed: what would go is listed. With it, versions that the ledger still keeps whole
    are given trees first, while everything goes on; `kfm serve` does that, too. Then objects go, from a
    folder or a bucket, in slices of half a minute for which runs wait. Runs in progress come first: a slice
    waits a minute for a gap between them; then new ones are held back until those have ended, for --wait at
    most, and go first if that is not enough (KFM501).

    Rows of the ledger go where `retention.enabled` is set, once they are as old as `retention` says and no
    promise needs them: keys, digests, the verdicts of windows and the audit log stay for ever. Histories are
    sealed in the audit log before, so `kfm audit verify` stays sound. `kfm serve` does the same each hour.
    """
    if apply and dry_run:
        raise UsageError("Either --apply or --dry-run.")
    apply = (apply or session.yes) and not dry_run
    if apply:
        require_rationale(rationale, "Removing needs --rationale TEXT; without --apply it is only listed.")
    has_ledger = not apply or _has_ledger(session)
    if apply and has_ledger:
        _convert(session)
    found = _look(session, None if grace is None else round(grace * 3_600_000), again=again)
    if found.is_garbage and not has_ledger:
        raise UsageError(
            "There is no ledger here, so nothing is known to be needed: nothing is removed.",
            remedy="Name the configuration of the ledger, or bring it back: `kfm restore FROM`.",
        )
    if digest is not None:
        from kfm.model.retention import require_same

        require_same(found.plan, digest)
    removed = gone = None
    if apply and found.is_garbage:
        removed = _carry_out(session, found, rationale or "", round(wait_minutes * 60_000))
    if apply and found.retires:
        gone = _retire(session, rationale or "", again=again)
    lines = [_told(removed)] if removed else listing(found.collection, is_all=not found.retires)
    session.emit(
        _document(found, removed, gone, apply=apply),
        [*lines, *_retention_lines(found.plan, gone, enabled=found.enabled)],
    )
    _note(session, found, grace, apply=apply)


class Findings(Record, frozen=True):
    """What would go: files, and old rows."""

    grace_ms: int | None
    collection: Collection
    plan: RetentionPlan
    enabled: bool  # `retention.enabled`

    @property
    def is_garbage(self) -> bool:
        return bool(_amounts(self.collection))

    @property
    def retires(self) -> bool:
        return self.enabled and bool(self.plan.rows or self.plan.files)


def _has_ledger(session: CommandSession) -> bool:
    """What only would be made by opening it is none."""
    with session.app(read_only=True, bare=True) as app:
        return bool(app.ledger.is_stored)


def _look(session: CommandSession, grace_ms: int | None, *, again: bool) -> Findings:
    from kfm.runs import gc
    from kfm.storage.retention import preview

    with session.app(read_only=True, bare=True) as app:
        return Findings(
            grace_ms=grace_ms,
            collection=gc.plan(app.kernel, app.objects, grace_ms),
            plan=preview(app.ledger, app.settings.retention, app.artifact_folders, again=again),
            enabled=app.settings.retention.enabled,
        )


def _document(found: Findings, removed: Any, gone: Any, *, apply: bool) -> dict[str, Any]:
    collection, plan = found.collection, found.plan
    return {
        "dry_run": not apply,
        "objects": [{"sha256": one.sha256, "size": one.size} for one in collection.objects],
        "has_more": collection.has_more,
        "leftovers": [{"name": one.name, "size": one.size} for one in collection.leftovers],
        "versions": list(collection.versions),
        "shared": list(collection.shared),
        "unreached": list(collection.unreached),
        "commits": collection.commits,
        "trees": collection.trees,
        "kept": collection.objects_kept,
        "size": collection.size,
        "removed": removed,
        "retention": {
            "enabled": found.enabled,
            "digest": plan.digest,
            "rows": plan.rows,
            "files": plan.files,
            "bytes": plan.size,
            "kinds": [_kind_document(one) for one in plan.kinds],
            "gone": None if gone is None else [*gone.values()],
        },
    }


def _note(session: CommandSession, found: Findings, grace: float | None, *, apply: bool) -> None:
    """What stays, why, and what to do next."""
    for one in found.collection.unreached:
        session.note(f"warning: {one.target} could not be looked at, so what is there stays: {one.reason}")
    if found.collection.has_more:
        session.note("there are more objects that can go: run it again after this")
    if (found.is_garbage or found.retires) and not apply:
        spared = "" if grace is None else f" --grace {grace:g}"
        session.note(f"remove it with: kfm gc --apply{spared} --rationale TEXT")
    if (found.plan.rows or found.plan.files) and not found.enabled:
        session.note("they stay: `retention.enabled` is not set")


def _convert(session: CommandSession) -> None:
    """Versions that are kept whole, from before they were trees."""
    progress = watcher(is_tty=sys.stderr.isatty()) if session.output == "text" else Silent()
    from kfm.runs.version_conversion import VersionConversion

    with session.app(progress=progress, bare=True) as app:
        VersionConversion(app.kernel).finish()


def _carry_out(session: CommandSession, found: Findings, rationale: str, hold_back_ms: int) -> Any:
    progress = watcher(is_tty=sys.stderr.isatty()) if session.output == "text" else Silent()
    from kfm.runs import gc, purges

    with session.app(progress=progress, bare=True) as app:
        _, removed = gc.carry_out(
            app.kernel,
            app.objects,
            actor=app.actor,
            rationale=app.loaded.discretion.said(rationale),
            grace_ms=found.grace_ms,
            collection=found.collection,
            hold_back_ms=hold_back_ms,
        )
        purges.finish(app.kernel, again=True)
    return removed


def _retire(session: CommandSession, rationale: str, *, again: bool) -> Any:
    from kfm.model.errors import LockHeld
    from kfm.runs.admission import held_by
    from kfm.storage.retention import carry_out

    with session.app(bare=True) as app:
        made = app.retention_pass(app.loaded.discretion.said(rationale), again=again)
        gone = carry_out(made)
        if made.blocked_by is not None:
            raise LockHeld(held_by(made.blocked_by))
    return gone


def _kind_document(one: Any) -> dict[str, Any]:
    before = None if one.before_ms is None else rfc3339(one.before_ms)
    return {"kind": one.kind, "before": before, "rows": one.rows, "bytes": one.bytes, "kept": one.kept}


def _retention_lines(plan: Any, gone: Any, *, enabled: bool) -> list[str]:
    """Old rows and files by kind, the largest first."""
    if gone is not None:
        parts = [f"{_counted(one)} of {one.kind}" for one in gone.values()]
        size = readable_size(sum(one.bytes for one in gone.values()))
        return [f"retired {', '.join(parts)}: {size}" if parts else "no old row of the ledger went"]
    if not plan.rows and not plan.files:
        return []
    would = "would retire" if enabled else "would retire, if `retention.enabled` were set:"
    what = [
        f"{counted(plan.rows, 'row')} of the ledger" if plan.rows else "",
        f"{counted(plan.files, 'file')} of runs" if plan.files else "",
    ]
    told = " and ".join(filter(None, what))
    lines = [f"{would} {told}: {readable_size(plan.size)}; plan {plan.digest}"]
    for one in sorted(plan.kinds, key=lambda kind: -kind.bytes):
        if one.rows:
            before = rfc3339(one.before_ms)
            lines.append(f"  {one.kind}: {_counted(one)} from before {before}, {readable_size(one.bytes)}")
    return lines


def _counted(one: Any) -> str:
    from kfm.model.retention import ARTIFACTS

    return counted(one.rows, "file" if one.kind == ARTIFACTS else "row")


def listing(collection: Any, *, is_all: bool) -> list[str]:
    """What would go: the totals first, then the largest. `is_all`: nothing else goes."""
    kept = (
        f"{counted(collection.objects_kept, 'object')} {'is' if collection.objects_kept == 1 else 'are'} kept"
    )
    if not _amounts(collection):
        return [f"{'nothing' if is_all else 'no object and no version'} to remove; {kept}"]
    lines = [f"would remove {_amounts(collection)}: {readable_size(collection.size)}; {kept}"]
    largest = sorted(collection.objects, key=lambda one: -one.size)
    lines += [f"  {one.sha256}  {readable_size(one.size)}" for one in largest[:SHOWN_MAX]]
    if len(largest) > SHOWN_MAX:
        lines.append(f"  … and {len(largest) - SHOWN_MAX} more")
    lines += [f"  {one.target}: {one.dataset_id} {one.name}" for one in collection.versions[:SHOWN_MAX]]
    lines += [
        f"  {one.target}: {one.dataset_id} {counted(one.count, 'object')} of old versions, "
        f"{readable_size(one.size)}"
        for one in collection.shared[:SHOWN_MAX]
    ]
    return lines


def _told(removed: Any) -> str:
    spared = f"; {counted(removed.spared, 'object')} needed again meanwhile" if removed.spared else ""
    what = _sum(
        removed.objects, removed.leftovers, removed.versions, removed.commits, removed.trees, removed.shared
    )
    return f"removed {what}: {readable_size(removed.size)}{spared}"


def _amounts(collection: Any) -> str:
    return _sum(
        len(collection.objects),
        len(collection.leftovers),
        len(collection.versions),
        collection.commits,
        collection.trees,
        sum(one.count for one in collection.shared),
    )


def _sum(objects: int, leftovers: int, versions: int, commits: int, trees: int, shared: int) -> str:
    """Whatever there is of each; nothing, if there is nothing of any."""
    if not (objects or leftovers or versions or commits or trees or shared):
        return ""
    theirs = f" with {counted(shared, 'object')} of theirs" if shared else ""
    summary = (
        f"{counted(objects, 'object')}, {counted(leftovers, 'leftover')} "
        f"and {counted(versions, 'old version')}{theirs} at targets"
    )
    if commits or trees:
        summary += (
            f", {counted(commits, 'commit')} and {counted(trees, 'tree')} that no branch or tag reaches"
        )
    return summary
