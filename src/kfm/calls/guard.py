"""The call tier: one external call, tried a few times with full jitter.

The run tier above has its own budget. What this tier can't wait for, it hands up: the error then
carries `not_before_ms`, the earliest time at which trying again makes sense.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TypeVar

import msgspec

from kfm.core.errors import KfmError
from kfm.core.http_dates import retry_after_ms
from kfm.ports import Clock, Rng

T = TypeVar("T")

_BUSY_ERRNOS = frozenset(
    {
        errno.EAGAIN,
        errno.EBUSY,
        errno.EINTR,
        errno.ETIMEDOUT,
        errno.ECONNRESET,
        errno.ECONNABORTED,
        errno.EPIPE,
    }
)
_BUSY_STATUSES = frozenset({408, 429, 500, 501, 502, 503, 504})


class CallPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often, how long, how far apart."""

    attempts_max: int = 5
    base_ms: int = 1_000
    cap_ms: int = 30_000
    timeout_ms: int = 60_000

    def delay_ms(self, attempt: int, unit_random: float) -> int:
        """Full jitter: anything up to the doubled step. `attempt` is 1 after the first failure."""
        return int(unit_random * min(self.cap_ms, self.base_ms * 2**attempt))


class Retrying(msgspec.Struct, frozen=True, kw_only=True):
    """What a hook is told before each wait."""

    attempt: int
    delay_ms: int
    error: Exception


def is_retryable(error: Exception) -> bool:
    """Only what is known to pass by itself. Unknown errors are not tried again here."""
    if isinstance(error, KfmError):
        if "transient" in error.facts:
            return bool(error.facts["transient"])
        return error.facts.get("status") in _BUSY_STATUSES
    if isinstance(error, TimeoutError | ConnectionError):
        return True
    return isinstance(error, OSError) and error.errno in _BUSY_ERRNOS


def guarded(
    call: Callable[[int], T],
    *,
    clock: Clock,
    rng: Rng,
    policy: CallPolicy = CallPolicy(),  # noqa: B008 - frozen
    classify: Callable[[Exception], bool] = is_retryable,
    deadline_ms: int | None = None,
    on_retry: Callable[[Retrying], None] | None = None,
) -> T:
    """Call with a timeout in ms, again after failures that may pass, until the monotonic deadline."""
    for attempt in range(1, policy.attempts_max + 1):
        try:
            return call(_timeout_ms(policy, clock, deadline_ms))
        except Exception as error:
            if attempt == policy.attempts_max or not classify(error):
                raise
            delay_ms = _delay_ms(error, attempt, policy, clock, rng, deadline_ms)
            if delay_ms is None:
                raise
            if on_retry is not None:
                on_retry(Retrying(attempt=attempt, delay_ms=delay_ms, error=error))
            clock.sleep_ms(delay_ms)
    raise AssertionError("attempts_max is at least 1")


def _timeout_ms(policy: CallPolicy, clock: Clock, deadline_ms: int | None) -> int:
    if deadline_ms is None:
        return policy.timeout_ms
    return max(1, min(policy.timeout_ms, deadline_ms - clock.monotonic_ms()))


def _delay_ms(
    error: Exception, attempt: int, policy: CallPolicy, clock: Clock, rng: Rng, deadline_ms: int | None
) -> int | None:
    """How long to wait; None if this call must not be tried again now."""
    asked_ms = retry_after_ms(_retry_after(error), clock.now_ms())
    delay_ms = max(asked_ms or 0, policy.delay_ms(attempt, rng.unit()))
    too_late = deadline_ms is not None and clock.monotonic_ms() + delay_ms >= deadline_ms
    if asked_ms is not None and (asked_ms > policy.cap_ms or too_late):
        _hand_up(error, f"Upstream asks us to wait {asked_ms / 1000:.0f} s.", clock.now_ms() + asked_ms)
        return None
    if too_late:
        _hand_up(error, "The time for this call is used up.", clock.now_ms() + delay_ms)
        return None
    return delay_ms


def _retry_after(error: Exception) -> str | None:
    return error.facts.get("retry_after") if isinstance(error, KfmError) else None


def _hand_up(error: Exception, why: str, not_before_ms: int) -> None:
    error.add_note(why)
    if isinstance(error, KfmError):
        error.facts["not_before_ms"] = not_before_ms
