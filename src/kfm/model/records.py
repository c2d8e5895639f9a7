"""The records of the kernel: plain frozen values, the same in memory, on disk and on the wire."""

from collections.abc import Callable
from typing import Any, Literal, get_args

import msgspec

from kfm.model.settings import Rights
from kfm.model.times import is_all_time

TriggerType = Literal["cron", "webhook", "upstream-event", "manual", "retry"]
RunStatus = Literal["running", "success", "failed"]
InvocationOutcome = Literal["success", "noop", "failed", "refused", "busy"]
NodeOutcome = Literal["success", "failed", "partial", "skipped"]
UnitStatus = Literal["pending", "in_progress", "succeeded", "failed", "quarantined"]
UNIT_STATUSES: tuple[UnitStatus, ...] = get_args(UnitStatus)
GATE_CODES: "dict[GateCode, str]" = {
    "switch-thrown": "A kill switch is paused or stopped.",
    "frozen": "A freeze window covers this moment.",
    "rights-missing": "The dataset declares no licence or no CARE label.",
    "contract-violated": "A check of the data contract failed.",
    "contract-empty": "The data contract made no check.",
    "rule": "A policy forbids it.",
    "approval-required": "The source needs an approval, and none was given.",
    "policies-failed": "The policies could not be evaluated.",
    "dataset-unknown": "This worker knows no such dataset.",
    "older-window": "The dataset shows a newer window, which this one would replace.",
    "withdrawn": "The data was withdrawn.",
    "name-taken": "The id is a name of another dataset.",
    "window-length": "The window length in the configuration is not the one on record.",
    "window-across": "A published window of another length lies around it or across its edge.",
}
# Each as the second half of a sentence: it ran because …
REASON_CODES: "dict[ReasonCode, str]" = {
    "first-time": "this work had not been done before",
    "running": "the same work was running",
    "forced": "it was forced",
    "dataset-changed": "its source feeds another dataset now",
    "correction": "a correction asked for it",
    "correction-applied": "the correction had been applied before",
    "compared": "it was done before and upstream had to be compared",
    "attempt-failed": "an earlier attempt had failed",
    "attempt-interrupted": "an earlier attempt was interrupted",
    "budget-spent": "the attempts before it had used up its retry budget",
    "inputs-changed": "an earlier attempt had failed at other inputs",
    "bound": "an earlier revision publishes what was approved for it, or nothing",
    "acted": "an earlier attempt may have acted outside",
    "not-idempotent": "its source is not idempotent, and an earlier attempt had failed",
    "quarantined": "an earlier attempt at the same inputs is quarantined",
    "blocked": "a gate was against it",
    "unchanged": "upstream was unchanged",
    "upstream-changed": "upstream had changed",
    "other-pipeline-published": "another pipeline version had published this window since",
    "not-published": "nothing of its dataset was published",
    "description-changed": "the dataset's description or rights had changed",
    "not-shown": "its dataset showed another window",
}


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A frozen value; a changed one is made with `msgspec.structs.replace`."""


class Window(Record, frozen=True):
    """A resolved span of time, half open: start <= t < end, in ms since the epoch (UTC)."""

    start_ms: int
    end_ms: int
    spec: str  # as the person wrote it


class Work(Record, frozen=True):
    """What is done, whatever triggered it: the work key without its revision."""

    source_id: str
    window: Window
    partition: str | None
    output_version: str


class Trigger(Record, frozen=True):
    """One request to do work, of whatever kind."""

    type: TriggerType
    source_id: str
    dataset_id: str
    request_uuid: str | None = None  # webhook
    message_id: str | None = None  # upstream-event
    source_uri: str | None = None
    content_tag: str | None = None  # etag, md5 or version of the announced object
    member_keys: tuple[str, ...] = ()  # coalesced upstream events
    envelope: dict[str, str] = {}  # webhook: hash, signature, event type; nothing that it said
    force: int = 0
    correction: str | None = None
    actor: str = "unknown"
    claimed_actor: str | None = None
    rationale: str | None = None
    ticket: str | None = None


# empty: upstream has said that there is nothing · absent: nothing was found, and nothing says so
RunOutcome = Literal["published", "unchanged", "empty", "absent"]


class Run(Record, frozen=True):
    """One piece of logical work: a row of the idempotency ledger."""

    run_id: str
    source_id: str
    dataset_id: str
    pipeline_id: str
    idempotency_key: str
    work_key: str
    work_base: str  # the work key without its revision: groups the revisions of one work
    revision: int
    trigger_type: TriggerType
    window_spec: str
    window_start_ms: int
    window_end_ms: int
    partition: str | None
    pipeline_version: str
    status: RunStatus
    attempts: int
    fence: int
    start_time_ms: int
    end_time_ms: int | None = None
    fingerprint: str | None = None
    version_id: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    force: int = 0
    correction: str | None = None
    outcome: RunOutcome | None = None  # what a success came to


class Invocation(Record, frozen=True):
    """One call that asked for a run."""

    invocation_id: str
    run_id: str | None
    source_id: str
    dataset_id: str
    trigger_type: TriggerType
    idempotency_key: str
    outcome: InvocationOutcome | None  # None while it is under way
    actor: str
    requested_at_ms: int
    claimed_actor: str | None = None
    rationale: str | None = None
    ticket: str | None = None
    reason: str | None = None  # why noop, refused or busy: a sentence
    gates: "tuple[GateResult, ...]" = ()
    reason_code: str | None = None  # for programs: of REASON_CODES, or an error's code
    window_start_ms: int | None = None  # of the window that it asked for; None: of an earlier version
    window_end_ms: int | None = None


class Output(Record, frozen=True):
    """One thing that a node made."""

    name: str  # its path, relative: in the project for a file, on the branch for an object
    checksum: str  # sha256:<hex>
    size: int
    kind: Literal["object", "file"] = "object"  # in the object store, or where the node itself put it
    asset: "Asset | None" = None  # how it goes into the dataset's next version, too


class Node(Record, frozen=True):
    """One step of a run's DAG: a row of run-state."""

    dataset_id: str
    run_id: str
    lakefs_branch: str
    inputs_hash: str
    validation_summary: dict[str, Any]
    outcome: NodeOutcome
    recorded_at_ms: int
    attempt: int = 1
    output_commit: str | None = None
    outputs: tuple[Output, ...] = ()
    skipped_because: str | None = None
    code_sha: str | None = None
    pipeline_id: str | None = None
    duration_ms: int | None = None
    error_code: str | None = None
    error_message: str | None = None
    reason: str | None = None  # why it ran, or did not


