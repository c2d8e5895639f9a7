"""`kfm requests` and `kfm cancel`: accepted triggers and their outcomes: list, show, cancel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import click

from kfm.cli.options import CommandGroup, StateChoice, session_options
from kfm.cli.output import PAGE, between, instant, matching, one_line, short_id, table, utc
from kfm.cli.session import CommandSession
from kfm.model.errors import UsageError
from kfm.model.rationales import require_rationale
from kfm.model.requests import CHANGES, RequestKind, UpdateRequest
from kfm.reports.lookup import only, requests_in, runs_in
from kfm.reports.requests import named, request_document, shown_request
from kfm.reports.runs import word_of_request, word_of_run
from kfm.reports.state_words import REQUESTS, WAITING

LIMIT_MAX = 10_000
ENDINGS = ("published", "unchanged", "failed", "refused", "missing")  # of those that are done
BLOCKED = tuple(dict.fromkeys(WAITING.values()))  # of those that are open
_TIMES = ("accepted_at", "not_before", "instant", "ended_at")
_DETAILS = {"reason": "event", "sent_at_ms": "sent at"}
_NOT_TOLD = ("window_end", "details", "outcome", "objects")  # or in a line of their own


@click.group(name="requests", cls=CommandGroup)
def command() -> None:
    """List, show and cancel requests of every trigger.

    Whatever asks for an update is a request: a schedule, a webhook, announced objects, a person. It is kept
    until its run has succeeded or is given up, and after: an attempt that failed and is promised another one
    leaves its request waiting for a retry.
    """


@command.command(name="list")
@click.option(
    "--state",
    type=StateChoice((*REQUESTS.values(), *BLOCKED, *ENDINGS), REQUESTS),
    help="Only those in this state.",
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

    waiting: it has not begun, or has another attempt ahead; where it is known, what it waits for: a retry, a
    provider (its circuit is open), a switch, a freeze, data that has not come yet. `--state waiting` lists
    all of these, `kfm requests show` has the reason · running: has its run · waiting for approval: another
    person has to approve its preview · published, unchanged, failed, refused, missing (no data came in
    time): how it ended, `--state done` lists all of these · cancelled: it will not run.
    """
    with session.app(read_only=True) as app:
        wanted = {"source_id": app.settings.source_id(source), "schedule_id": schedule, "kind": kind}
        found = _find(app.ledger, state, wanted, limit + 1)
        words = [word_of_request(app.ledger, one) for one in found[:limit]]
    documents = [request_document(one) for one in found[:limit]]
    header = ("ACCEPTED (UTC)", "KIND", "STATE", "SOURCE", "WINDOW (UTC)", "RUN", "REQUEST")
    rows = [
        (
            utc(each["accepted_at"]).removesuffix(" UTC"),
            each["kind"],
            word,
            each["source_id"],
            between(each["window_start"], each["window_end"]).removesuffix(" UTC"),
            short_id(each["run_id"]) if each["run_id"] else "-",
            short_id(each["request_id"]),
        )
        for each, word in zip(documents, words, strict=True)
    ]
    lines = table(header, rows, spare=("KIND", "RUN")) if rows else ["no requests"]
    more = len(found) > limit
    session.emit({"requests": documents, "more": more}, lines, rows=documents)
    if more and session.output == "text":
        session.note(f"more requests are not shown: use --limit (now {limit})")


def _find(ledger: Any, state: str | None, wanted: dict[str, Any], limit: int) -> list[UpdateRequest]:
    reader = ledger.request_reader()
    words = {word.replace(" ", "-"): word for word in (*BLOCKED, *ENDINGS)}
    if state not in words:
        found: list[UpdateRequest] = reader.requests(state=state, limit=limit, **wanted)
        return found
    stored = "done" if state in ENDINGS else "open"
    return matching(
        lambda before: reader.requests(state=stored, before=before, limit=PAGE, **wanted),
        lambda one: word_of_request(ledger, one) == words[state],
        lambda one: (one.accepted_at_ms, one.request_id),
        limit,
    )


@command.command(name="show")
@click.argument("wanted", metavar="REQUEST")
@session_options
def show(session: CommandSession, wanted: str) -> None:
    """Show one request: who or what asked, why it waits, and its outcome.

    REQUEST is its id, or the beginning of one. The preview that was kept before anything changed, if there
    is one, is shown below: it is what an approval is for. Of announced objects the first are named; JSON has
    up to 1,000.
    """
    with session.app(read_only=True) as app:
        reader = app.ledger.request_reader()
        request = find_request(reader, wanted)
        kept = reader.preview(request.plan_digest) if request.plan_digest else None
        document = {"request": shown_request(reader, request)}
        word = word_of_request(app.ledger, request)
    facts = _facts(document["request"], word)
    width = max(map(len, facts))
    lines = [f"{name.ljust(width)}  {one_line(value)}" for name, value in facts.items()]
    if kept is not None and session.output == "text":
        from kfm.runs.plan import read, render_text

        lines += ["", *map(one_line, render_text(read(kept.encode())).splitlines())]
    session.emit(document, lines)


