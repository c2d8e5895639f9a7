"""What a release shows of the ledger itself: JSON Lines, with public names."""

from __future__ import annotations

from typing import BinaryIO

from kfm.model.attempts import Attempt, CallRetry
from kfm.model.records import Invocation, InvocationOutcome, Record, Run, TriggerType
from kfm.telemetry.documents import document_line

RUNS, ATTEMPTS, RETRIES, CALLS = "runs.jsonl", "attempts.jsonl", "retries.jsonl", "calls.jsonl"
PIPELINES_MAX = 10_000


class PublicInvocation(Record, frozen=True):
    """A call without who made it and why: that is between them and the governance ledger."""

    invocation_id: str
    run_id: str | None
    dataset_id: str
    trigger_type: TriggerType
    outcome: InvocationOutcome | None
    requested_at_ms: int


class Exporter:
    """Writes what passes by. A run is written with its last attempt; one without any is not listed."""

    def __init__(self, streams: dict[str, BinaryIO]) -> None:
        self._streams = streams
        self.pipelines: set[tuple[str, str]] = set()  # (pipeline, version): what the runs were made with

    def attempt(self, attempt: Attempt, run: Run) -> None:
        self._write(ATTEMPTS, attempt)
        if not attempt.node:
            if len(self.pipelines) < PIPELINES_MAX:
                self.pipelines.add((run.pipeline_id, run.pipeline_version))
            if attempt.attempt == run.attempts:
                self._write(RUNS, run)

    def retry(self, retry: CallRetry, run: Run) -> None:  # noqa: ARG002 - the visitor's signature
        self._write(RETRIES, retry)

    def call(self, invocation: Invocation, dataset_id: str) -> None:
        self._write(
            CALLS,
            PublicInvocation(
                invocation_id=invocation.invocation_id,
                run_id=invocation.run_id,
                dataset_id=dataset_id,
                trigger_type=invocation.trigger_type,
                outcome=invocation.outcome,
                requested_at_ms=invocation.requested_at_ms,
            ),
        )

    def _write(self, name: str, record: Record) -> None:
        self._streams[name].write(document_line(record))
