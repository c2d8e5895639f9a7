"""Explains how a run was attempted, and which attempts are still to come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kfm.model.attempts import Attempt, CallRetry
from kfm.model.quarantine import RetryState
from kfm.model.records import Run
from kfm.model.retry import policy_for, retry_rules
from kfm.model.retry_budgets import budget_ends_ms, grant_usage
from kfm.model.wording import counted, duration, moment
from kfm.reports.explain.sentences import Sentence, of_attempt, of_row, of_run

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader

SHOWN_MAX = 20
TRIES_SHOWN_MAX = 10
REAPED = ("WORKER_DIED", "LEASE_EXPIRED")
_WHY_THEN = {
    "retry-after": "because upstream asked for that much time",
    "circuit-open": "because its provider's circuit is open until then",
    "granted": "because it was granted new attempts",
    "next-run": "together with the next run of its schedule, which its retries never overlap",
}
_WHY_NOT = {
    "non-retryable": "its error is of a class that trying again does not cure",
    "attempts-spent": "its attempts are used up",
    "budget-spent": "the time of its budget is over",
    "retry-after-exceeds-budget": "upstream asked for more time than its budget has",
    "not-idempotent": (
        "its source is declared `idempotent: false`; where doing it twice does no more harm than doing it "
        "once, say `idempotent: true`"
    ),
    "acted": (
        "its pipeline made a call that is declared idempotent=False; where doing that twice does no more "
        "harm than doing it once, say kfm.call(…, idempotent=True)"
    ),
    "stopped": "it was stopped by a person",
    "superseded": "a newer revision of the same work has begun",
    "source-gone": "its source is not in the configuration any more",
    "code-changed": "its pipeline has changed since, and with the new code it is other work",
    "dataset-changed": "its source feeds another dataset now",
}


def approved(ledger: LedgerReader, run: Run) -> list[Sentence]:
    """Who let each attempt begin that needed a second person."""
    known = ledger.approvals(state="approved", subject=run.work_base, limit=1000)
    return [
        of_attempt(
            f"Attempt {one.used_attempt} was approved by {one.approved_by} at "
            f"{moment(one.approved_at_ms or 0)} ({one.approval_rationale}), asked for by {one.requested_by} "
            f"({one.rationale}): request {one.request_id}.",
            run.run_id,
            one.used_attempt or 0,
            "",
        )
        for one in sorted(known, key=lambda one: one.used_attempt or 0)
        if one.used_by == run.run_id
    ]


def tried(run: Run, rows: Sequence[Attempt]) -> list[Sentence]:
    """One sentence for each attempt at the run."""
    whole = [row for row in rows if row.node == ""]
    if not whole:
        count = counted(run.attempts, "attempt")
        return [of_run(f"No evidence of how it was tried: its row counts {count}, none is on record.", run)]
    sentences = [of_row(attempt_text(row, rows), row) for row in whole[-SHOWN_MAX:]]
    if len(whole) > SHOWN_MAX:
        sentences.insert(0, of_run(f"{counted(len(whole) - SHOWN_MAX, 'earlier attempt')} not shown.", run))
    return sentences


def attempt_text(row: Attempt, rows: Sequence[Attempt] = ()) -> str:
    """When it began, how it ended, and where."""
    what = f"Node {row.node} of attempt {row.attempt}" if row.node else f"Attempt {row.attempt}"
    waited = f", {duration(row.delay_ms)} after the one before had ended," if row.delay_ms else ""
    return f"{what} began at {moment(row.started_at_ms)}{waited}{_ending(row, rows)}"


def _ending(row: Attempt, rows: Sequence[Attempt]) -> str:
    if row.ending is None or row.ended_at_ms is None:
        return "; no evidence of its end yet."
    took = f"after {duration(max(0, row.ended_at_ms - row.started_at_ms))}"
    if row.ending == "complete":
        skipped = ", skipped" if row.outcome == "skipped" else ""
        return f" and completed {took}{skipped}."
    nodes = [each.node for each in rows if each.attempt == row.attempt and each.node]
    place = f" in node {nodes[-1]}" if row.node == "" and nodes else ""
    code = row.error_code or "no code"
    kind = f", class {row.error_class}" if row.error_class else ""
    if row.error_code in REAPED:
        cause = "its process was gone" if row.error_code == "WORKER_DIED" else "its lease had run out"
        return f" and was killed{place}; the reaper ended it at {moment(row.ended_at_ms)}: {cause} ({code})."
    word = "was stopped" if row.ending == "abort" else "failed"
    return f" and {word} {took}{place}: {code}{kind}."


def retried(run: Run, rows: Sequence[Attempt], retries: Sequence[CallRetry]) -> list[Sentence]:
    """The call tier: one sentence for each call that met trouble."""
    calls: dict[tuple[int, str, int], list[CallRetry]] = {}
    for retry in retries:
        calls.setdefault((retry.attempt, retry.node, retry.call), []).append(retry)
    sentences = []
    for (attempt, node, _), tries in list(calls.items())[:SHOWN_MAX]:
        sentences.append(of_attempt(_tries_text(attempt, node, tries), run.run_id, attempt, node))
    if len(calls) > SHOWN_MAX:
        more = counted(len(calls) - SHOWN_MAX, "more call")
        sentences.append(of_run(f"{more} met trouble.", run))
    if not calls and rows:
        sentences.append(of_run("No evidence of a call that was tried again.", run))
    return sentences


def _tries_text(attempt: int, node: str, tries: Sequence[CallRetry]) -> str:
    where = f"node {node}" if node else "the run"
    again = [each for each in tries if each.outcome == "retried"]
    if not again:
        opened = ", and its provider's circuit is open since" if tries[-1].circuit_open else ""
        last = tries[-1].error_class
        return f"In attempt {attempt}, {where}, a call was not tried again after {last}{opened}."
    shown = [
        f"{each.error_class}, then {duration(each.delay_ms)} of waiting" for each in again[:TRIES_SHOWN_MAX]
    ]
    if len(again) > TRIES_SHOWN_MAX:
        shown.append(f"and {len(again) - TRIES_SHOWN_MAX} more")
    end = next((f"; it gave up on {each.error_class}" for each in tries if each.outcome == "gave-up"), "")
    times = counted(len(again), "time")
    return f"In attempt {attempt}, {where}, a call was retried {times}: {'; '.join(shown)}{end}."


def cost(run: Run, rows: Sequence[Attempt]) -> list[Sentence]:
    """What each attempt used, as modelled."""
    sentences = []
    assumption = ""
    for row in [each for each in rows if each.energy is not None][-SHOWN_MAX:]:
        energy = row.energy
        assert energy is not None
        what = f"Node {row.node} of attempt {row.attempt}" if row.node else f"Attempt {row.attempt}"
        said = (
            f"{what} used {energy.cpu_us / 1_000_000:.3f} s of processor time; modelled cost "
            f"{energy.energy_uwh:,} µWh and {energy.co2_ug:,} µg CO2e."
        )
        if energy.assumption != assumption:
            assumption = energy.assumption
            said += f" {assumption}"
        sentences.append(of_row(said, row))
    if not sentences and rows:
        sentences.append(of_run("No evidence of what it cost.", run))
    return sentences


def ahead(ledger: LedgerReader, run: Run, now_ms: int) -> list[Sentence]:
    if run.status == "success":
        return []
    state = ledger.retry_state(run.run_id)
    sentences = [_attempts(run, state), _budget(run, state, now_ms)]
    if run.status == "failed":
        sentences.append(_next(run, state, now_ms))
    return [of_run(text, run) for text in sentences]


def _attempts(run: Run, state: RetryState | None) -> str:
    used, limit = grant_usage(run, state), policy_for(run.trigger_type).attempts_max
    left = max(0, limit - used.attempts)
    return (
        f"Of grant {used.grants} (at most {retry_rules().grants_max} are given) {used.attempts} of "
        f"{counted(limit, 'attempt')} are used and {left} left; what a breaker refused is not counted."
    )


def _budget(run: Run, state: RetryState | None, now_ms: int) -> str:
    since_ms, ends_ms = grant_usage(run, state).since_ms, budget_ends_ms(run, state)
    used_ms = max(0, min(now_ms, ends_ms) - since_ms)
    left = f"{duration(ends_ms - now_ms)} left" if now_ms < ends_ms else "nothing left"
    return (
        f"Its budget of {duration(ends_ms - since_ms)} began at {moment(since_ms)} and ends at "
        f"{moment(ends_ms)}: {duration(used_ms)} used, {left}."
    )


def _next(run: Run, state: RetryState | None, now_ms: int) -> str:
    if state is None or state.attempt < run.attempts:
        return (
            "It is not decided yet whether it is retried automatically; the next `kfm retry --due` decides."
        )
    if state.fate != "retry":
        why = _WHY_NOT.get(state.reason, state.reason)
        held = " It is quarantined: `kfm quarantine list`." if state.fate == "quarantine" else ""
        return f"It is not retried automatically: {why}.{held}"
    at_ms = state.not_before_ms or now_ms
    why = _WHY_THEN.get(state.reason, "by the backoff of its trigger, with jitter")
    due = "is due since" if at_ms <= now_ms else "is not made before"
    return f"The next automatic attempt {due} {moment(at_ms)}, {why}; `kfm retry --due` makes it then."
