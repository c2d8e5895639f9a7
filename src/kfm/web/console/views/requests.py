"""Pages of requests: all of them, and one with its preview."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kfm.model.errors import PlanError
from kfm.model.next_steps import approve_command
from kfm.model.quantities import moment, span
from kfm.model.records import Record
from kfm.model.requests import UpdateRequest
from kfm.model.times import holds
from kfm.reports.requests import NAMED_MAX, named
from kfm.reports.runs import word_of_request
from kfm.reports.state_words import REQUESTS
from kfm.runs.plan import read, render_text
from kfm.web.console import state_words
from kfm.web.console.actions import Offer, decisions, offer
from kfm.web.console.state_words import Word
from kfm.web.console.views.explanation import Fact, Next, allowed
from kfm.web.console.visit import (
    ROWS,
    Filter,
    NotHere,
    Paging,
    Visit,
    before_position,
    chosen,
    paged_before,
    short,
)

FILTERS = ("state", "kind", "source", "schedule", "before")
STATES = ("open", "running", "awaiting-approval", "done", "cancelled")
KINDS = {"cron": "schedule", "webhook": "webhook", "upstream-event": "arrivals", "manual": "person"}
PREVIEW_LINES_MAX = 400
PROMOTIONS_SEEN_MAX = 500
_SCHEMES = {"standard": "Standard Webhooks", "github": "GitHub"}
_NAMES = {
    "reason": "Event type",
    "checks": "Checked",
    "known_by": "Identified by",
}  # `reason` is lineage's word
_KNOWN_BY = {
    "request_uuid": "its request_uuid",
    "webhook-id": "its webhook-id",
    "body": "the hash of its body",
}


class RequestRow(Record, frozen=True):
    request_id: str
    href: str
    accepted_ms: int
    kind: str
    word: Word
    dataset_id: str
    source_id: str
    source_href: str
    start_ms: int
    end_ms: int
    actor: str
    reason: str
    tries: int
    run_id: str
    run_href: str | None


class RequestsView(Record, frozen=True):
    filters: tuple[Filter, ...]
    rows: tuple[RequestRow, ...]
    paging: Paging
    clear: str


def view(visit: Visit) -> RequestsView:
    state: Any = visit.choice("state", STATES)
    kind: Any = visit.choice("kind", tuple(KINDS))
    source, schedule = visit.source(), visit.schedule(visit.query.get("schedule"))
    found = visit.reader.request_reader().requests(
        state=state,
        kind=kind,
        source_id=source,
        schedule_id=schedule,
        before=before_position(visit.query.get("before")),
        limit=ROWS + 1,
    )
    shown = found[:ROWS]
    last = (shown[-1].accepted_at_ms, shown[-1].request_id) if len(found) > ROWS else None
    return RequestsView(
        filters=(
            chosen("state", "State", STATES, state, [REQUESTS[each] for each in STATES]),
            chosen("kind", "Trigger", tuple(KINDS), kind, tuple(KINDS.values())),
            chosen("source", "Source", [each.id for each in visit.context.settings.sources], source),
            chosen("schedule", "Schedule", [each.id for each in visit.context.schedules], schedule),
        ),
        rows=tuple(row(visit, each) for each in shown),
        paging=paged_before(visit, len(shown), last, "request"),
        clear=visit.href("requests"),
    )


def row(visit: Visit, each: UpdateRequest) -> RequestRow:
    return RequestRow(
        request_id=short(each.request_id),
        href=visit.at("requests", each.request_id),
        accepted_ms=each.accepted_at_ms,
        kind=KINDS[each.kind],
        word=state_words.word(word_of_request(visit.reader, each)),
        dataset_id=each.dataset_id,
        source_id=each.source_id,
        source_href=visit.href("requests", source=each.source_id),
        start_ms=each.window_start_ms,
        end_ms=each.window_end_ms,
        actor=each.claimed_actor or each.actor,
        reason=ended(each),
        tries=each.tries,
        run_id=short(each.run_id) if each.run_id else "",
        run_href=visit.run(each.run_id) if each.run_id else None,
    )


def ended(each: UpdateRequest) -> str:
    """The reason of its state. Of a published one the record has the reason why it ran."""
    reason = each.reason or ""
    return (
        f"Ran because: {reason[:1].lower()}{reason[1:]}" if reason and each.outcome == "success" else reason
    )


class RequestView(Record, frozen=True):
    title: str
    row: RequestRow
    became: str
    published: bool
    why: str
    facts: tuple[Fact, ...]
    preview: tuple[str, ...]
    preview_more: int
    digest: str
    preview_first: bool
    commands: tuple[Next, ...]
    actions: tuple[Offer, ...]


def view_one(visit: Visit) -> RequestView:
    reader = visit.reader.request_reader()
    found = reader.request(visit.params["request_id"])
    if found is None:
        raise NotHere("No request of that id is on record.")
    allowed(visit, found.dataset_id)
    text = reader.preview(found.plan_digest) if found.plan_digest else None
    lines = _lines(text)
    return RequestView(
        title=f"Request {short(found.request_id)}",
        row=row(visit, found),
        became=_became(visit, found),
        published=found.state == "done" and found.outcome == "success",
        why="" if found.state == "awaiting-approval" else found.reason or "",  # the commands say it
        facts=tuple(_facts(visit, found)),
        preview=tuple(lines[:PREVIEW_LINES_MAX]),
        preview_more=max(len(lines) - PREVIEW_LINES_MAX, 0),
        digest=found.plan_digest or "",
        preview_first=found.state == "awaiting-approval",
        commands=tuple(_commands(visit, found)),
        actions=tuple(_actions(visit, found)),
    )


def _lines(text: str | None) -> list[str]:
    """The plan for people; as it is kept, should it be no plan."""
    if text is None:
        return []
    try:
        return render_text(read(text.encode())).splitlines()
    except PlanError:
        return text.splitlines()


def _became(visit: Visit, found: UpdateRequest) -> str:
    """The state in one sentence; the reason comes below it."""
    run = f"run {short(found.run_id)}" if found.run_id else ""
    if found.state == "open":
        later = found.not_before_ms > visit.now_ms
        return f"Waiting {f'until {moment(found.not_before_ms)}' if later else 'for a free runner'}."
    if found.state == "running":
        claimed = holds(found.claim_until_ms, visit.now_ms)
        return "Running." if claimed else "Its claim has expired: another runner takes it over."
    if found.state == "awaiting-approval":
        return "Waiting for approval of exactly this preview by a second person."
    if found.state == "cancelled":
        return f"Cancelled{f' while {run} was running' if run else ''}."
    if found.outcome == "success":
        return f"Published: {run or 'its run'}{_version(visit, found)}."
    ends = {
        "noop": "Unchanged: there was nothing to do",
        "failed": f"Failed: {run}" if run else "Failed",
        "refused": "Refused",
    }
    return f"{ends.get(found.outcome or '', 'Ended')}."


def _version(visit: Visit, found: UpdateRequest) -> str:
    promoted = visit.reader.promotions(found.dataset_id, PROMOTIONS_SEEN_MAX)
    made = next((each.sequence for each in promoted if each.run_id == found.run_id), None)
    return "" if made is None else f" is version {made} of {found.dataset_id}"


def _facts(visit: Visit, found: UpdateRequest) -> list[Fact]:
    facts = [
        Fact(name="Dataset", text=found.dataset_id, href=visit.href("runs", dataset=found.dataset_id)),
        Fact(name="Source", text=found.source_id, href=visit.href("requests", source=found.source_id)),
        Fact(name="Window (UTC)", text=span(found.window_start_ms, found.window_end_ms).removesuffix(" UTC")),
        Fact(name="Accepted (UTC)", text="", at_ms=found.accepted_at_ms),
        Fact(name="Requested by", text=found.actor),
        Fact(name="Tries", text=str(found.tries)),
    ]
    if found.not_before_ms > found.accepted_at_ms:
        facts.append(Fact(name="Not before (UTC)", text="", at_ms=found.not_before_ms))
    if found.ended_at_ms is not None:
        facts.append(Fact(name="Ended (UTC)", text="", at_ms=found.ended_at_ms))
    if found.schedule_id:
        facts.append(
            Fact(name="Schedule", text=found.schedule_id, href=visit.at("schedules", found.schedule_id))
        )
    if found.instant_ms is not None:
        facts.append(Fact(name="Scheduled time (UTC)", text="", at_ms=found.instant_ms))
    for name, text, code in (
        ("Claimed actor", found.claimed_actor, False),
        ("Rationale", found.rationale, False),
        ("Ticket", found.ticket, False),
        ("Correction", found.correction, False),
        ("Envelope", found.envelope_hash, True),
        ("Request uuid", found.request_uuid, True),
        ("Cancellation", found.cancel, False),
        ("Worker", found.claimed_by, True),
    ):
        if text:
            facts.append(Fact(name=name, text=text, code=code))
    if found.members:
        objects = visit.reader.request_reader().announced([found], NAMED_MAX)
        facts.append(Fact(name="Announced", text=named(objects, found.members), code=True))
    facts += _message(found.details)
    facts.append(Fact(name="Request", text=found.request_id, code=True))
    return facts


def _message(details: Mapping[str, object]) -> list[Fact]:
    """Checks and names of a webhook's message, nothing of its content."""
    left = dict(details)
    facts = []
    scheme, verdict = str(left.get("scheme", "")), str(left.get("signature", ""))
    if scheme and verdict == f"{scheme} ok":
        facts.append(Fact(name="Signature", text=f"{_SCHEMES.get(scheme, scheme)} signature, valid"))
        del left["scheme"], left["signature"]
    if isinstance(number := left.get("secret_index"), int):
        del left["secret_index"]
        facts.append(Fact(name="Signed with", text=f"secret {number + 1} of the source"))
    return facts + [_detail(name, value) for name, value in left.items()]


