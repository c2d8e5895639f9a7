"""Retry decisions: is an error worth another attempt (`contracts/retry.json`), and after which delay."""

from __future__ import annotations

import errno
import math
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from kfm.model.contracts import contract
from kfm.model.errors import KfmError
from kfm.model.settings import RetrySettings, TriggerRetrySettings
from kfm.model.times import parse_http_date

DOUBLINGS_MAX = 40  # beyond it every cap is long reached
CALL_WAIT_MAX_MS = 30_000  # a longer Retry-After is the run tier's business
RETRY_AFTER_MAX_S = 999_999_999  # about 30 years; more means: do not call again

BudgetState = Literal["free", "needs-rationale"]


class RetryDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What to do after a failure. `not_before_ms` is set wherever a time is known, also on giving up."""

    retry: bool
    # retry | next-run | non-retryable | attempts-spent | budget-spent | retry-after-… | deadline-spent
    reason: str
    error_class: str
    delay_ms: int | None = None
    not_before_ms: int | None = None


def policy_for(trigger_type: str, settings_of_source: Sequence[RetrySettings] = ()) -> RetryPolicy:
    """The trigger's line of the matrix, with what is configured (`Settings.retry_of`), the nearest last."""
    policy = _shipped_policy(trigger_type)
    for settings in settings_of_source:
        for limits in (settings, settings.of(trigger_type)):
            policy = policy if limits is None else replace(policy, **_configured(limits))
    return policy


@cache
def _shipped_policy(trigger_type: str) -> RetryPolicy:
    rules = retry_rules()
    return replace(
        rules.matrix[trigger_type], grants_max=rules.grants_max, grants_per_day_max=rules.grants_per_day_max
    )


def _configured(limits: TriggerRetrySettings) -> dict[str, Any]:
    """The fields of a policy that these limits set."""
    spans = {"base_ms": limits.base_seconds, "cap_ms": limits.cap_seconds, "budget_ms": limits.budget_seconds}
    found: dict[str, Any] = {name: _ms(seconds) for name, seconds in spans.items() if seconds is not None}
    if limits.ladder_seconds is not None:
        found["ladder_ms"] = tuple(_ms(seconds) for seconds in limits.ladder_seconds)
    elif "base_ms" in found or "cap_ms" in found:
        found["ladder_ms"] = ()  # a ladder from further out would hide them
    counts = {"attempts_max": limits.attempts}
    if isinstance(limits, RetrySettings):
        counts |= {"grants_max": limits.grants, "grants_per_day_max": limits.grants_per_day}
    return found | {name: count for name, count in counts.items() if count is not None}


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def call_policy() -> CallPolicy:
    return retry_rules().call


def run_delay_ms(policy: RetryPolicy, retry_index: int, unit_random: float) -> int:
    """min(cap, base·2ⁿ) × uniform(0.5, 1.5), n = 0 at the first retry; a ladder's step is jittered alike."""
    if policy.ladder_ms:
        nominal_ms = policy.ladder_ms[min(retry_index, len(policy.ladder_ms) - 1)]
    else:
        nominal_ms = backoff_ms(policy.base_ms, policy.cap_ms, retry_index + 1)
    return spread_ms(nominal_ms, unit_random)


def call_delay_ms(policy: CallPolicy, retry_index: int, unit_random: float) -> int:
    """Full jitter: uniform(0, min(cap, base·2ⁿ)), n = 0 at the first retry."""
    return math.floor(unit_random * backoff_ms(policy.base_ms, policy.cap_ms, retry_index + 1))


def backoff_ms(base_ms: int, cap_ms: int, failures: int) -> int:
    """Exponential backoff without jitter: base after the first failure, twice as long after each further."""
    return min(cap_ms, base_ms << min(max(failures - 1, 0), DOUBLINGS_MAX))


