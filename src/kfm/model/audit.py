"""The audit log as a hash chain: entries, seals (Merkle roots over history, RFC 6962), proofs."""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any, Literal

from msgspec.structs import replace

from kfm.model.canonical import canonical_bytes
from kfm.model.errors import KfmError
from kfm.model.records import GovernanceEntry, Record
from kfm.model.runs import ChainLink, OutboxMessage

ENTRY_TAG = "audit-entry/1"
LINK_TAG = "audit-link/1"
ZEROS = "0" * 64  # what comes before the first

Problem = Literal[
    "missing",  # a row is not there
    "order",  # a row stands where another belongs
    "previous",  # it names another predecessor than the one that it has
    "content",  # the entry is not the one that was recorded
    "hash",  # entry, number or hash is not the one that was recorded
    "unchained",  # it has no hash, but its neighbours have
    "anchor",  # sound in itself, but not what was anchored
    "truncated",  # the end is missing
    "head",  # what names the last row is missing
]


class Anchor(Record, frozen=True):
    """Where the chain stood at some time, kept outside of it."""

    number: int
    hash: str
    environment: str
    at: str  # RFC 3339, UTC


class CopiedLink(Record, frozen=True, omit_defaults=True):
    """A link in an export. Without its entry it still proves its place."""

    number: int
    previous: str
    content: str  # hash of the entry
    hash: str
    entry: GovernanceEntry | None = None


class ChainFinding(Record, frozen=True):
    """The first row that does not fit, and what is wrong with it."""

    number: int
    problem: Problem
    detail: str
    since: int  # from this row on, up to that one, no anchor vouches for what is there


class ChainVerdict(Record, frozen=True):
    """What a chain and its anchors say together."""

    rows: int
    head_number: int  # of the last row that is sound; 0: none
    head_hash: str
    anchors: int  # how many agree
    anchored_number: int  # the highest row that an anchor agrees with; 0: none
    withheld: int = 0  # links whose entry is not shown
    unchained: int = 0  # rows from before the chain, which the next entry takes in
    finding: ChainFinding | None = None

    @property
    def sound(self) -> bool:
        return self.finding is None

    @property
    def unanchored_since(self) -> int | None:
        """The first row that no anchor covers: from there on, a cut or a rewrite would not be seen."""
        return self.anchored_number + 1 if self.anchored_number < self.rows else None


# --- making links --------------------------------------------------------------------


def entry_document(entry: GovernanceEntry) -> dict[str, Any]:
    return {
        "kind": entry.kind,
        "subject": entry.subject,
        "actor": entry.actor,
        "recorded_at_ms": entry.recorded_at_ms,
        "rationale": entry.rationale,
        "ticket": entry.ticket,
        "details": entry.details,
    }


def content_hash(entry: GovernanceEntry) -> str:
    return sha256(canonical_bytes({"kfm": ENTRY_TAG, "entry": entry_document(entry)})).hexdigest()


def link_hash(previous: str, number: int, content: str) -> str:
    document = {"kfm": LINK_TAG, "previous": previous, "number": number, "content": content}
    return sha256(canonical_bytes(document)).hexdigest()


def link(previous: str, number: int, entry: GovernanceEntry) -> ChainLink:
    """The entry in its place."""
    digest = link_hash(previous, number, content_hash(entry))
    return ChainLink(number=number, entry=entry, previous=previous, hash=digest)


def chained(
    entries: Iterable[GovernanceEntry], previous: str = ZEROS, number: int = 0
) -> Iterator[ChainLink]:
    """The entries as links, after the row with this number and hash."""
    for entry in entries:
        number += 1
        made = link(previous, number, entry)
        previous = made.hash
        yield made


def copied(one: ChainLink, *, withhold: bool = False) -> CopiedLink:
    """A link for an export."""
    return CopiedLink(
        number=one.number,
        previous=one.previous,
        content=content_hash(one.entry),
        hash=one.hash,
        entry=None if withhold else one.entry,
    )


# --- checking them -------------------------------------------------------------------


def verify(
    links: Iterable[ChainLink | CopiedLink],
    anchors: Iterable[Anchor] = (),
    head: tuple[int, str] | None = None,
) -> ChainVerdict:
    """Walk the chain to its end, or to the first row that is wrong.

    `head` is where the ledger itself says that it ends. It must have been read before the links:
    a chain that has grown since is fine.
    """
    walk = Walk(anchors, head)
    for one in links:
        if walk.step(one) is not None:
            break
    return walk.verdict()


def without_head(verdict: ChainVerdict) -> ChainVerdict:
    """The verdict on a ledger that does not say any more where it ends: rows after the last may be gone."""
    detail = "what names the last row of the ledger, its head, is gone"
    number = max(1, verdict.rows)
    finding = ChainFinding(number=number, problem="head", detail=detail, since=verdict.anchored_number + 1)
    return replace(verdict, finding=finding)


