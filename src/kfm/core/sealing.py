"""Sealing an append-only history: one root in the audit chain for many rows.

Rows are numbered by the database, and a row may be committed after one with a higher number. So a seal
names its members; numbers that were skipped are looked for again by the next seals, for a while.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kfm.core import merkle
from kfm.core.canonical import canonical_bytes
from kfm.core.evidence import Letter
from kfm.core.records import Record

ROW_TAG = "sealed-row/1"
PAGE_TAG = "sealed-page/1"
EVENTS, UNITS = "outbox", "units"  # what is sealed
HOLES_MAX = 100  # a database that lost so many numbers has lost them for good
Span = tuple[int, int]  # first and last, both included


class Seal(Record, frozen=True):
    """What one entry of the chain vouches for."""

    stream: str
    members: tuple[Span, ...]
    count: int
    root: str
    high: int  # no number above it has been sealed
    holes: tuple[Span, ...] = ()  # numbers below it that may still turn up


class SealedPage(Record, frozen=True):
    """A page of the history of units, as it is stored."""

    number: int
    event: str
    status: str
    at_ms: int
    worker_id: str | None
    members: str


Row = Letter | SealedPage


def leaf(row: Row) -> bytes:
    """What never changes about a row of the outbox, or about a page, hashed."""
    if isinstance(row, SealedPage):
        return merkle.leaf_hash(page_bytes(row))
    letter = row
    document = {
        "kfm": ROW_TAG,
        "number": letter.number,
        "event_id": letter.event_id,
        "topic": letter.topic,
        "subject": letter.subject,
        "body": letter.body,
        "recorded_at_ms": letter.recorded_at_ms,
    }
    return merkle.leaf_hash(canonical_bytes(document))


def page_bytes(page: SealedPage) -> bytes:
    """A page as it is hashed, and as it is exported."""
    document = {
        "kfm": PAGE_TAG,
        "number": page.number,
        "event": page.event,
        "status": page.status,
        "at_ms": page.at_ms,
        "worker_id": page.worker_id,
        "members": page.members,
    }
    return canonical_bytes(document)


def root_of(rows: Iterable[Row]) -> str:
    return merkle.root([leaf(row) for row in rows]).hex()


def sealed(stream: str, before: Seal | None, rows: Sequence[Row]) -> Seal:
    """The seal over these rows, which come in the order of their numbers."""
    numbers = [row.number for row in rows]
    old_high = before.high if before else 0
    high = max(old_high, numbers[-1])
    holes_before = before.holes if before else ()
    open_before = [number for first, last in holes_before for number in range(first, last + 1)]
    skipped: list[int] = []
    for here, following in zip((old_high, *numbers), numbers, strict=False):
        skipped += range(max(here + 1, following - HOLES_MAX, old_high + 1), following)
    found = set(numbers)
    holes = [number for number in (*open_before, *skipped) if number not in found][-HOLES_MAX:]
    return Seal(
        stream=stream,
        members=spans(numbers),
        count=len(numbers),
        root=root_of(rows),
        high=high,
        holes=spans(holes),
    )


def spans(numbers: Iterable[int]) -> tuple[Span, ...]:
    """Sorted numbers as runs of neighbours."""
    found: list[Span] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple(found)


def details(seal: Seal) -> dict[str, Any]:
    """For the entry in the chain."""
    return {
        "members": [list(span) for span in seal.members],
        "count": seal.count,
        "root": seal.root,
        "high": seal.high,
        "holes": [list(span) for span in seal.holes],
    }


def from_details(stream: str, found: dict[str, Any]) -> Seal:
    return Seal(
        stream=stream,
        members=tuple((first, last) for first, last in found["members"]),
        count=found["count"],
        root=found["root"],
        high=found["high"],
        holes=tuple((first, last) for first, last in found["holes"]),
    )
