"""Checking the seals: is what was sealed still there, as it was?"""

from __future__ import annotations

from collections.abc import Iterable

from kfm.core import merkle
from kfm.core.evidence import Link
from kfm.core.records import Record
from kfm.core.sealing import Seal, from_details, leaf
from kfm.ports import LedgerReader, Store

KIND = "seal"
STREAM = "outbox"
PAGE_ROWS = 500


class SealsVerdict(Record, frozen=True):
    """What the seals say of the events that were posted."""

    seals: int = 0
    sealed: int = 0  # rows that a seal vouches for
    unsealed: int = 0  # rows that nobody vouches for yet
    unsealed_since: int | None = None  # the first of them after the last seal
    broken_seal: int | None = None  # number of the entry in the chain
    detail: str | None = None

    @property
    def sound(self) -> bool:
        return self.broken_seal is None


def seal_all(store: Store, actor: str, minimum: int = 1) -> list[Seal]:
    """Seal what no seal covers yet, if it is that much."""
    newest = next(iter(store.governance(kind=KIND, subject=STREAM, limit=1)), None)
    high = from_details(STREAM, newest.details).high if newest else 0
    if store.events_posted(after=high) < minimum:
        return []
    made = []
    while (one := store.seal(actor)) is not None:
        made.append(one)
    return made


def verify_seals(ledger: LedgerReader, links: Iterable[Link]) -> SealsVerdict:
    """Every seal of the chain against the rows that it names. The chain itself is checked elsewhere."""
    seals = sealed = high = 0
    for one in links:
        if one.entry.kind != KIND or one.entry.subject != STREAM:
            continue
        seal = from_details(STREAM, one.entry.details)
        wrong = _wrong(ledger, seal)
        if wrong:
            return SealsVerdict(
                seals=seals, sealed=sealed, broken_seal=one.number, detail=f"Events {_named(seal)}: {wrong}."
            )
        seals, sealed, high = seals + 1, sealed + seal.count, max(high, seal.high)
    total = ledger.events_posted()
    tail = ledger.events_between(high + 1, 2**62, 1)
    return SealsVerdict(
        seals=seals,
        sealed=sealed,
        unsealed=max(0, total - sealed),
        unsealed_since=tail[0].number if tail else None,
    )


def _wrong(ledger: LedgerReader, seal: Seal) -> str | None:
    leaves: list[bytes] = []
    for first, last in seal.members:
        at = first
        while at <= last and (page := ledger.events_between(at, last, PAGE_ROWS)):
            leaves += [leaf(letter) for letter in page]
            at = page[-1].number + 1
    if len(leaves) != seal.count:
        return f"{seal.count} were sealed, {len(leaves)} are there"
    if merkle.root(leaves).hex() != seal.root:
        return "one of them is not what was sealed"
    return None


def _named(seal: Seal) -> str:
    shown = [str(first) if first == last else f"{first}–{last}" for first, last in seal.members[:5]]
    return ", ".join(shown) + ("…" if len(seal.members) > 5 else "")
