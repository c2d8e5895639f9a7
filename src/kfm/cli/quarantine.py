"""`kfm quarantine`: work held until a person acts: list it, show it, resume it, add a unit to it."""

from __future__ import annotations

from copy import copy
from typing import Any

import click

from kfm.cli.options import CommandGroup, StateChoice, session_options
from kfm.cli.output import one_line, short_id, table
from kfm.cli.session import CommandSession
from kfm.model.errors import Busy, KfmError, UsageError
from kfm.model.next_steps import approve_command, held_step
from kfm.model.quantities import moment
from kfm.model.rationales import require_rationale
from kfm.model.records import justified
from kfm.reports.lookup import find_unit
from kfm.reports.next_steps import step_of_held
from kfm.reports.quarantine import approval_document, find_held, held_document, objects_of
from kfm.reports.requests import named
from kfm.reports.state_words import QUARANTINE_KINDS, of_quarantined, of_unit

LIMIT_MAX = 10_000
NEEDS_APPROVAL = 3


@click.group(name="quarantine", cls=CommandGroup)
def command() -> None:
    """List, show and resume quarantined work; quarantine a unit."""


@command.command(name="list")
@click.option("--dataset", metavar="ID", help="Only of this dataset.")
@click.option(
    "--kind", type=StateChoice(QUARANTINE_KINDS.values(), QUARANTINE_KINDS), help="Only of this kind."
)
@click.option("--all", "everything", is_flag=True, help="Also what was released, or done after all.")
@click.option(
    "--limit", type=click.IntRange(1, LIMIT_MAX), default=50, help="At most so many.", show_default=True
)
@session_options
def list_held(
    session: CommandSession, dataset: str | None, kind: str | None, everything: bool, limit: int
) -> None:
    """List quarantined work, newest first.

    A dead letter has run out of attempts or time; it may well succeed later. What is quarantined has met
    an error that trying again can't cure. Nothing of either is tried again by itself. Runs, and requests that
    were given up before they became one, get another chance with `kfm quarantine resume`, units (announced
    objects) with `kfm replay`.
    """
    with session.app(read_only=True) as app:
        found = app.ledger.held(
            state=None if everything else "held",
            kind=kind,
            dataset_id=app.settings.dataset_id(dataset),
            limit=limit + 1,
        )
        steps = [step_of_held(app.ledger, one, app.ledger.now_ms(), app.settings) for one in found[:limit]]
    more = len(found) > limit
    shown = found[:limit]
    rows = [
        (
            moment(one.held_at_ms).removesuffix(" UTC"),
            _kind(one) if one.state == "held" else f"{_kind(one)}, {one.state}",
            one.dataset_id,
            one.source_id,
            str(one.attempts),
            one.error_code,
            one.reason,
            f"{one.grain} {short_id(one.subject)}",
            short_id(one.held_id),
            step.command if step else "",
        )
        for one, step in zip(shown, steps, strict=True)
    ]
    header = ("SINCE (UTC)", "KIND", "DATASET", "SOURCE", "TRIED", "ERROR", "REASON", "WHAT", "ID", "NEXT")
    documents = [held_document(one, step) for one, step in zip(shown, steps, strict=True)]
    lines = (
        table(header, rows, spare=("NEXT", "TRIED", "REASON", "SOURCE", "WHAT"))
        if rows
        else ["nothing is quarantined"]
    )
    session.emit({"held": documents, "more": more}, lines, rows=documents)
    if more and session.output == "text":
        session.note(f"more is quarantined than is shown: use --limit (now {limit})")


@command.command(name="show")
@click.argument("wanted", metavar="ID")
@session_options
def show_held(session: CommandSession, wanted: str) -> None:
    """Show one entry with all that a replay needs, and the announced objects that asked.

    ID is that of the entry, of its run, its unit or its request; the beginning is enough.
    """
    with session.app(read_only=True) as app:
        held = find_held(app.ledger, wanted)
        requests = app.ledger.approvals(subject=held.held_id)
        step = step_of_held(app.ledger, held, app.ledger.now_ms(), app.settings)
        objects, count = objects_of(app.ledger, held)
    document = {
        "held": held_document(held, step),
        "requests": [approval_document(one) for one in requests],
        "objects": objects,
    }
    session.emit(document, _lines(held, requests, step, named(objects, count)))


