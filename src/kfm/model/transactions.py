"""Transactions of the ledger: what one is asked to do, and what it answers."""

from __future__ import annotations

from typing import Any, Literal

from kfm.model.attempts import AttemptRecord, CallRetry, Circumstances
from kfm.model.quarantine import QuarantineEntry, RetryState
from kfm.model.records import (
    Found,
    GateResult,
    GovernanceEntry,
    Invocation,
    Lock,
    Manifest,
    Record,
    Run,
    Switch,
)


class Admit(Record, frozen=True):
    """Key, gate decision and lock, together or not at all."""

    run: Run  # as it shall be; the store sets the fence
    seen: Run | None  # the row that the decision was made on
    scope: str
    worker_id: str
    lease_ms: int
    invocation: Invocation
    policy_epoch: int
    entries: tuple[GovernanceEntry, ...] = ()
    known: Circumstances = Circumstances()
    grant: RetryState | None = None  # a new one, for a retry past the budget with a rationale
    approval: tuple[str, str] | None = None  # request and digest of the approval that this attempt uses up
    claim: tuple[str, str] | None = None  # the request that asks, and the worker that has claimed it


class AdmitResult(Record, frozen=True):
    """Whether a run was admitted; if not, what has changed since the decision."""

    answer: Literal["admitted", "moved", "locked", "epoch-moved", "unclaimed"]
    run: Run | None = None  # admitted: the row as stored; moved: the row that is there now
    lock: Lock | None = None  # locked: who holds it


class Step(Record, frozen=True):
    """One node ends and the next begins, while the run is still ours."""

    run: Run
    closes: AttemptRecord | None = None
    opens: AttemptRecord | None = None
    retries: tuple[CallRetry, ...] = ()
    fingerprint: str | None = None  # with the inputs that it was made of
    inputs: tuple[Found, ...] = ()


class Promote(Record, frozen=True):
    """The version, the pointer, the run's success and the lock's release, together or not at all."""

    run_id: str
    dataset_id: str
    scope: str
    fence: int
    policy_epoch: int
    base_sequence: int  # the head that the version was built on; 0: none
    fingerprint: str
    version_id: str
    manifest: Manifest | None  # None: the head already shows exactly this
    invocation_id: str
    reason: str
    reason_code: str | None = None
    gates: tuple[GateResult, ...] = ()
    entries: tuple[GovernanceEntry, ...] = ()
    states: tuple[tuple[str, Any], ...] = ()
    events: tuple[tuple[str, dict[str, Any]], ...] = ()
    closes: tuple[AttemptRecord, ...] = ()  # the open node, then the run
    retries: tuple[CallRetry, ...] = ()
    branch: str | None = None  # where a pipeline's nodes worked: merged with the promotion


class PromoteResult(Record, frozen=True):
    """Whether a version was promoted; if not, what has changed since it was prepared."""

    answer: Literal["promoted", "unchanged", "lost", "epoch-moved", "head-moved"]
    sequence: int | None = None


class Fail(Record, frozen=True):
    """A run's end without promotion."""

    run_id: str
    scope: str
    fence: int
    error_code: str
    error_message: str
    invocation_id: str
    outcome: Literal["failed", "refused"]
    gates: tuple[GateResult, ...] = ()
    entries: tuple[GovernanceEntry, ...] = ()
    pause: Switch | None = None  # a CARE or sovereignty violation pauses its dataset
    closes: tuple[AttemptRecord, ...] = ()  # the open node, then the run
    retries: tuple[CallRetry, ...] = ()
    fingerprint: str | None = None  # with the inputs that it was made of, if they were discovered
    inputs: tuple[Found, ...] = ()
    retry: RetryState | None = None  # what becomes of the run
    held: QuarantineEntry | None = None  # with all that a replay needs, where it is not retried automatically


class Judge(Record, frozen=True):
    """A decision about a run that has ended already: its process died, or its time ran out."""

    run: Run
    seen: RetryState | None
    retry: RetryState
    held: QuarantineEntry | None = None
    entries: tuple[GovernanceEntry, ...] = ()


class Approve(Record, frozen=True):
    """A second person's yes, and what it lets happen, together or not at all."""

    request_id: str
    digest: str  # of what was asked for, as it was then
    approved_by: str
    rationale: str
    names: tuple[str, ...] = ()  # every name of the approver
    held_id: str | None = None  # what is released
    update: str | None = None  # the request that may run now
    grant: RetryState | None = None
    valid_ms: int | None = None  # how long an attempt may be made
    entries: tuple[GovernanceEntry, ...] = ()


class ApproveResult(Record, frozen=True):
    """Whether an approval took effect; if not, why."""

    answer: Literal["approved", "moved", "busy"]
    lock: Lock | None = None  # busy: who works on it


class Reject(Record, frozen=True):
    """An approver's no: what was asked for can't be approved any more."""

    request_id: str
    rejected_by: str
    rationale: str
    names: tuple[str, ...] = ()  # every name of the approver who rejects
    update: str | None = None  # the request that never runs
    entries: tuple[GovernanceEntry, ...] = ()


class Reaped(Record, frozen=True):
    """A run whose holder is gone."""

    run_id: str
    scope: str
    worker_id: str
    lapsed: bool  # False: the process is known to be dead
