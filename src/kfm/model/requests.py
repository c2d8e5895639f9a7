"""Requests: accepted triggers that become at most one run each, with what they gather."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from kfm.model.records import Record, Window

RequestKind = Literal["cron", "webhook", "manual", "upstream-event"]
# open: waits, not before `not_before_ms` · running: claimed · awaiting-approval: of its preview ·
# done: it has its outcome · cancelled: it will not run
RequestState = Literal["open", "running", "awaiting-approval", "done", "cancelled"]
RequestPart = Literal["all", "retries", "bursts"]  # that a dispatcher works off
CHANGES = "changes"  # in the details of a request that datasets have made by changing
ABSENT = "absent"  # the outcome of a request whose data did not come in time
NOT_YET = "not-yet"  # what a request waits for whose data has not come
UNSETTLED: tuple[RequestState, ...] = ("open", "running", "awaiting-approval")


class UpdateRequest(Record, frozen=True):
    """An accepted trigger to bring a source up to date: durable, and at most one run."""

    request_id: str  # follows from the key
    key: str  # sha256:…, of what makes it the same request
    kind: RequestKind
    source_id: str
    dataset_id: str
    window_start_ms: int  # absolute: a late start moves nothing
    window_end_ms: int
    actor: str
    accepted_at_ms: int
    not_before_ms: int = 0
    claimed_actor: str | None = None
    rationale: str | None = None
    ticket: str | None = None
    correction: str | None = None
    schedule_id: str | None = None
    instant_ms: int | None = None
    request_uuid: str | None = None
    envelope_hash: str | None = None  # sha256:…, of what was sent; never what it said
    needs_approval: bool = False
    details: dict[str, Any] = {}  # signature scheme, event type, checks: nothing of a payload
    state: RequestState = "open"
    outcome: str | None = None  # of its run: success | noop | failed | refused; absent: no data came
    reason: str | None = None  # why it waits, or how it ended
    run_id: str | None = None
    plan_digest: str | None = None  # of the preview that was kept
    claimed_by: str | None = None
    claim_until_ms: int = 0
    tries: int = 0
    cancel: str | None = None  # why it is to stop, while it runs
    ended_at_ms: int | None = None
    blocked_by: str | None = None  # what it waits for: retry, circuit:NAME, switch:SCOPE, freeze, busy, …
    is_bound: bool = False  # its plan's digest binds every attempt
    by_person: bool = False  # a person asked, who may start earlier than a machine
    tried_at_ms: int | None = None  # the first time

    @property
    def is_set_aside(self) -> bool:
        """Was it tried, and waits for another attempt or for upstream? Then it keeps nothing else waiting."""
        return self.state == "open" and (self.run_id is not None or self.blocked_by == NOT_YET)

    @property
    def is_settled(self) -> bool:
        return self.state not in UNSETTLED

    @property
    def changes(self) -> dict[str, int]:
        """The datasets whose change it gathers, with their sequences."""
        return dict(self.details.get(CHANGES, {})) if self.kind == "upstream-event" else {}

    @property
    def members(self) -> int:
        """How many announced objects it gathers."""
        return int(self.details.get("members", 0)) if self.kind == "upstream-event" else 0


class RequestOutcome(Record, frozen=True):
    """The end of a request."""

    state: Literal["done", "cancelled"]
    outcome: str | None
    reason: str
    run_id: str | None = None


class PutOff(Record, frozen=True):
    """A request goes back, for later."""

    not_before_ms: int
    blocked_by: str
    reason: str


# What becomes of the requests of a run when one of its attempts has ended.
Settlement = RequestOutcome | PutOff


CHANGE = "change:"  # begins the name of a member that is a changed dataset, not an object
BURST_TAG = "burst/1"
SYNCHRONOUS_TAG = "synchronous/1"
ADOPTED_TAG = "adopted/1"
SYNCHRONOUS = "synchronous"  # in the details of a request that its own process works off at once
TOGETHER = "together"  # in those of requests whose windows are published in one promotion: names them all
ADOPTED = "adopted"  # in those of a request for a promised attempt that none asked for
SPREAD_MS = 10_000  # what waited for one thing wakes over this time


class Member(Record, frozen=True):
    """One unit's success that a source waits for. Field order is column order."""

    dataset: str
    member: str  # the unit and its content version
    start_ms: int | None
    end_ms: int | None
    at_ms: int

    @property
    def change(self) -> tuple[str, int] | None:
        """The dataset that has changed, and its sequence; None: it is an announced object."""
        if not self.member.startswith(CHANGE):
            return None
        dataset_id, _, sequence = self.member.removeprefix(CHANGE).partition("/")[0].rpartition("@")
        return dataset_id, int(sequence)

    @property
    def unit(self) -> str:
        return self.member.rpartition("/")[0]

    @property
    def content_version(self) -> int:
        return int(self.member.rpartition("/")[2])


