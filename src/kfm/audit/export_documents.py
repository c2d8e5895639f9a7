"""The documents of an export. Their schemas are made from these records."""

from __future__ import annotations

from typing import Any, Literal

from kfm.model.records import Record, RunStatus
from kfm.model.runs import Ending


class ChainEnd(Record, frozen=True):
    """How far the chain reached when a document was made."""

    number: int
    hash: str


class CareOf(Record, frozen=True):
    """What a dataset's people have asked for. A label that could name them is not shown in public."""

    label: str | None
    level: str | None


# --- pipeline_retry_log.json -----------------------------------------------------------


class LoggedCallRetry(Record, frozen=True):
    """A failed try of an external call."""

    node: str
    call: int
    number: int
    delay_ms: int
    error_class: str
    retryable: bool
    outcome: Literal["retried", "gave-up"]
    circuit_open: bool
    at: str


class RunAttempt(Record, frozen=True):
    attempt: int
    started_at: str
    ended_at: str | None
    delay_ms: int
    ending: Ending | None
    error_code: str | None
    error_class: str | None
    retryable: bool | None
    circuit_open: bool  # a provider's circuit opened in it, or was open
    calls: tuple[LoggedCallRetry, ...]


class TroubledRun(Record, frozen=True):
    """A run that did not succeed at the first try, or whose calls were tried again."""

    run_id: str
    dataset_id: str
    source_id: str
    pipeline_id: str
    care: CareOf
    masked: bool
    status: RunStatus
    error_classes: tuple[str, ...]
    attempts: tuple[RunAttempt, ...]


class RetryLog(Record, frozen=True):
    environment: str
    internal: bool
    chain: ChainEnd
    runs_total: int
    attempts_total: int
    call_retries_total: int
    runs: tuple[TroubledRun, ...]
    kfm: Literal["pipeline-retry-log/1"] = "pipeline-retry-log/1"


# --- versioning_ledger.json ------------------------------------------------------------


class VersionRow(Record, frozen=True):
    sequence: int
    version_id: str
    run_id: str
    policy_epoch: int
    promoted_at: str
    governance_entry: int | None  # the row of the chain that records it; None: there is no such row
    attempts: int | None  # that its run had needed; None: nothing is on record
    error_classes: tuple[str, ...]  # of those that failed


class DatasetVersions(Record, frozen=True):
    dataset_id: str
    care: CareOf
    masked: bool
    license: str | None
    versions: tuple[VersionRow, ...]  # the oldest first


class VersioningLedger(Record, frozen=True):
    environment: str
    internal: bool
    chain: ChainEnd
    datasets: tuple[DatasetVersions, ...]
    kfm: Literal["versioning-ledger/1"] = "versioning-ledger/1"


# --- postmortems.json, reviews.json ----------------------------------------------------


class Extract(Record, frozen=True):
    """One entry of the chain. Withheld: only that it is there, and about whom in other words."""

    number: int
    hash: str
    kind: str
    recorded_at: str
    dataset_id: str | None
    care: CareOf
    withheld: bool
    subject: str | None = None
    actor: str | None = None
    rationale: str | None = None
    ticket: str | None = None
    details: dict[str, Any] = {}


class Postmortems(Record, frozen=True):
    environment: str
    internal: bool
    chain: ChainEnd
    entries: tuple[Extract, ...]
    kfm: Literal["postmortems/1"] = "postmortems/1"


class Reviews(Record, frozen=True):
    environment: str
    internal: bool
    chain: ChainEnd
    entries: tuple[Extract, ...]
    kfm: Literal["reviews/1"] = "reviews/1"


# --- export.json -----------------------------------------------------------------------


class ExportedFile(Record, frozen=True):
    name: str
    size: int
    sha256: str


class ChainExport(Record, frozen=True):
    """What an export is, and what it holds."""

    environment: str
    internal: bool
    chain: ChainEnd
    withheld: int
    anchors: int
    anchored_number: int
    unanchored_since: int | None
    files: tuple[ExportedFile, ...]
    kfm: Literal["audit-export/1"] = "audit-export/1"