@command.command(name="add")
@click.argument("wanted", metavar="UNIT")
@click.option("--actor", metavar="NAME", help="On whose behalf; recorded beside the account that runs this.")
@click.option("--rationale", metavar="TEXT", help="Why no worker may touch it. Required.")
@click.option("--ticket", metavar="ID", help="The ticket that this belongs to.")
@session_options
def add(
    session: CommandSession, wanted: str, rationale: str | None, ticket: str | None, actor: str | None
) -> None:
    """Quarantine one unit (announced object) that waits or has failed: no worker claims it any more.

    It comes back by an approved `kfm replay run --mode repair-and-replace`, where the policy of its dataset
    has BY_HAND under `replay_quarantined`; or when new bytes are announced under its key. Who did it, and
    why, is entered in the audit log.

    Exit code 5: a worker has it at present.
    """
    require_rationale(rationale, "A unit is quarantined with --rationale TEXT.")
    with session.app() as app:
        units = app.writer.units()
        seen = find_unit(units, wanted)
        by = justified(app.loaded.discretion.said, app.actor, rationale or "", ticket, actor)
        made = units.quarantine(seen.unit.wal_id, by)
        if made is None:
            raise _not_quarantined(find_unit(units, seen.unit.wal_id).unit)
        held = find_held(app.ledger, made.unit.wal_id)
        step = step_of_held(app.ledger, held, app.ledger.now_ms(), app.settings)
    lines = [f"quarantined  {made.unit.wal_id}, {of_unit(seen.unit.status)} before"]
    session.emit({"held": held_document(held, step), "was": seen.unit.status}, lines)


def _not_quarantined(unit: Any) -> KfmError:
    if unit.status == "in_progress":
        return Busy(
            f"Unit {unit.wal_id} is being worked on by {unit.worker_id}.",
            remedy="Try again when its attempt has ended: `kfm nodd show UNIT` tells.",
        )
    return UsageError(
        f"Unit {unit.wal_id} is {of_unit(unit.status)}; only what waits or failed is quarantined by hand.",
        remedy="`kfm nodd show UNIT` has its history.",
    )


@command.command(name="resume")
@click.argument("wanted", metavar="ID")
@click.option("--actor", metavar="NAME", help="On whose behalf; recorded beside the account that runs this.")
@click.option("--rationale", metavar="TEXT", help="Why it should be tried again. Required.")
@click.option("--ticket", metavar="ID", help="The ticket that this belongs to.")
@session_options
def resume(
    session: CommandSession, wanted: str, rationale: str | None, ticket: str | None, **options: Any
) -> int:
    """Request to resume one entry; another person has to approve it.

    The request is for exactly what is held now. Once another account has approved it with `kfm approvals
    approve`, the run or the request has a new budget and is due at once: a service tries it, or `kfm schedule
    run-due`.

    Exit code 3: it needs an approval.
    """
    require_rationale(rationale, "A release is asked for with --rationale TEXT.")
    from kfm.service.approvals import request_release

    with session.app() as app:
        held = find_held(app.ledger, wanted)
        if held.grain == "unit":
            step = held_step(held)
            raise UsageError(
                "A unit is not released: it comes back by a replay.",
                remedy=f"`{step.command}` asks for it." if step else None,
            )
        now_ms = app.ledger.now_ms()
        approval = request_release(
            app,
            held,
            actor=app.actor,
            names=app.identity.names,
            rationale=rationale or "",
            ticket=ticket,
            claimed_actor=options["actor"],
        )
    document = {"held": held_document(held), "request": approval_document(approval)}
    session.emit(document, [f"requested  {approval.request_id}  release of {short_id(held.held_id)}"])
    note_earlier(session, approval, now_ms)
    session.note(f"another person has to agree: {approve_command(approval.request_id)}")
    return NEEDS_APPROVAL