class Unit(Record, frozen=True, kw_only=True, gc=False):
    """One upstream object: a row of the write-ahead ledger."""

    wal_id: str
    dataset: str
    object_uri: str
    provider: str
    queue: str
    event_time_ms: int | None
    time_range_start_ms: int | None
    time_range_end_ms: int | None
    status: UnitStatus
    attempts: int
    last_attempt_at_ms: int | None = None
    last_error_code: str | None = None
    last_error_message: str | None = None
    integrity_status: Literal["unknown", "ok", "suspect", "failed"] = "unknown"
    metadata_status: Literal["unknown", "ok", "suspect", "failed"] = "unknown"
    stac_status: Literal["unknown", "created", "updated", "no-op", "failed"] = "unknown"
    provenance_status: Literal["unknown", "ok", "partial", "failed"] = "unknown"
    stac_item_id: str | None = None
    stac_collection_id: str | None = None
    stac_item_href: str | None = None
    ingest_run_id: str | None = None
    worker_id: str | None = None
    replay_reason: str | None = None
    created_at_ms: int
    updated_at_ms: int
    version: int
    extra: dict[str, Any] = {}


class Found(Record, frozen=True):
    """One upstream object, as discovery saw it. At least one of the last four identifies its content."""

    uri: str
    path: str  # where it will stand in the dataset, relative, no ".."
    media_type: str
    size: int | None = None
    modified_ms: int | None = None
    etag: str | None = None
    checksum: str | None = None  # sha256:<hex>
    version: str | None = None
    origin: str | msgspec.UnsetType = msgspec.UNSET  # the address that answered, where `uri` redirects there


