"""Who has been told of which change. Each hook has its own rows: one that is down costs the others nothing.

A letter of the outbox is done with once every hook of the configuration has had it.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from kfm.core.evidence import Backlog, Letter
from kfm.core.heralds import TOPIC
from kfm.core.incidents import Told
from kfm.store import evidence_rows
from kfm.store.session import Row, Session

LOOK_MAX = 10_000


def told_from(row: Row) -> Told:
    change_id, recorded_at_ms, body, hook, tries, delivered_at_ms = row
    return Told(
        change_id=change_id,
        recorded_at_ms=recorded_at_ms,
        body=body,
        hook=hook,
        tries=tries or 0,
        delivered_at_ms=delivered_at_ms,
    )


def backlog(session: Session, hook: str) -> Backlog:
    row = session.one("hook_deliveries.backlog", topic=TOPIC, hook=hook)
    assert row is not None
    return Backlog(waiting=row[0], oldest_ms=row[1])


def claim(session: Session, hook: str, limit: int, claim_ms: int) -> list[Letter]:
    """The oldest that are due. What follows a letter that rests, about the same cause, rests with it."""
    session.all("outbox.hold")
    now_ms = session.now_ms()
    found = session.all("hook_deliveries.waiting", topic=TOPIC, hook=hook, row_limit=LOOK_MAX)
    taken: list[Letter] = []
    resting: set[str] = set()
    for letter in map(evidence_rows.letter_from, found):
        if letter.not_before_ms > now_ms:
            resting.add(letter.subject)
        elif letter.subject not in resting and len(taken) < limit:
            taken.append(letter)
    for letter in taken:
        session.all("hook_deliveries.claim", hook=hook, number=letter.number, until_ms=now_ms + claim_ms)
    return [replace(letter, tries=letter.tries + 1) for letter in taken]


def delivered(session: Session, hook: str, numbers: Sequence[int]) -> None:
    now_ms = session.now_ms()
    for number in numbers:
        session.all("hook_deliveries.delivered", hook=hook, number=number, delivered_at_ms=now_ms)


def put_back(session: Session, hook: str, numbers: Sequence[int], not_before_ms: int) -> None:
    for number in numbers:
        session.all("hook_deliveries.put_back", hook=hook, number=number, not_before_ms=not_before_ms)


def settle(session: Session, hooks: Sequence[str]) -> int:
    """Be done with the letters that each of these hooks has had; how many there were."""
    session.all("outbox.hold")
    had: dict[int, set[str]] = {}
    for number, hook in session.all("hook_deliveries.arrived", topic=TOPIC):
        had.setdefault(number, set()).add(hook)
    done = [number for number, names in had.items() if names.issuperset(hooks)]
    now_ms = session.now_ms()
    for number in done:
        session.all("outbox.delivered", number=number, delivered_at_ms=now_ms)
    return len(done)
