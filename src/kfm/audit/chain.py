"""Verification of the audit chain and its seals, a page at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from kfm.model import audit
from kfm.model.audit import EVENTS, UNITS, Row, Seal, from_details, leaf
from kfm.model.errors import StoreCorrupt
from kfm.model.records import Record
from kfm.model.retention import ENTRY as RETENTION
from kfm.model.retention import RetiredSpan, is_as_sealed, retired_from, subject_of
from kfm.model.runs import ChainLink
from kfm.ports import Progress

if TYPE_CHECKING:
    from kfm.db.ledger import Ledger
    from kfm.db.ledger_reader import LedgerReader

PAGE_ROWS = 1000
PHASE = "checking the chain"
KIND = "seal"
STREAMS = {EVENTS: "Events", UNITS: "Pages of units"}
RETIRED = {EVENTS: "outbox", UNITS: "unit_history"}  # what retention calls them
SEAL_PAGE_ROWS = 500
PART_ROWS = 20_000  # of the chain
PART_SEALED_ROWS = 50_000
RETIREMENTS_MAX = 2**31


def links(
    ledger: LedgerReader, progress: Progress | None = None, through: int | None = None
) -> Iterator[ChainLink]:
    """Every link in order; those after the row `through` are left out."""
    after = 0
    while page := ledger.chain(after=after, limit=PAGE_ROWS):
        for one in page:
            if through is not None and one.number > through:
                return
            yield one
        if progress is not None:
            progress.advance(len(page))
        after = page[-1].number


def verify(
    ledger: LedgerReader, anchors: Iterable[audit.Anchor] = (), progress: Progress | None = None
) -> audit.ChainVerdict:
    try:
        head = ledger.chain_head()  # before the rows: those that come later are none of its business
    except StoreCorrupt:
        head = None
    if progress is not None:
        progress.phase(PHASE, head[0] if head else None)
    verdict = audit.verify(links(ledger, progress), anchors, head)
    if progress is not None:
        progress.done()
    return verdict if head is not None or verdict.finding else audit.without_head(verdict)


def newest(
    ledger: LedgerReader, *, kind: str | None = None, subject: str | None = None, limit: int = 50
) -> list[ChainLink]:
    """The last entries, newest first, each with its number."""

    def wanted(one: ChainLink) -> bool:
        return kind in (None, one.entry.kind) and subject in (None, one.entry.subject)

    end, _ = ledger.chain_head()
    if end == 0:  # nothing, or rows from before the chain
        return list(deque(filter(wanted, links(ledger)), maxlen=limit))[::-1]
    found: list[ChainLink] = []
    top: int | None = None  # the first page may find rows that were added just now
    while end > 0 and len(found) < limit:
        after = max(0, end - PAGE_ROWS)
        page = [one for one in ledger.chain(after=after, limit=2 * PAGE_ROWS) if _is_within(one.number, top)]
        found += [one for one in reversed(page) if wanted(one)]
        end = top = after
    return found[:limit]


def _is_within(number: Any, top: int | None) -> bool:
    """A forged row may have anything for a number."""
    return top is None or (isinstance(number, int) and number <= top)


class ChainPart(Record, frozen=True):
    """The verdict on a part of the chain, and on the seals in it."""

    first: int
    last: int
    end: int  # where the chain ends now
    finding: audit.ChainFinding | None
    seals: int
    sealed: int  # rows that they vouch for
    broken_seal: int | None = None
    detail: str | None = None

    @property
    def sound(self) -> bool:
        return self.finding is None and self.broken_seal is None

    @property
    def after(self) -> int | None:
        """The row after which the next part begins; None: this was the last."""
        return self.last if self.sound and self.last < self.end else None


def verify_part(ledger: LedgerReader, after: int) -> ChainPart:
    """As many rows as one answer has time for: each follows on the row before it, and is what was recorded,
    and the seals among them are those of the rows that they name. Parts one after the other are the whole."""
    try:
        end, head_hash = ledger.chain_head()
    except StoreCorrupt:
        finding = audit.without_head(audit.verify(())).finding
        return ChainPart(first=1, last=0, end=0, finding=finding, seals=0, sealed=0)
    before = ledger.chain(after=after - 1, limit=1) if after > 0 else []
    start = (before[0].number, before[0].hash) if before else (0, audit.ZEROS)
    walked: list[ChainLink] = []
    walk = audit.Walk((), None, start)
    at, sealed = start[0], 0
    while at < end and len(walked) < PART_ROWS and sealed < PART_SEALED_ROWS:
        page = [one for one in ledger.chain(after=at, limit=PAGE_ROWS) if one.number <= end]
        for one in page:
            if walk.step(one) is not None:
                break
            walked.append(one)
            if one.entry.kind == KIND and one.entry.subject in STREAMS:
                sealed += from_details(one.entry.subject, one.entry.details).count
        if not page or walk.verdict().finding is not None:
            break
        at = page[-1].number
    verdict = walk.verdict()
    finding = verdict.finding
    if finding is None and verdict.rows >= end and verdict.head_hash != head_hash:
        detail = "it is not the row that the ledger's own head names"
        finding = audit.ChainFinding(number=end, problem="anchor", detail=detail, since=1)
    elif finding is None and at < end and not walked:
        detail = f"the chain ends before it, but the ledger's own head names row {end}"
        finding = audit.ChainFinding(number=at + 1, problem="truncated", detail=detail, since=1)
    seals = [_seals_of(ledger, walked, stream) for stream in STREAMS] if finding is None else []
    broken = next((one for one in seals if not one.sound), None)
    return ChainPart(
        first=start[0] + 1,
        last=verdict.rows,
        end=end,
        finding=finding,
        seals=sum(one.seals for one in seals),
        sealed=sum(one.sealed for one in seals),
        broken_seal=broken.broken_seal if broken else None,
        detail=broken.detail if broken else None,
    )


def _seals_of(ledger: LedgerReader, part: Sequence[ChainLink], stream: str) -> SealsVerdict:
    """With all that the chain tells to have gone by retention, also after this part."""
    gone = ledger.links(subject_of(RETIRED[stream]), limit=RETIREMENTS_MAX)
    return _checked(ledger, [*(one for one in part if one.entry.kind == KIND), *gone], stream)[0]


class SealsVerdict(Record, frozen=True):
    """What the seals say of the rows of one stream: events that were posted, or the history of units."""

    seals: int = 0
    sealed: int = 0  # rows that a seal vouches for
    retired: int = 0  # sealed rows that have gone by retention; the seals stay
    unsealed: int = 0  # rows that no seal covers yet
    unsealed_since: int | None = None  # the first of them after the last seal
    broken_seal: int | None = None  # number of the entry in the chain
    detail: str | None = None

    @property
    def sound(self) -> bool:
        return self.broken_seal is None


def seal_all(store: Ledger, actor: str, minimum: int = 1, stream: str = EVENTS) -> list[Seal]:
    """Seal what no seal covers yet, if it is that much; with a minimum, unless another process does."""
    newest = next(iter(store.governance(kind=KIND, subject=stream, limit=1)), None)
    high = from_details(stream, newest.details).high if newest else 0
    if _count(store, stream, high, minimum) < minimum:
        return []
    made = []
    while (one := store.seal(actor, stream=stream, waits=minimum <= 1)) is not None:
        made.append(one)
    return made


def verify_seals(ledger: LedgerReader, links: Iterable[ChainLink], stream: str = EVENTS) -> SealsVerdict:
    """Every seal of the chain against the rows that it names. The chain itself is checked elsewhere.

    What the chain tells to have gone by retention need not be there, and may not come back."""
    found, high = _checked(ledger, links, stream)
    if not found.sound:
        return found
    total = _count(ledger, stream)
    tail = _between(ledger, stream, high + 1, 2**62, 1)
    return replace(
        found, unsealed=max(0, total - found.sealed), unsealed_since=tail[0].number if tail else None
    )


def _checked(ledger: LedgerReader, links: Iterable[ChainLink], stream: str) -> tuple[SealsVerdict, int]:
    """Each seal against its rows, and the highest row that is sealed."""
    made: list[tuple[int, Seal]] = []
    gone: dict[int, list[RetiredSpan]] = {}
    for one in links:
        entry = one.entry
        if (entry.kind, entry.subject) == (KIND, stream):
            made.append((one.number, from_details(stream, entry.details)))
        elif (entry.kind, entry.subject) == (RETENTION, subject_of(RETIRED[stream])):
            span = retired_from(entry.details)
            gone.setdefault(span.seal, []).append(span)
    sealed = retired = high = 0
    for place, (number, seal) in enumerate(made):
        present = _present(ledger, seal)
        wrong = is_as_sealed(seal, present, gone.get(number, ()))
        if wrong:
            detail = f"{STREAMS[stream]} {_named(seal)}: {wrong}."
            return SealsVerdict(
                seals=place, sealed=sealed, retired=retired, broken_seal=number, detail=detail
            ), high
        sealed, retired = sealed + len(present), retired + seal.count - len(present)
        high = max(high, seal.high)
    return SealsVerdict(seals=len(made), sealed=sealed, retired=retired), high


def _present(ledger: LedgerReader, seal: Seal) -> dict[int, bytes]:
    """The leaves of the rows of a seal that are there, by their numbers."""
    leaves: dict[int, bytes] = {}
    for first, last in seal.members:
        at = first
        while at <= last and (page := _between(ledger, seal.stream, at, last, SEAL_PAGE_ROWS)):
            leaves.update((row.number, leaf(row)) for row in page)
            at = page[-1].number + 1
    return leaves


def _count(ledger: LedgerReader, stream: str, after: int = 0, limit: int = 2**62) -> int:
    if stream == UNITS:
        return ledger.unit_reader().pages_written(after, limit)
    return ledger.events_posted(after, limit)


def _between(ledger: LedgerReader, stream: str, first: int, last: int, limit: int) -> Sequence[Row]:
    if stream == UNITS:
        return ledger.unit_reader().pages_between(first, last, limit)
    return ledger.events_between(first, last, limit)


def _named(seal: Seal) -> str:
    shown = [str(first) if first == last else f"{first}–{last}" for first, last in seal.members[:5]]
    return ", ".join(shown) + ("…" if len(seal.members) > 5 else "")
