"""The history of units: one page for each transition of a transaction, however many units went through it.

A unit's trail lists the numbers of its pages, so its history is found without an index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from kfm.core.wal import Move, Page
from kfm.store.session import Row, Session

_DECODE = msgspec.json.Decoder(tuple[tuple[Any, ...], ...])
_ENCODE = msgspec.json.Encoder().encode

Member = tuple[Any, ...]  # wal_id, version, attempts, and what else the event tells


# The last number that each session was given: a page that is begun is not there before it is written.
_given: WeakKeyDictionary[Session, int] = WeakKeyDictionary()


def begin(session: Session) -> int:
    """The number of a new page; whoever asks for one writes it."""
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
    session.tell(
        "unit_pages.insert",
        number=number,
        event=event,
        status=status,
        at_ms=at_ms,
        worker_id=worker_id,
        members=_ENCODE(members).decode(),
    )


def page_from(row: Row) -> Page:
    number, event, status, at_ms, worker_id, members = row
    return Page(
        number=number,
        event=event,
        status=status,
        at_ms=at_ms,
        worker_id=worker_id,
        members=_DECODE.decode(members),
    )


def between(session: Session, first: int, last: int, limit: int) -> list[Page]:
    found = session.all("unit_pages.between", first_number=first, last_number=last, row_limit=limit)
    return [page_from(row) for row in found]


def history(session: Session, wal_id: str, trail: str) -> list[Move]:
    """What one unit went through, in the order of its trail: neither clocks nor page numbers tell it."""
    numbers = [int(text) for text in trail.split()]
    found = session.all("unit_pages.of", numbers=_ENCODE(numbers).decode())
    pages = {page.number: page for page in map(page_from, found)}
    moves = []
    for page in (pages[number] for number in numbers):
        for member in page.members:
            if member[0] == wal_id:
                moves.append(
                    Move(
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
