"""Windows that were asked for together: the list as it was, and what has become of each. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from kfm.model.records import Justification, Record

WindowPlanKind = Literal["missing", "backfill"]
OPEN_STATES = ("open", "running", "awaiting-approval")
IN_VAIN = ("failed", "refused", "blocked")


class WindowPlan(Record, frozen=True):
    """One list. Field order is column order."""

    plan_id: str
    kind: WindowPlanKind
    digest: str
    subject: str  # the schedule of a backfill; else what was chosen, for people
    name: str | None
    rationale: str | None
    ticket: str | None
    requested_by: str
    datasets: tuple[str, ...]
    entries: int
    left_out: dict[str, int]  # why → how many of those that were chosen
    created_at_ms: int


class PlannedWindow(Record, frozen=True):
    """A window of the list, and the request that was made for it."""

    source_id: str
    dataset_id: str
    start_ms: int
    end_ms: int
    instant_ms: int | None  # of a schedule
    was: str  # its state when it was chosen
    why: str
    request_id: str | None


# A list and its windows, as they are kept.
Listed = tuple[WindowPlan, tuple[PlannedWindow, ...]]


class WindowReceipt(Record, frozen=True):
    """A window of the list, and what has become of its request. Field order is column order."""

    number: int
    source_id: str
    dataset_id: str
    start_ms: int
    end_ms: int
    instant_ms: int | None
    was: str
    why: str
    request_id: str | None
    state: str | None
    outcome: str | None
    reason: str | None
    run_id: str | None
    ended_at_ms: int | None


def window_plan(
    plan_id: str,
    kind: WindowPlanKind,
    digest: str,
    subject: str,
    windows: Iterable[PlannedWindow],
    skipped: Iterable[str],
    by: Justification,
    at_ms: int,
    name: str | None = None,
) -> Listed:
    """The record of a list and its windows; `skipped`: why each that was left out was."""
    listed = tuple(windows)
    made = WindowPlan(
        plan_id=plan_id,
        kind=kind,
        digest=digest,
        subject=subject,
        name=name,
        rationale=by.rationale,
        ticket=by.ticket,
        requested_by=by.actor,
        datasets=tuple(sorted({one.dataset_id for one in listed})),
        entries=len(listed),
        left_out=dict(sorted(Counter(skipped).items())),
        created_at_ms=at_ms,
    )
    return made, listed


def progress(tally: dict[tuple[str, str], int]) -> dict[str, int]:
    """How many are done, open, or were in vain; `tally`: (state, outcome) of the request → how many."""
    found = {"done": 0, "open": 0, "in_vain": 0}
    for (state, outcome), many in tally.items():
        if state in OPEN_STATES:
            found["open"] += many
        elif state == "cancelled" or outcome in IN_VAIN:
            found["in_vain"] += many
        else:
            found["done"] += many
    return found
