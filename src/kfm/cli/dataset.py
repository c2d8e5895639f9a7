"""`kfm dataset`, `kfm rollback`, `kfm withdraw`: versions of a dataset, and what people do about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
import msgspec

from kfm.cli.options import CommandGroup, session_options
from kfm.cli.output import one_line, short_id, table, utc
from kfm.cli.session import CommandSession
from kfm.model.errors import UsageError
from kfm.model.quantities import counted, did_you_mean, readable_size
from kfm.model.rationales import require_rationale
from kfm.reports.dataset_plans import out_of_reach_lines, plan_lines
from kfm.reports.datasets import VERSIONS_MAX, dataset_document, dataset_documents

if TYPE_CHECKING:
    from kfm.datasets.changes import ChangePlan, PreparedChange
    from kfm.service.dataset_changes import MadeChange

NEEDS_APPROVAL, TARGET_FAILED = 3, 4
_NOUNS = {
    "withdraw": "withdrawal",
    "retire": "retirement",
    "lift": "lifted withdrawal",
    "rename": "renaming",
}
NUMBER_MAX = 10_000


@click.group(name="dataset", cls=CommandGroup)
def command() -> None:
    """List datasets and their versions; rename or retire one."""


@command.command(name="list")
@session_options
def list_datasets(session: CommandSession) -> None:
    """List every dataset that is declared or was ever published."""
    with session.app(read_only=True) as app:
        documents = dataset_documents(app.settings, app.ledger)
    rows = [
        (
            one["name"],
            one["state"],
            str(one["version"] or "-"),
            utc(one["promoted_at"]) if one["promoted_at"] else "-",
            _remark(one),
        )
        for one in documents
    ]
    header = ("DATASET", "STATE", "VERSION", "PROMOTED", "")
    session.emit({"datasets": documents}, table(header, rows) if rows else ["no dataset"], rows=documents)


def _remark(one: dict[str, Any]) -> str:
    parts = [] if one["declared"] else ["not in the configuration"]
    if one["formerly"]:
        parts.append(f"formerly {', '.join(one['formerly'])}")
    return "; ".join(parts)


def _identity(app: Any, name: str) -> str:
    """The id behind any name that a dataset goes or went by."""
    from kfm.model.dataset_names import identity_of

    return identity_of(name, app.settings, app.ledger.change_reader().renames())


@command.command(name="show", short_help="Show a dataset's versions, newest first.")
@click.argument("dataset_id", metavar="ID")
@click.option("--limit", type=click.IntRange(1, NUMBER_MAX), default=VERSIONS_MAX, help="So many versions.")
@session_options
def show_dataset(session: CommandSession, dataset_id: str, limit: int) -> None:
    """Show a dataset's versions, newest first: what made each, and whether it can be put back."""
    with session.app(read_only=True) as app:
        document = dataset_document(
            app.settings,
            app.ledger,
            _identity(app, dataset_id),
            limit,
            lambda sha256: app.objects.has(sha256),
        )
        if document.get("name", dataset_id) != dataset_id:
            document["renamed_to"] = document["name"]
        if "dataset_id" not in document:
            known = [one["dataset_id"] for one in dataset_documents(app.settings, app.ledger)]
            raise UsageError(f"There is no dataset `{dataset_id[:80]}`{did_you_mean(dataset_id[:80], known)}")
    session.emit({"dataset": document}, _dataset_lines(document))


def _dataset_lines(document: dict[str, Any]) -> list[str]:
    lines = [f"{document['name']}: {document['state']}"]
    if document["formerly"]:
        lines.append(f"formerly {', '.join(document['formerly'])}, where readers find a pointer")
    rows: list[tuple[str, ...]] = []
    for one in document["versions"]:
        by = (
            short_id(one["run_id"])
            if one["run_id"]
            else f"{_NOUNS.get(one['by'], one['by'])} by {one_line(one['actor'] or '')}"
        )
        if one["to_version"] is not None:
            by = f"rollback to {one['to_version']} by {one_line(one['actor'] or '')}"
        note = "the head" if not rows else "can be put back" if one["can_roll_back"] else one["held_back"]
        if note == "withdrawn":
            note = "holds withdrawn data" if one["files"] else ""
        elif note == "collected":
            note = "its objects were collected"
        size = f"{counted(one['files'], 'file')}, {readable_size(one['bytes'])}"
        rows.append((str(one["version"]), utc(one["promoted_at"]), by, size, note or ""))
    if rows:
        lines += ["", *table(("VERSION", "PROMOTED", "MADE BY", "HOLDS", ""), rows)]
        earlier = document["versions"][-1]["version"] - 1  # they are numbered from 1
        if earlier:
            lines.append(f"… and {counted(earlier, 'earlier version')}: --limit shows more")
    for one in document["withdrawn"]:
        if one["lifted_by"] is None:
            word = "retired" if one["retires"] else "withdrawn"
            lines += [
                "",
                f"{word} since version {one['since_version']}: {one['what']}: {one_line(one['reason'])}",
            ]
            lines.append(f"  lift it with: {one['command']}")
    for one in document["purges"]:
        if one["state"] != "done":
            lines.append(f"  purge {one['state']}: {one['place']}: {one_line(one['detail'])}")
    return lines


