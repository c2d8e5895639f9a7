"""What the ledger knows of schedules: how far each is accounted for, and what every instant became."""

from __future__ import annotations

from typing import Literal

from kfm.core.records import Record
from kfm.core.requests import UpdateRequest

Became = Literal["request", "skipped", "missed", "dropped", "redefined", "backfilled"]


class ScheduleState(Record, frozen=True):
    """Where a schedule stands. Every instant up to the cursor has its row."""

    schedule_id: str
    definition: str  # digest of what its instants follow from
    cursor_ms: int
    version: int
    paused_at_ms: int | None = None
    paused_by: str | None = None
    rationale: str | None = None  # of the pause
    updated_at_ms: int = 0


class Instant(Record, frozen=True):
    """One instant that has come, or, where it became no request, all from the first to the last."""

    schedule_id: str
    instant_ms: int
    last_ms: int
    became: Became
    request_id: str | None = None
    reason: str | None = None
    at_ms: int = 0


class Accounting(Record, frozen=True):
    """One step of one schedule: written together, or not at all if the state was moved by another."""

    seen: ScheduleState | None
    state: ScheduleState
    instants: tuple[Instant, ...] = ()
    requests: tuple[UpdateRequest, ...] = ()
    cancels: tuple[tuple[str, str], ...] = ()  # request, and why it is to stop
