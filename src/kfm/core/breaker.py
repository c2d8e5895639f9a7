"""The circuit breaker of one provider: closed, open, half-open. Pure; the store shares it."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

from kfm.core.errors import IllegalTransition
from kfm.core.states import check_transition

FAILURES_MAX = 3
COOLDOWN_MS = 300_000
PROBE_LEASE_MS = 60_000

BreakerState = Literal["closed", "open", "half-open"]
Permission = Literal["call", "probe", "refuse"]


class Breaker(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    provider: str
    state: BreakerState = "closed"
    failures: int = 0  # in a row
    opened_at_ms: int | None = None
    probe_until_ms: int | None = None
    fence: int = 0  # rises with every probe


def may_call(breaker: Breaker, now_ms: int) -> Permission:
    """`call` freely; `probe` only after `probe_started` was stored; `refuse` without spending an attempt."""
    if breaker.state == "closed":
        return "call"
    return "refuse" if wait_ms(breaker, now_ms) > 0 else "probe"


def wait_ms(breaker: Breaker, now_ms: int) -> int:
    """How long until somebody may try the provider again."""
    if breaker.state == "open":
        return max(0, (breaker.opened_at_ms or 0) + COOLDOWN_MS - now_ms)
    if breaker.state == "half-open":
        return max(0, (breaker.probe_until_ms or 0) - now_ms)
    return 0


def probe_started(breaker: Breaker, now_ms: int, lease_ms: int = PROBE_LEASE_MS) -> Breaker:
    """Claim the single probe. Whoever's write lands holds its fence; a vanished prober's lease lapses."""
    if may_call(breaker, now_ms) != "probe":
        raise IllegalTransition(f"breaker {breaker.provider}: no probe is due while it is {breaker.state}.")
    event = "probe_started" if breaker.state == "open" else "probe_taken_over"
    check_transition("breaker", breaker.state, "half-open", event)
    return replace(breaker, state="half-open", probe_until_ms=now_ms + lease_ms, fence=breaker.fence + 1)


def on_success(breaker: Breaker, fence: int | None = None) -> Breaker:
    """A call went well. While open or half-open only the probe's own result counts."""
    if breaker.state == "closed":
        return replace(breaker, failures=0) if breaker.failures else breaker
    if breaker.state == "open" or fence != breaker.fence:
        return breaker
    check_transition("breaker", breaker.state, "closed", "probe_succeeded")
    return replace(breaker, state="closed", failures=0, opened_at_ms=None, probe_until_ms=None)


def on_failure(breaker: Breaker, now_ms: int, fence: int | None = None) -> Breaker:
    """A call failed. A late failure of an older call neither re-opens nor prolongs."""
    if breaker.state == "closed":
        failures = breaker.failures + 1
        if failures < FAILURES_MAX:
            return replace(breaker, failures=failures)
        check_transition("breaker", "closed", "open", "tripped")
        return replace(breaker, state="open", failures=failures, opened_at_ms=now_ms)
    if breaker.state == "open" or fence != breaker.fence:
        return breaker
    check_transition("breaker", breaker.state, "open", "probe_failed")
    return replace(
        breaker, state="open", failures=breaker.failures + 1, opened_at_ms=now_ms, probe_until_ms=None
    )
