"""What asked for an update: instants of schedules, webhooks, people through the API."""

from __future__ import annotations

from typing import Any

from kfm.core.records import Record
from kfm.core.requests import UpdateRequest
from kfm.serving.console import words
from kfm.serving.console.visits import (
    ROWS,
    Filter,
    Paging,
    Visit,
    chosen,
    paged_before,
    place_in,
    short,
)
from kfm.serving.console.words import Word

FILTERS = ("state", "kind", "source", "schedule", "before")
STATES = ("open", "running", "awaiting-approval", "done", "cancelled")
STATE_WORDS = ("waiting", "running", "approval needed", "done", "cancelled")
KINDS = ("cron", "webhook", "manual")


class Row(Record, frozen=True):
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
    rows: tuple[Row, ...]
    paging: Paging
    clear: str


def view(visit: Visit) -> RequestsView:
    state: Any = visit.choice("state", STATES)
    kind: Any = visit.choice("kind", KINDS)
    source, schedule = visit.source(), visit.schedule(visit.query.get("schedule"))
    found = visit.reader.request_reader().requests(
        state=state,
        kind=kind,
        source_id=source,
        schedule_id=schedule,
        before=place_in(visit.query.get("before")),
        limit=ROWS + 1,
    )
    shown = found[:ROWS]
    last = (shown[-1].accepted_at_ms, shown[-1].request_id) if len(found) > ROWS else None
    return RequestsView(
        filters=(
            chosen("state", "State", STATES, state, STATE_WORDS),
            chosen("kind", "Asked by", KINDS, kind, ("schedule", "webhook", "person")),
            chosen("source", "Source", [each.id for each in visit.place.settings.sources], source),
            chosen("schedule", "Schedule", [each.id for each in visit.place.schedules], schedule),
        ),
        rows=tuple(row(visit, each) for each in shown),
        paging=paged_before(visit, len(shown), last, "request"),
        clear=visit.href("requests"),
    )


def row(visit: Visit, each: UpdateRequest) -> Row:
    return Row(
        request_id=short(each.request_id),
        href=visit.at("requests", each.request_id),
        accepted_ms=each.accepted_at_ms,
        kind={"cron": "schedule", "manual": "person"}.get(each.kind, each.kind),
        word=words.of_request(each.state, each.outcome),
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
    """Why it waits, or how it ended. Of what succeeded the record keeps why it was begun."""
    said = each.reason or ""
    return f"Run because: {said[:1].lower()}{said[1:]}" if said and each.outcome == "success" else said