class Walk:
    """A check of one link after the other, for those who do something with them on the way."""

    def __init__(
        self,
        anchors: Iterable[Anchor],
        head: tuple[int, str] | None,
        start: tuple[int, str] = (0, ZEROS),
    ) -> None:
        """`start`: the row after which it begins, and its hash."""
        self._anchors: dict[int, list[Anchor]] = {}
        for anchor in anchors:
            self._anchors.setdefault(anchor.number, []).append(anchor)
        self._ledger_head = head if head is not None and head[0] > 0 else None
        self._agree = self._anchored = self._withheld = self._unchained = 0
        self._number, self._hash = start
        self._rows = self._number
        self._found: ChainFinding | None = None

    def step(self, one: ChainLink | CopiedLink) -> ChainFinding | None:
        """What is wrong with it, if it is the next row; nothing may follow after that."""
        expected = self._rows + 1
        wrong = self._place(one, expected) or self._value(one, expected) or self._kept(one, expected)
        if wrong is None:
            self._rows = expected
        self._found = wrong
        return wrong

    def _place(self, one: ChainLink | CopiedLink, expected: int) -> ChainFinding | None:
        if type(one.number) is int and one.number == expected:
            return None
        if type(one.number) is int and one.number > expected:
            return self._finding(expected, "missing", f"it is missing; row {one.number} comes next")
        return self._finding(expected, "order", f"a row numbered {one.number!r} stands in its place")

    def _value(self, one: ChainLink | CopiedLink, expected: int) -> ChainFinding | None:
        if one.hash == "" and isinstance(one, ChainLink) and self._number == 0:
            self._unchained += 1
            return None
        if one.hash == "" or self._unchained:
            number = expected if one.hash == "" else 1
            return self._finding(number, "unchained", "it has no hash, though rows around it have one")
        if one.previous != self._hash:
            return self._finding(expected, "previous", "it does not follow on the row before it")
        try:
            content = one.content if isinstance(one, CopiedLink) else content_hash(one.entry)
            entry = one.entry
            if isinstance(one, CopiedLink) and entry is not None and content_hash(entry) != content:
                return self._finding(expected, "content", "its entry is not the one that was recorded")
            if link_hash(self._hash, expected, content) != one.hash:
                return self._finding(expected, "hash", "its content or its hash is not what was recorded")
        except KfmError:  # a value that has no canonical form can't have been written by us
            return self._finding(expected, "content", "it holds a value that was never recorded")
        self._number, self._hash = expected, one.hash
        self._withheld += entry is None
        return None

    def _kept(self, one: ChainLink | CopiedLink, expected: int) -> ChainFinding | None:
        """Is it what was kept elsewhere?"""
        for anchor in self._anchors.pop(expected, ()):
            if anchor.hash != one.hash:
                problem = f"it is not the row that was anchored at {anchor.at}"
                return self._finding(expected, "anchor", problem)
            self._agree += 1
            self._anchored = expected
        if self._ledger_head is not None and expected == self._ledger_head[0]:
            if one.hash != self._ledger_head[1]:
                problem = "it is not the row that the ledger's own head names"
                return self._finding(expected, "anchor", problem)
            self._ledger_head = None
        return None

    def _end(self) -> ChainFinding | None:
        """Does it reach as far as it is known to have reached?"""
        first = self._rows + 1
        beyond = [number for number in self._anchors if number > self._rows]
        if beyond:
            anchor = self._anchors[max(beyond)][0]
            problem = f"the chain ends before it, but row {anchor.number} was anchored at {anchor.at}"
            return self._finding(first, "truncated", problem)
        if self._anchors:  # a number below the first row
            number = min(self._anchors)
            return self._finding(1, "anchor", f"an anchor names row {number}, which no chain has")
        if self._ledger_head is not None:
            problem = f"the chain ends before it, but the ledger's own head names row {self._ledger_head[0]}"
            return self._finding(first, "truncated", problem)
        return None

    def _finding(self, number: int, problem: Problem, detail: str) -> ChainFinding:
        # Hashes recomputed for some rows are found only where the forgery ends, or at an anchor.
        return ChainFinding(number=number, problem=problem, detail=detail, since=self._anchored + 1)

    def verdict(self) -> ChainVerdict:
        """The verdict, once all links have been read."""
        return ChainVerdict(
            rows=self._rows,
            head_number=self._number,
            head_hash=self._hash,
            anchors=self._agree,
            anchored_number=self._anchored,
            withheld=self._withheld,
            unchained=self._unchained,
            finding=self._found or self._end(),
        )


EMPTY = sha256(b"").digest()


def leaf_hash(data: bytes) -> bytes:
    return sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


def root(leaves: Sequence[bytes]) -> bytes:
    """The root over hashes of leaves, in their order."""
    if not leaves:
        return EMPTY
    level = list(leaves)
    while len(level) > 1:
        # Pairing from the left and carrying the odd one up gives the same tree as splitting at the
        # largest power of two below the size, without recursion.
        above = [node_hash(level[at], level[at + 1]) for at in range(0, len(level) - 1, 2)]
        if len(level) % 2:
            above.append(level[-1])
        level = above
    return level[0]


