"""Arrivals that are handed on together: one update for each burst of objects, and for each period in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from kfm.core.canonical import canonical_bytes
from kfm.core.hashing import sha256_text
from kfm.core.keys import coalesced
from kfm.core.records import Record, Window

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

    burst_id: str  # a hash of the sorted members: whoever gathers the same ones means the same
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