def spread_ms(nominal_ms: int, unit_random: float) -> int:
    """nominal × uniform(0.5, 1.5): what failed together does not come back together."""
    return math.floor(nominal_ms * (0.5 + unit_random))


def decide_retry(
    failure: Failure | Classification,
    policy: RetryPolicy,
    attempts: int,
    first_attempt_ms: int,
    now_ms: int,
    unit_random: float,
    retry_after_ms: int | None = None,
) -> RetryDecision:
    """The run tier. `attempts` counts all that were begun, the failed one included."""
    kind = classify(failure) if isinstance(failure, Failure) else failure
    if not kind.retryable:
        return RetryDecision(retry=False, reason="non-retryable", error_class=kind.error_class)
    if attempts >= policy.attempts_max:
        return RetryDecision(retry=False, reason="attempts-spent", error_class=kind.error_class)
    jittered_ms = run_delay_ms(policy, max(attempts - 1, 0), unit_random)
    delay_ms = max(jittered_ms, retry_after_ms or 0)
    budget_end_ms = first_attempt_ms + policy.budget_ms
    if now_ms + delay_ms >= budget_end_ms:
        asked = now_ms + jittered_ms < budget_end_ms  # it would have fitted, had upstream not asked for more
        return RetryDecision(
            retry=False,
            reason="retry-after-exceeds-budget" if asked else "budget-spent",
            error_class=kind.error_class,
            not_before_ms=now_ms + delay_ms,
        )
    return RetryDecision(
        retry=True,
        reason="retry",
        error_class=kind.error_class,
        delay_ms=delay_ms,
        not_before_ms=now_ms + delay_ms,
    )


