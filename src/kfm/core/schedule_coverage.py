"""What became of the instants that a schedule expects, and which of them can be made up for by hand.

Drawn from the schedule, not from the rows that exist: an instant that nobody accounted for shows as such.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice
from typing import Literal

from kfm.core.errors import UsageError
from kfm.core.keys import request_id, schedule_instant_key
from kfm.core.records import Record
from kfm.core.schedule_states import Became, Instant, ScheduleState
from kfm.core.schedules import Schedule, instants, period_of
from kfm.core.scheduling import FIRST_SEEN, is_held
from kfm.core.settings import Source

COVERAGE_MAX = 10_000
BACKFILL_MAX = 1_000
EXAMINED_MAX = 100_000  # instants that one call looks at
LET_GO: tuple[Became, ...] = ("skipped", "missed", "dropped", "redefined")

# unaccounted: it is past, and there is no word of it · held: it waits for the schedule's resumption ·
# pending: it is due just now, or its jitter is not over · coming: it lies ahead
Fate = Became | Literal["unaccounted", "held", "pending", "coming"]


class Expected(Record, frozen=True):
    """One instant of a schedule, and what it became."""

    schedule_id: str
    instant_ms: int
    window_start_ms: int
    window_end_ms: int
    fate: Fate
    request_id: str | None = None
    reason: str | None = None


class Backfill(Record, frozen=True):
    """One instant that can be made up for."""

    instant_ms: int
    window_start_ms: int
    window_end_ms: int
    fate: Fate
    request_id: str  # the one that it has, or would get
    has_request: bool


def coverage(
    schedule: Schedule,
    source: Source,
    rows: Sequence[Instant],
    start_ms: int,
    end_ms: int,
    *,
    state: ScheduleState | None,
    now_ms: int,
    late_ms: int = 60_000,
    limit: int = COVERAGE_MAX,
) -> list[Expected]:
    """The instants of a span, at most `limit` of them, from the first on; `rows` are those that touch it."""
    known = _Known(rows)
    found = []
    for instant_ms in islice(instants(schedule, start_ms, end_ms), limit):
        row = known.of(instant_ms)
        window = period_of(schedule, source, instant_ms)
        found.append(
            Expected(
                schedule_id=schedule.id,
                instant_ms=instant_ms,
                window_start_ms=window.start_ms,
                window_end_ms=window.end_ms,
                fate=row.became if row else _without(schedule, state, instant_ms, now_ms, late_ms),
                request_id=row.request_id if row else None,
                reason=row.reason if row else None,
            )
        )
    return found


def is_unknown(expected: Expected) -> bool:
    """Did it come before anybody knew the schedule? On record that is a redefinition, too."""
    return expected.fate == "redefined" and expected.reason == FIRST_SEEN


def _without(
    schedule: Schedule, state: ScheduleState | None, instant_ms: int, now_ms: int, late_ms: int
) -> Fate:
    """What an instant without a row is."""
    if instant_ms > now_ms:
        return "coming"
    if state is None or instant_ms <= state.cursor_ms or not schedule.enabled:
        return "unaccounted"
    if is_held(schedule, state):
        return "held"
    return "pending" if instant_ms + schedule.jitter_ms + late_ms >= now_ms else "unaccounted"


def backfill(
    schedule: Schedule,
    source: Source,
    start_ms: int,
    end_ms: int,
    known: Sequence[Instant],
    *,
    only_missed: bool,
    state: ScheduleState | None,
    now_ms: int,
    limit: int = BACKFILL_MAX,
) -> list[Backfill]:
    """The instants of a span that have come, or only those that became no request; at most `limit`.

    Those after the cursor are left to the schedule itself: it will account for them. A request is told, not
    made again: an instant has one for good.
    """
    until_ms = now_ms if state is None else min(now_ms, state.cursor_ms)
    index = _Known(known)
    found: list[Backfill] = []
    for number, instant_ms in enumerate(instants(schedule, start_ms, min(end_ms, until_ms + 1))):
        if len(found) >= limit:
            break
        if number >= EXAMINED_MAX:
            raise UsageError(
                f"There are more than {EXAMINED_MAX:,} instants of {schedule.id} in this span.",
                remedy="Take a shorter one.",
            )
        row = index.of(instant_ms)
        if only_missed and row is not None and row.request_id is not None:
            continue
        window = period_of(schedule, source, instant_ms)
        found.append(
            Backfill(
                instant_ms=instant_ms,
                window_start_ms=window.start_ms,
                window_end_ms=window.end_ms,
                fate=row.became if row else "unaccounted",
                request_id=request_id(schedule_instant_key(schedule.id, instant_ms)),
                has_request=row is not None and row.request_id is not None,
            )
        )
    return found


class _Known:
    """Rows by instant. What was made up for by hand lies within the span that let it go, and counts first."""

    def __init__(self, rows: Sequence[Instant]) -> None:
        self._single = {one.instant_ms: one for one in rows if one.instant_ms == one.last_ms}
        self._spans = sorted(
            (one for one in rows if one.instant_ms != one.last_ms), key=lambda one: one.instant_ms
        )
        self._firsts = [one.instant_ms for one in self._spans]

    def of(self, instant_ms: int) -> Instant | None:
        single = self._single.get(instant_ms)
        if single is not None:
            return single
        at = bisect_right(self._firsts, instant_ms) - 1
        return self._spans[at] if at >= 0 and instant_ms <= self._spans[at].last_ms else None