def _detail(name: str, value: object) -> Fact:
    if name == "sent_at_ms" and isinstance(value, int):
        return Fact(name="Sent (UTC)", text="", at_ms=value)
    label = _NAMES.get(name) or name.replace("_", " ").capitalize()
    if isinstance(value, list):
        return Fact(name=label, text=", ".join(map(str, value)))
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return Fact(name=label, text=_KNOWN_BY.get(text, text) if name == "known_by" else text)


def _commands(visit: Visit, found: UpdateRequest) -> list[Next]:
    name, commands = short(found.request_id), []
    if found.state == "awaiting-approval":
        asked = visit.reader.approvals(state="requested", subject=found.request_id, limit=1)
        command = approve_command(asked[0].request_id if asked else "ID")
        commands.append(Next(command=command, why="by a second person, for exactly this preview"))
    if not found.is_settled:
        stops = "stops it at its next step" if found.state == "running" else "so that it never runs"
        commands.append(Next(command=f"kfm requests cancel {name} --rationale TEXT", why=stops))
    commands.append(Next(command=f"kfm explain {name}", why="explains its state"))
    return commands


def _actions(visit: Visit, found: UpdateRequest) -> list[Offer]:
    offers = []
    if found.state == "awaiting-approval":
        for each in visit.reader.approvals(state="requested", subject=found.request_id, limit=1):
            offers += decisions(visit, each)
    if not found.is_settled:
        offers.append(offer(visit, "cancelRequest", request_id=found.request_id))
    return offers
