"""That an event stood in the ledger when the governance chain was sealed, shown without the other events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kfm.model import audit
from kfm.model.attempts import ChainLink, OutboxMessage
from kfm.model.audit import Seal, from_details, leaf
from kfm.model.records import Record

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader

KIND = "seal"
STREAM = "outbox"
PAGE_ROWS = 500
SEALED_MAX = 100_000  # rows of one seal that are read to prove some of them


class Proof(Record, frozen=True):
    """The way from one event to the root that an entry of the chain holds."""

    line: int  # of openlineage.jsonl, from 1
    number: int
    event_id: str
    topic: str
    subject: str
    recorded_at_ms: int
    link: int  # the entry of the chain
    index: int
    size: int
    path: tuple[str, ...]


def seal_of(link: ChainLink) -> Seal | None:
    entry = link.entry
    return from_details(STREAM, entry.details) if (entry.kind, entry.subject) == (KIND, STREAM) else None


def seals_any(link: ChainLink, messages: Sequence[OutboxMessage]) -> bool:
    """Does this entry vouch for any of the events?"""
    seal = seal_of(link)
    return seal is not None and any(
        first <= message.number <= last for message in messages for first, last in seal.members
    )


def prove(ledger: LedgerReader, links: Sequence[ChainLink], messages: Sequence[OutboxMessage]) -> list[Proof]:
    """A proof for each event that is sealed, in the order of the events."""
    lines = {message.number: (line, message) for line, message in enumerate(messages, start=1)}
    proofs: dict[int, Proof] = {}
    for link in links:
        seal = seal_of(link)
        if seal is None or seal.count > SEALED_MAX or not seals_any(link, messages):
            continue
        rows = _rows(ledger, seal)
        leaves = [leaf(row) for row in rows]
        if audit.root(leaves).hex() != seal.root:
            continue  # a broken seal proves nothing; `kfm audit verify` tells of it
        for index, row in enumerate(rows):
            if row.number in lines and row.number not in proofs:
                line, message = lines[row.number]
                proofs[row.number] = Proof(
                    line=line,
                    number=message.number,
                    event_id=message.event_id,
                    topic=message.topic,
                    subject=message.subject,
                    recorded_at_ms=message.recorded_at_ms,
                    link=link.number,
                    index=index,
                    size=len(rows),
                    path=tuple(step.hex() for step in audit.inclusion_proof(leaves, index)),
                )
    return sorted(proofs.values(), key=lambda proof: proof.line)


def _rows(ledger: LedgerReader, seal: Seal) -> list[OutboxMessage]:
    rows: list[OutboxMessage] = []
    for first, last in seal.members:
        at = first
        while at <= last and (page := ledger.events_between(at, last, PAGE_ROWS)):
            rows += page
            at = page[-1].number + 1
    return rows
