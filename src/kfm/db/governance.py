"""Governance: policy epoch, switches, the audit chain and its seals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from kfm.db import duties, rows
from kfm.db.packing import joined
from kfm.db.session import Row as StoredRow
from kfm.db.session import Session
from kfm.model import audit
from kfm.model.audit import EVENTS, UNITS, Row, Seal, SealedPage, Span, details, from_details, sealed
from kfm.model.errors import StoreCorrupt
from kfm.model.records import GovernanceEntry, Justification, Switch, governance_entry
from kfm.model.runs import OutboxMessage

LINKED_MAX = 100  # entries of one statement: each link looks for its entry among all of them
STOOD_MS = 500
BRIEF_WAITS = 3
HELD_EPOCH = ("policy.take_part", "policy.epoch")  # two statements: it is read once the lock is ours


def held_epoch(session: Session, *, is_expected: bool = False) -> int:
    """The policy epoch, which no one moves until this transaction ends. `is_expected`: `HELD_EPOCH` is."""
    if not is_expected:
        session.expect(*HELD_EPOCH)
    session.one("policy.take_part")
    row = session.one("policy.epoch")
    assert row is not None
    return int(row[0])


def keep_others_out(session: Session) -> None:
    """Wait for those who hold the epoch; those who come later wait until this transaction ends.

    Before any row that one of them may wait for.
    """
    session.one("policy.keep_others_out")


def wait_briefly(session: Session) -> bool:
    """Locks of this transaction are waited for a second at most; False: this database has one writer."""
    row = session.one("policy.wait_briefly")
    return row is not None and bool(row[0])


def end_standing(session: Session) -> None:
    """End transactions that hold the epoch and have stood still: their hosts may be gone."""
    session.all("policy.end_standing", stood_ms=STOOD_MS)


def advance_epoch(session: Session) -> int:
    """What passed the gates before passes them again."""
    keep_others_out(session)
    row = session.one("policy.advance")
    assert row is not None
    return int(row[0])


def set_switch(session: Session, switch: Switch) -> int:
    epoch = advance_epoch(session)
    session.all("switches.set", **rows.switch_parameters(switch))
    return epoch


def append(session: Session, entries: Iterable[GovernanceEntry]) -> None:
    """The next rows of the chain.

    Its head is one row for everybody, held until the transaction ends: so numbers follow the order of
    commits without a gap; so a transaction appends last of all. Where the database can link, that travels
    with the commit: no process holds the head while it works, or is suspended.
    """
    kept = tuple(map(rows.entry_parameters, entries))
    if not kept:
        return
    seen = session.one("chain_heads.look")
    if seen is None:
        raise rows.headless()
    if seen[0] == 0:
        _append_held(session, kept)
    elif seen[1] > seen[0]:
        raise _beyond(seen[1])
    else:
        session.send("chain_heads.get_for_update")  # first: the next one sees what it has waited for
        lines = [{**one, "content": audit.content_hash(rows.stored_entry(one))} for one in kept]
        for at in range(0, len(lines), LINKED_MAX):
            session.send("governance.chain_on", entries=rows.text_of(lines[at : at + LINKED_MAX]))


def _append_held(session: Session, kept: Iterable[dict[str, Any]]) -> None:
    """Link here: on SQLite, and the first entries of a chain, which take in what was there before it."""
    seen_number, seen_hash = number, previous = _held_head(session)
    if number == 0:
        number, previous = _adopt(session)
    for parameters in kept:
        number += 1
        # What is hashed is what was stored: a NUL, for one, is not kept as such.
        made = audit.link(previous, number, rows.stored_entry(parameters))
        if session.one("governance.append", number=number, hash=made.hash, **parameters) is None:
            raise _beyond(number)
        previous = made.hash
    advanced = session.one(
        "chain_heads.advance",
        number=number,
        hash=previous,
        seen_number=seen_number,
        seen_hash=seen_hash,
    )
    assert advanced is not None, "the head is ours inside this transaction"


def _beyond(number: int) -> StoreCorrupt:
    return StoreCorrupt(
        f"The audit log has a row {number} beyond its end.",
        remedy="`kfm audit verify` says more. Stop, and copy the database before anything else.",
    )


def _held_head(session: Session) -> tuple[int, str]:
    row = session.one("chain_heads.get_for_update")
    if row is None:
        raise rows.headless()
    return int(row[0]), str(row[1])


def _adopt(session: Session) -> tuple[int, str]:
    """Chain, in their order, the rows from before there was a chain; where it ends then."""
    number, previous = 0, audit.ZEROS
    for row in session.all("governance.unchained"):
        number = row[0]
        previous = audit.link(previous, number, rows.entry_of_link(row[1:])).hash
        session.one("governance.adopt", number=number, hash=previous)
    return number, previous


KIND = "seal"
SEALS: dict[str, duties.Duty] = {EVENTS: "seals of outbox", UNITS: "seals of units"}


def seal(
    session: Session, actor: str, limit: int, stream: str = EVENTS, *, waits: bool = True
) -> Seal | None:
    """Enter the root of the rows that no seal covers yet; None if there are none, or, unless it `waits`, if
    another process seals them."""
    if waits:
        duties.wait_for(session, SEALS[stream])
    elif not duties.take(session, SEALS[stream]):
        return None
    # The duty is ours, so no other seal comes between; the chain's head is taken with the commit.
    made = _next(session, _newest(session, stream), limit, stream)
    if made is not None:
        by = Justification(actor=actor)
        append(session, [governance_entry(KIND, stream, session.now_ms(), by, **details(made))])
    return made


def _newest(session: Session, stream: str) -> Seal | None:
    row = session.one("governance.about", kind=KIND, subject=stream, row_limit=1)
    return from_details(stream, rows.entry_from(row).details) if row else None


def _next(session: Session, before: Seal | None, limit: int, stream: str) -> Seal | None:
    """In this order: who drew a number up to the last that was given has ended, and its rows are seen, or is
    found to be under way."""
    if before is not None and before.in_flight is None:
        before = replace(before, holes=_never_sealed(session, before))
    last = session.one("seals.last_given", stream=stream)
    in_flight = [name for (name,) in session.all("seals.in_flight", stream=stream)]
    assert last is not None
    high, holes = (before.high, before.holes) if before else (0, ())
    found = _late(session, stream, holes, limit) if holes else []
    if len(found) < limit:
        found += (pages if stream == UNITS else between)(session, (high + 1, last[0]), limit - len(found))
    return sealed(stream, before, found, in_flight) if found else None


def _never_sealed(session: Session, last: Seal) -> tuple[Span, ...]:
    """All numbers below the last seal of an earlier kfm that no seal covers: it kept a hundred of them."""
    found = session.all("governance.about", kind=KIND, subject=last.stream, row_limit=2**62)
    made = (from_details(last.stream, rows.entry_from(row).details) for row in found)
    return audit.gaps(sorted(span for seal in made for span in seal.members))


def _late(session: Session, stream: str, spans: Sequence[Span], limit: int) -> list[Row]:
    found = session.all(f"seals.late_{stream}", spans=rows.text_of(spans), row_limit=limit)
    return [page_from(row) if stream == UNITS else rows.message_from(row) for row in found]


def between(session: Session, span: Span, limit: int) -> list[OutboxMessage]:
    first, last = span
    found = session.all("outbox.between", first_number=first, last_number=last, row_limit=limit)
    return [rows.message_from(row) for row in found]


def pages(session: Session, span: Span, limit: int) -> list[SealedPage]:
    """Of the history of units."""
    first, last = span
    found = session.all("unit_pages.between", first_number=first, last_number=last, row_limit=limit)
    return [page_from(row) for row in found]


def page_from(row: StoredRow) -> SealedPage:
    return SealedPage(*(*row[:5], joined(row[5], row[6])))
