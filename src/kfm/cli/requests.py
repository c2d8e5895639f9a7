"""`kfm requests`: accepted triggers and their outcomes: list, show, cancel."""

from __future__ import annotations

from typing import Any, get_args

import click

from kfm.cli.options import StateChoice, session_options
from kfm.cli.output import PAGE, between, instant, matching, one_line, short_id, table, utc
from kfm.cli.session import CommandSession
from kfm.model.errors import RationaleRequired
from kfm.model.requests import RequestKind, UpdateRequest
from kfm.reports.lookup import only, requests_in
from kfm.reports.requests import request_document
from kfm.reports.state_words import REQUESTS, of_request

LIMIT_MAX = 10_000
ENDINGS = ("published", "unchanged", "failed", "refused")  # of those that are done
_TIMES = ("accepted_at", "not_before", "instant", "ended_at")
_DETAILS = {"reason": "event", "sent_at_ms": "sent at"}


@click.group(name="requests")
def command() -> None:
    """List, show and cancel requests of schedules, webhooks and people.

    Whatever asks a service (`kfm serve`) for an update is kept as a request until it has its end, and after.
    """


@command.command(name="list")
@click.option(
    "--state", type=StateChoice((*REQUESTS.values(), *ENDINGS), REQUESTS), help="Only those in this state."
)
@click.option("--kind", type=click.Choice(get_args(RequestKind)), help="Only those that came like this.")
@click.option("--source", metavar="ID", help="Only those for this source.")
@click.option("--schedule", metavar="ID", help="Only those of this schedule.")
@click.option(
    "--limit", type=click.IntRange(1, LIMIT_MAX), default=20, show_default=True, help="At most so many."
)
@session_options
def list_requests(
    session: CommandSession,
    limit: int,
    state: str | None,
    source: str | None,
    schedule: str | None,
    kind: Any,
) -> None:
    """List requests, newest first.

    waiting: it has not begun, `kfm requests show` has the reason · running: has its run · waiting for
    approval: another person has to approve its preview · published, unchanged, failed, refused: how it ended,
    `--state done` lists all of these · cancelled: it will not run.
    """
    with session.app(read_only=True) as app:
        wanted = {"source_id": source, "schedule_id": schedule, "kind": kind}
        found = _find(app.ledger.request_reader(), state, wanted, limit + 1)
    documents = [request_document(one) for one in found[:limit]]
    header = ("ACCEPTED (UTC)", "KIND", "STATE", "SOURCE", "WINDOW (UTC)", "RUN", "REQUEST")
    rows = [
        (
            utc(each["accepted_at"]).removesuffix(" UTC"),
            each["kind"],
            of_request(each["state"], each["outcome"]),
            each["source_id"],
            between(each["window_start"], each["window_end"]).removesuffix(" UTC"),
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


def _find(reader: Any, state: str | None, wanted: dict[str, Any], limit: int) -> list[UpdateRequest]:
    if state not in ENDINGS:
        found: list[UpdateRequest] = reader.requests(state=state, limit=limit, **wanted)
        return found
    return matching(
        lambda before: reader.requests(state="done", before=before, limit=PAGE, **wanted),
        lambda one: of_request(one.state, one.outcome) == state,
        lambda one: (one.accepted_at_ms, one.request_id),
        limit,
    )


@command.command(name="show")
@click.argument("wanted", metavar="REQUEST")
@session_options
def show(session: CommandSession, wanted: str) -> None:
    """Show one request: who asked for what, why it waits, and its outcome.

    REQUEST is its id, or the beginning of one. The preview that was kept before anything changed, if there
    is one, is shown below: it is what an approval is for.
    """
    with session.app(read_only=True) as app:
        reader = app.ledger.request_reader()
        request = find_request(reader, wanted)
        kept = reader.preview(request.plan_digest) if request.plan_digest else None
    document = {"request": request_document(request)}
    facts = _facts(document["request"])
    width = max(map(len, facts))
    lines = [f"{name.ljust(width)}  {one_line(value)}" for name, value in facts.items()]
    if kept is not None and session.output == "text":
        from kfm.runs.plan import read, render_text

        lines += ["", *map(one_line, render_text(read(kept.encode())).splitlines())]
    session.emit(document, lines)


def _facts(document: dict[str, Any]) -> dict[str, str]:
    """What is known of a request, under names that nothing else has; times in UTC."""
    facts: dict[str, str] = {}
    for name, value in document.items():
        if value in (None, False, {}) or name in ("window_end", "details", "outcome"):
            continue
        if name == "window_start":
            facts["window"] = between(value, document["window_end"])
        elif name == "state":
            facts[name] = of_request(value, document["outcome"])
        elif name in _TIMES:
            facts[name.replace("_", " ")] = utc(value)
        else:
            facts[name.replace("_", " ")] = "yes" if value is True else str(value)
    for name, value in document["details"].items():
        label = _DETAILS.get(name, name.replace("_", " "))
        if name == "sent_at_ms":
            facts[label] = utc(instant(value) or "")
        else:
            facts[label] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return facts


@command.command(name="cancel")
@click.argument("wanted", metavar="REQUEST")
@click.option("--actor", metavar="NAME", help="On whose behalf; recorded beside the account that runs this.")
@click.option("--rationale", metavar="TEXT", help="Why. Required.")
@session_options
def cancel(session: CommandSession, wanted: str, rationale: str | None, actor: str | None) -> None:
    """Cancel a request: one that waits never begins, one that runs stops at its next step.

    What a run has published stays published. The cancellation is kept in the governance ledger.
    """
    if not (rationale or "").strip():
        raise RationaleRequired("A request is cancelled with --rationale TEXT.")
    from kfm.service.requests import cancel_request

    with session.app() as app:
        request = find_request(app.kernel.store.requests(), wanted)
        ended = cancel_request(app, request, rationale=rationale or "", claimed_actor=actor)
    session.emit(
        {"request": request_document(ended)},
        [f"{'cancelled' if ended.is_settled else 'stopping'}  {ended.request_id}"],
    )


def find_request(reader: Any, wanted: str) -> UpdateRequest:
    """The one request whose id begins so."""
    found: UpdateRequest = only(wanted, [requests_in(reader)], "`kfm requests list` names them.")
    return found
