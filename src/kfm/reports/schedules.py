"""Schedules, their scheduled times, and what became of those, as documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfm.model.quantities import instant
from kfm.model.schedules import Schedule, due_ms, is_continuous, next_instant, period_of
from kfm.model.settings import SourceSettings
from kfm.model.times import offset_ms

if TYPE_CHECKING:
    from kfm.model.scheduled_times import BackfillTime, Expected
    from kfm.model.schedules import ScheduleState


def schedule_document(schedule: Schedule, source: SourceSettings, now_ms: int) -> dict[str, Any]:
    """The JSON shape of one schedule."""
    next_ms = next_instant(schedule, now_ms) if schedule.enabled else None
    return {
        "schedule_id": schedule.id,
        "source_id": schedule.source,
        "dataset_id": source.dataset,
        "cron": schedule.cron,
        "every_seconds": schedule.every_ms // 1000 if schedule.every_ms is not None else None,
        "anchor": instant(schedule.anchor_ms) if schedule.every_ms is not None else None,
        "goes_by": _goes_by(schedule),
        "time_zone": schedule.time_zone,
        "window": schedule.window or source.window,
        "jitter_seconds": schedule.jitter_ms // 1000,
        "overlap": schedule.overlap,
        "missed": {
            "run": schedule.missed.run,
            "within_seconds": schedule.missed.within_ms // 1000,
            "cap": schedule.missed.cap,
        },
        "while_paused": schedule.while_paused,
        "enabled": schedule.enabled,
        "next": instant(next_ms),
        "next_local": local(next_ms, schedule.time_zone) if next_ms is not None else None,
    }


def _goes_by(schedule: Schedule) -> str:
    if schedule.cron is None:
        return "interval"
    return "real-time" if is_continuous(schedule.cron) else "local-time"


def instant_document(schedule: Schedule, source: SourceSettings, at_ms: int) -> dict[str, Any]:
    """The JSON shape of one scheduled time."""
    window = period_of(schedule, source, at_ms)
    return {
        "schedule_id": schedule.id,
        "source_id": schedule.source,
        "instant": instant(at_ms),
        "local": local(at_ms, schedule.time_zone),
        "due": instant(due_ms(schedule, at_ms)),
        "window_start": instant(window.start_ms),
        "window_end": instant(window.end_ms),
    }


def local(at_ms: int, zone: str) -> str:
    """What the local clock shows, with its offset: `2026-03-08T03:00:00-05:00`."""
    ahead_ms = offset_ms(zone, at_ms)
    minutes = abs(ahead_ms) // 60_000
    sign = "-" if ahead_ms < 0 else "+"
    return f"{(instant(at_ms + ahead_ms) or '')[:19]}{sign}{minutes // 60:02d}:{minutes % 60:02d}"


def state_document(state: ScheduleState | None) -> dict[str, Any]:
    """How far it is accounted for, and whether it is paused."""
    paused = state is not None and state.paused_at_ms is not None
    return {
        "accounted_until": instant(state.cursor_ms) if state is not None else None,
        "paused": {
            "at": instant(state.paused_at_ms),
            "by": state.paused_by,
            "rationale": state.rationale,
        }
        if state is not None and paused
        else None,
    }


def expected_document(expected: Expected) -> dict[str, Any]:
    """One scheduled time that the schedule expects, and what it became."""
    return {
        "instant": instant(expected.instant_ms),
        "window_start": instant(expected.window_start_ms),
        "window_end": instant(expected.window_end_ms),
        "fate": expected.fate,
        "before_first_seen": expected.before_first_seen,
        "request_id": expected.request_id,
        "reason": expected.reason,
    }


def backfill_document(planned: BackfillTime) -> dict[str, Any]:
    """One scheduled time that can be backfilled."""
    return {
        "instant": instant(planned.instant_ms),
        "window_start": instant(planned.window_start_ms),
        "window_end": instant(planned.window_end_ms),
        "fate": planned.fate,
        "request_id": planned.request_id,
        "has_request": planned.has_request,
    }
