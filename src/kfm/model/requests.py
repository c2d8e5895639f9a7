"""Requests: accepted triggers that become at most one run each; bursts of arrivals that share one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from kfm.model.canonical import canonical_bytes
from kfm.model.input_hash import sha256_text
from kfm.model.keys import coalesced
from kfm.model.records import Record, Window

RequestKind = Literal["cron", "webhook", "manual"]
# open: waits, not before `not_before_ms` · running: claimed · awaiting-approval: of its preview ·
# done: it has its outcome · cancelled: it will not run
RequestState = Literal["open", "running", "awaiting-approval", "done", "cancelled"]
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
    outcome: str | None = None  # of its run: success | noop | failed | refused
    reason: str | None = None  # why it waits, or how it ended
    run_id: str | None = None
    plan_digest: str | None = None  # of the preview that was kept
    claimed_by: str | None = None
    claim_until_ms: int = 0
    tries: int = 0
    cancel: str | None = None  # why it is to stop, while it runs
    ended_at_ms: int | None = None

    @property
    def is_settled(self) -> bool:
        return self.state not in UNSETTLED


class RequestOutcome(Record, frozen=True):
    """What became of a request."""

    state: Literal["done", "cancelled"]
    outcome: str | None
    reason: str
    run_id: str | None = None


BURST_TAG = "burst/1"
BurstState = Literal["open", "done", "refused"]


class Member(Record, frozen=True):
    """One unit's success that a source waits for. Field order is column order."""

    dataset: str
    member: str  # the unit and its content version
    start_ms: int | None
    end_ms: int | None
    at_ms: int


class Burst(Record, frozen=True):
    """Members of one period. Field order is column order."""

    burst_id: str  # a hash of the sorted members: the same members are the same burst
    source_id: str
    dataset: str
    members: int
    start_ms: int  # of the period
    end_ms: int
    closed_at_ms: int
    state: BurstState = "open"
    run_id: str | None = None
    tries: int = 0


def gathered(
    source_id: str, members: Iterable[Member], period: Callable[[int], Window], now_ms: int
) -> list[Burst]:
    """One burst for each period that the members touch: data that comes late opens its own period again."""
    periods: dict[tuple[int, int], list[Member]] = {}
    for member in members:
        at_ms = member.start_ms if member.start_ms is not None else member.at_ms
        window = period(at_ms)
        periods.setdefault((window.start_ms, window.end_ms), []).append(member)
    return [
        Burst(
            burst_id=burst_id(source_id, [one.member for one in found]),
            source_id=source_id,
            dataset=",".join(sorted({one.dataset for one in found})),
            members=len(found),
            start_ms=start_ms,
            end_ms=end_ms,
            closed_at_ms=now_ms,
        )
        for (start_ms, end_ms), found in sorted(periods.items())
    ]


def burst_id(source_id: str, members: Sequence[str]) -> str:
    document = {"kfm": BURST_TAG, "source_id": source_id, "member_keys": coalesced(members)}
    return sha256_text(canonical_bytes(document))
