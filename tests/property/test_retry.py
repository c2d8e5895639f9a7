"""Backoff stays inside its bounds, budgets hold, and no illegal change of state passes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kfm.model import breaker as breakers
from kfm.model.contracts import MACHINES, check_transition, machine
from kfm.model.errors import IllegalTransition
from kfm.model.retry import (
    RETRY_AFTER_MAX_S,
    Classification,
    call_delay_ms,
    call_policy,
    decide_call_retry,
    decide_retry,
    parse_retry_after,
    policy_for,
    run_delay_ms,
)
from kfm.model.settings import RetrySettings, TriggerRetrySettings

TRIGGERS = ("cron", "manual", "webhook", "upstream-event")
CHANCE = st.floats(0, 1, exclude_max=True)
AFTER = st.none() | st.integers(0, 10**9)


@pytest.mark.req("TRG-1")
@given(st.sampled_from(TRIGGERS), st.integers(0, 10_000), CHANCE)
def test_run_backoff_is_bounded(trigger: str, index: int, chance: float) -> None:
    """A delay lies between half and one and a half times its nominal value, and never runs away."""
    policy = policy_for(trigger)
    nominal_ms = (
        policy.ladder_ms[min(index, 2)] if policy.ladder_ms else min(policy.cap_ms, policy.base_ms * 2**index)
    )
    delay_ms = run_delay_ms(policy, index, chance)
    assert nominal_ms * 0.5 - 1 <= delay_ms <= nominal_ms * 1.5
    assert 7_500 <= delay_ms <= policy.cap_ms * 1.5


SECONDS = st.none() | st.floats(0.1, 604_800)
LIMITS = {
    "attempts": st.none() | st.integers(1, 100),
    "base_seconds": SECONDS,
    "cap_seconds": SECONDS,
    "ladder_seconds": st.none() | st.lists(st.floats(0.1, 604_800), max_size=5).map(tuple),
    "budget_seconds": SECONDS,
}


@pytest.mark.req("TRG-1")
@given(
    st.sampled_from(TRIGGERS),
    st.builds(RetrySettings, **LIMITS),
    st.builds(RetrySettings, **LIMITS, grants=st.none() | st.integers(1, 9)),
    st.builds(TriggerRetrySettings, **LIMITS),
)
def test_the_nearest_value_is_the_one_in_force(
    trigger: str, project: RetrySettings, source: RetrySettings, own: TriggerRetrySettings
) -> None:
    """Of a source's trigger, the source and the project the nearest that says something, else the matrix."""
    source = replace(source, **{trigger.replace("-", "_"): own})
    policy, shipped = policy_for(trigger, (project, source)), policy_for(trigger)

    def nearest(field: str) -> float | None:
        said = (getattr(one, field, None) for one in (own, source, project))
        return next((value for value in said if value is not None), None)

    assert policy.attempts_max == (nearest("attempts") or shipped.attempts_max)
    assert policy.grants_max == (nearest("grants") or shipped.grants_max)
    for field in ("base", "cap", "budget"):
        seconds = nearest(f"{field}_seconds")
        expected = getattr(shipped, f"{field}_ms") if seconds is None else round(seconds * 1000)
        assert getattr(policy, f"{field}_ms") == expected
    ladder, paced = own.ladder_seconds, own.base_seconds is not None or own.cap_seconds is not None
    if ladder is not None or paced:
        assert policy.ladder_ms == tuple(round(step * 1000) for step in ladder or ())
    assert policy.dead_letter == shipped.dead_letter


@pytest.mark.req("RET-3")
@given(st.integers(0, 10_000), CHANCE)
def test_call_backoff_is_bounded(index: int, chance: float) -> None:
    """Full jitter: from nothing up to the capped exponential, never more than 30 s."""
    assert 0 <= call_delay_ms(call_policy(), index, chance) <= min(30_000, 500 * 2**index)


@pytest.mark.req("TRG-1", "RET-5")
@settings(max_examples=300)
@given(st.sampled_from(TRIGGERS), st.integers(1, 12), st.integers(0, 10**8), CHANCE, AFTER)
def test_decisions_respect_attempts_budget_and_upstream(
    trigger: str, attempts: int, now_ms: int, chance: float, after_ms: int | None
) -> None:
    """A retry is within attempts and budget, and never earlier than upstream asked."""
    policy = policy_for(trigger)
    decision = decide_retry(Classification(True, "x"), policy, attempts, 0, now_ms, chance, after_ms)
    if decision.retry:
        assert decision.delay_ms is not None
        assert attempts < policy.attempts_max
        assert now_ms + decision.delay_ms < policy.budget_ms
        assert decision.delay_ms >= max(after_ms or 0, 7_500)
        assert decision.not_before_ms == now_ms + decision.delay_ms
    else:
        assert decision.delay_ms is None
        assert decision.reason in ("attempts-spent", "budget-spent", "retry-after-exceeds-budget")
    assert not decide_retry(Classification(False, "x"), policy, attempts, 0, now_ms, chance, after_ms).retry


