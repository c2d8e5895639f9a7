"""Transitions of runs and of their nodes, by name. Each returns the next record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from kfm.model import keys
from kfm.model.contracts import check_transition
from kfm.model.errors import IllegalTransition, SchemaViolation
from kfm.model.records import Node, Run, Trigger, Work


def started(
    trigger: Trigger,
    work: Work,
    *,
    environment: str,
    revision: int,
    pipeline_id: str,
    fence: int,
    now_ms: int,
) -> Run:
    """The first attempt of a revision of some work. Its keys follow from what was asked."""
    check_transition("run", None, "running", "started")
    work_key = keys.work_key(work, revision)
    return Run(
        run_id=keys.run_id(environment, work_key),
        source_id=work.source_id,
        dataset_id=trigger.dataset_id,
        pipeline_id=pipeline_id,
        idempotency_key=keys.trigger_key(trigger, work, revision),
        work_key=work_key,
        work_base=keys.work_base(work),
        revision=revision,
        trigger_type=trigger.type,
        window_spec=work.window.spec,
        window_start_ms=work.window.start_ms,
        window_end_ms=work.window.end_ms,
        partition=work.partition,
        pipeline_version=work.output_version,
        status="running",
        attempts=1,
        fence=fence,
        start_time_ms=now_ms,
        force=trigger.force,
        correction=trigger.correction,
    )


def retried(run: Run, *, fence: int) -> Run:
    """The next attempt of a failed run. Keys and first start stay: the budget counts from there."""
    check_transition("run", run.status, "running", "retried")
    return _reopened(run, fence)


def taken_over(run: Run, *, fence: int) -> Run:
    """The next attempt of a run whose holder's lease lapsed."""
    check_transition("run", run.status, "running", "taken_over")
    return _reopened(run, fence)


def succeeded(run: Run, *, version_id: str, fingerprint: str, now_ms: int) -> Run:
    check_transition("run", run.status, "success", "succeeded")
    return replace(run, status="success", end_time_ms=now_ms, version_id=version_id, fingerprint=fingerprint)


def failed(run: Run, *, error_code: str, error_message: str, now_ms: int) -> Run:
    """The attempt ended without effect. The message is stored as given: redact it first."""
    check_transition("run", run.status, "failed", "failed")
    return replace(
        run, status="failed", end_time_ms=now_ms, error_code=error_code, error_message=error_message
    )


def _reopened(run: Run, fence: int) -> Run:
    if fence <= run.fence:
        raise IllegalTransition(f"run {run.run_id}: the fence must rise, {run.fence} → {fence}.")
    return replace(
        run,
        status="running",
        attempts=run.attempts + 1,
        fence=fence,
        end_time_ms=None,
        error_code=None,
        error_message=None,
    )


def recorded(previous: Node | None, node: Node) -> Node:
    """The record to store for this step, once it is known to be a legal successor."""
    check_summary(node.validation_summary)
    check_transition("node", previous.outcome if previous else None, node.outcome)
    if (node.outcome == "skipped") != (node.skipped_because is not None):
        raise IllegalTransition(
            f"node {node.dataset_id}: a skipped step, and no other, names the run that made its result."
        )
    return node


def check_summary(summary: Mapping[str, Any]) -> None:
    """`checks == passed + failed`, all three whole numbers from 0 upwards; more may ride along."""
    counts = [summary.get(field) for field in ("checks", "passed", "failed")]
    if not all(type(count) is int and count >= 0 for count in counts):
        raise SchemaViolation("validation_summary needs checks, passed and failed, counted from 0 upwards.")
    if summary["checks"] != summary["passed"] + summary["failed"]:
        raise SchemaViolation(
            f"validation_summary: {counts[0]} checks, but {counts[1]} passed and {counts[2]} failed."
        )
