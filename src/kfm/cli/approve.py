"""`kfm approve`: the second person's yes."""

from __future__ import annotations

import click

from kfm.cli.options import session_options
from kfm.cli.output import clipped, one_line, short_id, table
from kfm.cli.session import CommandSession
from kfm.model.errors import RationaleRequired, UsageError
from kfm.model.quarantine import Approval
from kfm.model.wording import moment
from kfm.ports import LedgerReader
from kfm.reports.quarantine import approval_document, held_document, is_open

OPEN_MAX = 1000
BEGINNING_MIN = 8  # characters: nobody agrees by a slip of the finger


@click.command()
@click.argument("request_id", metavar="[REQUEST]", required=False)
@click.option("--actor", metavar="NAME", help="On whose behalf; recorded beside the account that runs this.")
@click.option("--rationale", metavar="TEXT", help="Why you agree. Required.")
@session_options
def command(session: CommandSession, request_id: str | None, actor: str | None, rationale: str | None) -> int:
    """Approve what somebody else has asked for, and carry it out.

    Without REQUEST: list what waits for an approval. The approver is whoever `kfm whoami` shows, and never
    the person that asked, under whatever name; --actor does not change that. Where people have roles, the
    approver needs the role approve. An approval is for what was asked for as it was then: if that has
    changed, or was approved already, it is refused. REQUEST is the id in that list, or of what waits for it
    (`kfm requests list --state awaiting-approval`); the beginning of one will do.
    """
    if request_id is None:
        return _list(session)
    if not (rationale or "").strip():
        raise RationaleRequired("An approval is given with --rationale TEXT.")
    from kfm.service.approvals import approve

    with session.app(role="approve") as app:
        approval = _meant(app.ledger, request_id)
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


def _meant(ledger: LedgerReader, wanted: str) -> Approval:
    """The one that has this id, or is about a request that has it; of open ones a beginning is enough."""
    exact = ledger.approval(wanted)
    if exact is not None:
        return exact
    start = wanted.strip().lower()
    if len(start) < BEGINNING_MIN:
        raise UsageError(
            f"`{wanted}` is too short: give at least {BEGINNING_MIN} characters of the id.",
            remedy="`kfm approve` lists those that are open.",
        )
    found = [
        one
        for one in ledger.approvals(state="requested", limit=OPEN_MAX)
        if one.request_id.startswith(start) or (one.kind == "update" and one.subject.startswith(start))
    ]
    if len(found) == 1:
        return found[0]
    why = "Several open requests begin" if found else "No open request begins"
    raise UsageError(f"{why} with `{wanted[:40]}`.", remedy="`kfm approve` lists those that are open.")


def _list(session: CommandSession) -> int:
    with session.app(read_only=True) as app:
        ledger = app.ledger
        found = [one for one in ledger.approvals(state="requested", limit=OPEN_MAX) if is_open(ledger, one)]
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
    lines = table(header, rows) if rows else ["nothing waits for an approval"]
    session.emit({"requests": documents}, lines, rows=documents)
    return 0
