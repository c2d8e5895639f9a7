"""Coverage documents: how a dataset is, and the state of each window. Nothing heavy is imported here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kfm.model.completeness import (
    ASKED_FOR,
    THERE,
    WINDOW_STATES,
    DatasetHealth,
    HealthCause,
    HealthState,
    WindowVerdict,
)
from kfm.model.quantities import NO_WINDOW_TEXT, counted, instant, moment
from kfm.model.times import MS_MIN

if TYPE_CHECKING:
    from kfm.datasets.completeness import DatasetCoverage, ProductLag

WAITS = {
    "not-yet": "not due yet",
    "turn": "for its turn",
    "approval": "for an approval",
    "retry": "for a retry",
    "next-run": "for the next run",
    "busy": "for other work on the dataset",
}
REMOVED = {"rolled-back": "a rollback removed it", "withdrawal-lifted": "its withdrawal was lifted"}
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
HOURS_MAX = 72  # columns of a feed's picture: the newest
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


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
        "reason": one.reason,
        "since": instant(one.at_ms),
        "run_id": one.run_id,
        "request_id": one.request_id,
        "objects": one.objects,
        "objects_min": one.objects_min,
    }


def coverage_document(
    coverage: DatasetCoverage, windows: Sequence[WindowVerdict], at_ms: int, product: str | None = None
) -> dict[str, Any]:
    """`windows`: those that were chosen. `product`: of a feed, only this one."""
    products = [one for one in coverage.products if product in (None, one.product)]
    return {
        "dataset_id": coverage.health.dataset_id,
        "at": instant(at_ms),
        "health": health_document(coverage.health),
        "objectives": objectives_of(coverage, product),
        "windows": [window_document(one) for one in windows],
        "products": [product_document(one) for one in products],
        "next_steps": [one.command for one in coverage.reconcile],
    }


def objectives_of(coverage: DatasetCoverage, product: str | None) -> dict[str, str]:
    """When windows are due, by source; of a feed by product and platform, or of one product."""
    meant = {one.source_id for one in coverage.products if one.product == product}
    return {name: text for name, text in coverage.objectives.items() if product is None or name in meant}


def product_document(one: ProductLag) -> dict[str, Any]:
    return {
        "source_id": one.source_id,
        "product": one.product,
        "platform": one.platform,
        "is_expected": one.is_expected,
        "newest": instant(one.newest_ms),
        "lag_ms": one.lag_ms,
        "latency_ms": one.latency_ms,
    }


def cause_text(cause: HealthCause) -> str:
    """One cause in a line: what, how many windows, since when."""
    if cause.state is None:
        since = f" since {moment(cause.since_ms)}" if cause.since_ms is not None else ""
        if cause.health in ("retired", "withdrawn"):
            return f"{cause.health}{since}"
        return f"paused by {cause.code}{since}" if cause.health == "paused" else "never published"
    code = f" ({cause.code})" if cause.code else ""
    first = ", the first of" if cause.windows > 1 else ", of"
    if cause.first_ms == MS_MIN:  # a source has windows, or it is one snapshot
        first = f"{first} {NO_WINDOW_TEXT}"
        if cause.windows == 1:
            return f"{NO_WINDOW_TEXT} is {cause.state}{code}"
    elif cause.first_ms is not None:
        first = f"{first} {moment(cause.first_ms)[:16]}"
    return (
        f"{counted(cause.windows, 'window')} {cause.state}{code}{first if cause.first_ms is not None else ''}"
    )


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
    if one.objects_min is not None and one.state in ("missing", "overdue"):
        return f"{one.objects} of {one.objects_min} objects, due {moment(one.due_ms)[:16]}"
    if one.state == "missing":
        return f"{REMOVED.get(one.code or '', 'no data came')}, and nothing asks for it by itself"
    if one.state == "overdue":
        gone = REMOVED.get(one.code or "")
        return gone or f"not there since {moment(one.due_ms)[:16]}"
    if one.state in ("dismissed", "withdrawn"):
        return one.reason or ""
    if one.state in THERE and one.code in REMOVED:
        return "an earlier revision, put back by a rollback"
    if one.state == "refused" and one.code:
        return f"by gate {one.code}"
    return one.code or ""


def is_asked_for(one: WindowVerdict) -> bool:
    return one.state in ASKED_FOR


# --- a calendar in text --------------------------------------------------------------


def calendar(windows: Sequence[WindowVerdict]) -> list[str]:
    """A row for each month of days, each day of hours, or each year of months: one sign a window, at its own
    place, so that what is left out of a choice leaves a gap."""
    if not windows:
        return []
    timed = [one for one in windows if not one.is_all_time]
    lines = [f"  {NO_WINDOW_TEXT}  {SIGNS[one.state]}" for one in windows if one.is_all_time]
    if timed:
        lines += _strip(timed)
    seen = [state for state in WINDOW_STATES if any(one.state == state for one in windows)]
    return [*lines, "  " + "  ".join(f"{SIGNS[state]} {state}" for state in seen)]


def feed_picture(windows: Sequence[WindowVerdict], dataset_id: str) -> list[str]:
    """A row for each product of a feed, a column for each hour: one sign an hour, a space where none is
    expected."""
    if not windows:
        return []
    last_ms = max(one.start_ms for one in windows)
    first_ms = max(min(one.start_ms for one in windows), last_ms - (HOURS_MAX - 1) * HOUR_MS)
    columns = range(first_ms, last_ms + 1, HOUR_MS)
    rows: dict[str, dict[int, str]] = {}
    for one in windows:
        rows.setdefault(one.source_id.removeprefix(f"{dataset_id} "), {})[one.start_ms] = SIGNS[one.state]
    width = max(13, *map(len, rows))
    days = "".join("|" if hour_ms % (24 * HOUR_MS) == 0 else "." for hour_ms in columns)
    lines = [f"  {moment(first_ms)[:13].rjust(width)}  {days}  {moment(last_ms)[:13]}"]
    lines += [
        f"  {name.ljust(width)}  {''.join(signs.get(hour_ms, ' ') for hour_ms in columns)}".rstrip()
        for name, signs in rows.items()
    ]
    seen = [state for state in WINDOW_STATES if any(one.state == state for one in windows)]
    return [*lines, "  " + "  ".join(f"{SIGNS[state]} {state}" for state in seen)]


def _strip(windows: Sequence[WindowVerdict]) -> list[str]:
    shortest = min(one.end_ms - one.start_ms for one in windows)
    cut = 10 if shortest < 23 * HOUR_MS else 7 if shortest < 27 * DAY_MS else 4
    rows: dict[str, dict[int, WindowVerdict]] = {}
    for one in windows:
        # The middle of a day is in that day, whatever the zone and the clocks.
        text = moment(one.start_ms if cut == 10 else (one.start_ms + one.end_ms) // 2)
        place = {10: one.start_ms % DAY_MS // shortest, 7: int(text[8:10]) - 1, 4: int(text[5:7]) - 1}[cut]
        row = rows.setdefault(text[:cut], {})
        if place not in row or row[place].is_settled:  # of two at one place the one that is open
            row[place] = one
    places = {10: -(-DAY_MS // shortest), 7: 31, 4: 12}[cut]
    marks = {
        10: {hour * HOUR_MS // shortest: f"{hour:02}" for hour in (0, 6, 12, 18)},
        7: {day - 1: str(day) for day in (1, 11, 21, 31)},
        4: {month - 1: str(month) for month in (1, 4, 7, 10)},
    }[cut]
    ruler = [" "] * (places + 2)
    for place, text in marks.items():
        ruler[place : place + len(text)] = text
    shown = [
        f"  {label}  {''.join(SIGNS[row[place].state] if place in row else ' ' for place in range(places))}"
        for label, row in rows.items()
    ]
    lines = [f"  {'UTC'.rjust(cut)}  {''.join(ruler)}".rstrip()]
    if len(shown) > CALENDAR_ROWS_MAX:
        lines.append(f"  … {counted(len(shown) - CALENDAR_ROWS_MAX, 'earlier row')}")
    return [*lines, *(line.rstrip() for line in shown[-CALENDAR_ROWS_MAX:])]
