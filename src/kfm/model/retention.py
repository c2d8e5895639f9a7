"""Retention: which old rows may go, decided from facts; what has gone, as the audit chain tells it."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal

import msgspec

from kfm.model.audit import EVENTS, UNITS, Seal, SealedPage, Span, leaf, leaf_hash, root, spans
from kfm.model.canonical import canonical_bytes
from kfm.model.errors import PlanDrifted
from kfm.model.records import Record
from kfm.model.runs import OutboxMessage
from kfm.model.settings import RetentionSettings

DAY_MS = 86_400_000
ENTRY = "retention"  # the kind of its entries in the audit chain
ROW_TAG = "retired-row/1"
SHORT = 8
SPANS_MAX = 1_000_000  # rows that one entry may tell to have gone
Value = str | int | float | None


class RowKind(Record, frozen=True):
    """Rows of one kind that age, and why one of them stays.

    A row of a page is: its place in the order of age, its time, a 1 for each reason to stay, what is stored.
    """

    name: str
    place: tuple[tuple[str, Value], ...]  # the parameters that a page begins after, with the first values
    reasons: tuple[str, ...]
    key: tuple[int, ...] = (0,)  # which stored columns name a row for its removal
    aged_by: str = ""  # whose setting says how long; empty: its own
    stored_in: str = ""  # the table that `kfm du` counts it under; empty: the one of its name
    # The table that metrics count, which must have counted a row before it goes.
    counted_as: str | None = None
    is_aged_by_others: bool = True  # the page needs to know what is old
    told_by: int | None = None  # the stored column that other records know a row by
    is_slimmed: bool = False  # the row stays, with what `slimmed` leaves of its first stored column

    @property
    def setting(self) -> str:
        return f"{self.aged_by or self.name}_days"

    @property
    def table(self) -> str:
        return self.stored_in or self.name


_NUMBER: tuple[tuple[str, Value], ...] = (("after_number", 0),)
_TIME: tuple[tuple[str, Value], ...] = (("after_ms", -1), ("after_id", ""))
_MEMBER = (*_TIME, ("after_member", ""))
_NOT_DONE = ("not-succeeded",)
LAST = "last"  # SQLite gives the number after the last one: it stays until there is another
ROW_KINDS: tuple[RowKind, ...] = (
    RowKind(
        name="invocations",
        place=_NUMBER,
        reasons=("open", "verdict", "newest"),
        counted_as="invocations",
        is_aged_by_others=False,
        told_by=1,
    ),
    RowKind(name="attempts", place=_NUMBER, reasons=("open", *_NOT_DONE, LAST), counted_as="attempts"),
    RowKind(
        name="call_retries",
        place=_NUMBER,
        reasons=(*_NOT_DONE, LAST),
        aged_by="attempts",
        stored_in="retries",
        counted_as="retries",
    ),
    RowKind(name="trigger_documents", place=_TIME, reasons=_NOT_DONE, stored_in="run_documents"),
    RowKind(name="inputs", place=_TIME, reasons=(*_NOT_DONE, "found-again")),
    RowKind(name="previews", place=_TIME, reasons=("undecided", "needed"), is_aged_by_others=False),
    RowKind(name="request_members", place=_MEMBER, reasons=("unsettled",), key=(0, 1)),
    RowKind(
        name="request_details",
        place=_TIME,
        reasons=("unsettled",),
        key=(1,),
        stored_in="requests",
        is_slimmed=True,
    ),
    RowKind(name="run_states", place=(*_NUMBER, ("after_id", "")), reasons=_NOT_DONE, key=(0, 1)),
    RowKind(name="replay_units", place=_MEMBER, reasons=("unsettled",), key=(0, 1)),
    RowKind(
        name="dead_bodies",
        place=(*_TIME, ("after_index", -1)),
        reasons=("held",),
        key=(1, 2),
        stored_in="dead_messages",
        is_aged_by_others=False,
    ),
)
# What a message told of itself, among the details of the request that it became.
MESSAGE_DETAILS = frozenset(
    ("scheme", "secret_index", "signature", "checks", "known_by", "reason", "sent_at_ms")
)


def slimmed(details: str) -> str:
    """The details of a request without what its message told: digests and marks of how it was asked stay."""
    found = msgspec.json.decode(details, type=dict[str, Any])
    left = {name: value for name, value in found.items() if name not in MESSAGE_DETAILS}
    return canonical_bytes(left).decode()


def removal_of(kind: RowKind, stored: Sequence[Any]) -> tuple[Any, ...]:
    """The parameters of the statement that takes a row away, or slims it."""
    key = tuple(stored[at] for at in kind.key)
    return (slimmed(stored[0]), *key) if kind.is_slimmed else key


class SealedKind(Record, frozen=True):
    """Rows that seals vouch for: they go seal by seal, and the seal stays."""

    name: str
    table: str
    stream: str

    @property
    def setting(self) -> str:
        return f"{self.name}_days"


SEALED_KINDS = (
    SealedKind(name="outbox", table="outbox", stream=EVENTS),
    SealedKind(name="unit_history", table="unit_pages", stream=UNITS),
)
ARTIFACTS = "artifacts"  # files of runs, in folders beside the ledger


def artifacts_details(run_ids: Sequence[str], files: int, size: int, before_ms: int) -> dict[str, Any]:
    """What the chain keeps of files that go: whose they were, how many and how large."""
    return {"rows": files, "bytes": size, "before_ms": before_ms, "runs": list(run_ids)}


def cutoffs(settings: RetentionSettings, now_ms: int) -> dict[str, int | None]:
    """Kind → the start of the day before which its rows are old; None: they never are.

    By whole days, so that a plan that a person has seen is the plan of that day."""
    kinds: tuple[RowKind | SealedKind, ...] = (*SEALED_KINDS, *ROW_KINDS)
    days = {kind.name: getattr(settings, kind.setting) for kind in kinds}
    days[ARTIFACTS] = settings.artifacts_days
    return {name: _cutoff(one, now_ms) for name, one in days.items()}


def _cutoff(days: int | None, now_ms: int) -> int | None:
    return None if days is None else max(0, (now_ms - days * DAY_MS) // DAY_MS * DAY_MS)


# --- rows ------------------------------------------------------------------------------------


class PageDecision(Record, frozen=True):
    """What goes of one page, and where the next one begins."""

    going: tuple[tuple[Any, ...], ...]  # what is stored of each
    kept: dict[str, int]  # reason → rows
    place: tuple[Value, ...] | None  # of the last row that was looked at; None: of none
    is_end: bool  # the next row is young, or there is none

    @property
    def size(self) -> int:
        return sum(map(size_of, self.going))


def decide_page(
    kind: RowKind,
    rows: Sequence[tuple[Any, ...]],
    before_ms: int,
    limit: int,
    is_counted: Callable[[str, int], bool] = lambda _table, _number: True,
) -> PageDecision:
    """The same decision for a preview and for what is carried out."""
    width, kept = len(kind.place), Counter[str]()
    going: list[tuple[Any, ...]] = []
    place: tuple[Value, ...] | None = None
    for row in rows:
        at_ms, reasons = row[width], row[width + 1 : width + 1 + len(kind.reasons)]
        stored = tuple(row[width + 1 + len(kind.reasons) :])
        if at_ms >= before_ms or (kind.counted_as and not is_counted(kind.counted_as, row[0])):
            return PageDecision(going=tuple(going), kept=dict(kept), place=place, is_end=True)
        reason = next((name for name, is_so in zip(kind.reasons, reasons, strict=True) if is_so), None)
        if reason == LAST:  # not passed over: it goes with the next pass that finds one after it
            kept[reason] += 1
            return PageDecision(going=tuple(going), kept=dict(kept), place=place, is_end=True)
        place = tuple(row[:width])
        if stored[0] is None:  # nothing of this kind is stored there, or not any more
            continue
        if reason is None:
            going.append(stored)
        else:
            kept[reason] += 1
    # Two runs may have found the same inputs: they go once.
    once = tuple({tuple(one[at] for at in kind.key): one for one in going}.values())
    return PageDecision(going=once, kept=dict(kept), place=place, is_end=len(rows) < limit)


def size_of(stored: Sequence[Any]) -> int:
    """Bytes of what is stored of a row, about: text as it is, numbers as eight bytes."""
    return sum(len(each.encode()) if isinstance(each, str) else 8 for each in stored if each is not None)


def row_leaf(stored: Sequence[Any]) -> bytes:
    """A row as it was stored, hashed: a copy of it can be proven later."""
    return leaf_hash(canonical_bytes({"kfm": ROW_TAG, "row": list(stored)}))


def rows_details(kind: RowKind, decision: PageDecision, before_ms: int) -> dict[str, Any]:
    """What the chain keeps of rows that go: their number, a root over them, and by what others know them."""
    made = {
        "rows": len(decision.going),
        "bytes": decision.size,
        "root": root([row_leaf(one) for one in decision.going]).hex(),
        "before_ms": before_ms,
    }
    if kind.told_by is not None:
        ids = (short_hash(str(one[kind.told_by])) for one in decision.going)
        made["ids"] = base64.b64encode(b"".join(ids)).decode()
    return made


def short_hash(name: str) -> bytes:
    """Eight bytes by which an id that has gone is known again."""
    return sha256(name.encode()).digest()[:SHORT]


def retired_ids(details: Mapping[str, Any]) -> set[bytes]:
    """The ids that an entry of the chain tells to have gone, as short hashes."""
    packed = base64.b64decode(details.get("ids", ""))
    return {packed[at : at + SHORT] for at in range(0, len(packed), SHORT)}


# --- sealed rows -----------------------------------------------------------------------------


class RetiredSpan(Record, frozen=True):
    """What has gone of the rows of one seal. Without leaves: all of them."""

    seal: int  # the row of the chain that sealed them
    members: tuple[Span, ...]
    count: int
    leaves: tuple[bytes, ...] = ()


class Partition(Record, frozen=True):
    """A part of a table, by numbers: `low` is in it, `high` is not."""

    name: str
    low: int
    high: int
    is_empty: bool = False

    def has(self, number: int) -> bool:
        return self.low <= number < self.high


class Cuts(Record, frozen=True):
    """The partitions of a table that get no more rows: those that are old as a whole go at once, and rows of
    the others wait for that."""

    old: tuple[Partition, ...] = ()
    young: tuple[Partition, ...] = ()

    def waits(self, number: int) -> bool:
        return any(one.has(number) for one in self.young)


def outside(numbers: Iterable[int], partition: Partition) -> list[int]:
    return [number for number in numbers if not partition.has(number)]


SealVerdict = Literal["go", "young", "waits"]


class SealDecision(Record, frozen=True):
    """What goes of the rows of one seal."""

    verdict: SealVerdict
    going: tuple[int, ...] = ()
    leaves: tuple[bytes, ...] = ()  # of those that go, where others stay
    size: int = 0
    kept: int = 0


def decide_events(rows: Sequence[OutboxMessage]) -> SealDecision:
    """Old messages go with all that were sealed with them, once all of these have reached their receivers."""
    waiting = sum(row.delivered_at_ms is None for row in rows)
    if waiting:
        return SealDecision(verdict="waits", kept=waiting)
    size = sum(size_of((row.event_id, row.topic, row.subject, row.body)) for row in rows)
    return SealDecision(verdict="go", going=tuple(row.number for row in rows), size=size)


def decide_pages(pages: Sequence[SealedPage], is_needed: Callable[[SealedPage], bool]) -> SealDecision:
    """Old pages go, but for those that tell of the last state of a unit, which is compared with them, and of
    units that have not succeeded, which may be tried again."""
    going = [page for page in pages if not is_needed(page)]
    is_whole = len(going) == len(pages)
    return SealDecision(
        verdict="go",
        going=tuple(page.number for page in going),
        leaves=() if is_whole else tuple(leaf(page) for page in going),
        size=sum(size_of((page.event, page.status, page.worker_id, page.members)) for page in going),
        kept=len(pages) - len(going),
    )


def sealed_details(seal_row: int, decision: SealDecision, before_ms: int) -> dict[str, Any]:
    """For the entry in the chain: which rows of which seal have gone; with their leaves where others stay, so
    that the root can still be made."""
    made: dict[str, Any] = {
        "seal": seal_row,
        "members": [list(span) for span in spans(decision.going)],
        "rows": len(decision.going),
        "bytes": decision.size,
        "before_ms": before_ms,
    }
    if decision.leaves:
        made["leaves"] = base64.b64encode(b"".join(decision.leaves)).decode()
    return made


def retired_from(details: Mapping[str, Any]) -> RetiredSpan:
    packed = base64.b64decode(details.get("leaves", ""))
    return RetiredSpan(
        seal=details["seal"],
        members=tuple((first, last) for first, last in details["members"]),
        count=details["rows"],
        leaves=tuple(packed[at : at + 32] for at in range(0, len(packed), 32)),
    )


def subject_of(kind: str) -> str:
    """What its entries in the chain are about."""
    return f"{ENTRY}/{kind}"


def is_as_sealed(seal: Seal, present: Mapping[int, bytes], retired: Iterable[RetiredSpan]) -> str | None:
    """What is wrong with the rows of a seal (number → leaf), given what has gone; None: nothing."""
    gone: dict[int, bytes | None] = {}
    for one in retired:
        if sum(last - first + 1 for first, last in one.members) != one.count or one.count > SPANS_MAX:
            return "what has gone of them is told in two ways"
        numbers = [number for first, last in one.members for number in range(first, last + 1)]
        leaves: Sequence[bytes | None] = one.leaves or [None] * len(numbers)
        if len(leaves) != len(numbers):
            return "what has gone of them is told in two ways"
        gone.update(zip(numbers, leaves, strict=True))
    again = sorted(gone.keys() & present.keys())
    if again:
        return f"{again[0]} has gone by retention, and is there again"
    if len(gone) + len(present) != seal.count:
        missing = f", {len(gone)} have gone by retention" if gone else ""
        return f"{seal.count} were sealed, {len(present)} are there{missing}"
    if not present:
        return None  # the seal is all that is left of them
    known = {**present, **gone}
    made = [leaf_there for _, leaf_there in sorted(known.items()) if leaf_there is not None]
    if len(made) != seal.count or root(made).hex() != seal.root:
        return "one of them is not what was sealed"
    return None


# --- a plan ----------------------------------------------------------------------------------


class KindPlan(Record, frozen=True):
    """What goes of one kind. `before`: None where it is kept for ever."""

    kind: str
    before_ms: int | None
    rows: int = 0  # or files
    bytes: int = 0
    kept: dict[str, int] = {}  # reason → old rows that stay


class RetentionPlan(Record, frozen=True):
    """What goes of each kind, and the digest by which a person names this plan."""

    kinds: tuple[KindPlan, ...]
    digest: str

    @property
    def rows(self) -> int:
        """Of the ledger."""
        return sum(one.rows for one in self.kinds if one.kind != ARTIFACTS)

    @property
    def files(self) -> int:
        """Of runs."""
        return sum(one.rows for one in self.kinds if one.kind == ARTIFACTS)

    @property
    def size(self) -> int:
        return sum(one.bytes for one in self.kinds)


def planned(kinds: Iterable[KindPlan]) -> RetentionPlan:
    kept = tuple(kinds)
    document = [[one.kind, one.before_ms, one.rows, one.bytes] for one in kept]
    digest = sha256(canonical_bytes({"kfm": "retention-plan/1", "kinds": document})).hexdigest()
    return RetentionPlan(kinds=kept, digest=f"sha256:{digest}")


def require_same(plan: RetentionPlan, digest: str) -> None:
    """Refuse a plan that is not the one that a person has seen."""
    if plan.digest != digest:
        raise PlanDrifted(
            f"What would go is not what was planned: the plan is {plan.digest} now.",
            remedy="`kfm gc --dry-run` shows the plan and its digest.",
        )
