"""What is told about one attempt at a pass: when it begins, when a node ends, when it is over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from kfm.core.errors import UsageError
from kfm.core.evidence import Energy, Testimony
from kfm.core.keys import node_attempt_id, uuid5, uuid_bytes
from kfm.core.records import Node, Record

# Run ids that people choose need not be UUIDs; OpenLineage knows runs by nothing else.
_NAMED_RUNS = "6b3e0f5c-8f0f-5d6b-9a53-3f2f4f1d7c11"
PASS = "pass"

TryState = Literal["running", "success", "partial", "failed", "cancelled", "aborted"]


class Parent(NamedTuple):
    """The governed run that a pass is a part of."""

    job: str
    dataset_id: str


class PassTry(NamedTuple):
    """One attempt at a pass."""

    run_id: str
    pipeline_id: str
    branch: str
    attempt: int
    started_at_ms: int
    parent: Parent | None = None


class PassEnd(NamedTuple):
    """How it went. `skipped` and `failed` name nodes; all others have records that tell of them."""

    state: TryState
    ended_at_ms: int
    counts: Mapping[str, int] = {}
    skipped: Sequence[str] = ()
    failed: Sequence[str] = ()
    commit: str | None = None
    error_code: str | None = None
    error_message: str | None = None


class NodeDone(NamedTuple):
    """A node that was executed, with what only the pass knows of it."""

    node: Node
    document: bytes = b""  # what its inputs_hash was made of
    energy: Energy | None = None


class PassFigures(Record, frozen=True):
    """A row of the ledger: one attempt at a pass, and the records that it wrote."""

    run_id: str
    attempt: int
    pipeline_id: str
    branch: str
    state: TryState
    started_at_ms: int
    ended_at_ms: int | None = None
    success: int = 0
    failed: int = 0
    partial: int = 0
    skipped: int = 0
    worked_ms: int = 0  # of the nodes that were executed, one after the other
    dataset_id: str | None = None  # of the governed run that it was a part of


Left = tuple[PassTry, str]  # an attempt that nobody will end any more, and the code that says why
TestifyBegin = Callable[[PassTry, Sequence[Left]], Sequence[Testimony]]
TestifyEnd = Callable[[str | None, int], Sequence[Testimony]]  # the commit, and when


def run_uuid(run_id: str) -> str:
    """A run's id where only UUIDs are known."""
    try:
        uuid_bytes(run_id)
    except UsageError:
        return uuid5(_NAMED_RUNS, run_id)
    return run_id


def pass_id(run_id: str, attempt: int) -> str:
    """The lineage run of one attempt at a pass. A governed run has its own beside it."""
    return node_attempt_id(run_uuid(run_id), attempt, PASS)


def pass_node_id(run_id: str, attempt: int, node: str) -> str:
    """The lineage run of one node of that attempt: it executes a node once at most."""
    return uuid5(pass_id(run_id, attempt), node)
