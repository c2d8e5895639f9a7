"""Coverage documents: how a dataset is, and the state of each window. Nothing heavy is imported here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kfm.model.completeness import (
    ASKED_FOR,
    WINDOW_STATES,
    DatasetHealth,
    HealthCause,
    HealthState,
    WindowVerdict,
)
from kfm.model.quantities import counted, instant, moment

WAITS = {
    "not-yet": "not due yet",
    "turn": "for its turn",
    "approval": "for an approval",
    "retry": "for a retry",
    "next-run": "for the next run",
    "busy": "for other work on the dataset",
}
# One sign for each state, so that a year of days fits on a screen.
SIGNS = {
    "published": "#",
    "unchanged": "=",
    "empty": "0",
    "running": ">",
    "waiting": "~",
    "overdue": "o",
    "failed": "F",
    "quarantined": "Q",
    "refused": "R",
    "missing": "M",
    "withdrawn": "w",
    "dismissed": "-",
}
CALENDAR_ROWS_MAX = 60


def health_document(health: DatasetHealth) -> dict[str, Any]:
    return {
        "state": health.state,
        "causes": [_cause_document(cause) for cause in health.causes],
        "windows": {state: health.counts[state] for state in WINDOW_STATES if state in health.counts},
        "expected": health.expected,
        "watermark": instant(health.watermark_ms),
        "newest": instant(health.newest_ms),
        "lag_ms": health.lag_ms,
    }


def _cause_document(cause: HealthCause) -> dict[str, Any]:
    return {
        "health": cause.health,
        "state": cause.state,
        "code": cause.code,
        "windows": cause.windows,
        "first_window": instant(cause.first_ms),
        "since": instant(cause.since_ms),
        "run_id": cause.run_id,
    }


def window_document(one: WindowVerdict) -> dict[str, Any]:
    return {
        "source_id": one.source_id,
        "window_start": instant(one.start_ms),
        "window_end": instant(one.end_ms),
        "state": one.state,
        "due_at": instant(one.due_ms),
        "is_late": one.is_late,
        "waiting_for": one.waiting_for,
        "code": one.code,
        "since": instant(one.at_ms),
        "run_id": one.run_id,
        "request_id": one.request_id,
    }


def coverage_document(
    health: DatasetHealth, windows: Sequence[WindowVerdict], objectives: dict[str, str], at_ms: int
) -> dict[str, Any]:
    return {
        "dataset_id": health.dataset_id,
        "at": instant(at_ms),
        "health": health_document(health),
        "objectives": objectives,
        "windows": [window_document(one) for one in windows],
    }


def cause_text(cause: HealthCause) -> str:
    """One cause in a line: what, how many windows, since when."""
    if cause.state is None:
        since = f" since {moment(cause.since_ms)}" if cause.since_ms is not None else ""
        return f"paused by {cause.code}{since}" if cause.health == "paused" else "never published"
    code = f" ({cause.code})" if cause.code else ""
    first = ", the first of" if cause.windows > 1 else ", of"
    first = f"{first} {moment(cause.first_ms)[:16]}" if cause.first_ms is not None else ""
    return f"{counted(cause.windows, 'window')} {cause.state}{code}{first}"


def health_command(health: DatasetHealth) -> str:
    """The command that shows more of it, or does something about it."""
    return f"kfm coverage {health.dataset_id}"


def worst(healths: Iterable[DatasetHealth], states: Sequence[HealthState]) -> DatasetHealth | None:
    """The first dataset in the first of these states that any is in."""
    listed = list(healths)
    return next((one for state in states for one in listed if one.state == state), None)


def why(one: WindowVerdict) -> str:
    """Why a window is in its state, in a few words."""
    if one.state == "waiting":
        waits = one.waiting_for or ""
        text = WAITS.get(waits, f"for {waits}")
        if one.at_ms is not None and waits not in ("not-yet", "approval"):
            text += f", at {moment(one.at_ms)[:16]}"
        return text if not one.code else f"{text} after {one.code}"
    if one.state == "missing":
        return "no data came, and nothing asks for it by itself"
    if one.state == "overdue":
        return f"not there since {moment(one.due_ms)[:16]}"
    if one.state == "refused" and one.code:
        return f"by gate {one.code}"
    return one.code or ""


def is_asked_for(one: WindowVerdict) -> bool:
    return one.state in ASKED_FOR


# --- a calendar in text --------------------------------------------------------------


def calendar(windows: Sequence[WindowVerdict]) -> list[str]:
    """A row for each month of days, each day of hours, or each year of months: one sign a window."""
    if not windows:
        return []
    shortest = min(one.end_ms - one.start_ms for one in windows)
    cut = 10 if shortest < 82_800_000 else 7 if shortest < 28 * 82_800_000 else 4
    rows: dict[str, str] = {}
    for one in windows:
        label = moment(one.start_ms)[:cut]
        rows[label] = rows.get(label, "") + SIGNS[one.state]
    shown = list(rows.items())
    lines = [f"  {label}  {signs}" for label, signs in shown[-CALENDAR_ROWS_MAX:]]
    if len(shown) > CALENDAR_ROWS_MAX:
        lines.insert(0, f"  … {counted(len(shown) - CALENDAR_ROWS_MAX, 'earlier row')}")
    seen = [state for state in WINDOW_STATES if any(one.state == state for one in windows)]
    return [*lines, "  " + "  ".join(f"{SIGNS[state]} {state}" for state in seen)]
