"""The ledgers of an export: what was tried again, what was promoted, what was reviewed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kfm.audit.public import Curtain
from kfm.audit.shapes import (
    CallRetry,
    CareOf,
    ChainEnd,
    DatasetVersions,
    Extract,
    RetryLog,
    RunAttempt,
    TroubledRun,
    VersioningLedger,
    VersionRow,
)
from kfm.core.evidence import Attempt, Link, Retry
from kfm.core.paging import every
from kfm.core.records import Run
from kfm.core.times import rfc3339
from kfm.ports import LedgerReader

PAGE_ROWS = 1000
CIRCUIT_OPEN = "circuit-open"
PROMOTIONS_MAX = 10_000_000
POSTMORTEM_KINDS = frozenset({"postmortem"})
REVIEW_KINDS = frozenset({"review", "halt-review", "halt"})


# --- what was tried again --------------------------------------------------------------


def retry_log(
    ledger: LedgerReader, curtain: Curtain, *, environment: str, internal: bool, chain: ChainEnd
) -> RetryLog:
    """Every run that did not succeed at the first try, or whose calls were tried again."""
    calls: dict[str, list[Retry]] = {}
    for retry in _all_retries(ledger):
        calls.setdefault(retry.run_id, []).append(retry)
    runs: dict[str, Run] = {}
    attempts: dict[str, list[Attempt]] = {}
    total = 0
    for attempt, run in _all_attempts(ledger):
        runs[run.run_id] = run
        total += attempt.node == ""
        attempts.setdefault(run.run_id, []).append(attempt)
        if attempt.node == "" and _is_calm(attempts[run.run_id]) and run.run_id not in calls:
            attempts[run.run_id] = attempts[run.run_id][:1]
    troubled = [
        _troubled(run, attempts[run_id], calls.get(run_id, []), curtain)
        for run_id, run in runs.items()
        if run_id in calls or not _is_calm(attempts[run_id])
    ]
    return RetryLog(
        environment=environment,
        internal=internal,
        chain=chain,
        runs_total=len(runs),
        attempts_total=total,
        call_retries_total=sum(map(len, calls.values())),
        runs=tuple(troubled),
    )


def _is_calm(attempts: Iterable[Attempt]) -> bool:
    return all(one.attempt == 1 and one.ending in (None, "complete") for one in attempts)


def _troubled(run: Run, attempts: list[Attempt], calls: list[Retry], curtain: Curtain) -> TroubledRun:
    classes = {one.error_class for one in attempts} | {one.error_class for one in calls}
    return TroubledRun(
        run_id=run.run_id,
        dataset_id=curtain.name(run.dataset_id),
        source_id=curtain.name(run.dataset_id, run.source_id),
        pipeline_id=curtain.name(run.dataset_id, run.pipeline_id),
        care=curtain.care(run.dataset_id),
        masked=curtain.hides(run.dataset_id),
        status=run.status,
        error_classes=tuple(sorted(one for one in classes if one)),
        attempts=tuple(
            _attempt(one, [call for call in calls if call.attempt == one.attempt])
            for one in attempts
            if one.node == ""
        ),
    )


def _attempt(one: Attempt, calls: list[Retry]) -> RunAttempt:
    return RunAttempt(
        attempt=one.attempt,
        started_at=rfc3339(one.started_at_ms),
        ended_at=None if one.ended_at_ms is None else rfc3339(one.ended_at_ms),
        delay_ms=one.delay_ms,
        ending=one.ending,
        error_code=one.error_code,
        error_class=one.error_class,
        retryable=one.retryable,
        circuit_open=one.error_class == CIRCUIT_OPEN or any(call.circuit_open for call in calls),
        calls=tuple(
            CallRetry(
                node=call.node,
                call=call.call,
                number=call.number,
                delay_ms=call.delay_ms,
                error_class=call.error_class,
                retryable=call.retryable,
                outcome=call.outcome,
                circuit_open=call.circuit_open,
                at=rfc3339(call.at_ms),
            )
            for call in calls
        ),
    )


def _all_attempts(ledger: LedgerReader) -> Iterator[tuple[Attempt, Run]]:
    return ((attempt, run) for _, attempt, run in every(ledger.attempts_since))


def _all_retries(ledger: LedgerReader) -> Iterator[Retry]:
    return (retry for _, retry in every(ledger.retries_since))


# --- what was promoted -----------------------------------------------------------------


def versioning_ledger(
    ledger: LedgerReader,
    curtain: Curtain,
    promoted: dict[tuple[str, str], int],
    *,
    environment: str,
    internal: bool,
    chain: ChainEnd,
) -> VersioningLedger:
    """Every version of every dataset; `promoted` leads from (run, version) to the chain's row."""
    found = []
    for head in ledger.heads():
        rights = curtain.rights(head.dataset_id)
        versions = [
            VersionRow(
                sequence=one.sequence,
                version_id=one.version_id,
                run_id=one.run_id,
                policy_epoch=one.policy_epoch,
                promoted_at=rfc3339(one.promoted_at_ms),
                governance_entry=promoted.get((one.run_id, one.version_id)),
                **_effort(ledger, one.run_id),
            )
            for one in reversed(ledger.promotions(head.dataset_id, limit=PROMOTIONS_MAX))
        ]
        found.append(
            DatasetVersions(
                dataset_id=curtain.name(head.dataset_id),
                care=curtain.care(head.dataset_id),
                masked=curtain.hides(head.dataset_id),
                license=rights.license if rights is not None else None,
                versions=tuple(versions),
            )
        )
    return VersioningLedger(
        environment=environment,
        internal=internal,
        chain=chain,
        # By the name that is shown: the order of the ids would tell about the hidden ones.
        datasets=tuple(sorted(found, key=lambda one: one.dataset_id)),
    )


def _effort(ledger: LedgerReader, run_id: str) -> dict[str, Any]:
    """How often a promoted run had been tried, and with which errors."""
    run = ledger.run(run_id)
    if run is None:
        return {"attempts": None, "error_classes": ()}
    if run.attempts == 1:
        return {"attempts": 1, "error_classes": ()}
    failed = {one.error_class for one in ledger.attempts(run_id) if one.node == "" and one.error_class}
    return {"attempts": run.attempts, "error_classes": tuple(sorted(failed))}


# --- what was reviewed -----------------------------------------------------------------


def extract(one: Link, curtain: Curtain) -> Extract:
    entry, dataset_id = one.entry, curtain.dataset_of(one.entry)
    withheld = curtain.withholds(entry)
    told = {} if withheld else {
        "subject": entry.subject,
        "actor": entry.actor,
        "rationale": entry.rationale,
        "ticket": entry.ticket,
        "details": entry.details,
    }  # fmt: skip
    return Extract(
        number=one.number,
        hash=one.hash,
        kind=entry.kind,
        recorded_at=rfc3339(entry.recorded_at_ms),
        dataset_id=None if dataset_id is None else curtain.name(dataset_id),
        care=CareOf(label=None, level=None) if dataset_id is None else curtain.care(dataset_id),
        withheld=withheld,
        **told,  # type: ignore[arg-type]
    )