def before_next_run(
    decision: RetryDecision, next_run_ms: int | None, lasts_ms: int = 0, ends_ms: int | None = None
) -> RetryDecision:
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
    return RetryDecision(
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
) -> RetryDecision:
    """The call tier. A wait that would pass the step's deadline, or a long Retry-After, ends it now."""
    kind = classify(failure) if isinstance(failure, Failure) else failure
    if not kind.retryable:
        return RetryDecision(retry=False, reason="non-retryable", error_class=kind.error_class)
    if retry_after_ms is not None and retry_after_ms > CALL_WAIT_MAX_MS:
        return RetryDecision(
            retry=False,
            reason="retry-after-for-run-tier",
            error_class=kind.error_class,
            not_before_ms=now_ms + retry_after_ms,
        )
    if attempts >= policy.attempts_max:
        return RetryDecision(retry=False, reason="attempts-spent", error_class=kind.error_class)
    delay_ms = max(call_delay_ms(policy, max(attempts - 1, 0), unit_random), retry_after_ms or 0)
    if deadline_ms is not None and now_ms + delay_ms >= deadline_ms:
        return RetryDecision(retry=False, reason="deadline-spent", error_class=kind.error_class)
    return RetryDecision(
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


class RetryPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How often, how long and how far apart a whole run or unit is tried."""

    attempts_max: int
    budget_ms: int
    base_ms: int
    cap_ms: int
    ladder_ms: tuple[int, ...] = ()
    dead_letter: bool = False
    grants_max: int = 5  # for one content
    grants_per_day_max: int = 12  # of one piece of work


class CallPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How often and how far apart one external call inside a step is tried."""

    attempts_max: int = 5
    base_ms: int = 500
    cap_ms: int = 30_000


class Family(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    retryable: bool
    names: tuple[str, ...]


class RetryVerdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    error_class: str
    retryable: bool


class MessageRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    exception: str
    contains: str
    error_class: str
    retryable: bool


class RetryRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    matrix: dict[str, RetryPolicy]
    call: CallPolicy
    grants_max: int
    grants_per_day_max: int
    http_retryable: tuple[int, ...]
    codes: dict[str, Family]
    code_prefixes: dict[str, RetryVerdict]
    errnos: dict[str, Family]
    exceptions: dict[str, Family]
    messages: tuple[MessageRule, ...]


@cache
def retry_rules() -> RetryRules:
    """The shipped rules; read once."""
    return msgspec.json.decode(contract("retry.json"), type=RetryRules)


CAUSES_MAX = 8


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about an error, as plain values."""

    exceptions: tuple[str, ...] = ()  # class names, most specific first
    http_status: int | None = None
    code: str | None = None  # a provider's code, a SQLSTATE, or one of ours
    errno: str | None = None  # its name, such as EAGAIN
    message: str = ""


class Classification(msgspec.Struct, frozen=True):
    retryable: bool
    error_class: str


UNKNOWN = Classification(retryable=False, error_class="unknown")


def classify(failure: Failure) -> Classification:
    """The most telling sign first: code, status, errno, exception, message. Unknown is not retryable."""
    if failure.code is not None:
        found = _by_code(failure.code)
        if found is not None:
            return found
    if failure.http_status is not None:
        retryable = failure.http_status in retry_rules().http_retryable
        return Classification(retryable=retryable, error_class=f"HTTP_{failure.http_status}")
    if failure.errno is not None and failure.errno in _table("errnos"):
        return _table("errnos")[failure.errno]
    for name in failure.exceptions:
        if name in _table("exceptions"):
            return _table("exceptions")[name]
    for rule in retry_rules().messages:
        if rule.exception in failure.exceptions and rule.contains in failure.message:
            return Classification(retryable=rule.retryable, error_class=rule.error_class)
    return UNKNOWN


def classify_exception(error: BaseException) -> Classification:
    """As `classify`, and where an error says nothing, what it was raised from decides."""
    current: BaseException | None = error
    for _ in range(CAUSES_MAX):
        if current is None:
            break
        found = classify(failure_of(current))
        if found != UNKNOWN:
            return found
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return UNKNOWN


def failure_of(error: BaseException) -> Failure:
    """The plain values of an exception, from whichever library it came."""
    names = tuple(
        cls.__name__ for cls in type(error).__mro__ if cls not in (object, BaseException, Exception)
    )
    number = getattr(error, "errno", None)
    return Failure(
        exceptions=names,
        http_status=_http_status(error),
        code=_code(error),
        errno=errno.errorcode.get(number) if isinstance(number, int) else None,
        message=str(error)[:1000],
    )


def _http_status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore's shape; its code, where known, was asked before
        answer = response.get("ResponseMetadata")
        value = answer.get("HTTPStatusCode") if isinstance(answer, dict) else None
        return value if type(value) is int and 100 <= value <= 599 else None
    for holder in (response, error):
        for field in ("status_code", "status"):
            value = getattr(holder, field, None)
            if type(value) is int and 100 <= value <= 599:
                return value
    return None


def _code(error: BaseException) -> str | None:
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore's shape
        answer = response.get("Error")
        code = answer.get("Code") if isinstance(answer, dict) else None
        return code if isinstance(code, str) else None
    for field in ("code", "sqlstate"):
        value = getattr(error, field, None)
        if isinstance(value, str) and value:
            # The base class's own code says nothing: look further.
            return (
                None
                if isinstance(error, KfmError) and value in (KfmError.code, "KFM601", "KFM607")
                else value
            )
    return None


def _by_code(code: str) -> Classification | None:
    if code in _table("codes"):
        return _table("codes")[code]
    prefixes: dict[str, RetryVerdict] = retry_rules().code_prefixes
    for prefix, verdict in prefixes.items():
        if code.startswith(prefix):
            return Classification(retryable=verdict.retryable, error_class=verdict.error_class)
    return None


@cache
def _table(name: str) -> dict[str, Classification]:
    """The families turned inside out: from a name to its class."""
    families: dict[str, Family] = getattr(retry_rules(), name)
    return {
        member: Classification(retryable=family.retryable, error_class=error_class)
        for error_class, family in families.items()
        for member in family.names
    }
