"""One request: who asked for what, what became of it, and the preview that was kept."""

from __future__ import annotations

import msgspec

from kfm.core.errors import PlanError
from kfm.core.records import Record
from kfm.core.requests import UpdateRequest
from kfm.core.wording import span
from kfm.publish.plan import read, render_text
from kfm.serving.console.views.facts import Fact, Next, allowed
from kfm.serving.console.views.requests import Row, row
from kfm.serving.console.visits import NotHere, Visit, short

PREVIEW_LINES_MAX = 400


class RequestView(Record, frozen=True):
    title: str
    row: Row
    facts: tuple[Fact, ...]
    preview: tuple[str, ...]
    preview_more: int
    digest: str
    commands: tuple[Next, ...]


def view(visit: Visit) -> RequestView:
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
        facts=tuple(_facts(visit, found)),
        preview=tuple(lines[:PREVIEW_LINES_MAX]),
        preview_more=max(len(lines) - PREVIEW_LINES_MAX, 0),
        digest=found.plan_digest or "",
        commands=tuple(_commands(visit, found)),
    )


def _lines(text: str | None) -> list[str]:
    """The plan for people; as it is kept, should it be no plan."""
    if text is None:
        return []
    try:
        return render_text(read(text.encode())).splitlines()
    except PlanError:
        return text.splitlines()


def _facts(visit: Visit, found: UpdateRequest) -> list[Fact]:
    facts = [
        Fact(name="Dataset", text=found.dataset_id, href=visit.href("runs", dataset=found.dataset_id)),
        Fact(name="Source", text=found.source_id, href=visit.href("requests", source=found.source_id)),
        Fact(name="Window (UTC)", text=span(found.window_start_ms, found.window_end_ms).removesuffix(" UTC")),
        Fact(name="Accepted (UTC)", text="", at_ms=found.accepted_at_ms),
        Fact(name="Asked by", text=found.actor),
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
        facts.append(Fact(name="Instant (UTC)", text="", at_ms=found.instant_ms))
    for name, text, code in (
        ("Claimed actor", found.claimed_actor, False),
        ("Rationale", found.rationale, False),
        ("Ticket", found.ticket, False),
        ("Correction", found.correction, False),
        ("Envelope", found.envelope_hash, True),
        ("Request uuid", found.request_uuid, True),
        ("To be stopped", found.cancel, False),
        ("Worker", found.claimed_by, True),
    ):
        if text:
            facts.append(Fact(name=name, text=text, code=code))
    facts += [_detail(name, value) for name, value in found.details.items()]
    facts.append(Fact(name="Request", text=found.request_id, code=True))
    return facts


def _detail(name: str, value: object) -> Fact:
    """What was noted of a message; `reason` is the type of its event."""
    if name == "sent_at_ms" and isinstance(value, int):
        return Fact(name="Sent (UTC)", text="", at_ms=value)
    told = "Event" if name == "reason" else name.replace("_", " ").capitalize()
    if isinstance(value, list):
        return Fact(name=told, text=", ".join(map(str, value)))
    return Fact(name=told, text=value if isinstance(value, str) else msgspec.json.encode(value).decode())


def _commands(visit: Visit, found: UpdateRequest) -> list[Next]:
    if found.state == "awaiting-approval":
        asked = visit.reader.approvals(state="requested", subject=found.request_id, limit=1)
        name = asked[0].request_id if asked else "ID"
        command = f"kfm approve {name} --rationale TEXT"
        return [Next(command=command, why="by somebody else, for exactly this preview")]
    if found.run_id:
        return [Next(command=f"kfm explain {short(found.run_id)}", why="tells why its run is as it is")]
    return []
