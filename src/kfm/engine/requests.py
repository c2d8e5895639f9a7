"""What is asked of the engine and what it answers."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from kfm.core.errors import KfmError
from kfm.core.records import Check, GateResult, Run, TriggerType

Outcome = Literal["success", "noop", "failed", "refused", "busy", "planned"]


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One wish to bring one source up to date."""

    source_id: str
    window_spec: str | None = None  # None: the source's own
    trigger_type: TriggerType = "manual"
    dry_run: bool = False
    force: bool = False
    correction: str | None = None
    artifacts_dir: str | None = None
    actor: str = "unknown"
    claimed_actor: str | None = None
    rationale: str | None = None
    ticket: str | None = None
    plan_path: str | None = None
    message_id: str | None = None  # upstream-event: what it is known by
    request_uuid: str | None = None  # webhook: likewise
    envelope: dict[str, str] = {}  # webhook: what is told of it


class ProjectionReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one target shows after it was asked to show the head."""

    dataset_id: str
    target: str
    sequence: int | None
    error: dict[str, Any] | None = None


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one request."""

    outcome: Outcome
    word: str  # published | unchanged | planned | blocked | failed | busy: the word that people read
    source_id: str
    dataset_id: str
    window_start_ms: int
    window_end_ms: int
    invocation_id: str | None
    reason: str
    run: Run | None = None
    error: KfmError | None = None
    advice: str | None = None  # after a failure: what trying again means
    gates: tuple[GateResult, ...] = ()
    failed_checks: tuple[Check, ...] = ()  # of the contract, where the contract's gate refused
    changes: tuple[Any, ...] = ()  # kfm.publish.manifest.Change
    version_id: str | None = None
    sequence: int | None = None
    projections: tuple[ProjectionReport, ...] = ()
    artifacts_dir: str | None = None
    plan: Any = None  # kfm.publish.plan.Plan
    duration_ms: int = 0
