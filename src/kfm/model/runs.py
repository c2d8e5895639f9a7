"""Runs: transitions by name, what is kept of every attempt, and the transactions that carry them out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from kfm.model.contracts import check_transition
from kfm.model.derived import InputPin
from kfm.model.energy import Energy
from kfm.model.errors import IllegalTransition, SchemaViolation
from kfm.model.quarantine import QuarantineEntry, RetryState
from kfm.model.records import (
    Asset,
    Found,
    GateResult,
    GovernanceEntry,
    Invocation,
    Lock,
    Node,
    NodeOutcome,
    Record,
    Run,
    RunOutcome,
    Switch,
    Trigger,
    ValidationReport,
    Work,
)

if TYPE_CHECKING:
    from kfm.model.requests import RequestOutcome, Settlement, UpdateRequest
    from kfm.model.versions import Version


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
    from kfm.model import keys  # here: readers of the ledger start without them

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


def succeeded(
    run: Run, *, version_id: str, fingerprint: str, now_ms: int, outcome: RunOutcome = "published"
) -> Run:
    check_transition("run", run.status, "success", "succeeded")
    return replace(
        run,
        status="success",
        end_time_ms=now_ms,
        version_id=version_id,
        fingerprint=fingerprint,
        outcome=outcome,
    )


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


Ending = Literal["complete", "fail", "abort"]


class Attempt(Record, frozen=True):
    """One try at a run, or at one of its nodes."""

    run_id: str
    attempt: int  # of the run; its nodes share the number
    node: str  # "" is the run as a whole
    lineage_id: str  # its OpenLineage run
    invocation_id: str
    started_at_ms: int
    delay_ms: int = 0  # since the attempt before it ended
    ended_at_ms: int | None = None
    ending: Ending | None = None  # None while it is under way
    outcome: NodeOutcome | None = None
    error_code: str | None = None
    error_class: str | None = None
    error_message: str | None = None
    retryable: bool | None = None
    inputs_hash: str | None = None
    validation: dict[str, int] | None = None
    code_sha: str | None = None
    energy: Energy | None = None


class CallRetry(Record, frozen=True):
    """One failed try of an external call, and how long was waited after it."""

    run_id: str
    attempt: int
    node: str
    call: int  # numbers the calls of the node that met trouble
    number: int  # which try of that call failed, from 1
    delay_ms: int
    error_class: str
    retryable: bool
    outcome: Literal["retried", "gave-up"]
    circuit_open: bool
    at_ms: int
    energy: Energy | None = None  # of this try; None where it was not metered by itself


class DataColumn(Record, frozen=True):
    """A field of the data, as its contract declares it."""

    name: str
    type: str
    description: str | None = None


class Code(Record, frozen=True):
    """Where the code of a node is to be found."""

    path: str  # relative to the project
    sha: str  # of its bytes, or the pinned version


class Circumstances(Record, frozen=True):
    """What the engine knows of an attempt beyond its row. All of it may be missing."""

    invocation: Invocation | None = None
    gates: tuple[GateResult, ...] = ()
    policies: str | None = None  # the bundle in force
    key_documents: dict[str, Any] = {}  # what the keys were made of: trigger, work
    inputs: tuple[Found, ...] = ()  # checksum is set where the bytes were seen
    outputs: tuple[Asset, ...] = ()
    version_id: str | None = None  # of the dataset, once promoted
    report: ValidationReport | None = None
    columns: tuple[DataColumn, ...] = ()
    code: Code | None = None
    pins: tuple[InputPin, ...] = ()  # versions of other datasets that it reads


class AttemptRecord(Record, frozen=True):
    """An attempt, and what is known about it."""

    attempt: Attempt
    known: Circumstances = Circumstances()


class LineageEvent(Record, frozen=True):
    """One event, ready to be sent. Its bytes never change."""

    event_id: str
    topic: str  # openlineage
    subject: str  # the run that it is about, or the invocation that became none
    body: str


class OutboxMessage(Record, frozen=True):
    """A row of the outbox."""

    number: int
    event_id: str
    topic: str
    subject: str
    body: str
    recorded_at_ms: int
    tries: int = 0
    not_before_ms: int = 0
    delivered_at_ms: int | None = None


class Backlog(Record, frozen=True):
    """What the outbox still has to deliver."""

    waiting: int
    oldest_ms: int | None


class ChainLink(Record, frozen=True):
    """One entry of the audit log with its place in the chain."""

    number: int  # from 1, in commit order, without a gap
    entry: GovernanceEntry
    previous: str  # hash of the entry before; 64 zeros for the first
    hash: str


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
    judged: RetryState | None = None  # of a run that begins again: what was decided about its last attempt
    grant: RetryState | None = None  # a new one, for a retry past the budget with a rationale
    approval: tuple[str, str] | None = None  # request and digest of the approval that this attempt uses up
    claim: tuple[str, str] | None = None  # the request that asks, and the worker that has claimed it
    asked: UpdateRequest | None = None  # a request that is made here: its own process works it off at once
    plan: tuple[str, str] | None = None  # digest and text of the plan that binds it
    together: tuple[Admit, ...] = ()  # others that begin with it, under its lock and fence


class AdmitResult(Record, frozen=True):
    """Whether a run was admitted; if not, what has changed since the decision."""

    answer: Literal["admitted", "moved", "locked", "epoch-moved", "unclaimed"]
    run: Run | None = None  # admitted: the row as stored; moved: the row that is there now
    together: tuple[Run, ...] = ()  # those that began with it
    lock: Lock | None = None  # locked: who holds it


class Step(Record, frozen=True):
    """One node ends and the next begins, while the run is still ours."""

    run: Run
    closes: AttemptRecord | None = None
    opens: AttemptRecord | None = None
    retries: tuple[CallRetry, ...] = ()
    fingerprint: str | None = None  # with the inputs that it was made of
    inputs: tuple[Found, ...] = ()
    act: str | None = None  # what the node that begins does outside, and must not be repeated


class PinnedInputs(Record, frozen=True):
    """What a run has read of other datasets."""

    pins: tuple[InputPin, ...]
    published: bool  # False: an input held nothing, so nothing was made


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
    version: Version | None  # None: the head already shows exactly this
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
    request_id: str | None = None  # the request that the attempt is for: not if it is cancelled
    inputs: PinnedInputs | None = None  # of a derived dataset
    found: Literal["data", "empty", "absent"] = "data"  # at upstream, for the window
    window_length: tuple[str, str] | None = None  # of the source: its id and how long its windows are
    together: tuple[Promote, ...] = ()  # others that end with the same version, under the same lock and fence
    holder: str | None = None  # the run that the lock is held for, if it is another one

    @property
    def outcome(self) -> RunOutcome:
        """What the run came to."""
        if self.found != "data":
            return self.found
        return "published" if self.version is not None else "unchanged"


class PromoteResult(Record, frozen=True):
    """Whether a version was promoted; if not, what has changed since it was prepared."""

    answer: Literal[
        "promoted", "unchanged", "lost", "epoch-moved", "head-moved", "cancelled", "withdrawn", "rewindowed"
    ]
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
    settle: Settlement | None = None  # what becomes of the requests of the run
    cancels: tuple[str, str] | None = None  # the request that ends as cancelled, and why
    retry: RetryState | None = None  # what becomes of the run
    held: QuarantineEntry | None = None  # with all that a replay needs, where it is not retried automatically
    keeps_lock: bool = False  # others go on under it


class Judge(Record, frozen=True):
    """A decision about a run that has ended already: its process died, or its time ran out."""

    run: Run
    seen: RetryState | None
    retry: RetryState
    held: QuarantineEntry | None = None
    entries: tuple[GovernanceEntry, ...] = ()
    settle: Settlement | None = None  # what becomes of the requests of the run
    answer: tuple[UpdateRequest, RequestOutcome] | None = None  # of the one that is claimed, in its own words


class Approve(Record, frozen=True):
    """A second person's yes, and what it lets happen, together or not at all."""

    request_id: str
    digest: str  # of what was asked for, as it was then
    approved_by: str
    rationale: str
    names: tuple[str, ...] = ()  # every name of the approver
    held_id: str | None = None  # what is released
    revived: str | None = None  # the request that may be tried again
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
