"""`kfm backup` and `kfm restore`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kfm.cli.errors import no_run
from kfm.cli.options import session_options
from kfm.cli.output import one_line
from kfm.cli.session import CommandSession
from kfm.cli.store import SHOWN_MAX, bucket_options, opened, staged
from kfm.model.quantities import counted, readable_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfm.model.dataset_changes import Withdrawal
    from kfm.storage.backup import RestoreReport

_TOLD = ("reason", "at", "source_id", "window_start", "window_end", "since_sequence")

_options = click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Of a bucket, as in `objects_options`; a secret as env:NAME. May be repeated.",
)


@click.command()
@click.argument("place", metavar="TO")
@click.option("--quick", is_flag=True, help="Compare objects that TO has by their sizes only.")
@_options
@session_options
def command(session: CommandSession, place: str, quick: bool, options: tuple[str, ...]) -> int:
    """Back up the ledger, the objects and the anchors to TO, a folder or a bucket, while work goes on.

    The ledger is of one moment: a SQLite file, from either database. Objects lie beside all backups of TO
    once, by their hashes: what is there already is not copied again. Everything is read back and compared,
    also the objects that TO had; a damaged one is replaced. With --quick those of the right size are not
    read, for places where reading is dear. The manifest with all digests comes last, and without it there is
    no backup. The configuration is not in it: keep that in git.

    Exit status 1 if objects that kept versions need are not in the store any more: they are named.
    """
    from kfm.storage.backup import make_backup

    with no_run():
        report = make_backup(opened(session), place, bucket_options(options), staged(session), quick=quick)
    manifest = report.manifest
    rows = sum(one.rows for one in manifest.tables)
    lines = [
        f"backed up: {manifest.backup_id} at {one_line(report.place)}",
        f"  {counted(rows, 'row')} of the ledger, the audit log is sound up to row {manifest.chain[0]}",
        f"  {counted(manifest.objects, 'object')}: {report.copied} new, {readable_size(report.copied_bytes)}",
        *(f"  not in the store: sha256:{one}" for one in manifest.missing[:SHOWN_MAX]),
    ]
    document = {
        **_document(report.place, manifest),
        "copied": report.copied,
        "bytes": report.copied_bytes,
        "there": report.there,
    }
    session.emit(document, lines)
    if manifest.missing:
        missing = counted(len(manifest.missing), "object")
        session.fail(f"{missing} of kept versions could not be backed up", "look with: kfm doctor --deep")
        return 1
    return 0


@click.command()
@click.argument("place", metavar="FROM")
@click.option("--backup", "backup_id", metavar="ID", help="Which one; else the newest.")
@click.option("--dry-run", is_flag=True, help="Only fetch and compare everything; restore nothing.")
@click.option("--rationale", metavar="TEXT", help="Why; kept in the audit log.")
@_options
@session_options
def restore_command(
    session: CommandSession,
    place: str,
    backup_id: str | None,
    dry_run: bool,
    rationale: str | None,
    options: tuple[str, ...],
) -> None:
    """Restore a backup from FROM into the empty place that the configuration names.

    The ledger goes where `state` and `store` say, into SQLite or PostgreSQL, whichever it came from; the
    objects where `objects` says. Every digest and the audit log are verified before the ledger is there, and
    half a backup is refused. A place with a ledger is refused, too: nothing is ever replaced. Interrupted, it
    goes on when it is run again.

    What was done after the backup is not in it, withdrawals and purges too: look for them before
    `kfm project`. A target that shows more than the restored ledger knows is named, with what its
    withdrawn.json has beyond it, where that is a folder, and with its way out.
    """
    from kfm.storage.backup import restore

    with no_run():
        report = restore(
            opened(session),
            place,
            bucket_options(options),
            staged(session),
            backup_id=backup_id,
            rationale=rationale,
            dry_run=dry_run,
        )
    ahead, behind = ([], []) if dry_run else _looked_at_targets(session)
    document = {
        **_document(report.place, report.manifest),
        "dry_run": dry_run,
        "copied": report.objects.copied,
        "there": report.objects.there,
        "anchors": report.anchors,
        "ahead": ahead,
    }
    session.emit(document, _restored_lines(report, ahead, dry_run=dry_run))
    if report.anchors == "kept":
        session.note("the file of anchors is as it was; what it has beyond the backup, the ledger has not")
    if behind:
        session.note(f"next: `kfm project`; {', '.join(behind)} shows less than the ledger has")
    if ahead:
        session.note(
            "for a target that is ahead: first withdraw again what was withdrawn or purged after the backup "
            "(`kfm withdraw`): the restored ledger would publish it again. Then give the target another "
            "place, or remove what it shows of the dataset (its `current`), and run `kfm project`; "
            "docs/how-to/back-up-and-move.md",
            "warning",
        )


def _restored_lines(report: RestoreReport, ahead: list[dict[str, Any]], *, dry_run: bool) -> list[str]:
    manifest, verb = report.manifest, "would restore" if dry_run else "restored"
    copied = f"copied, {report.objects.there} were there"
    return [
        f"{verb}: {manifest.backup_id} of {manifest.made_at}, every digest compared",
        f"  {counted(report.rows, 'row')} of the ledger; the audit log is sound up to its row "
        f"{manifest.chain[0]}",
        f"  {counted(manifest.objects, 'object')}: {report.objects.copied} "
        + (f"to copy, {report.objects.there} are there" if dry_run else copied),
        *(f"  not in the backup: sha256:{one}" for one in manifest.missing[:SHOWN_MAX]),
        *(_ahead_line(one) for one in ahead),
    ]


def _document(place: str, manifest: Any) -> dict[str, Any]:
    return {
        "place": place,
        "backup_id": manifest.backup_id,
        "made_at": manifest.made_at,
        "environment": manifest.environment,
        "database": manifest.database,
        "digest": manifest.digest,
        "rows": sum(one.rows for one in manifest.tables),
        "objects": manifest.objects,
        "missing": manifest.missing,
        "chain": {"rows": manifest.chain[0], "hash": manifest.chain[1]},
    }


def _looked_at_targets(session: CommandSession) -> tuple[list[dict[str, Any]], list[str]]:
    """Targets that hold a version which the restored ledger has not promoted, with what was withdrawn there
    since; and the names of those that show less than the ledger has."""
    from kfm.model.targets import reached
    from kfm.runs.gc import VersionedTarget

    ahead, behind = [], dict[str, None]()
    with session.app(read_only=True) as app:
        settings = app.settings
        taken = {
            (one.name, dataset.id)
            for dataset in settings.datasets
            for one in reached(settings, settings, dataset)
        }
        for head in app.ledger.heads():
            for target in app.projections:
                if isinstance(target, VersionedTarget):
                    shows = max((number for _, number in target.versions(head.dataset_id)), default=0)
                    if shows > head.sequence:
                        known = app.ledger.change_reader().withdrawals(head.dataset_id)
                        ahead.append(
                            {
                                "target": target.name,
                                "dataset_id": head.dataset_id,
                                "shows": shows,
                                "ledger_at": head.sequence,
                                "withdrawn": _unknown(target, head.dataset_id, known),
                            }
                        )
                    elif shows < head.sequence and (target.name, head.dataset_id) in taken:
                        behind[target.name] = None
    return ahead, list(behind)


def _unknown(target: Any, dataset_id: str, known: Sequence[Withdrawal]) -> list[dict[str, Any]] | None:
    """What a target says to be withdrawn and the ledger does not know; None: this target can't be asked."""
    import json

    from kfm.model.dataset_changes import told
    from kfm.publish.targets.folder import LocalTree

    if not isinstance(target, LocalTree):
        return None
    try:
        document = json.loads(target.shown_tombstone(dataset_id) or b"{}")
        found = [{name: one.get(name) for name in _TOLD if name in one} for one in document["withdrawn"]]
    except KeyError:
        return []  # there is none
    except (ValueError, TypeError, AttributeError):
        return None
    kept = [told(one) for one in known]
    return [one for one in found if not any(one.items() <= other.items() for other in kept)]


def _ahead_line(one: dict[str, Any]) -> str:
    said = f"  {one['target']} is ahead: it shows {one['dataset_id']} {one['shows']}, the ledger is at "
    said += str(one["ledger_at"])
    if one["withdrawn"] is None:
        return f"{said}; what was withdrawn since can't be told from here"
    if one["withdrawn"]:
        many = counted(len(one["withdrawn"]), "withdrawal")
        newest = one["withdrawn"][-1]
        why = one_line(f"{newest.get('at')}: {newest.get('reason')}")
        return f"{said}; its withdrawn.json names {many} that the ledger does not know ({why})"
    return said
