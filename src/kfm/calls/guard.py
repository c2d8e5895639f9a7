"""The call tier: one external call, tried a few times with full jitter.

The run tier above has its own budget. What this tier can't wait for, it hands up: the error then
carries `wait_ms`, how long it makes no sense to try again, and `not_before_ms`, that time by this clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from kfm import ports
from kfm.calls.runtime import own_check, parts_ms, stop_in
from kfm.model.errors import KfmError
from kfm.model.retry import (
    CallPolicy,
    Classification,
    Failure,
    RetryDecision,
    call_policy,
    classify,
    classify_exception,
    decide_call_retry,
    parse_retry_after,
)
from kfm.ports import Clock, Rng

T = TypeVar("T")

TIMEOUT_MS = 60_000


class RetryNotice(msgspec.Struct, frozen=True, kw_only=True):
    """Details for a retry hook, before each wait."""

    attempt: int
    delay_ms: int
    error_class: str
    error: Exception


def classify_call(error: Exception) -> Classification:
    """The class of an error; what an adapter saw (`transient`, `status`) outweighs the exception's class."""
    facts = error.facts if isinstance(error, KfmError) else {}
    if "transient" in facts:
        return Classification(
            retryable=bool(facts["transient"]), error_class=str(facts.get("cause", "upstream"))
        )
    if "status" in facts:
        return classify(Failure(http_status=facts["status"]))
    return classify_exception(error)


def guarded(
    call: Callable[[int], T],
    *,
    clock: Clock,
    rng: Rng,
    policy: CallPolicy | None = None,
    classify: Callable[[Exception], Classification] = classify_call,
    timeout_ms: int = TIMEOUT_MS,
    deadline_ms: int | None = None,
    until_ms: int | None = None,
    on_retry: Callable[[RetryNotice], None] | None = None,
) -> T:
    """Call with a timeout in ms, again after failures that may pass, until the monotonic deadline.

    `until_ms` is a deadline, too, but for waiting only: a long download may well outlast it.
    """
    policy = policy or call_policy()
    ends_ms = min((each for each in (deadline_ms, until_ms) if each is not None), default=None)
    for attempt in range(1, policy.attempts_max + 1):
        if (stop := stop_in(own_check())) is not None:
            raise stop
        try:
            return call(_left_ms(timeout_ms, clock, deadline_ms))
        except Exception as error:
            now_ms = clock.now_ms()
            decision = decide_call_retry(
                classify(error),
                policy,
                attempt,
                None if ends_ms is None else now_ms + ends_ms - clock.monotonic_ms(),
                now_ms,
                rng.unit(),
                asked_ms(error, now_ms),
            )
            if decision.retry and isinstance(error, KfmError) and error.facts.get("circuit_open"):
                # However short the cool-down is: to wait for a circuit is the run's business.
                decision = replace(decision, retry=False, reason="circuit-open")
            if not decision.retry:
                _hand_up(error, decision, now_ms)
                raise
            delay_ms = decision.delay_ms or 0
            if on_retry is not None:
                on_retry(
                    RetryNotice(
                        attempt=attempt, delay_ms=delay_ms, error_class=decision.error_class, error=error
                    )
                )
            for part_ms in parts_ms(delay_ms, own_check()):
                clock.sleep_ms(part_ms)
    raise AssertionError("attempts_max is at least 1")


def retry_text(retrying: ports.Retrying) -> str:
    """One line for people."""
    error = retrying.error
    message = error.message if isinstance(error, KfmError) else f"{type(error).__name__}: {error}"
    return f"{message} Attempt {retrying.attempt} failed; the next in {retrying.delay_ms / 1000:.1f} s."


def retry_fields(retrying: ports.Retrying) -> dict[str, object]:
    """What a log record of a retry can be found by."""
    error = retrying.error
    code, facts = (error.code, error.facts) if isinstance(error, KfmError) else (None, {})
    return {
        "provider": facts.get("provider"),
        "call_attempt": retrying.attempt,
        "delay_ms": retrying.delay_ms,
        "error_class": retrying.error_class,
        "code": code,
    }


def _left_ms(timeout_ms: int, clock: Clock, deadline_ms: int | None) -> int:
    return timeout_ms if deadline_ms is None else max(1, min(timeout_ms, deadline_ms - clock.monotonic_ms()))


def asked_ms(error: Exception, now_ms: int) -> int | None:
    """How long upstream's Retry-After asks to wait; None without one."""
    header = error.facts.get("retry_after") if isinstance(error, KfmError) else None
    return parse_retry_after(header, now_ms) if isinstance(header, str) else None


def _hand_up(error: Exception, decision: RetryDecision, now_ms: int) -> None:
    """Tell the run tier when to come back, and people why we stopped."""
    if decision.reason == "non-retryable":
        return
    wanted_ms = asked_ms(error, now_ms)
    not_before_ms = decision.not_before_ms or (now_ms + wanted_ms if wanted_ms else None)
    if isinstance(error, KfmError):
        error.facts["error_class"] = decision.error_class
        if not_before_ms is not None:
            error.facts |= {"not_before_ms": not_before_ms, "wait_ms": max(0, not_before_ms - now_ms)}
    wait = f"; upstream asks us to wait {wanted_ms // 1000} s" if wanted_ms else ""
    error.add_note(f"Not tried again now: {decision.reason}{wait}.")
