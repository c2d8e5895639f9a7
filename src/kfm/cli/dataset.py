"""`kfm dataset`, `kfm rollback`, `kfm withdraw`: versions of a dataset, and what people do about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
import msgspec

from kfm.cli.options import session_options
from kfm.cli.output import one_line, short_id, table, utc
from kfm.cli.session import CommandSession
from kfm.model.errors import PlanDrifted, RationaleRequired, UsageError
from kfm.model.quantities import counted, did_you_mean, moment, readable_size
from kfm.reports.datasets import (
    VERSIONS_MAX,
    change_document,
    dataset_document,
    dataset_documents,
    purge_document,
)

if TYPE_CHECKING:
    from kfm.datasets.changes import ChangePlan, PreparedChange
    from kfm.model.records import Window

NEEDS_APPROVAL, TARGET_FAILED = 3, 4
SHOWN_MAX = 20
_NOUNS = {"withdraw": "withdrawal", "retire": "retirement"}
NUMBER_MAX = 10_000


@click.group(name="dataset")
def command() -> None:
    """List datasets and their versions; retire one."""


@command.command(name="list")
@session_options
def list_datasets(session: CommandSession) -> None:
    """List every dataset that is declared or was ever published."""
    with session.app(read_only=True) as app:
        documents = dataset_documents(app.settings, app.ledger)
    rows = [
        (
            one["dataset_id"],
            one["state"],
            str(one["version"] or "-"),
            utc(one["promoted_at"]) if one["promoted_at"] else "-",
            "" if one["declared"] else "not in the configuration",
        )
        for one in documents
    ]
    header = ("DATASET", "STATE", "VERSION", "PROMOTED", "")
    session.emit({"datasets": documents}, table(header, rows) if rows else ["no dataset"], rows=documents)


@command.command(name="show", short_help="Show a dataset's versions, newest first.")
@click.argument("dataset_id", metavar="ID")
@click.option("--limit", type=click.IntRange(1, NUMBER_MAX), default=VERSIONS_MAX, help="So many versions.")
@session_options
def show_dataset(session: CommandSession, dataset_id: str, limit: int) -> None:
    """Show a dataset's versions, newest first: what made each, and whether it can be put back."""
    with session.app(read_only=True) as app:
        document = dataset_document(app.settings, app.ledger, dataset_id, limit)
        if "dataset_id" not in document:
            known = [one["dataset_id"] for one in dataset_documents(app.settings, app.ledger)]
            raise UsageError(f"There is no dataset `{dataset_id}`{did_you_mean(dataset_id, known)}")
    session.emit({"dataset": document}, _dataset_lines(document))


def _dataset_lines(document: dict[str, Any]) -> list[str]:
    lines = [f"{document['dataset_id']}: {document['state']}"]
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
        note = "holds withdrawn data" if note == "withdrawn" else note
        size = f"{counted(one['files'], 'file')}, {readable_size(one['bytes'])}"
        rows.append((str(one["version"]), utc(one["promoted_at"]), by, size, note or ""))
    if rows:
        lines += ["", *table(("VERSION", "PROMOTED", "MADE BY", "HOLDS", ""), rows)]
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


def _change_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--ticket", metavar="ID", help="The ticket that this belongs to."),
        click.option("--rationale", metavar="TEXT", help="Why. Required to apply it."),
        click.option("--actor", metavar="NAME", help="On whose behalf; recorded beside who runs this."),
        click.option("--dry-run", is_flag=True, help="Only show the change: the default."),
        click.option("--plan", "digest", metavar="DIGEST", help="Apply it if it is still this one."),
    ):
        function = option(function)
    return function


@click.command()
@click.argument("dataset_id", metavar="DATASET")
@click.option(
    "--to", "to_version", type=click.IntRange(1), required=True, metavar="VERSION", help="Which one."
)
@_change_options
@session_options
def rollback_command(session: CommandSession, dataset_id: str, to_version: int, **options: Any) -> int:
    """Put the content of an earlier VERSION back, as a new version.

    Title, description and rights are those of now. The dataset is paused in the same step, so that the next
    run does not bring the bad data back; `kfm switch set running --dataset ID --rationale TEXT` resumes it. A
    version that holds withdrawn or purged content is refused.

    Without --yes or --plan DIGEST the change is only shown, with its digest.

    \b
    Examples:
      kfm rollback air-quality --to 31
      kfm rollback air-quality --to 31 --yes --rationale "version 34 has the wrong unit"
    """
    from kfm.datasets import changes

    return _change(session, lambda kernel: changes.plan_rollback(kernel, dataset_id, to_version), **options)


