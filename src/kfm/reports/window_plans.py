"""Windows that are asked for together as documents: the list, the requests, what has become of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kfm.model.quantities import instant
from kfm.model.window_plans import WindowPlan, WindowReceipt, progress

Slot = tuple[str, int, int]  # a window of a source


def missing_document(
    plan: Any, asked: Sequence[Any] = (), reports: Sequence[Any] = (), *, diff: Any = None
) -> dict[str, Any]:
    """A list of missing windows, and what was done about it. `reports`, `diff`: of windows that are published
    together."""
    requests = {_slot(one): one for one in asked}
    results = {_slot(one): one for one in reports}

    def document(one: Any) -> dict[str, Any]:
        slot = (one.source_id, one.start_ms, one.end_ms)
        request, report = requests.get(slot), results.get(slot)
        return {
            "source_id": one.source_id,
            "dataset_id": one.dataset_id,
            "window_start": instant(one.start_ms),
            "window_end": instant(one.end_ms),
            "state": one.state,
            "why": one.why,
            "action": one.action,
            "reason": one.reason or None,
            "request_id": request.request_id if request else None,
            "request_state": request.state if request else None,
            "outcome": request.outcome if request else report.outcome if report else None,
            **(_result(report) if report else {}),
        }

    asked_for = sum(one.action == "ask" for one in plan.windows) if asked else 0
    return {
        "digest": plan.digest,
        "made_at": instant(plan.made_at_ms),
        "windows": [document(one) for one in plan.windows],
        "skipped": [document(one) for one in plan.skipped],
        "blocked_by": [{"sentence": one.sentence, "command": one.command} for one in plan.blockers],
        "asked_for": len(plan.windows) if reports and diff is None else asked_for,
        "approvals": [],
        "exit_code": 0,
    }


def _slot(one: Any) -> Slot:
    return (one.source_id, one.window_start_ms, one.window_end_ms)


def _result(report: Any) -> dict[str, Any]:
    """What became of a window that is published together with others."""
    return {
        "run_id": report.run.run_id if report.run else None,
        "version": report.sequence,
        "error": report.error.as_document() if report.error else None,
    }


def stage_of_windows(tally: Mapping[tuple[str, str], int]) -> str:
    """How far a list is."""
    return "running" if progress(dict(tally))["open"] else "done"


def window_plan_document(plan: WindowPlan, tally: Mapping[tuple[str, str], int]) -> dict[str, Any]:
    """A list, without its windows."""
    found = progress(dict(tally))
    return {
        "plan_id": plan.plan_id,
        "kind": plan.kind,
        "name": plan.name,
        "stage": stage_of_windows(tally),
        "digest": plan.digest,
        "subject": plan.subject,
        "datasets": list(plan.datasets),
        "requested_by": plan.requested_by,
        "rationale": plan.rationale,
        "made_at": instant(plan.created_at_ms),
        "entries": plan.entries,
        "done": found["done"],
        "open": found["open"],
        "in_vain": found["in_vain"],
        "left_out": plan.left_out,
    }


def window_receipt_document(one: WindowReceipt) -> dict[str, Any]:
    """A window of a list, and what has become of its request."""
    return {
        "number": one.number,
        "source_id": one.source_id,
        "dataset_id": one.dataset_id,
        "window_start": instant(one.start_ms),
        "window_end": instant(one.end_ms),
        "instant": instant(one.instant_ms),
        "was": one.was,
        "why": one.why,
        "request_id": one.request_id,
        "state": one.state,
        "outcome": one.outcome,
        "reason": one.reason,
        "run_id": one.run_id,
        "ended_at": instant(one.ended_at_ms),
    }
