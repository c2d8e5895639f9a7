"""The telemetry documents of a release, field by field. Their JSON Schemas are made from these records.

Figures with a fraction are decimals with six places, printed as plain numbers (0.000480): the same
digits on every machine, never an exponent. Times are RFC 3339 in UTC and come from the ledger.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec

from kfm.model.energy import divided_half_up, fixed_point
from kfm.model.records import Record

PLACES = 6
_ENCODER = msgspec.json.Encoder(decimal_format="number")
NO_INGEST = "no ingest worker has recorded anything"
COUNTERS = "counters of the ledger of units, since it began"

Count = Annotated[int, msgspec.Meta(ge=0)]
Amount = Annotated[Decimal, msgspec.Meta(description="A number with six decimal places.")]


def amount(millionths: int) -> Decimal:
    """µWh as Wh, µg as g. Six places never need an exponent."""
    return Decimal(fixed_point(millionths, PLACES))


def share(part: int, whole: int) -> Decimal | None:
    """A part of a whole from 0.000000 to 1.000000, rounded half up; None of nothing."""
    return amount(divided_half_up(part * 10**PLACES, whole)) if whole else None


def document_bytes(document: Any) -> bytes:
    """Indented JSON in the order of the fields, with a line feed at the end."""
    return msgspec.json.format(_ENCODER.encode(document), indent=2) + b"\n"


def document_line(document: Any) -> bytes:
    """The same on one line, for JSON Lines."""
    return _ENCODER.encode(document) + b"\n"


Method = Literal["modelled", "unmetered"]  # unmetered: no figure, because nothing of it was metered


class Cost(Record, frozen=True):
    """What work cost. `unmetered` attempts are not in it: they died before they were metered, or are of a
    kind that is not. Where none was metered there is no figure."""

    energy_wh: Amount | None
    co2_g: Amount | None
    method: Method = "modelled"
    assumptions: tuple[str, ...] = ()
    metered: Count = 0
    unmetered: Count = 0


class Durations(Record, frozen=True):
    """Of attempts that have ended. Percentiles by nearest rank: each is a duration that occurred."""

    count: Count
    min_ms: Count | None = None
    p50_ms: Count | None = None
    p90_ms: Count | None = None
    p95_ms: Count | None = None
    p99_ms: Count | None = None
    max_ms: Count | None = None


class Period(Record, frozen=True):
    """What was asked for (both may be missing; `until` is not included) and what was found in it."""

    since: str | None
    until: str | None
    first: str | None  # the first recorded event
    last: str | None


class Calls(Record, frozen=True):
    """Calls that asked for runs, by how they were answered."""

    success: Count = 0
    noop: Count = 0
    failed: Count = 0
    refused: Count = 0
    busy: Count = 0
    in_progress: Count = 0


class RunsDocument(Record, frozen=True):
    """Attempts of runs. `error_rate` is fail / (complete + fail + abort)."""

    attempts: Count
    complete: Count
    fail: Count
    abort: Count
    in_progress: Count
    error_rate: Amount | None
    retries: Count  # attempts after the first of their run
    call_retries: Count  # external calls that were tried again inside an attempt
    latency: Durations
    calls: Calls
    cost: Cost
    retry_cost: Cost  # the part of it that attempts after the first have


class DatasetRuns(Record, frozen=True):
    dataset_id: str
    runs: RunsDocument


class UpdaterTelemetry(Record, frozen=True, kw_only=True):
    """How the runs went."""

    schema: Literal["urn:kfm:schema:telemetry-updater"] = "urn:kfm:schema:telemetry-updater"
    release: str
    environment: str
    period: Period
    total: RunsDocument
    datasets: tuple[DatasetRuns, ...]


class Writes(Record, frozen=True):
    """Records of nodes, by outcome."""

    success: Count = 0
    failed: Count = 0
    partial: Count = 0
    skipped: Count = 0
    none: Count = 0  # ended without an outcome: stopped from outside
    in_progress: Count = 0


class NodeWrites(Record, frozen=True):
    node: str
    writes: Writes
    executed: Count  # success, failed and partial
    skipped: Count
    durations: Durations
    cost: Cost


class DatasetNodes(Record, frozen=True):
    dataset_id: str
    nodes: tuple[NodeWrites, ...]


class PipelineWrites(Record, frozen=True):
    """Records that passes over one pipeline's nodes wrote, each as it was written.

    `skip_rate` is the part of them that says that nothing had to be done.
    """

    pipeline_id: str
    passes: dict[str, Count]  # attempts at passes, by how they ended
    writes: Writes
    executed: Count  # success, failed and partial
    skipped: Count
    skip_rate: Amount | None
    worked_ms: Count  # of executed nodes, added up


class PatternsTelemetry(Record, frozen=True, kw_only=True):
    """What was written about nodes, and what nodes cost."""

    schema: Literal["urn:kfm:schema:telemetry-patterns"] = "urn:kfm:schema:telemetry-patterns"
    release: str
    environment: str
    period: Period
    nodes: tuple[NodeWrites, ...]
    datasets: tuple[DatasetNodes, ...]
    pipelines: tuple[PipelineWrites, ...]


class SequenceTry(Record, frozen=True):
    """One try within a retry sequence.

    `delay_ms` is how long was waited after it; energy and carbon are null, and `method` is `unmetered`, where
    the processor time of the try was not metered by itself (a pipeline's own calls are not: theirs is within
    their node's).
    """

    pipeline_id: str
    stage_name: str
    attempt: Annotated[int, msgspec.Meta(ge=1)]
    delay_ms: Count
    error_class: str | None
    retryable: bool | None
    outcome: Literal["success", "failure", "aborted", "in-progress"]
    circuit_open: bool
    energy_wh: Amount | None = None
    co2_g: Amount | None = None
    method: Method = "modelled"
    assumption: str | None = None


class Compliance(Record, frozen=True):
    """One retry sequence in one line: what was tried, by which rule, and how it ended.

    Energy and carbon are what retrying added: the first try would have been made anyway. `method` is
    `unmetered` where that is not known.
    """

    pipeline_id: str
    stage: str
    attempts: Annotated[int, msgspec.Meta(ge=1)]
    retry_policy: Literal["exp_full_jitter", "exp_half_jitter", "ladder_half_jitter"]
    errors: tuple[str, ...]
    final_status: Literal["success", "failure", "aborted", "in-progress"]
    circuit_open: bool
    energy_wh: Amount | None
    co2_g: Amount | None
    telemetry_ref: str
    method: Method = "modelled"
    assumptions: tuple[str, ...] = ()


class Sequence(Record, frozen=True):
    """A run that was tried again, or an external call that was."""

    run_id: str
    dataset_id: str
    tier: Literal["run", "call"]
    tries: tuple[SequenceTry, ...]
    compliance: Compliance


class FocusTelemetry(Record, frozen=True, kw_only=True):
    """Every retry sequence."""

    schema: Literal["urn:kfm:schema:telemetry-focus"] = "urn:kfm:schema:telemetry-focus"
    release: str
    environment: str
    period: Period
    sequences: tuple[Sequence, ...]
    error_classes: dict[str, Count]
    cost: Cost  # of attempts of runs after the first


class UnitCounts(Record, frozen=True):
    pending: Count = 0
    in_progress: Count = 0
    succeeded: Count = 0
    failed: Count = 0
    quarantined: Count = 0


class DatasetUnitsDocument(Record, frozen=True):
    dataset_id: str
    wal_records_total: UnitCounts
    wal_replays_total: Count
    replay_mismatch_total: Count


class IngestTelemetry(Record, frozen=True, kw_only=True):
    """Units of the write-ahead ledger. `source` is where the figures are from."""

    schema: Literal["urn:kfm:schema:telemetry-nodd-sns"] = "urn:kfm:schema:telemetry-nodd-sns"
    release: str
    environment: str
    period: Period
    source: str
    wal_records_total: UnitCounts
    wal_replays_total: Count
    replay_mismatch_total: Count
    wal_attempts_histogram: dict[str, Count]  # attempts → units
    datasets: tuple[DatasetUnitsDocument, ...]
    cost: Cost


class EnergyOf(Record, frozen=True):
    dataset_id: str
    energy_wh: Amount | None
    retries_wh: Amount | None
    nodes_wh: dict[str, Amount | None]


class EnergyAccount(Record, frozen=True, kw_only=True):
    """The energy of runs; that of their nodes is within it, as is that of attempts after the first.

    Null: there was work, and none of it was metered. Units of the write-ahead ledger are not in it.
    """

    schema: Literal["urn:kfm:schema:energy"] = "urn:kfm:schema:energy"
    release: str
    environment: str
    period: Period
    energy_wh: Amount | None
    retries_wh: Amount | None
    assumptions: tuple[str, ...]
    metered: Count
    unmetered: Count
    datasets: tuple[EnergyOf, ...]
    package_wh: Amount | None = None  # read off the processor, whatever else ran on it; None: not readable
    method: Method = "modelled"


class CarbonOf(Record, frozen=True):
    dataset_id: str
    co2_g: Amount | None
    retries_g: Amount | None
    nodes_g: dict[str, Amount | None]


class CarbonAccount(Record, frozen=True, kw_only=True):
    """Grams of CO2 equivalent that go with the energy, by the declared intensity of the grid."""

    schema: Literal["urn:kfm:schema:carbon"] = "urn:kfm:schema:carbon"
    release: str
    environment: str
    period: Period
    co2_g: Amount | None
    retries_g: Amount | None
    assumptions: tuple[str, ...]
    metered: Count
    unmetered: Count
    datasets: tuple[CarbonOf, ...]
    method: Method = "modelled"
