"""Pages of dead messages: those that could not be read, by error and queue, and one of them."""

from __future__ import annotations

from kfm.model.errors import UsageError
from kfm.model.quantities import counted
from kfm.model.records import Record
from kfm.model.units import DeadMessage
from kfm.reports.units import HASH_PREFIX, find_dead
from kfm.web.console import state_words
from kfm.web.console.actions import Offer, offer
from kfm.web.console.state_words import Word
from kfm.web.console.views.explanation import Fact, Next
from kfm.web.console.views.feeds import queue_filter
from kfm.web.console.visit import (
    ROWS,
    Filter,
    NotHere,
    Paging,
    TypedFilter,
    Visit,
    before_position,
    chosen,
    typed,
)

FILTERS = ("state", "error", "queue", "before")
STATES = ("held", "released", "any")
HASH_SHOWN = 12


class MessageRow(Record, frozen=True):
    envelope: str
    href: str
    word: Word
    queue: str
    error_code: str
    error: str
    times: int
    first_ms: int
    last_ms: int


class MessagesView(Record, frozen=True):
    filters: tuple[Filter | TypedFilter, ...]
    rows: tuple[MessageRow, ...]
    paging: Paging
    clear: str


def view(visit: Visit) -> MessagesView:
    state = visit.choice("state", STATES) or "held"
    before = None
    place = before_position(visit.query.get("before"))
    if place is not None:
        envelope, _, index = place[1].rpartition(".")
        if not index.isascii() or not index.isdigit() or len(index) > 9:
            raise UsageError("`before` is not from a link to older ones.")
        before = (place[0], envelope, int(index))
    found = visit.reader.unit_reader().dead_messages(
        "" if state == "any" else state,
        visit.query.get("error", ""),
        ROWS + 1,
        before=before,
        queue=visit.query.get("queue", ""),
    )
    last = found[ROWS - 1] if len(found) > ROWS else None
    older = f"{last.last_at_ms}.{last.envelope_hash}.{last.record_index}" if last else None
    shown = found[:ROWS]
    states = chosen("state", "State", STATES, state, ("dead letter", "released", "any"))
    return MessagesView(
        filters=(
            Filter(name=states.name, label=states.label, options=states.options[1:]),
            typed("error", "Error code", visit.query.get("error")),
            typed("queue", "Queue", visit.query.get("queue")),
        ),
        rows=tuple(_row(visit, each) for each in shown),
        paging=Paging(
            newer=visit.with_query(before=None) if before else None,
            older=visit.with_query(before=older) if older else None,
            summary=counted(len(shown), "record") if shown else "no messages",
            newest=True,
        ),
        clear=visit.href("messages"),
    )


def _row(visit: Visit, one: DeadMessage) -> MessageRow:
    envelope = one.envelope_hash.removeprefix(HASH_PREFIX)
    return MessageRow(
        envelope=f"{envelope[:HASH_SHOWN]}/{one.record_index}",
        href=visit.at("messages", envelope),
        word=state_words.of_quarantined("dead-letter", one.state),
        queue=one.queue,
        error_code=one.error_code,
        error=visit.visibility.unattributed(one.error),
        times=one.times,
        first_ms=one.first_at_ms,
        last_ms=one.last_at_ms,
    )


class MessageView(Record, frozen=True):
    title: str
    word: Word
    rows: tuple[MessageRow, ...]
    facts: tuple[Fact, ...]
    actions: tuple[Offer, ...]
    commands: tuple[Next, ...]


def view_one(visit: Visit) -> MessageView:
    try:
        found = find_dead(visit.reader.unit_reader(), visit.params["message"])
    except UsageError:
        raise NotHere("No dead message has that hash. `kfm nodd dead list --all` lists them.") from None
    first = found[0]
    envelope = first.envelope_hash.removeprefix(HASH_PREFIX)
    is_held = any(each.state == "held" for each in found)
    return MessageView(
        title=f"Dead message {envelope[:HASH_SHOWN]}",
        word=state_words.of_quarantined("dead-letter", "held" if is_held else first.state),
        rows=tuple(_row(visit, each) for each in found),
        facts=(
            Fact(name="Hash of its body", text=first.envelope_hash, code=True),
            Fact(
                name="Queue",
                text=first.queue,
                href=visit.href("messages", queue=queue_filter(first.queue), state="any"),
            ),
            Fact(name="First came (UTC)", text="", at_ms=min(each.first_at_ms for each in found)),
            Fact(name="Last came (UTC)", text="", at_ms=max(each.last_at_ms for each in found)),
        ),
        actions=(offer(visit, "releaseDeadMessage", message=envelope),) if is_held else (),
        commands=(
            Next(
                command=f"kfm nodd dead show {envelope[:HASH_SHOWN]} --body",
                why="prints the message, for those who may operate",
            ),
        ),
    )
