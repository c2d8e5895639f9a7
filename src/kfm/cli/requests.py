"""`kfm requests`: what was asked for, and what became of it."""

from __future__ import annotations

from typing import Any, get_args

import click

from kfm.cli.options import session_options
from kfm.cli.output import between, one_line, short_id, table, utc
from kfm.cli.session import Session
from kfm.core.errors import RationaleRequired, UsageError
from kfm.core.requests import RequestKind, RequestState, UpdateRequest
from kfm.documents.requests import request_document

LIMIT_MAX = 10_000


@click.group(name="requests")
def command() -> None:
    """See what schedules, webhooks and people have asked for.

    Whatever asks a service (`kfm serve`) for an update is kept as a request until it has its end, and after.
    """


@command.command(name="list")
@click.option("--state", type=click.Choice(get_args(RequestState)), help="Only those in this state.")
@click.option("--kind", type=click.Choice(get_args(RequestKind)), help="Only those that came like this.")
@click.option("--source", metavar="ID", help="Only those for this source.")
@click.option("--schedule", metavar="ID", help="Only those of this schedule.")
@click.option(
    "--limit", type=click.IntRange(1, LIMIT_MAX), default=20, show_default=True, help="At most so many."
)
@session_options
def list_requests(
    session: Session, limit: int, source: str | None, schedule: str | None, **chosen: Any
) -> None:
    """List requests, newest first.

    open: waits, with the reason why · running: has its run · awaiting-approval: somebody else has to agree to
    its preview · done: has its outcome · cancelled: nobody will run it.
    """
    with session.app(read_only=True) as app:
        found = app.ledger.request_reader().requests(
            source_id=source, schedule_id=schedule, limit=limit + 1, **chosen
        )
    documents = [request_document(one) for one in found[:limit]]
    header = ("ACCEPTED (UTC)", "KIND", "STATE", "SOURCE", "WINDOW (UTC)", "OUTCOME", "RUN", "REQUEST")
    rows = [
        (
            utc(each["accepted_at"]).removesuffix(" UTC"),
            each["kind"],
            each["state"],
            each["source_id"],
            between(each["window_start"], each["window_end"]).removesuffix(" UTC"),
            each["outcome"] or "-",
            short_id(each["run_id"]) if each["run_id"] else "-",
            short_id(each["request_id"]),
        )
        for each in documents
    ]
    lines = table(header, rows) if rows else ["no requests"]
    more = len(found) > limit
    session.emit({"requests": documents, "more": more}, lines, rows=documents)
    if more and session.output == "text":
        session.note(f"more requests are not shown: use --limit (now {limit})")


@command.command(name="show")
@click.argument("wanted", metavar="REQUEST")
@session_options
def show(session: Session, wanted: str) -> None:
    """Show one request: who asked for what, why it waits, and what became of it.

    REQUEST is its id, or the beginning of one.
    """
    with session.app(read_only=True) as app:
        request = find_request(app.ledger.request_reader(), wanted)
    document = {"request": request_document(request)}
    facts = {
        name.replace("_", " "): value
        for name, value in document["request"].items()
        if value not in (None, False, {}) and name not in ("window_start", "window_end")
    }
    facts["window"] = between(document["request"]["window_start"], document["request"]["window_end"])
    details = facts.pop("details", {})
    facts |= {f"{name.replace('_', ' ')}": value for name, value in details.items()}
    width = max(map(len, facts))
    session.emit(document, [f"{name.ljust(width)}  {one_line(str(value))}" for name, value in facts.items()])


@command.command(name="cancel")
@click.argument("wanted", metavar="REQUEST")
@click.option("--actor", metavar="NAME", help="On whose behalf; recorded beside the account that runs this.")
@click.option("--rationale", metavar="TEXT", help="Why. Required.")
@session_options
def cancel(session: Session, wanted: str, rationale: str | None, actor: str | None) -> None:
    """Cancel a request: one that waits never begins, one that runs stops at its next step.

    What a run has published stays published. The cancellation is kept in the governance ledger.
    """
    if not (rationale or "").strip():
        raise RationaleRequired("A request is cancelled with --rationale TEXT.")
    from kfm.wiring.requests import cancel_request

    with session.app() as app:
        request = find_request(app.kernel.store.requests(), wanted)
        ended = cancel_request(app, request, rationale=rationale or "", claimed_actor=actor)
    session.emit(
        {"request": request_document(ended)},
        [f"{'cancelled' if ended.is_settled else 'stopping'}  {ended.request_id}"],
    )


def find_request(reader: Any, wanted: str) -> UpdateRequest:
    """The one request whose id begins so."""
    found: list[UpdateRequest] = reader.find(wanted.strip().lower(), 2)
    if len(found) == 1:
        return found[0]
    raise UsageError(
        f"{'Several requests begin' if found else 'No request begins'} with `{wanted[:40]}`.",
        remedy="`kfm requests list` names them.",
    )