@command.command(name="discard")
@click.argument("wanted", metavar="ID")
@click.option("--actor", metavar="NAME", help="On whose behalf; recorded beside the account that runs this.")
@click.option("--rationale", metavar="TEXT", help="Why no data will come of it. Required.")
@click.option("--ticket", metavar="ID", help="The ticket that this belongs to.")
@session_options
def discard(
    session: CommandSession, wanted: str, rationale: str | None, ticket: str | None, **options: Any
) -> None:
    """Give an entry up for good: its window is settled without data, as `kfm dismiss` does it.

    What waits for the window is cancelled. `kfm dismiss DATASET WINDOW --undo` expects it again.
    """
    require_rationale(rationale, "An entry is discarded with --rationale TEXT.")
    from kfm.model.records import justified
    from kfm.service.dismissals import discard_held

    with session.app() as app:
        held = find_held(app.ledger, wanted)
        by = justified(app.loaded.discretion.said, app.actor, rationale, ticket, options["actor"])
        discard_held(app, held, by)
        document = {"held": held_document(app.ledger.held_one(held.held_id))}
    session.emit(document, [f"discarded  {short_id(held.held_id)}"])


def note_earlier(session: CommandSession, approval: Any, since_ms: int) -> None:
    """Say so where the same was requested before, and waits: there is no second request for it."""
    if approval.requested_at_ms < since_ms:
        when = f"at {moment(approval.requested_at_ms)} by {approval.requested_by}"
        session.note(f"the same was requested {when}; that request waits for an approval")


_older = copy(resume)  # the older spelling, which no help shows
_older.hidden = True
command.add_command(_older, "release")


# --- lookup and lines --------------------------------------------------------------------


def _lines(held: Any, approvals: list[Any], step: Any, objects: str) -> list[str]:
    since = moment(held.held_at_ms)
    state = f"{_kind(held)} since {since}"
    if held.state != "held":
        state = (
            f"{held.state} by {held.released_by} at {moment(held.released_at_ms or 0)}; "
            f"{_kind(held)} since {since}"
        )
    facts = [
        ("id", held.held_id),
        ("state", state),
        (held.grain, held.subject),
        ("dataset", held.dataset_id),
        ("source", held.source_id),
        ("given up", held.reason),
        ("error", f"{held.error_code}: {held.error_message}"),
        ("attempts", f"{held.attempts} ({', '.join(held.error_classes)})"),
        ("payload hash", held.payload_hash or "nothing was discovered"),
        *([("code", held.code_sha)] if held.code_sha else []),
        ("key", held.idempotency_key),
        *(("upstream", name) for name in held.source_ids),
        *([("announced", objects)] if objects else []),
        *(("release", _release_line(one, held.state)) for one in approvals),
    ]
    lines = [f"{name.ljust(13)} {one_line(value)}" for name, value in facts]
    if step is not None:
        lines.append(f"next          {one_line(step.line)}")
    if held.state == "held" and held.grain == "unit" and held.kind == "quarantine":
        allowed = f"a policy of {held.dataset_id} with `replay_quarantined: [{held.error_code}]`"
        lines.append(f"needs         {one_line(allowed)}, and another person's approval")
    return lines


def _kind(held: Any) -> str:
    return of_quarantined(held.kind, "held")


def _release_line(approval: Any, state: str) -> str:
    asked = f"{approval.request_id} by {approval.requested_by}: {approval.rationale}"
    if approval.status == "rejected":
        return f"{asked} (rejected by {approval.rejected_by}: {approval.rejection_rationale})"
    if approval.state == "requested" and state != "held":
        return f"{asked} (not approved before it was {state})"
    if approval.state == "requested":
        return f"{asked} (waiting for approval: another account runs {approve_command(approval.request_id)})"
    return f"{asked} (approved by {approval.approved_by}: {approval.approval_rationale})"