def member_of(wal_id: str, content_version: int) -> str:
    """The name of a unit's content among the members of a request."""
    return f"{wal_id}/{content_version}"


def change_member(dataset_id: str, sequence: int, window: tuple[int, int], asks: int) -> str:
    """The name of a changed dataset among the members of a request: for this window, for the n-th time."""
    return f"{CHANGE}{dataset_id}@{sequence}/{window[0]}/{window[1]}/{asks}"


class AnnouncedObject(Record, frozen=True):
    """An announced object that a request gathers."""

    request_id: str
    unit: str
    content_version: int
    dataset: str
    object: str | None  # its address; None: the unit is not in this ledger

    @property
    def name(self) -> str:
        return self.object or f"unit {self.unit}"


class Burst(Record, frozen=True):
    """Members of one period of a source: they share a request."""

    key: str  # a hash of the sorted members: the same members are the same burst
    window: Window
    members: tuple[Member, ...]


def gathered(source_id: str, members: Iterable[Member], period: Callable[[int], Window]) -> list[Burst]:
    """One burst for each period that the members touch: data that comes late opens its own period again."""
    periods: dict[tuple[int, int], list[Member]] = {}
    windows: dict[tuple[int, int], Window] = {}
    for member in members:
        if member.change is not None and member.start_ms is not None and member.end_ms is not None:
            # A window of its source already, also one that a person has chosen.
            window = Window(start_ms=member.start_ms, end_ms=member.end_ms, spec="")
        else:
            window = period(member.start_ms if member.start_ms is not None else member.at_ms)
        span = (window.start_ms, window.end_ms)
        windows[span] = window
        periods.setdefault(span, []).append(member)
    return [
        Burst(
            key=burst_key(source_id, [one.member for one in found]),
            window=windows[span],
            members=tuple(found),
        )
        for span, found in sorted(periods.items())
    ]


def burst_key(source_id: str, members: Sequence[str]) -> str:
    from kfm.model.keys import coalesced, key_of  # late: readers do not need it

    return key_of({"kfm": BURST_TAG, "source_id": source_id, "member_keys": coalesced(members)})


def synchronous_key(invocation_id: str) -> str:
    """The key of a request that its own process works off at once."""
    from kfm.model.keys import key_of  # late: readers do not need it

    return key_of({"kfm": SYNCHRONOUS_TAG, "invocation_id": invocation_id})


def adopted_key(run_id: str, attempt: int, due_ms: int) -> str:
    """The key of a request for a promised attempt that no request asks for; each promise has its own."""
    from kfm.model.keys import key_of  # late: readers do not need it

    return key_of({"kfm": ADOPTED_TAG, "run_id": run_id, "attempt": attempt, "due_ms": due_ms})


def spread_ms(key: str, over_ms: int = SPREAD_MS) -> int:
    """A stable share of a span of time: what waited for one thing does not wake at one instant."""
    from kfm.model.input_hash import sha256_text  # late: readers do not need it

    return int(sha256_text(key.encode())[-8:], 16) % over_ms
