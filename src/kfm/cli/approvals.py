"""`kfm approvals`: what needs a second person: ask for it, see it, approve it, reject it."""

from __future__ import annotations

import click

from kfm.cli import request
from kfm.cli.approve import OPEN_MAX, agree, list_open, meant
from kfm.cli.options import session_options
from kfm.cli.output import one_line
from kfm.cli.session import CommandSession
from kfm.model.errors import RationaleRequired
from kfm.model.quarantine import Approval
from kfm.model.wording import moment
from kfm.reports.lookup import Sought, only
from kfm.reports.quarantine import approval_document

STATES = ("requested", "approved", "rejected")


@click.group(name="approvals")
def command() -> None:
    """Ask for approvals; list, show, approve and reject them."""


command.add_command(request.command, "request")


@command.command(name="list")
@click.option(
    "--state", type=click.Choice(STATES), default="requested", help="In this state.", show_default=True
)
@session_options
def list_approvals(session: CommandSession, state: str) -> int:
    """List what waits for an approval and can still be approved; or what was approved or rejected."""
    return list_open(session, state)


@command.command(name="show")
@click.argument("wanted", metavar="REQUEST")
@session_options
def show(session: CommandSession, wanted: str) -> None:
    """Show one request for an approval, and what became of it. The beginning of its id is enough."""
    with session.app(read_only=True) as app:
        ledger = app.ledger
        sought = Sought(
            "request for an approval",
            "requests for approvals",
            lambda _start: ledger.approvals(limit=OPEN_MAX),
            lambda one: one.request_id,
        )
        found = ledger.approval(wanted) or only(
            wanted, [sought], "`kfm approvals list` lists those that wait."
        )
    session.emit({"request": approval_document(found)}, _lines(found))


@command.command(name="approve")
@click.argument("request_id", metavar="REQUEST")
@click.option("--actor", metavar="NAME", help="On whose behalf; recorded beside the account that runs this.")
@click.option("--rationale", metavar="TEXT", help="Why you agree. Required.")
@session_options
def approve(session: CommandSession, request_id: str, actor: str | None, rationale: str | None) -> int:
    """Approve what somebody else has asked for, and carry it out.

    The approver is whoever `kfm whoami` shows, and never the person that asked, under whatever name; --actor
    does not change that. Where people have roles, the approver needs the role approve. An approval is for
    what was asked for as it was then: if that has changed, or was approved or rejected already, it is
    refused. REQUEST is the id in `kfm approvals list`, or of what waits for it (`kfm requests list --state
    awaiting-approval`); the beginning of one will do.
    """
    return agree(session, request_id, actor, rationale)


@command.command(name="reject")
@click.argument("request_id", metavar="REQUEST")
@click.option("--actor", metavar="NAME", help="On whose behalf; recorded beside the account that runs this.")
@click.option("--rationale", metavar="TEXT", help="Why not. Required.")
@session_options
def reject(session: CommandSession, request_id: str, actor: str | None, rationale: str | None) -> int:
    """Reject what somebody else has asked for: it can't be approved any more, only asked for anew.

    Who may approve may reject: with the role approve, where people have roles, and never the person that
    asked. A request for an update that waited for this approval is cancelled. The rejection and its reason
    are kept in the governance ledger.
    """
    if not (rationale or "").strip():
        raise RationaleRequired("A request is rejected with --rationale TEXT.")
    from kfm.service.approvals import reject as refuse

    with session.app(role="approve") as app:
        approval = meant(app.ledger, request_id)
        refuse(
            app,
            approval,
            actor=app.actor,
            names=app.identity.names,
            rationale=rationale or "",
            claimed_actor=actor,
        )
        approval = app.ledger.approval(approval.request_id) or approval
    session.emit(
        {"request": approval_document(approval)}, [f"rejected  {approval.request_id}  {approval.about}"]
    )
    return 0


def _lines(one: Approval) -> list[str]:
    facts = [
        ("id", one.request_id),
        ("state", one.standing),
        ("for", one.kind),
        ("of", one.about or one.subject),
        ("dataset", one.dataset_id),
        ("asked", f"{moment(one.requested_at_ms)} by {one.requested_by}: {one.rationale}"),
        ("ticket", one.ticket),
    ]
    if one.approved_at_ms is not None:
        facts.append(
            ("approved", f"{moment(one.approved_at_ms)} by {one.approved_by}: {one.approval_rationale}")
        )
    if one.rejected_at_ms is not None:
        facts.append(
            ("rejected", f"{moment(one.rejected_at_ms)} by {one.rejected_by}: {one.rejection_rationale}")
        )
    if one.expires_at_ms is not None:
        facts.append(("lapses", moment(one.expires_at_ms)))
    if one.used_at_ms is not None:
        facts.append(("used", f"{moment(one.used_at_ms)} by {one.used_by}"))
    lines = [f"{name.ljust(9)} {one_line(text)}" for name, text in facts if text]
    if one.standing == "requested":
        lines.append(f"decide    kfm approvals approve|reject {one.request_id} --rationale TEXT")
    return lines
