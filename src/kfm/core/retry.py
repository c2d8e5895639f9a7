"""Whether to try again, and when. All decisions are pure: time and chance come in as values.

Two tiers. A call inside a step is tried a few times within seconds; a whole
run or unit is tried by its trigger's line of the matrix, within a budget of
time that counts from its first attempt and includes the calls' own waiting.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from kfm.core.classify import Classification, Failure, classify
from kfm.core.http_dates import parse_http_date
from kfm.core.retry_rules import CallPolicy, RetryPolicy, retry_rules

DOUBLINGS_MAX = 40  # beyond it every cap is long reached
CALL_WAIT_MAX_MS = 30_000  # a longer Retry-After is the run tier's business
RETRY_AFTER_MAX_S = 999_999_999  # about 30 years; whoever asks for more is asking to be left alone

BudgetState = Literal["free", "needs-rationale"]
UnitFate = Literal["retry", "dead-letter", "quarantine"]


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What to do after a failure. `not_before_ms` is set wherever a time is known, also on giving up."""

    retry: bool
    # retry | next-run | non-retryable | attempts-spent | budget-spent | retry-after-… | deadline-spent
    reason: str
    error_class: str
    delay_ms: int | None = None
    not_before_ms: int | None = None


def policy_for(trigger_type: str) -> RetryPolicy:
    """The trigger's line of the matrix. A person's run uses the schedule's line."""
    return retry_rules().matrix[trigger_type]


def call_policy() -> CallPolicy:
    return retry_rules().call


def run_delay_ms(policy: RetryPolicy, retry_index: int, unit_random: float) -> int:
    """min(cap, base·2ⁿ) × uniform(0.5, 1.5), n = 0 at the first retry; a ladder's step is jittered alike."""
    if policy.ladder_ms:
        nominal_ms = policy.ladder_ms[min(retry_index, len(policy.ladder_ms) - 1)]
    else:
        nominal_ms = _doubled(policy.base_ms, policy.cap_ms, retry_index)
    return math.floor(nominal_ms * (0.5 + unit_random))


def call_delay_ms(policy: CallPolicy, retry_index: int, unit_random: float) -> int:
    """Full jitter: uniform(0, min(cap, base·2ⁿ)), n = 0 at the first retry."""
    return math.floor(unit_random * _doubled(policy.base_ms, policy.cap_ms, retry_index))


def _doubled(base_ms: int, cap_ms: int, times: int) -> int:
    return min(cap_ms, base_ms << min(times, DOUBLINGS_MAX))


def decide_retry(
    failure: Failure | Classification,
    policy: RetryPolicy,
    attempts: int,
    first_attempt_ms: int,
    now_ms: int,
    unit_random: float,
    retry_after_ms: int | None = None,
) -> Decision:
    """The run tier. `attempts` counts all that were begun, the failed one included."""
    kind = classify(failure) if isinstance(failure, Failure) else failure
    if not kind.retryable:
        return Decision(retry=False, reason="non-retryable", error_class=kind.error_class)
    if attempts >= policy.attempts_max:
        return Decision(retry=False, reason="attempts-spent", error_class=kind.error_class)
    jittered_ms = run_delay_ms(policy, max(attempts - 1, 0), unit_random)
    delay_ms = max(jittered_ms, retry_after_ms or 0)
    budget_end_ms = first_attempt_ms + policy.budget_ms
    if now_ms + delay_ms >= budget_end_ms:
        asked = now_ms + jittered_ms < budget_end_ms  # it would have fitted, had upstream not asked for more
        return Decision(
            retry=False,
            reason="retry-after-exceeds-budget" if asked else "budget-spent",
            error_class=kind.error_class,
            not_before_ms=now_ms + delay_ms,
        )
    return Decision(
        retry=True,
        reason="retry",
        error_class=kind.error_class,
        delay_ms=delay_ms,
        not_before_ms=now_ms + delay_ms,
    )


def before_next_run(
    decision: Decision, next_run_ms: int | None, lasts_ms: int = 0, ends_ms: int | None = None
) -> Decision:
    """A schedule's retries end where its next run begins: what is left is tried with that one.

    `next_run_ms` is the schedule's next instant, `lasts_ms` how long an attempt is expected to take,
    `ends_ms` where the budget does: what can't be tried before is given up.
    """
    if not decision.retry or next_run_ms is None:
        return decision
    if (decision.not_before_ms or 0) + lasts_ms < next_run_ms:
        return decision
    then_ms = max(next_run_ms, decision.not_before_ms or 0)
    fits = ends_ms is None or then_ms < ends_ms
    return Decision(
        retry=fits,
        reason="next-run" if fits else "budget-spent",
        error_class=decision.error_class,
        not_before_ms=then_ms,
    )


def decide_call_retry(
    failure: Failure | Classification,
    policy: CallPolicy,
    attempts: int,
    deadline_ms: int | None,
    now_ms: int,
    unit_random: float,
    retry_after_ms: int | None = None,
) -> Decision:
    """The call tier. A wait that would pass the step's deadline, or a long Retry-After, ends it now."""
    kind = classify(failure) if isinstance(failure, Failure) else failure
    if not kind.retryable:
        return Decision(retry=False, reason="non-retryable", error_class=kind.error_class)
    if retry_after_ms is not None and retry_after_ms > CALL_WAIT_MAX_MS:
        return Decision(
            retry=False,
            reason="retry-after-for-run-tier",
            error_class=kind.error_class,
            not_before_ms=now_ms + retry_after_ms,
        )
    if attempts >= policy.attempts_max:
        return Decision(retry=False, reason="attempts-spent", error_class=kind.error_class)
    delay_ms = max(call_delay_ms(policy, max(attempts - 1, 0), unit_random), retry_after_ms or 0)
    if deadline_ms is not None and now_ms + delay_ms >= deadline_ms:
        return Decision(retry=False, reason="deadline-spent", error_class=kind.error_class)
    return Decision(
        retry=True,
        reason="retry",
        error_class=kind.error_class,
        delay_ms=delay_ms,
        not_before_ms=now_ms + delay_ms,
    )


def budget_state(attempts: int, first_attempt_ms: int, now_ms: int, policy: RetryPolicy) -> BudgetState:
    """May a person run failed work again just so, or is a rationale due?"""
    spent = attempts >= policy.attempts_max or now_ms - first_attempt_ms >= policy.budget_ms
    return "needs-rationale" if spent else "free"


def unit_fate(
    failure: Failure | Classification,
    grant_attempts: int,
    grants: int,
    policy: RetryPolicy,
    grants_max: int | None = None,
) -> UnitFate:
    """After a unit failed. `grant_attempts` counts within the present grant, `grants` those given so far."""
    kind = classify(failure) if isinstance(failure, Failure) else failure
    if not kind.retryable:
        return "quarantine"
    if grant_attempts < policy.attempts_max:
        return "retry"
    return "dead-letter" if grants < (grants_max or retry_rules().grants_max) else "quarantine"


# --- Retry-After ---------------------------------------------------------------------


def parse_retry_after(value: str, now_ms: int) -> int | None:
    """How long to wait, in ms: from seconds or an HTTP date. Nonsense is None, the past is 0."""
    text = value.strip(" \t")
    if text.isascii() and text.isdigit():
        text = text.lstrip("0") or "0"
        seconds = int(text) if len(text) < 10 else RETRY_AFTER_MAX_S  # a number may have a million digits
        return seconds * 1000
    at_ms = parse_http_date(text, now_ms)
    return None if at_ms is None else max(0, at_ms - now_ms)