def _facts(document: dict[str, Any], word: str) -> dict[str, str]:
    """What is known of a request, under names that nothing else has; times in UTC."""
    facts: dict[str, str] = {}
    for name, value in document.items():
        if value in (None, False, {}) or name in _NOT_TOLD:
            continue
        if name == "window_start":
            facts["window"] = between(value, document["window_end"])
        elif name == "state":
            facts[name] = word
        elif name in _TIMES:
            facts[name.replace("_", " ")] = utc(value)
        else:
            facts[name.replace("_", " ")] = "yes" if value is True else str(value)
    if document["objects"]:
        facts["objects"] = named(document["objects"], document["members"])
    for name, value in document["details"].items():
        if name == "members":
            continue
        label = _DETAILS.get(name, name.replace("_", " "))
        if name == CHANGES:
            facts["changed"] = ", ".join(f"{dataset} (version {number})" for dataset, number in value.items())
        elif name == "sent_at_ms":
            facts[label] = utc(instant(value) or "")
        else:
            facts[label] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return facts


_CANCEL = (
    click.option(
        "--actor", metavar="NAME", help="On whose behalf; recorded beside the account that runs this."
    ),
    click.option("--rationale", metavar="TEXT", help="Why. Required."),
    click.option("--ticket", metavar="ID", help="The ticket that this belongs to."),
)


def cancel_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_CANCEL):
        function = option(function)
    return function


@command.command(name="cancel")
@click.argument("wanted", metavar="REQUEST")
@cancel_options
@session_options
def cancel(session: CommandSession, wanted: str, **why: Any) -> None:
    """Cancel a request: one that waits never begins, one that runs stops at its next step.

    What a run has published stays published. The cancellation is kept in the audit log.
    `kfm cancel RUN` cancels every request of a run.
    """
    require_reason(why)
    with session.app() as app:
        (ended,) = _cancelled(app, [find_request(app.kernel.store.requests(), wanted)], why)
    session.emit({"request": request_document(ended)}, [_ending_line(ended)])


@click.command(name="cancel")
@click.argument("wanted", metavar="RUN_OR_REQUEST")
@cancel_options
@session_options
def cancel_command(session: CommandSession, wanted: str, **why: Any) -> None:
    """Cancel a run or a request: what waits never begins, what runs stops at its next step.

    Of a run every request is cancelled that has no end yet, so that no attempt is ahead of it. The beginning
    of an id is enough. `stopping` is printed for what runs: its process stops at its next step, `kfm show`
    has its end. What was published stays published. The cancellation is kept in the audit log.
    """
    require_reason(why)
    with session.app() as app:
        ended = _cancelled(app, _meant(app.kernel.store, wanted), why)
    documents = [request_document(one) for one in ended]
    session.emit({"requests": documents}, [_ending_line(one) for one in ended], rows=documents)


def require_reason(why: dict[str, Any]) -> None:
    require_rationale(why["rationale"], "A request is cancelled with --rationale TEXT.")


def _meant(ledger: Any, wanted: str) -> list[UpdateRequest]:
    """The request, or the requests of the run that have no end yet."""
    reader = ledger.request_reader()
    remedy = "`kfm requests list` names requests, `kfm runs` runs."
    found = ledger.run(wanted) or only(wanted, [runs_in(ledger), requests_in(reader)], remedy)
    if isinstance(found, UpdateRequest):
        return [found]
    unsettled = [one for one in reader.of_run(found.run_id) if not one.is_settled]
    if not unsettled:
        word = word_of_run(ledger, found)
        raise UsageError(
            f"No request of run {found.run_id} waits or runs; the run is {word}.",
            remedy="Nothing is left to cancel.",
        )
    return unsettled


def _cancelled(app: Any, requests: list[UpdateRequest], why: dict[str, Any]) -> list[UpdateRequest]:
    from kfm.service.requests import cancel_request

    return [
        cancel_request(app, one, rationale=why["rationale"], ticket=why["ticket"], claimed_actor=why["actor"])
        for one in requests
    ]


def _ending_line(request: UpdateRequest) -> str:
    return f"{'cancelled' if request.is_settled else 'stopping'}  {request.request_id}"


def find_request(reader: Any, wanted: str) -> UpdateRequest:
    """The one request whose id begins so."""
    found: UpdateRequest = only(wanted, [requests_in(reader)], "`kfm requests list` names them.")
    return found
