"""What a scheduled run covers beyond its own window: what earlier instants have left untouched.

An instant that was missed, or skipped because another run was under way, leaves a window that nobody asked
for. The next instant that becomes a request asks for those windows, too, so that the watermark of a source
moves on without holes. What was asked for and failed is not among them: it is retried, or held.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kfm.core.keys import key_of, request_id
from kfm.core.records import Window
from kfm.core.requests import UpdateRequest
from kfm.core.schedule_states import Instant
from kfm.core.schedules import Schedule, latest_instants, period_of
from kfm.core.scheduling import BACKFILL
from kfm.core.settings import Source

LEFT_TAG = "left/1"
LEFT = ("missed", "skipped")
LEFT_TO = "left_to"  # in a request's details: the request that it came with


def left_windows(
    schedule: Schedule, source: Source, request: UpdateRequest, rows: Sequence[Instant]
) -> list[Window]:
    """Windows before the request's own that these instants have left, the oldest first.

    `rows` are those before its instant, the newest first. How far back and how many is the schedule's rule
    for what was missed; one that makes up for nothing leaves nothing to others.
    """
    if schedule.missed.run == "none" or request.instant_ms is None:
        return []
    since_ms = request.instant_ms - schedule.missed.within_ms
    found: dict[tuple[int, int], Window] = {}
    for instant_ms in _left(schedule, rows, since_ms):
        window = period_of(schedule, source, instant_ms)
        if window.end_ms <= request.window_start_ms:
            found[window.start_ms, window.end_ms] = window
        if len(found) == schedule.missed.cap:
            break
    return [found[at] for at in sorted(found)]


def _left(schedule: Schedule, rows: Sequence[Instant], since_ms: int) -> Iterator[int]:
    """Instants that became nothing, the latest first; of a long span no more than could count."""
    for row in rows:
        if row.last_ms < since_ms:
            return
        if row.became in LEFT:
            first_ms = max(row.instant_ms, since_ms)
            yield from reversed(latest_instants(schedule, first_ms, row.last_ms + 1, schedule.missed.cap))


def asking_for(request: UpdateRequest, window: Window) -> UpdateRequest:
    """The wish for a window that was left: once, whichever instant comes first."""
    key = key_of(
        {
            "kfm": LEFT_TAG,
            "schedule_id": request.schedule_id,
            "window_start_ms": window.start_ms,
            "window_end_ms": window.end_ms,
        }
    )
    return UpdateRequest(
        request_id=request_id(key),
        key=key,
        kind="cron",
        source_id=request.source_id,
        dataset_id=request.dataset_id,
        window_start_ms=window.start_ms,
        window_end_ms=window.end_ms,
        actor=request.actor,
        claimed_actor=request.claimed_actor,
        accepted_at_ms=request.accepted_at_ms,
        schedule_id=request.schedule_id,
        rationale="Left by an instant that was missed or skipped.",
        details={BACKFILL: True, LEFT_TO: request.request_id},
    )
