"""The next step about a window, or about what is wrong with a dataset: the command that a person runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kfm.model.completeness import ASKED_FOR, DatasetHealth, HealthCause, WindowVerdict
from kfm.model.dataset_changes import Withdrawal, lift_command
from kfm.model.next_steps import approve_command, run_command
from kfm.model.times import rfc3339
from kfm.reports.next_steps import step_of_run

if TYPE_CHECKING:
    from kfm.datasets.completeness import DatasetCoverage
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.settings import Settings


def window_command(
    ledger: LedgerReader,
    settings: Settings,
    dataset_id: str,
    one: WindowVerdict,
    now_ms: int,
    withdrawals: Sequence[Withdrawal] = (),
) -> str | None:
    """What a person does about one window; None: nothing, it is there or goes on by itself.

    `withdrawals`: those of the dataset that are in force.
    """
    if one.state in ("failed", "quarantined") and one.run_id is not None:
        run = ledger.run(one.run_id)
        step = step_of_run(ledger, run, now_ms, settings) if run is not None else None
        if step is not None:
            return step.command
    if one.state in ASKED_FOR:
        return run_command(one.source_id, one.start_ms, one.end_ms)
    if one.state == "dismissed":
        return f"{dismiss_command(dataset_id, one)} --undo --rationale TEXT"
    if one.state == "withdrawn":
        covering = (each for each in withdrawals if each.covers(one.source_id, one.start_ms, one.end_ms))
        return next(map(lift_command, covering), None)
    if one.waiting_for == "approval" and one.request_id is not None:
        asked = ledger.approvals(state="requested", subject=one.request_id, limit=1)
        return approve_command(asked[0].request_id) if asked else f"kfm requests show {one.request_id}"
    return None


def dismiss_command(dataset_id: str, one: WindowVerdict) -> str:
    """Without the rationale."""
    window = "none" if one.is_all_time else f"{rfc3339(one.start_ms)}/{rfc3339(one.end_ms)}"
    return f"kfm dismiss {dataset_id} {window} --source {one.source_id}"


def feed_commands(dataset_id: str, one: WindowVerdict, coverage: DatasetCoverage) -> tuple[str, str] | None:
    """Of an hour of a feed, which no run brings: the listing that may fill it, and how it is dismissed
    without the rationale. None: it is a window of a source."""
    row = next((each for each in coverage.products if each.source_id == one.source_id), None)
    if row is None:
        return None
    found = (each.command for each in coverage.reconcile if each.start_ms <= one.start_ms < each.end_ms)
    platform = f" --platform {row.platform}" if row.platform else ""
    window = f"{rfc3339(one.start_ms)}/{rfc3339(one.end_ms)}"
    return next(found, ""), f"kfm dismiss {dataset_id} {window} --product {row.product}{platform}"


def cause_command(health: DatasetHealth, cause: HealthCause, *, is_feed: bool = False) -> str:
    """What a person does about one cause of how a dataset is."""
    name = health.dataset_id
    if is_feed:
        return f"kfm coverage {name} --state {cause.state}" if cause.state else f"kfm coverage {name}"
    if cause.state in ASKED_FOR:
        return f"kfm run --missing {name} --state {cause.state}"
    if cause.health == "paused":
        return {
            "schedule": "kfm schedule list",
            "freeze": "kfm config show",
            "dataset switch": f"kfm switch set running --dataset {name} --rationale TEXT",
            "all switch": "kfm switch set running --all --rationale TEXT",
        }.get(cause.code or "", "kfm switch list")
    return f"kfm run --missing {name}" if cause.health == "never" else f"kfm coverage {name}"