@pytest.mark.req("TRG-1")
@given(st.sampled_from(TRIGGERS), st.lists(CHANCE, min_size=20, max_size=20))
def test_retries_always_end(trigger: str, chances: list[float]) -> None:
    """Followed to the end, a run is tried as often as its line allows and no more."""
    policy, now_ms, attempts = policy_for(trigger), 0, 1
    for chance in chances:
        decision = decide_retry(Classification(True, "x"), policy, attempts, 0, now_ms, chance)
        if not decision.retry:
            break
        assert decision.not_before_ms is not None
        now_ms, attempts = decision.not_before_ms, attempts + 1
    assert attempts == policy.attempts_max


@pytest.mark.req("RET-5")
@given(st.integers(1, 8), CHANCE, AFTER, st.none() | st.integers(0, 100_000))
def test_calls_wait_no_longer_than_allowed(
    attempts: int, chance: float, after_ms: int | None, deadline_ms: int | None
) -> None:
    """A call waits at most 30 s, within its deadline; a longer Retry-After is handed up with its time."""
    decision = decide_call_retry(
        Classification(True, "x"), call_policy(), attempts, deadline_ms, 0, chance, after_ms
    )
    if decision.retry:
        assert (after_ms or 0) <= (decision.delay_ms or 0) <= 30_000
        assert deadline_ms is None or (decision.delay_ms or 0) < deadline_ms
    elif after_ms is not None and after_ms > 30_000:
        assert (decision.reason, decision.not_before_ms) == ("retry-after-for-run-tier", after_ms)


@pytest.mark.req("RET-5")
@given(st.text(max_size=40), st.integers(0, 4 * 10**12))
def test_retry_after_never_raises(value: str, now_ms: int) -> None:
    """Whatever the header says, the answer is a wait or nothing."""
    waited = parse_retry_after(value, now_ms)
    assert waited is None or waited >= 0


@pytest.mark.req("RET-5")
@given(st.integers(0, 10**30), st.integers(0, 5))
def test_a_longer_retry_after_is_never_a_shorter_wait(seconds: int, zeros: int) -> None:
    """A Retry-After of more seconds than a clock holds is a very long wait, and is not ignored."""
    waited = parse_retry_after("0" * zeros + str(seconds), 0)
    assert waited == min(seconds, RETRY_AFTER_MAX_S) * 1000


@pytest.mark.req("WAL-3")
@pytest.mark.parametrize("name", MACHINES)
def test_every_illegal_change_is_refused(name: Any) -> None:
    """All pairs of states, and all events: what the table does not list is refused."""
    table = machine(name)
    listed = {(one.source, one.target, one.event) for one in table.transitions}
    events = {one.event for one in table.transitions} | {"anything"}
    for source in (None, *table.states, "nonsense"):
        for target in (*table.states, "nonsense"):
            for event in events:
                if (source, target, event) in listed:
                    check_transition(name, source, target, event)
                else:
                    with pytest.raises(IllegalTransition):
                        check_transition(name, source, target, event)


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["failure", "success", "probe", "put off"]),
        st.integers(0, 200_000),
        st.integers(0, 4),
    ),
    max_size=25,
)


_LIMITS = st.just(breakers.USUAL_LIMITS) | st.builds(
    breakers.BreakerLimits, failures_max=st.integers(1, 10), cool_down_ms=st.integers(1_000, 10**6)
)


@pytest.mark.req("RET-7")
@settings(max_examples=200)
@given(_STEPS, _LIMITS)
def test_breaker_never_allows_two_probes(
    steps: list[tuple[str, int, int]], limits: breakers.BreakerLimits
) -> None:
    """Fences only rise, one probe holds at a time, and an open breaker is silent for its whole cool-down."""
    current, now_ms = breakers.Breaker(provider="p"), 0
    for event, pause_ms, fence in steps:
        now_ms += pause_ms
        before = current
        if event == "probe":
            if breakers.may_call(before, now_ms, limits) != "probe":
                with pytest.raises(IllegalTransition):
                    breakers.probe_started(before, now_ms, limits=limits)
                continue
            current = breakers.probe_started(before, now_ms, limits=limits)
            assert current.fence == before.fence + 1
            assert breakers.may_call(current, now_ms, limits) == "refuse"
        elif event == "put off":
            current = breakers.probe_put_off(before, now_ms, fence, pause_ms)
            assert replace(current, probe_until_ms=before.probe_until_ms) == before, "nothing is counted"
            if current != before:
                assert breakers.wait_ms(current, now_ms, limits) == pause_ms
        elif event == "failure":
            current = breakers.on_failure(before, now_ms, fence, limits)
        else:
            current = breakers.on_success(before, fence)
        assert current.fence >= before.fence
        if before.state == "half-open" and fence != before.fence and event != "probe":
            assert current == before
        if current.state == "open":
            assert current.failures >= limits.failures_max
            if before.state != "open":
                assert breakers.wait_ms(current, now_ms, limits) == limits.cool_down_ms
