"""What is kept of every attempt, so that a stranger can check what happened."""

from __future__ import annotations

from typing import Any, Literal

from kfm.model.records import (
    Asset,
    Found,
    GateResult,
    GovernanceEntry,
    Invocation,
    NodeOutcome,
    Record,
    ValidationReport,
)

Ending = Literal["complete", "fail", "abort"]


class Energy(Record, frozen=True):
    """What work cost, in whole small units: microwatt-hours and micrograms of CO2 equivalent."""

    cpu_us: int
    energy_uwh: int
    co2_ug: int
    assumption: str  # with which figures it was computed
    method: Literal["modelled"] = "modelled"
    package_uwh: int | None = None  # read off the processor (RAPL), all other processes included


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
    """One entry of the governance ledger with its place in the chain."""

    number: int  # from 1, in commit order, without a gap
    entry: GovernanceEntry
    previous: str  # hash of the entry before; 64 zeros for the first
    hash: str
