"""The governance ledger as a chain: every entry carries the hash of the one before it.

A link's hash covers the hash of its content, not the content itself. So an entry that must not be
shown can be left out of a copy, and the copy still verifies.

What a chain alone can't show is that its end was cut off, or that all of it was written anew. For
that its hash is kept elsewhere from time to time: an anchor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any, Literal

from kfm.core.canonical import canonical_bytes
from kfm.core.errors import KfmError
from kfm.core.evidence import Link
from kfm.core.records import GovernanceEntry, Record

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


class Finding(Record, frozen=True):
    """The first row that does not fit, and what is wrong with it."""

    number: int
    problem: Problem
    detail: str
    since: int  # from this row on, up to that one, no anchor vouches for what is there


class Verdict(Record, frozen=True):
    """What a chain and its anchors say together."""

    rows: int
    head_number: int  # of the last row that is sound; 0: none
    head_hash: str
    anchors: int  # how many agree
    anchored_number: int  # the highest row that an anchor agrees with; 0: none
    withheld: int = 0  # links whose entry is not shown
    unchained: int = 0  # rows from before the chain, which the next entry takes in
    finding: Finding | None = None

    @property
    def sound(self) -> bool:
        return self.finding is None

    @property
    def unanchored_since(self) -> int | None:
        """From this row on, a cut or a new writing of everything would not be seen."""
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


def link(previous: str, number: int, entry: GovernanceEntry) -> Link:
    """The entry in its place."""
    digest = link_hash(previous, number, content_hash(entry))
    return Link(number=number, entry=entry, previous=previous, hash=digest)


def chained(entries: Iterable[GovernanceEntry], previous: str = ZEROS, number: int = 0) -> Iterator[Link]:
    """The entries as links, after the row with this number and hash."""
    for entry in entries:
        number += 1
        made = link(previous, number, entry)
        previous = made.hash
        yield made


def copied(one: Link, *, withhold: bool = False) -> CopiedLink:
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
    links: Iterable[Link | CopiedLink], anchors: Iterable[Anchor] = (), head: tuple[int, str] | None = None
) -> Verdict:
    """Walk the chain to its end, or to the first row that is wrong.

    `head` is where the ledger itself says that it ends. It must have been read before the links:
    a chain that has grown since is fine.
    """
    walk = Walk(anchors, head)
    for one in links:
        if walk.step(one) is not None:
            break
    return walk.verdict()


class Walk:
    """A check of one link after the other, for those who do something with them on the way."""

    def __init__(self, anchors: Iterable[Anchor], head: tuple[int, str] | None) -> None:
        self._anchors: dict[int, list[Anchor]] = {}
        for anchor in anchors:
            self._anchors.setdefault(anchor.number, []).append(anchor)
        self._ledger_head = head if head is not None and head[0] > 0 else None
        self._rows = self._number = self._agree = self._anchored = self._withheld = self._unchained = 0
        self._hash = ZEROS
        self._found: Finding | None = None

    def step(self, one: Link | CopiedLink) -> Finding | None:
        """What is wrong with it, if it is the next row; nothing may follow after that."""
        expected = self._rows + 1
        wrong = self._place(one, expected) or self._value(one, expected) or self._kept(one, expected)
        if wrong is None:
            self._rows = expected
        self._found = wrong
        return wrong

    def _place(self, one: Link | CopiedLink, expected: int) -> Finding | None:
        if type(one.number) is int and one.number == expected:
            return None
        if type(one.number) is int and one.number > expected:
            return self._finding(expected, "missing", f"it is missing; row {one.number} comes next")
        return self._finding(expected, "order", f"a row numbered {one.number!r} stands in its place")

    def _value(self, one: Link | CopiedLink, expected: int) -> Finding | None:
        if one.hash == "" and isinstance(one, Link) and self._number == 0:
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

    def _kept(self, one: Link | CopiedLink, expected: int) -> Finding | None:
        """Is it what was kept elsewhere?"""
        for anchor in self._anchors.pop(expected, ()):
            if anchor.hash != one.hash:
                said = f"it is not the row that was anchored at {anchor.at}"
                return self._finding(expected, "anchor", said)
            self._agree += 1
            self._anchored = expected
        if self._ledger_head is not None and expected == self._ledger_head[0]:
            if one.hash != self._ledger_head[1]:
                said = "it is not the row that the ledger's own head names"
                return self._finding(expected, "anchor", said)
            self._ledger_head = None
        return None

    def _end(self) -> Finding | None:
        """Does it reach as far as it is known to have reached?"""
        first = self._rows + 1
        beyond = [number for number in self._anchors if number > self._rows]
        if beyond:
            anchor = self._anchors[max(beyond)][0]
            said = f"the chain ends before it, but row {anchor.number} was anchored at {anchor.at}"
            return self._finding(first, "truncated", said)
        if self._anchors:  # a number below the first row
            number = min(self._anchors)
            return self._finding(1, "anchor", f"an anchor names row {number}, which no chain has")
        if self._ledger_head is not None:
            said = f"the chain ends before it, but the ledger's own head names row {self._ledger_head[0]}"
            return self._finding(first, "truncated", said)
        return None

    def _finding(self, number: int, problem: Problem, detail: str) -> Finding:
        # Whoever makes hashes anew for some rows is found only where he stopped, or at an anchor.
        return Finding(number=number, problem=problem, detail=detail, since=self._anchored + 1)

    def verdict(self) -> Verdict:
        """There is no more."""
        return Verdict(
            rows=self._rows,
            head_number=self._number,
            head_hash=self._hash,
            anchors=self._agree,
            anchored_number=self._anchored,
            withheld=self._withheld,
            unchained=self._unchained,
            finding=self._found or self._end(),
        )
