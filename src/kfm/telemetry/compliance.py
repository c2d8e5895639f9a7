"""Does the ledger show retries as they should be? What it shows otherwise is a finding.

Three rules: every try of a retry sequence is on record; what can't get better is not tried again by
itself; nothing is tried more often than its rule says, unless a person grants it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from kfm.db.ledger_reader import every_from
from kfm.model.records import GovernanceEntry, Record, Run
from kfm.model.retry import call_policy
from kfm.model.retry_budgets import limits_of
from kfm.model.runs import Attempt, CallRetry
from kfm.model.settings import Settings
from kfm.telemetry.documents import Sequence
from kfm.telemetry.sequences import CIRCUIT_OPEN, Sequences

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader

Rule = Literal["telemetry-missing", "forbidden-class-retried", "over-maximum"]

AUTOMATIC = "kfm"  # on whose behalf an automatic attempt is made
GRANTS = ("governed-retry", "release")  # entries by which a person grants more attempts
CONFLICTS = ("governance", "rights")  # classes after which not even a person goes on just so
ANSWERS = (*GRANTS, "force", "switch")
ENTRIES_MAX = 1000
TELEMETRY_REF = "focus-telemetry.json"


class ComplianceFinding(Record, frozen=True):
    """One breach, and the records that show it."""

    rule: Rule
    message: str
    run_id: str
    dataset_id: str
    records: tuple[str, ...]  # lineage ids of attempts, ids of calls


class CheckedRun(Record, frozen=True):
    """One run that was tried again, or whose calls were."""

    run_id: str
    sequences: tuple[Sequence, ...]
    findings: tuple[ComplianceFinding, ...]


def check(ledger: LedgerReader, since_ms: int = 0, settings: Settings | None = None) -> Iterator[CheckedRun]:
    """Every retry sequence of the runs that began since then, one run at a time: there may be many."""

    def place(run: Run) -> tuple[int, str]:
        return run.start_time_ms, run.run_id

    for run in every_from((since_ms, ""), ledger.troubled_runs, place):
        yield _checked(ledger, run, settings)


def _checked(ledger: LedgerReader, run: Run, settings: Settings | None) -> CheckedRun:
    retries = ledger.retries(run.run_id)
    attempts = [one for one in ledger.attempts(run.run_id) if not one.node]
    sequences = Sequences(TELEMETRY_REF, settings)
    for attempt in attempts:
        sequences.add_attempt(attempt, run)
    for retry in retries:
        sequences.add_retry(retry, run)
    findings = (
        *_silent(run, attempts),
        *_forbidden(ledger, run, attempts),
        *_excessive(ledger, run, attempts, settings),
        *_of_calls(run, retries),
    )
    return CheckedRun(run_id=run.run_id, sequences=sequences.documents(), findings=findings)


# --- whole runs ------------------------------------------------------------------------


def _silent(run: Run, attempts: list[Attempt]) -> Iterator[ComplianceFinding]:
    """Attempts of which nothing, or too little, is on record."""
    if run.attempts < 2:
        return
    known = {one.attempt: one for one in attempts}
    missing = [number for number in range(1, run.attempts + 1) if number not in known]
    if missing:
        numbers = ", ".join(map(str, missing[:10]))
        yield _finding(
            "telemetry-missing", run, f"Of {run.attempts} attempts nothing is on record of: {numbers}.", ()
        )
    for one in attempts:
        over = one.ending is not None
        mute = over and one.ending != "complete" and (one.error_class is None or one.retryable is None)
        stale = not over and one.attempt < run.attempts
        if mute or stale:
            what = "its error is" if mute else "its end is"
            yield _finding(
                "telemetry-missing",
                run,
                f"Attempt {one.attempt} was retried, and {what} not on record.",
                [one],
            )


def _forbidden(ledger: LedgerReader, run: Run, attempts: list[Attempt]) -> Iterator[ComplianceFinding]:
    for one, again in pairwise(attempts):
        if one.retryable is not False:
            continue
        call = ledger.invocation(again.invocation_id)
        automatic = call is not None and call.claimed_actor == AUTOMATIC
        conflict = one.error_class in CONFLICTS
        if not (automatic or conflict):
            continue  # a person may have put it right, and is on record
        since_ms, until_ms = one.ended_at_ms or 0, again.started_at_ms
        allowed = ANSWERS if conflict and not automatic else GRANTS
        if not any(since_ms <= entry.recorded_at_ms <= until_ms for entry in _entries(ledger, run, allowed)):
            how = "by itself" if automatic else f"by {call.actor if call else 'an unknown person'}"
            yield _finding(
                "forbidden-class-retried",
                run,
                f"Attempt {one.attempt} failed with class {one.error_class}, which is never retried; "
                f"attempt {again.attempt} was made {how}, without a grant.",
                [one, again],
            )


def _excessive(
    ledger: LedgerReader, run: Run, attempts: list[Attempt], settings: Settings | None
) -> Iterator[ComplianceFinding]:
    if run.trigger_type == "retry":
        return
    limit = limits_of(settings, run.source_id).of(run.trigger_type).attempts_max
    refused = sum(one.error_class == CIRCUIT_OPEN for one in attempts)
    if run.attempts - refused <= limit:
        return
    grants = len(_entries(ledger, run, GRANTS))
    allowed = limit * (1 + grants)
    if run.attempts - refused > allowed:
        yield _finding(
            "over-maximum",
            run,
            f"{run.attempts - refused} attempts; {limit} are free, and the audit log has "
            f"{grants or 'no'} {'entry' if grants == 1 else 'entries'} for more.",
            attempts[allowed:] or attempts[-1:],
        )


def _entries(ledger: LedgerReader, run: Run, kinds: Iterable[str]) -> list[GovernanceEntry]:
    found = ledger.governance(subject=run.run_id, limit=ENTRIES_MAX)
    if "switch" in kinds:
        for scope in ("all", f"dataset:{run.dataset_id}"):
            found += ledger.governance(kind="switch", subject=scope, limit=ENTRIES_MAX)
    return [entry for entry in found if entry.kind in kinds]


# --- single calls ------------------------------------------------------------------------


def _of_calls(run: Run, retries: list[CallRetry]) -> Iterator[ComplianceFinding]:
    calls: dict[tuple[int, str, int], list[CallRetry]] = {}
    for retry in retries:
        calls.setdefault((retry.attempt, retry.node, retry.call), []).append(retry)
    for (attempt, node, call), tries in calls.items():
        where = f"Call {call} of {node or 'the run'} in attempt {attempt}"
        numbers = sorted(one.number for one in tries)
        # Calls made while upstream is discovered share one number: their tries start anew each time.
        if call and numbers != list(range(1, len(numbers) + 1)):
            yield _finding(
                "telemetry-missing", run, f"{where}: of its tries only {numbers} are on record.", ()
            )
        if any(not one.retryable and one.outcome == "retried" for one in tries):
            kinds = sorted({one.error_class for one in tries if not one.retryable})
            yield _finding(
                "forbidden-class-retried", run, f"{where} was retried after {', '.join(kinds)}.", ()
            )
        if numbers[-1] > call_policy().attempts_max:
            yield _finding("over-maximum", run, f"{where} was tried {numbers[-1]} times.", ())


def _finding(rule: Rule, run: Run, message: str, attempts: Iterable[Attempt]) -> ComplianceFinding:
    records = tuple(id_ for one in attempts for id_ in (one.lineage_id, one.invocation_id))
    return ComplianceFinding(
        rule=rule, message=message, run_id=run.run_id, dataset_id=run.dataset_id, records=records
    )
