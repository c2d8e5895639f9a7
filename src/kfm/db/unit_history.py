"""The history of units: one page per transition of a transaction, and its outbox message."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from kfm.db import rows
from kfm.db.packing import split, unpacked
from kfm.db.session import Row, Session
from kfm.model.runs import OutboxMessage
from kfm.model.units import TOPIC, ClaimedUnit, Ended, HistoryPage, UnitFailure, UnitSuccess, UnitTransition

__all__ = ["Ended", "of_failure", "of_success", "of_trail", "post"]


_DECODE = msgspec.json.Decoder(tuple[tuple[Any, ...], ...])
_ENCODE = msgspec.json.Encoder().encode

Member = tuple[Any, ...]  # wal_id, version, attempts, and what else the event tells


# The last number that each session was given: a page that is begun is not there before it is written.
_given: WeakKeyDictionary[Session, int] = WeakKeyDictionary()


def begin(session: Session) -> int:
    """The number of a new page; the caller writes it."""
    row = session.one("unit_pages.next", given=_given.get(session, 0))
    assert row is not None
    number = _given[session] = int(row[0])
    return number


def write(
    session: Session,
    number: int,
    event: str,
    status: str,
    members: Sequence[Member],
    *,
    at_ms: int,
    worker_id: str | None = None,
) -> None:
    text, packed = split(_ENCODE(members))
    session.send(
        "unit_pages.insert",
        number=number,
        event=event,
        status=status,
        at_ms=at_ms,
        worker_id=worker_id,
        members=text,
        packed=packed,
    )


def page_from(row: Row) -> HistoryPage:
    number, event, status, at_ms, worker_id, members, packed = row
    return HistoryPage(
        number=number,
        event=event,
        status=status,
        at_ms=at_ms,
        worker_id=worker_id,
        members=_DECODE.decode(members if packed is None else unpacked(packed)),
    )


def between(session: Session, first: int, last: int, limit: int) -> list[HistoryPage]:
    found = session.all("unit_pages.between", first_number=first, last_number=last, row_limit=limit)
    return [page_from(row) for row in found]


def history(session: Session, wal_id: str, trail: str) -> list[UnitTransition]:
    """What one unit went through, in the order of its trail: neither clocks nor page numbers tell it.

    Pages that retention took away are left out."""
    numbers = [int(text) for text in trail.split()]
    found = session.all("unit_pages.of", numbers=_ENCODE(numbers).decode())
    pages = {page.number: page for page in map(page_from, found)}
    moves = []
    for page in (pages[number] for number in numbers if number in pages):
        for member in page.members:
            if member[0] == wal_id:
                moves.append(
                    UnitTransition(
                        version=member[1],
                        status=page.status,
                        event=page.event,
                        at_ms=page.at_ms,
                        worker_id=page.worker_id,
                        attempts=member[2],
                        details=member[3] if len(member) > 3 else {},
                    )
                )
    return moves


class UnitStanding(NamedTuple):
    status: str
    version: int
    attempts: int

    def __str__(self) -> str:
        return f"{self.status} (version {self.version}, attempts {self.attempts})"


class UnitState(NamedTuple):
    """A unit as it is, and as the last page of its trail left it; None: that page has nothing of it."""

    wal_id: str
    now: UnitStanding
    left: UnitStanding | None


def states(session: Session, after: str, limit: int) -> list[UnitState]:
    found = session.all("units.states", after_id=after, row_limit=limit)
    last = {row[0]: int(row[4].split()[-1]) for row in found if row[4].strip()}
    pages = session.all("unit_pages.of", numbers=_ENCODE(sorted(set(last.values()))).decode())
    told = {
        (page.number, member[0]): UnitStanding(page.status, member[1], member[2])
        for page in map(page_from, pages)
        for member in page.members
    }
    return [
        UnitState(row[0], UnitStanding(*row[1:4]), told.get((last.get(row[0], 0), row[0]))) for row in found
    ]


def of_success(one: UnitSuccess, stac_status: str) -> Ended:
    claimed, entry = one.claimed, one.entry
    content = one.content
    # By position, in the order of the record's fields: this is done for every unit.
    return Ended(
        claimed.wal_id,
        claimed.attempts,
        claimed.dataset,
        claimed.object_uri,
        claimed.etag if content is None else content.etag,
        claimed.size if content is None else content.size,
        claimed.version_id,
        claimed.sequencer,
        claimed.content_version,
        claimed.event_time_ms,
        entry.collection_id if entry else None,
        entry.item_id if entry else None,
        stac_status,
        claimed.replay_reason,
        started_at_ms=claimed.claimed_at_ms,
        sha256=one.sha256,
    )


def of_failure(one: UnitFailure) -> Ended:
    return failed(one.claimed, one.error_code, one.error_message)


def failed(claimed: ClaimedUnit, code: str, message: str) -> Ended:
    return Ended(
        wal_id=claimed.wal_id,
        attempt=claimed.attempts,
        dataset=claimed.dataset,
        object_uri=claimed.object_uri,
        etag=claimed.etag,
        size=claimed.size,
        version_id=claimed.version_id,
        sequencer=claimed.sequencer,
        content_version=claimed.content_version,
        event_time_ms=claimed.event_time_ms,
        replay_reason=claimed.replay_reason,
        error_code=code,
        error_message=rows.storable(message),
        started_at_ms=claimed.claimed_at_ms,
    )


def post(session: Session, ended: Sequence[Ended], now_ms: int) -> None:
    data = _ENCODE(ended)
    text, packed = split(data)
    session.send(
        "outbox.post_units",
        event_id=f"{TOPIC}/{now_ms}/{sha256(data).hexdigest()[:32]}",
        topic=TOPIC,
        subject=f"units/{now_ms}",  # by which a unit's history knows it again
        body=text,
        packed=packed,
        recorded_at_ms=now_ms,
    )


def of_trail(session: Session, trail: str) -> list[OutboxMessage]:
    """The messages that were posted with these pages of history."""
    numbers = [int(text) for text in trail.split()]
    found = session.all("outbox.of_pages", numbers=_ENCODE(numbers).decode())
    return [rows.message_from(row) for row in found]