def inclusion_proof(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """The hashes that lead from one leaf to the root, the nearest first."""
    if not 0 <= index < len(leaves):
        raise IndexError(f"There is no leaf {index} among {len(leaves)}.")
    proof, level, at = [], list(leaves), index
    while len(level) > 1:
        beside = at ^ 1
        if beside < len(level):
            proof.append(level[beside])
        above = [node_hash(level[one], level[one + 1]) for one in range(0, len(level) - 1, 2)]
        if len(level) % 2:
            above.append(level[-1])
        level, at = above, at // 2
    return proof


def includes(root_hash: bytes, size: int, leaf: bytes, index: int, proof: Sequence[bytes]) -> bool:
    """Does the tree of this root and size have this leaf in this place?"""
    if not 0 <= index < size:
        return False
    reached, at, last, steps = leaf, index, size - 1, iter(proof)
    while last > 0:
        if at % 2 or at < last:  # else it is the odd one out, carried up as it is
            beside = next(steps, None)
            if beside is None:
                return False
            reached = node_hash(beside, reached) if at % 2 else node_hash(reached, beside)
        at, last = at // 2, last // 2
    return next(steps, None) is None and reached == root_hash


ROW_TAG = "sealed-row/1"
PAGE_TAG = "sealed-page/1"
EVENTS, UNITS = "outbox", "units"  # what is sealed
Span = tuple[int, int]  # first and last, both included


class Seal(Record, frozen=True):
    """What one entry of the chain vouches for."""

    stream: str
    members: tuple[Span, ...]
    count: int
    root: str
    high: int  # no number above it has been sealed
    holes: tuple[Span, ...] = ()  # numbers below it that may still turn up
    # Transactions that had drawn numbers and not ended: no other can bring one of the holes. None: it was not
    # looked for, and of the holes only the last hundred were kept.
    in_flight: tuple[str, ...] | None = ()


class SealedPage(Record, frozen=True):
    """A page of the history of units, as it is stored."""

    number: int
    event: str
    status: str
    at_ms: int
    worker_id: str | None
    members: str


Row = OutboxMessage | SealedPage


def leaf(row: Row) -> bytes:
    """What never changes about a row of the outbox, or about a page, hashed."""
    if isinstance(row, SealedPage):
        return leaf_hash(page_bytes(row))
    message = row
    document = {
        "kfm": ROW_TAG,
        "number": message.number,
        "event_id": message.event_id,
        "topic": message.topic,
        "subject": message.subject,
        "body": message.body,
        "recorded_at_ms": message.recorded_at_ms,
    }
    return leaf_hash(canonical_bytes(document))


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
    return root([leaf(row) for row in rows]).hex()


def sealed(stream: str, before: Seal | None, rows: Sequence[Row], in_flight: Iterable[str] = ()) -> Seal:
    """The seal over these rows, which come in the order of their numbers.

    `in_flight`: the transactions that had drawn numbers up to the last of these, and had not ended when the
    rows were read. What no row has once they have ended is lost for good.
    """
    numbers = [row.number for row in rows]
    still, old_high = tuple(in_flight), before.high if before else 0
    fresh = gaps(spans(number for number in numbers if number > old_high), old_high) if still else ()
    return Seal(
        stream=stream,
        members=spans(numbers),
        count=len(numbers),
        root=root_of(rows),
        high=max(old_high, numbers[-1]),
        holes=(*(_open(before, numbers, still) if before else ()), *fresh),
        in_flight=still,
    )


def _open(before: Seal, found: Sequence[int], in_flight: Sequence[str]) -> tuple[Span, ...]:
    """Holes that an earlier seal has left, and that have to be looked at again."""
    may_come = before.in_flight is None or not set(before.in_flight).isdisjoint(in_flight)
    is_cut = found[-1] <= before.high  # there may be more of them than one seal takes
    return without(before.holes, found) if (may_come and in_flight) or is_cut else ()


def without(holes: Sequence[Span], found: Iterable[int]) -> tuple[Span, ...]:
    """Sorted spans without some numbers, which are sorted, too."""
    left, taken = list[Span](), iter(found)
    number = next(taken, None)
    for first, last in holes:
        while number is not None and number <= last:
            if number > first:
                left.append((first, number - 1))
            first = max(first, number + 1)
            number = next(taken, None)
        if first <= last:
            left.append((first, last))
    return tuple(left)


def gaps(members: Iterable[Span], after: int = 0) -> tuple[Span, ...]:
    """What lies between sorted spans, from the first number after that one."""
    found: list[Span] = []
    for first, last in members:
        if first > after + 1:
            found.append((after + 1, first - 1))
        after = max(after, last)
    return tuple(found)


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
        "in_flight": list(seal.in_flight or ()),
    }


def from_details(stream: str, found: dict[str, Any]) -> Seal:
    return Seal(
        stream=stream,
        members=tuple((first, last) for first, last in found["members"]),
        count=found["count"],
        root=found["root"],
        high=found["high"],
        holes=tuple((first, last) for first, last in found["holes"]),
        in_flight=tuple(found["in_flight"]) if "in_flight" in found else None,
    )