class ObjectStat(Record, frozen=True):
    """One object of a bucket, as a listing tells."""

    key: str
    size: int
    modified_ms: int | None = None
    etag: str | None = None
    version: str | None = None


class StoredObject(Record, frozen=True):
    """One object of the object store, and when it was last staged."""

    sha256: str
    size: int
    modified_ms: int


class Fetched(Record, frozen=True):
    """One upstream object whose bytes are staged."""

    found: Found
    sha256: str  # bare hex
    size: int


class Asset(Record, frozen=True):
    """One published file."""

    path: str
    sha256: str
    size: int
    media_type: str
    source_uri: str | None = None
    modified_ms: int | None = None
    roles: tuple[str, ...] = ("data",)


class PublishedRun(Record, frozen=True):
    """The run that made an item, as far as it may be published: no time of ours, no names of people."""

    dataset_id: str
    run_id: str
    lakefs_branch: str
    inputs_hash: str
    validation_summary: dict[str, int]  # checks, passed, failed
    outcome: NodeOutcome
    code_sha: str  # the pipeline's version


class Item(Record, frozen=True):
    """What one piece of work contributes to a dataset: becomes one STAC item."""

    id: str
    source_id: str
    window_start_ms: int
    window_end_ms: int
    partition: str | None
    assets: tuple[Asset, ...]
    bbox: tuple[str, str, str, str] | None = None  # decimal text: hashed documents hold no floats
    # Unset in what was published before it was kept: those bytes, and so their versions' ids, stay the same.
    run_state: PublishedRun | msgspec.UnsetType = msgspec.UNSET
    # Of a source without windows: the oldest and the newest time of what it was made from.
    as_of: tuple[int, int] | msgspec.UnsetType = msgspec.UNSET

    @property
    def is_snapshot(self) -> bool:
        """Is it the one item of a source without windows?"""
        return is_all_time(self.window_start_ms, self.window_end_ms)

    @property
    def interval_ms(self) -> tuple[int, int]:
        """The first and the last instant that it tells of: windows are half open."""
        if self.is_snapshot and not isinstance(self.as_of, msgspec.UnsetType):
            return self.as_of
        return self.window_start_ms, max(self.window_start_ms, self.window_end_ms - 1)


class Manifest(Record, frozen=True):
    """One whole version of a dataset. Its hash is the version's id."""

    dataset_id: str
    title: str
    description: str
    domain: str
    keywords: tuple[str, ...]
    rights: Rights
    items: tuple[Item, ...]  # sorted by id


class Promotion(Record, frozen=True):
    """The pointer: the newest row of a dataset is its head."""

    dataset_id: str
    sequence: int
    version_id: str
    run_id: str  # what made it: the run; of a rollback, withdrawal or retirement the id of that change
    fence: int
    policy_epoch: int
    promoted_at_ms: int


# In the audit log: a run whose window was promoted with the version of another run.
PROMOTED_TOGETHER = "promoted-together"


def is_promotion_of(promotion: Promotion, run: "Run") -> bool:
    """Has this promotion published what the run has made? Runs that are promoted together end in its
    transaction, at its time."""
    if promotion.run_id == run.run_id:
        return True
    with_it = (promotion.dataset_id, promotion.version_id, promotion.promoted_at_ms)
    return run.outcome == "published" and with_it == (run.dataset_id, run.version_id, run.end_time_ms)


class Holder(Record, frozen=True):
    """Who holds a lock. `worker_id` is new at each process start and names no host."""

    worker_id: str
    run_id: str


class Lock(Record, frozen=True):
    """A lease on a dataset or a domain. The fence only grows."""

    scope: str  # "dataset:ID" or "domain:ID"
    fence: int
    holder: Holder | None
    acquired_at_ms: int
    lease_until_ms: int


class Switch(Record, frozen=True):
    """A kill switch. Scope is "all", "domain:ID" or "dataset:ID"."""

    scope: str
    position: Literal["running", "paused", "stopped"]
    rationale: str
    actor: str
    set_at_ms: int