@click.command()
@click.argument("dataset_id", metavar="DATASET")
@click.option("--window", metavar="W", help="Only this span, as 2026-01-01/P1D; else all of it.")
@click.option("--source", "source_id", metavar="ID", help="Only what came from this source.")
@click.option("--target", metavar="NAME", help="Only from this target, which does not take it any more.")
@click.option("--purge", is_flag=True, help="Also remove old versions and their bytes, for good.")
@click.option("--lift", is_flag=True, help="Let it be published again. Nothing comes back by itself.")
@_change_options
@session_options
def withdraw_command(
    session: CommandSession,
    dataset_id: str,
    window: str | None,
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

    With --target everything of the dataset is removed from one target that shows it and does not take it:
    no new version is made, and other targets stay as they are.

    Without --yes or --plan DIGEST the change is only shown, with its digest.

    \b
    Examples:
      kfm withdraw air-quality --window 2026-10-27/P1D
      kfm withdraw burials --purge --yes --rationale "consent was withdrawn"
    """
    if lift and purge:
        raise UsageError("--lift and --purge exclude each other.")
    if target is not None and (window or source_id):
        raise UsageError("From one target a dataset is withdrawn whole: --target without --window, --source.")
    from kfm.datasets import changes

    def plan(kernel: Any) -> PreparedChange:
        span, of = _window(window), kernel.settings.source_id(source_id)
        if lift:
            return changes.plan_lift(kernel, dataset_id, span, of, target)
        return changes.plan_withdrawal(kernel, dataset_id, span, of, purge=purge, target=target)

    return _change(session, plan, **options)


@command.command(name="retire", short_help="End a dataset, with a tombstone for readers.")
@click.argument("dataset_id", metavar="ID")
@click.option("--purge", is_flag=True, help="Also remove old versions and their bytes, for good.")
@_change_options
@session_options
def retire_command(session: CommandSession, dataset_id: str, purge: bool, **options: Any) -> int:
    """End a dataset: an empty version with a tombstone at every target, and no run any more.

    Without --yes or --plan DIGEST the change is only shown, with its digest.
    """
    from kfm.datasets import changes

    return _change(
        session,
        lambda kernel: changes.plan_withdrawal(kernel, dataset_id, purge=purge, retires=True),
        **options,
    )


def _window(text: str | None) -> Window | None:
    if text is None:
        return None
    if "/" not in text:
        raise UsageError(
            f"--window takes a span of time, not `{text[:40]}`.", remedy="Write it as 2026-10-27/P1D."
        )
    from kfm.model.windows import resolve_window

    return resolve_window(text, "UTC", 0)


def _change(
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
        session.emit({"applied": False, "plan": plan, "receipt": None, "exit_code": 0}, plan_lines(plan))
        session.note(f"apply it with the same command and: --plan {plan.digest} --rationale TEXT")
        return 0
    if not (rationale or "").strip():
        raise RationaleRequired("A change of what is published needs --rationale TEXT.")
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
    from kfm.datasets import changes
    from kfm.model.records import justified
    from kfm.runs.outcome import sweep
    from kfm.runs.purges import scopes_of

    claimed, rationale, ticket = said
    by = justified(app.loaded.discretion.said, app.actor, rationale, ticket, claimed)
    sweep(app.writer, app.liveness)  # a process that died works on nothing
    prepared = make(app.kernel)
    plan = prepared.plan
    if digest is not None and digest != plan.digest:
        raise PlanDrifted(
            f"The change is another one by now: its digest is {plan.digest}.",
            remedy="Look at it again: the same command without --yes and --plan shows it.",
        )
    if changes.needs_approval(app.kernel, prepared, by):
        return _ask(session, app, plan, by)
    change = changes.apply(app.kernel, prepared, by, scopes_of(app.kernel, plan.dataset_id))
    code = _receipt(session, app, plan, change)
    hand_over(session, app, ())
    return code


def _ask(session: CommandSession, app: Any, plan: ChangePlan, by: Any) -> int:
    from kfm.model.next_steps import approve_command
    from kfm.service.approvals import request_change

    approval = request_change(app, plan, by)
    from kfm.reports.quarantine import approval_document

    document = {
        "applied": False,
        "plan": plan,
        "receipt": None,
        "request": approval_document(approval),
        "exit_code": NEEDS_APPROVAL,
    }
    session.emit(document, [*plan_lines(plan), "", f"requested  {approval.request_id}  {approval.about}"])
    session.note(f"another person has to agree: {approve_command(approval.request_id)}")
    session.note(f"then run the same command with: --plan {plan.digest} --rationale TEXT")
    return NEEDS_APPROVAL


def _receipt(session: CommandSession, app: Any, plan: ChangePlan, change: Any) -> int:
    """What is done at each target, and what is outstanding."""
    from kfm.runs.target_updates import project

    reports = project(app.kernel, plan.dataset_id) if change.sequence is not None else []
    purges = app.ledger.change_reader().purges(change.change_id)
    failed = any(one.error for one in reports) or any(one.state == "outstanding" for one in purges)
    code = TARGET_FAILED if failed else 0
    shown = [
        {"dataset_id": r.dataset_id, "target": r.target, "version": r.sequence, "error": r.error}
        for r in reports
    ]
    receipt = {
        "change": change_document(change),
        "projections": shown,
        "purges": [purge_document(one) for one in purges],
        "out_of_reach": msgspec.to_builtins(plan.out_of_reach),
    }
    lines = [
        f"{_word(plan)}  {plan.dataset_id}" + (f"  version {change.sequence}" if change.sequence else "")
    ]
    for one in reports:
        state = "failed " if one.error else "shown  "
        lines.append(f"  {state} {one.target}" + (f"  version {one.sequence}" if one.sequence else ""))
        if one.error:
            session.fail(f"error {one.error['code']}: {one.error['message']}")
    lines += [
        f"  purge {one.state}  {one.place}  {counted(one.removed, 'removal')}  {one.detail}".rstrip()
        for one in purges
    ]
    lines += _out_of_reach(plan)
    session.emit({"applied": True, "plan": plan, "receipt": receipt, "exit_code": code}, lines)
    if plan.kind == "lift":
        session.note(
            f"nothing comes back by itself; ask for what is missing: kfm run --missing {plan.dataset_id}"
        )
    if plan.pauses is not None:
        session.note(
            f"paused; resume it with: kfm switch set running --dataset {plan.dataset_id} --rationale TEXT"
        )
    if code:
        session.note("finish what is outstanding with: kfm project")
    return code


def _out_of_reach(plan: ChangePlan) -> list[str]:
    return [
        f"  out of reach  {one.what}{f' ({one.name})' if one.name != one.what else ''}: {one.detail}"
        for one in plan.out_of_reach
    ]


def _word(plan: ChangePlan) -> str:
    return {"rollback": "rolled back", "withdraw": "withdrawn", "retire": "retired", "lift": "lifted"}[
        plan.kind
    ]


def _without(plan: ChangePlan) -> str:
    """The part of the dataset that a withdrawal is about; nothing where it is all of it."""
    start_ms, end_ms = plan.window_start_ms, plan.window_end_ms
    span = f" {moment(start_ms)[:16]} … {moment(end_ms)[:16]} UTC" if start_ms is not None and end_ms else ""
    source = f" of source {plan.source_id}" if plan.source_id else ""
    return f", without{span or ' all'}{source}" if span or source else ""


def plan_lines(plan: ChangePlan) -> list[str]:
    """The change for people: what becomes of readers first."""
    made = (
        f"version {plan.base_sequence} → {plan.sequence}"
        if plan.sequence
        else f"version {plan.base_sequence} stays"
    )
    if plan.to_sequence is not None:
        made += f", with the content of version {plan.to_sequence}"
    if plan.kind == "withdraw":
        made += _without(plan)
    tally = plan.tally
    lines = [
        f"{plan.kind}  {plan.dataset_id}: {made}",
        f"  {counted(tally.removed, 'file')} removed, {tally.changed} changed, {tally.added} added, "
        f"{tally.unchanged} unchanged",
    ]
    for one in [each for each in plan.changes if each.what == "asset"][:SHOWN_MAX]:
        lines.append(f"    {one.kind:8} {one.name}")
    more = sum(each.what == "asset" for each in plan.changes) - SHOWN_MAX
    if more > 0:
        lines.append(f"    … and {more} more")
    if plan.pauses is not None:
        lines.append(f"  pauses {plan.pauses}")
    if plan.target is not None:
        lines.append(
            f"  only target {plan.target}: it shows a tombstone in its place; others stay as they are"
        )
    for target in plan.targets:
        lines.append(f"  target {target.target}: shows {target.shows or 'nothing'} now")
    if plan.purge is not None:
        purge = plan.purge
        lines.append(
            f"  purges {counted(len(purge.versions), 'version')}, {counted(purge.blobs, 'object')}, "
            f"{readable_size(purge.bytes)}, for good; {counted(purge.shared, 'object')} shared, kept"
        )
    lines += _out_of_reach(plan)
    return [*lines, f"  digest {plan.digest}"]
