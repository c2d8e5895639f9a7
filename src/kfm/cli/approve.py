"""`kfm approvals approve`, also as `kfm approve`: the second person's yes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kfm.cli.options import session_options
from kfm.cli.output import clipped, one_line, short_id, table
from kfm.cli.session import CommandSession
from kfm.model.errors import RationaleRequired, UsageError
from kfm.model.quarantine import Approval
from kfm.model.wording import moment
from kfm.reports.lookup import SHOWN_CHARS_MAX, Sought, only
from kfm.reports.quarantine import approval_document, held_document, is_open

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader

OPEN_MAX = 1000
REMEDY = "`kfm approvals list` lists those that are open."
BEGINNING_MIN = 8  # characters: nobody agrees by a slip of the finger


@click.command()
@click.argument("request_id", metavar="[REQUEST]", required=False)
@click.option("--actor", metavar="NAME", help="On whose behalf; recorded beside the account that runs this.")
@click.option("--rationale", metavar="TEXT", help="Why you agree. Required.")
@session_options
def command(session: CommandSession, request_id: str | None, actor: str | None, rationale: str | None) -> int:
    """The older spelling of `kfm approvals approve`; without REQUEST, of `kfm approvals list`."""
    return list_open(session) if request_id is None else agree(session, request_id, actor, rationale)


def agree(session: CommandSession, request_id: str, actor: str | None, rationale: str | None) -> int:
    if not (rationale or "").strip():
        raise RationaleRequired("An approval is given with --rationale TEXT.")
    from kfm.service.approvals import approve

    with session.app(role="approve") as app:
        approval = meant(app.ledger, request_id)
        held = approve(
            app,
            approval,
            actor=app.actor,
            names=app.identity.names,
            rationale=rationale or "",
            claimed_actor=actor,
        )
        approval = app.ledger.approval(approval.request_id) or approval
    document = {"held": held_document(held) if held else None, "request": approval_document(approval)}
    if held is None:
        session.emit(document, [f"approved  {approval.request_id}  {approval.about}"])
        until = moment(approval.expires_at_ms or 0)
        if approval.kind == "replay":
            session.note(f"holds for this plan alone, to be begun until {until}:")
            session.note(f"kfm replay run {approval.subject} --confirm --rationale TEXT")
        elif approval.kind == "update":
            session.note(f"`kfm serve` runs it, if it still changes what was shown; holds until {until}")
        else:
            session.note(f"holds for one attempt, until {until}")
        return 0
    session.emit(document, [f"released  {short_id(held.held_id)}  {held.grain} {short_id(held.subject)}"])
    if held.grain == "run":
        session.note("it has a new budget and is due now: kfm retry --due")
    return 0


def meant(ledger: LedgerReader, wanted: str) -> Approval:
    """The one that has this id, or is about a request that has it; of open ones a beginning is enough."""
    exact = ledger.approval(wanted)
    if exact is not None:
        return exact
    start = wanted.strip().lower()
    if len(start) < BEGINNING_MIN:
        raise UsageError(
            f"`{wanted}` is too short: give at least {BEGINNING_MIN} characters of the id.",
            remedy=REMEDY,
        )
    waiting = ledger.approvals(state="requested", limit=OPEN_MAX)
    requests = [one for one in waiting if one.kind == "update"]
    found: Approval = only(
        wanted,
        [
            Sought("open request", "open requests", lambda _start: waiting, lambda one: one.request_id),
            Sought("open request", "open requests", lambda _start: requests, lambda one: one.subject),
        ],
        REMEDY,
        none=f"No open request begins with `{wanted[:SHOWN_CHARS_MAX]}`.",
    )
    return found


def list_open(session: CommandSession, state: str = "requested") -> int:
    """Of requests that wait only those that can still be approved."""
    with session.app(read_only=True) as app:
        ledger = app.ledger
        found = [
            one
            for one in ledger.approvals(state=state, limit=OPEN_MAX)
            if state != "requested" or is_open(ledger, one)
        ]
    rows = [
        (
            moment(one.requested_at_ms).removesuffix(" UTC"),
            one.kind,
            one_line(one.about) or short_id(one.subject),
            one.requested_by,
            clipped(one.rationale),
            one.request_id,
        )
        for one in found
    ]
    header = ("ASKED (UTC)", "FOR", "OF", "BY", "WHY", "REQUEST")
    documents = [approval_document(one) for one in found]
    lines = (
        table(header, rows)
        if rows
        else ["nothing waits for an approval" if state == "requested" else f"nothing was {state}"]
    )
    session.emit({"requests": documents}, lines, rows=documents)
    return 0