class GateResult(Record, frozen=True):
    """What one gate said, and which policies decided.

    A refusal is told by its fields; `reason` is the sentence made of them, for readers. Rows of earlier
    versions have the sentence only.
    """

    gate: str  # switch | freeze | policy | rights | contract | plan
    allowed: bool
    reason: str
    policy_ids: tuple[str, ...] = ()
    overridable: bool = False  # may --force pass it?
    overridden: bool = False
    halts: bool = False  # a CARE or sovereignty violation: halt, pause, review
    code: str | msgspec.UnsetType = msgspec.UNSET  # of GATE_CODES
    cause: str | msgspec.UnsetType = msgspec.UNSET  # what refuses it, and why
    remedy: str | msgspec.UnsetType = msgspec.UNSET  # who can lift it, and how
    command: str | msgspec.UnsetType = msgspec.UNSET  # that lifts it, or asks for that
    until_ms: int | msgspec.UnsetType = msgspec.UNSET  # when it ends by itself


class GovernanceEntry(Record, frozen=True):
    """One line of the audit log."""

    kind: str  # gate-refused, force, switch, halt-review, postmortem, promotion, gc, …
    subject: str  # run id, dataset id, scope
    actor: str
    recorded_at_ms: int
    rationale: str | None = None
    ticket: str | None = None
    details: dict[str, Any] = {}


class Justification(Record, frozen=True):
    """Who decides something, and for what reason, without secrets: becomes part of a governance entry."""

    actor: str
    rationale: str | None = None
    ticket: str | None = None
    claimed_actor: str | msgspec.UnsetType | None = msgspec.UNSET  # unset: none can be given, none is entered


BY_KFM = Justification(actor="kfm")  # what it decided by itself


def justified(
    redact: Callable[[str], str],
    actor: str,
    rationale: str | None,
    ticket: str | None = None,
    claimed_actor: str | None = None,
) -> Justification:
    """What a person gave as reasons, redacted: it is kept for good."""
    return Justification(
        actor=actor,
        rationale=rationale and redact(rationale),
        ticket=ticket and redact(ticket),
        claimed_actor=claimed_actor and redact(claimed_actor),
    )


def governance_entry(
    kind: str, subject: str, at_ms: int, by: Justification, /, **details: Any
) -> GovernanceEntry:
    """The governance entry of a decision: a person's, or kfm's own."""
    claimed = {} if by.claimed_actor is msgspec.UNSET else {"claimed_actor": by.claimed_actor}
    return GovernanceEntry(
        kind=kind,
        subject=subject,
        actor=by.actor,
        recorded_at_ms=at_ms,
        rationale=by.rationale,
        ticket=by.ticket,
        details={**details, **claimed},
    )


class Check(Record, frozen=True):
    """One check of a data contract on staged bytes."""

    name: str
    passed: bool
    detail: str
    path: str | None = None
    sample: tuple[str, ...] = ()


class ValidationReport(Record, frozen=True):
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    def summary(self) -> dict[str, int]:
        passed = sum(check.passed for check in self.checks)
        return {"checks": len(self.checks), "passed": passed, "failed": len(self.checks) - passed}


GateCode = Literal[
    "switch-thrown",
    "frozen",
    "rights-missing",
    "contract-violated",
    "contract-empty",
    "rule",
    "approval-required",
    "policies-failed",
    "dataset-unknown",
    "older-window",
    "withdrawn",
    "name-taken",
    "window-length",
    "window-across",
]

ReasonCode = Literal[
    "first-time",
    "running",
    "forced",
    "dataset-changed",
    "correction",
    "correction-applied",
    "compared",
    "attempt-failed",
    "attempt-interrupted",
    "budget-spent",
    "inputs-changed",
    "bound",
    "acted",
    "not-idempotent",
    "quarantined",
    "blocked",
    "unchanged",
    "upstream-changed",
    "other-pipeline-published",
    "not-published",
    "description-changed",
    "not-shown",
]


class ReopenReason(Record, frozen=True):
    """Why work is opened again: a code for programs, a sentence for readers."""

    code: ReasonCode
    text: str


def half(code: str | None) -> str | None:
    """A recorded code as the second half of a sentence; None: an error's code, or none was recorded."""
    return REASON_CODES.get(code) if code else None  # type: ignore[call-overload]