# --- changes -------------------------------------------------------------------------


def change_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--ticket", metavar="ID", help="The ticket that this belongs to."),
        click.option("--rationale", metavar="TEXT", help="Why. Required to apply it."),
        click.option("--actor", metavar="NAME", help="On whose behalf; recorded beside who runs this."),
        click.option("--dry-run", is_flag=True, help="Only show the change: the default."),
        click.option("--digest", metavar="DIGEST", help="Apply it if it is still this one."),
    ):
        function = option(function)
    return function


@click.command()
@click.argument("dataset_id", metavar="DATASET")
@click.option(
    "--to", "to_version", type=click.IntRange(1), required=True, metavar="VERSION", help="Which one."
)
@change_options
@session_options
def rollback_command(session: CommandSession, dataset_id: str, to_version: int, **options: Any) -> int:
    """Put the content of an earlier VERSION back, as a new version.

    Title, description and rights are those of now. The dataset is paused in the same step, so that the next
    run does not bring the bad data back; `kfm switch set running --dataset ID --rationale TEXT` resumes it. A
    version that holds withdrawn or purged content is refused.

    Without --yes or --digest DIGEST the change is only shown, with its digest.

    \b
    Examples:
      kfm rollback air-quality --to 31
      kfm rollback air-quality --to 31 --yes --rationale "version 34 has the wrong unit"
    """
    from kfm.datasets import changes

    return carry_out(
        session,
        lambda kernel: changes.plan_rollback(kernel, _identity(kernel, dataset_id), to_version),
        **options,
    )


@click.command()
@click.argument("dataset_id", metavar="DATASET")
@click.option(
    "--window",
    "windows",
    multiple=True,
    metavar="W",
    help="Only this span, as 2026-01-01/P1D, in the time zone of the sources; else all of it.",
)
@click.option("--source", "source_id", metavar="ID", help="Only what came from this source.")
@click.option("--target", metavar="NAME", help="Only from this target, which does not take it any more.")
@click.option("--purge", is_flag=True, help="Also remove old versions and their bytes, for good.")
@click.option("--lift", is_flag=True, help="Let it be published again. Nothing comes back by itself.")
@change_options
@session_options
def withdraw_command(
    session: CommandSession,
    dataset_id: str,
    windows: tuple[str, ...],
    source_id: str | None,
    target: str | None,
    purge: bool,
    lift: bool,
    **options: Any,
) -> int:
    """Take data down: a new version without it, and a tombstone in its place.

    Every item whose window overlaps the span goes. No run, retry or force brings it back before --lift.
    Switches, freezes and CARE blocks do not stop a withdrawal. The rationale is shown to readers, as the
    tombstone's reason.

    With --purge old versions that hold it, and their bytes, are removed at every target and from the object
    store; what another dataset or a kept version needs stays. That can't be undone. Copies out of reach are
    listed. A purge that can't be finished now is finished by `kfm project` or `kfm gc`.

    With --target everything of the dataset is removed from one target that shows it and does not take it.
    The dataset gets a new version with the same content, so that every target has the same number: that
    target shows a tombstone, and the others go on showing the data.

    Without --yes or --digest DIGEST the change is only shown, with its digest.

    \b
    Examples:
      kfm withdraw air-quality --window 2026-10-27/P1D
      kfm withdraw burials --purge --yes --rationale "consent was withdrawn"
    """
    if lift and purge:
        raise UsageError("--lift and --purge exclude each other.")
    if len(windows) > 1:
        raise UsageError(
            "One withdrawal is of one span: --window was given several times.",
            remedy="Write one span that holds all of it, as 2026-01-01/P3D, or withdraw one after the other.",
        )
    from kfm.datasets import changes
    from kfm.service.dataset_changes import span_of

    def plan(kernel: Any) -> PreparedChange:
        of, wanted = kernel.settings.source_id(source_id), _identity(kernel, dataset_id)
        span = span_of(kernel.settings, wanted, of, windows[0] if windows else None)
        if lift:
            return changes.plan_lift(kernel, wanted, span, of, target)
        return changes.plan_withdrawal(kernel, wanted, span, of, purge=purge, target=target)

    return carry_out(session, plan, **options)


@command.command(name="retire", short_help="End a dataset, with a tombstone for readers.")
@click.argument("dataset_id", metavar="ID")
@click.option("--purge", is_flag=True, help="Also remove old versions and their bytes, for good.")
@change_options
@session_options
def retire_command(session: CommandSession, dataset_id: str, purge: bool, **options: Any) -> int:
    """End a dataset: an empty version with a tombstone at every target, and no run any more.

    Without --yes or --digest DIGEST the change is only shown, with its digest.
    """
    from kfm.datasets import changes

    return carry_out(
        session,
        lambda kernel: changes.plan_withdrawal(
            kernel, _identity(kernel, dataset_id), purge=purge, retires=True
        ),
        **options,
    )


@command.command(name="rename", short_help="Give a dataset another name, with a pointer for readers.")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@change_options
@session_options
def rename_command(session: CommandSession, old: str, new: str, **options: Any) -> int:
    """Give a dataset another name: a version under it at every target, and a pointer at the earlier one.

    The configuration names it first: `{id: NEW, formerly: [OLD]}`. Versions, withdrawals, dismissals, runs,
    approvals and incidents stay the dataset's own, and every command takes each of its names. Readers find it
    as before until this is applied.

    Without --yes or --digest DIGEST the change is only shown, with its digest.

    \b
    Examples:
      kfm dataset rename air air-quality
      kfm dataset rename air air-quality --yes --rationale "the name of the catalogue"
    """
    from kfm.datasets import changes

    return carry_out(session, lambda kernel: changes.plan_rename(kernel, old, new), **options)


def carry_out(
    session: CommandSession,
    make: Callable[[Any], PreparedChange],
    *,
    digest: str | None,
    dry_run: bool,
    actor: str | None,
    rationale: str | None,
    ticket: str | None,
) -> int:
    """Show the change, or apply it and bring the targets up to date."""
    applies = (session.yes or digest is not None) and not dry_run
    if not applies:
        with session.app(read_only=True) as app:
            plan = make(app.kernel).plan
        from kfm.service.dataset_changes import preview_document

        session.emit({**preview_document(plan), "exit_code": 0}, plan_lines(plan))
        session.note(f"apply it with the same command and: --digest {plan.digest} --rationale TEXT")
        return 0
    require_rationale(rationale, "A change of what is published needs --rationale TEXT.")
    with session.app() as app:
        return _apply(session, app, make, digest, (actor, rationale or "", ticket))


def _apply(
    session: CommandSession,
    app: Any,
    make: Callable[[Any], PreparedChange],
    digest: str | None,
    said: tuple[str | None, str, str | None],
) -> int:
    from kfm.cli.run import hand_over
    from kfm.model.records import justified
    from kfm.service.dataset_changes import made_document, make_change

    claimed, rationale, ticket = said
    by = justified(app.loaded.discretion.said, app.actor, rationale, ticket, claimed)
    made = make_change(app, make, by, digest)
    code = NEEDS_APPROVAL if made.change is None else TARGET_FAILED if made.is_outstanding else 0
    document = {**made_document(made), "exit_code": code}
    if made.change is None:
        _asked(session, made, document)
        return code
    _applied(session, made, document)
    if made.change.rationale != by.rationale:
        session.note(f"the rationale that was approved is used: {made.change.rationale}")
    hand_over(session, app, ())
    return code


def _asked(session: CommandSession, made: MadeChange, document: dict[str, Any]) -> None:
    from kfm.model.next_steps import approve_command

    plan, approval = made.plan, made.approval
    assert approval is not None
    session.emit(document, [*plan_lines(plan), "", f"requested  {approval.request_id}  {approval.about}"])
    session.note(f"another person has to agree: {approve_command(approval.request_id)}")
    session.note(f"then run the same command with: --digest {plan.digest} --rationale TEXT")


def _applied(session: CommandSession, made: MadeChange, document: dict[str, Any]) -> None:
    """What is done at each target, and what is outstanding."""
    plan, change = made.plan, made.change
    assert change is not None
    lines = [f"{_word(plan)}  {plan.dataset_id}  version {change.sequence}"]
    if plan.rewindow is not msgspec.UNSET:  # readers see the same version
        lengths = f"{plan.rewindow.old or 'windows'} → {plan.rewindow.new}"
        lines = [f"{_word(plan)}  {plan.source_id} of {plan.dataset_id}: {lengths}"]
    for one in made.projections:
        state = "failed " if one.error else "shown  "
        lines.append(f"  {state} {one.target}" + (f"  version {one.sequence}" if one.sequence else ""))
        if one.error:
            session.fail(f"error {one.error['code']}: {one.error['message']}")
    lines += [
        f"  purge {one.state}  {one.place}  {counted(one.removed, 'removal')}  {one.detail}".rstrip()
        for one in made.purges
    ]
    lines += out_of_reach_lines(plan)
    session.emit(document, lines)
    if plan.kind == "lift":
        session.note(
            f"nothing comes back by itself; ask for what is missing: kfm run --missing {plan.dataset_id}"
        )
    if plan.kind == "retire":
        session.note(
            f"{plan.dataset_id} and its sources can be taken out of the configuration now; "
            "its versions and the tombstone stay"
        )
    if plan.rewindow is not msgspec.UNSET:
        session.note(f"write `window: {plan.rewindow.new}` in the configuration, where it has another one")
        if plan.rewindow.asked_again:
            session.note(f"ask for what is missing: kfm run --missing --source {plan.source_id}")
    if plan.pauses is not None:
        session.note(
            f"paused; resume it with: kfm switch set running --dataset {plan.dataset_id} --rationale TEXT"
        )
    if made.is_outstanding:
        session.note("finish what is outstanding with: kfm project")


def _word(plan: ChangePlan) -> str:
    return {
        "rollback": "rolled back",
        "withdraw": "withdrawn",
        "retire": "retired",
        "lift": "lifted",
        "rename": "renamed",
        "rewindow": "rewindowed",
    }[plan.kind]
