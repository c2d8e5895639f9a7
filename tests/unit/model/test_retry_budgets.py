"""What becomes of a failed run: pure decisions, with time and chance as values."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kfm.model.errors import (
    CircuitOpen,
    ContractViolated,
    KfmError,
    PipelineFailed,
    SwitchThrown,
    UpstreamUnavailable,
)
from kfm.model.next_steps import run_step
from kfm.model.quarantine import NOT_HELD, RetryState, held_run, release_digest
from kfm.model.records import Run
from kfm.model.retry import Classification, RetryDecision, before_next_run
from kfm.model.retry_budgets import (
    NOT_RETRIED,
    RetryLimits,
    budget_ends_ms,
    grant_usage,
    granted,
    is_spent,
    judge,
    may_be_granted,
    prospect,
)
from kfm.model.settings import RetrySettings, TriggerRetrySettings
from kfm.runs.outcome import advise, judged, kind_of
from tests.conformance.db.ledgers import START_MS, digest, new_run

TIMEOUT = Classification(retryable=True, error_class="timeout")
SCHEMA = Classification(retryable=False, error_class="schema")
HOUR_MS = 3_600_000


def run_at(attempts: int, **changes: Any) -> Run:
    return new_run("one", attempts=attempts, **changes)


def decided(run: Run, prior: RetryState | None = None, after_ms: int = 1000, **options: Any) -> RetryState:
    kind = options.pop("kind", TIMEOUT)
    return judge(
        run, kind, prior, now_ms=START_MS + after_ms, unit_random=options.pop("chance", 0.5), **options
    )


def failing(times: int, prior: RetryState | None = None, first: int = 1) -> RetryState:
    """One failure after the other, each judged."""
    for attempt in range(first, first + times):
        prior = decided(run_at(attempt), prior)
    assert prior is not None
    return prior


@pytest.mark.req("TRG-1", "RET-3")
@pytest.mark.parametrize(
    ("trigger", "free"), [("cron", 6), ("manual", 6), ("webhook", 3), ("upstream-event", 8)]
)
def test_the_last_attempt_is_the_last(trigger: Any, free: int) -> None:
    """As many attempts as the trigger's line has, and then it is given up."""
    state = None
    for attempt in range(1, free):
        state = decided(run_at(attempt, trigger_type=trigger), state)
        assert (state.fate, state.grant_attempts) == ("retry", attempt)
        assert state.not_before_ms is not None
    last = decided(run_at(free, trigger_type=trigger), state)
    assert (last.fate, last.reason) == ("spent", "attempts-spent")
    assert is_spent(run_at(free, trigger_type=trigger), last, START_MS + 2000)


@pytest.mark.req("TRG-1")
def test_the_delay_grows_and_is_jittered() -> None:
    """min(cap, base·2ⁿ) × uniform(0.5, 1.5)."""
    low, high = decided(run_at(1), chance=0.0), decided(run_at(1), chance=0.999)
    assert low.not_before_ms == START_MS + 1000 + 15_000
    assert high.not_before_ms == START_MS + 1000 + 44_970
    assert decided(run_at(3), failing(2)).not_before_ms == START_MS + 1000 + 120_000


@pytest.mark.req("TRG-1", "RET-3")
def test_time_spent_counts() -> None:
    """However few attempts were made: once the budget's time is over, calls and all, it is spent."""
    state = decided(run_at(1), after_ms=6 * HOUR_MS - 1)
    assert (state.fate, state.reason) == ("spent", "budget-spent")


@pytest.mark.req("TRG-1")
def test_a_configured_budget_decides() -> None:
    """Attempts, delays, time and grants are those of the policy that is handed in, not of the matrix."""
    chosen = RetrySettings(
        attempts=2, budget_seconds=600, grants=1, manual=TriggerRetrySettings(base_seconds=100)
    )
    limits = RetryLimits(chosen=(chosen,))
    first = decided(run_at(1), limits=limits)
    assert (first.fate, first.not_before_ms) == ("retry", START_MS + 1000 + 100_000)
    second = decided(run_at(2), first, limits=limits)
    assert second.fate == "quarantine", "the only grant is used up"
    assert decided(run_at(1), after_ms=550_000, limits=limits).reason == "budget-spent"
    run, late_ms = run_at(1, status="failed"), START_MS + 600_000
    assert budget_ends_ms(run, None, limits) == late_ms
    assert is_spent(run, first, late_ms, limits)
    assert not is_spent(run, first, late_ms)
    assert may_be_granted(run, first)
    assert not may_be_granted(run, first, limits)
    steps = [
        run_step(run_at(state.attempt, status="failed"), state=state, now_ms=late_ms, limits=limits)
        for state in (first, second)
    ]
    # What is promised is made, also late.
    assert [step and step.code for step in steps] == ["retry", "force"]
    advice = advise(run, first, START_MS + 2000, limits)
    assert advice.attempts_left == 1


@pytest.mark.req("TRG-1")
def test_attempts_that_no_process_judged_count() -> None:
    """Between two decisions a process died: its attempt was one."""
    state = decided(run_at(4), failing(2))
    assert state.grant_attempts == 4
    assert grant_usage(run_at(5), state).attempts == 5


@pytest.mark.req("TRG-1")
def test_an_open_breaker_spends_no_attempt() -> None:
    """What a breaker refused was not tried."""
    before = failing(5)
    refused = decided(run_at(6), before, counts=False)
    assert (refused.fate, refused.grant_attempts) == ("retry", 5)
    assert decided(run_at(7), refused).fate == "spent"
    state = judged(
        run_at(6), CircuitOpen(wait_ms=HOUR_MS), before,
        idempotent=True, now_ms=START_MS + 1000, unit_random=0.5,
    )  # fmt: skip
    assert (state.fate, state.grant_attempts, state.not_before_ms) == ("retry", 5, START_MS + 1000 + HOUR_MS)
    assert state.error_class == "circuit-open"


@pytest.mark.req("TRG-1", "UPD-10")
def test_a_grant_begins_anew() -> None:
    """A governed retry has the attempts and the time of a first one; grants are few."""
    spent = failing(6)
    run = run_at(6, status="failed")
    grant = granted(run, spent, START_MS + 7 * HOUR_MS)
    assert not is_spent(replace(run, attempts=7), grant, START_MS + 8 * HOUR_MS)
    next_failure = decided(run_at(7), grant, after_ms=8 * HOUR_MS)
    assert (next_failure.fate, next_failure.grants, next_failure.grant_attempts) == ("retry", 2, 1)
    assert may_be_granted(run, grant)
    assert not may_be_granted(run, replace(grant, grants=5))


def test_the_last_grant_ends_in_quarantine() -> None:
    """Once no more can be granted, it is no dead letter that a replay could save."""
    prior = replace(failing(5), grants=5)
    assert decided(run_at(6), prior).fate == "quarantine"


@pytest.mark.req("RET-2")
def test_what_cannot_get_better_is_quarantined_at_once() -> None:
    """The first attempt is the last."""
    state = decided(run_at(1), kind=SCHEMA)
    assert (state.fate, state.reason, state.not_before_ms) == ("quarantine", "non-retryable", None)


@pytest.mark.req("RET-6")
def test_work_that_is_not_idempotent_is_not_retried() -> None:
    """Also where the error may pass; the advice says why, the next step what to do."""
    state = decided(run_at(1), idempotent=False)
    assert (state.fate, state.reason) == ("spent", "not-idempotent")
    said = advise(run_at(1), state, START_MS + 1000).sentence
    assert "idempotent: false" in said


@pytest.mark.req("RET-7")
@pytest.mark.parametrize(
    ("reason", "said", "step"),
    [
        ("retry", "by the backoff of its trigger", "It is tried again at 2026"),
        (
            "retry-after",
            "because its provider is not to be called before",
            "Its provider is not to be called until 2026",
        ),
        ("circuit-open", "its provider's circuit is open until then", "Its provider's circuit is open until"),
    ],
)
def test_the_advice_does_not_send_people_to_a_closed_door(reason: str, said: str, step: str) -> None:
    """Trying at once is no step where the provider, or its circuit, would refuse the call."""
    state, failed = replace(decided(run_at(1)), reason=reason), replace(run_at(1), status="failed")
    sentence = advise(failed, state, START_MS + 1000).sentence
    assert said in sentence
    assert "`kfm " not in sentence
    next_step = run_step(failed, state=state, now_ms=START_MS + 1000)
    assert next_step is not None
    assert next_step.sentence.startswith(step)


@pytest.mark.req("RET-7")
@pytest.mark.parametrize("reason", [*NOT_RETRIED, "of-a-later-version"])
def test_a_reason_is_a_sentence(reason: str) -> None:
    """No code is printed where a reader expects words, also of a reason that is not known here."""
    state = replace(decided(run_at(1)), fate="spent", reason=reason)
    said = prospect(state, START_MS + 1000)
    assert said.startswith("It is not retried automatically: ")
    assert not reason or f": {reason}" not in said
    assert said.endswith("; it is quarantined") == (reason not in NOT_HELD)


def test_what_was_stopped_stays_stopped() -> None:
    """Nothing resumes by itself what a person ended, and it is not held: the person knows."""
    state = judged(run_at(1), SwitchThrown(), None, idempotent=True, now_ms=START_MS, unit_random=0.5)
    assert (state.fate, state.reason) == ("spent", "stopped")
    assert held_run(run_at(1), state, payload_hash=None, inputs=(), error_classes=(), error_code="KFM307",
                    error_message="") is None  # fmt: skip


@pytest.mark.req("RET-5")
@pytest.mark.parametrize(
    ("asked_ms", "fate", "reason"),
    [
        (HOUR_MS, "retry", "retry-after"),
        (6 * HOUR_MS, "spent", "retry-after-exceeds-budget"),
        (1, "retry", "retry"),
    ],
)
def test_upstream_says_when(asked_ms: int, fate: str, reason: str) -> None:
    """A long Retry-After is the run's not-before; one that does not fit ends it now."""
    error = PipelineFailed()
    error.__cause__ = UpstreamUnavailable(status=503, wait_ms=asked_ms)
    state = judged(run_at(1), error, None, idempotent=True, now_ms=START_MS + 1000, unit_random=0.5)
    assert (state.fate, state.reason, state.error_class) == (fate, reason, "HTTP_503")
    assert state.not_before_ms == START_MS + 1000 + max(asked_ms, 30_000)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (UpstreamUnavailable(status=404), Classification(retryable=False, error_class="HTTP_404")),
        (UpstreamUnavailable(status=503), Classification(retryable=True, error_class="HTTP_503")),
        (UpstreamUnavailable(transient=True, cause="network"), Classification(True, "network")),
        (UpstreamUnavailable(), Classification(retryable=True, error_class="unavailable")),
        (ContractViolated(), Classification(retryable=False, error_class="schema")),
    ],
)
def test_what_upstream_answered_decides(error: KfmError, kind: Classification) -> None:
    """A 404 is not worth another attempt, although its error usually is."""
    assert kind_of(error) == kind


@pytest.mark.req("TRG-3")
@pytest.mark.parametrize(
    ("next_in_ms", "lasts_ms", "retry"),
    [(30_000, 0, False), (30_001, 0, True), (60_000, 30_000, False), (60_001, 30_000, True), (None, 0, True)],
)
def test_retries_end_before_the_next_scheduled_run(
    next_in_ms: int | None, lasts_ms: int, retry: bool
) -> None:
    """What would overlap the schedule's next run is tried with it, and is no dead letter."""
    now_ms = START_MS + 1000
    next_ms = None if next_in_ms is None else now_ms + next_in_ms
    decision = RetryDecision(retry=True, reason="retry", error_class="timeout", delay_ms=30_000,
                        not_before_ms=now_ms + 30_000)  # fmt: skip
    then = before_next_run(decision, next_ms, lasts_ms)
    assert (then.reason, then.not_before_ms) == (
        ("retry", decision.not_before_ms) if retry else ("next-run", next_ms)
    )
    assert next_ms is None or not before_next_run(decision, next_ms, 10**9, next_ms).retry
    state = decided(run_at(1, trigger_type="cron"), next_run_ms=next_ms, lasts_ms=lasts_ms)
    assert state.fate == "retry"
    if not retry:
        assert (state.reason, state.not_before_ms) == ("next-run", next_ms)
        assert held_run(run_at(1), state, payload_hash=None, inputs=(), error_classes=(), error_code="KFM404",
                        error_message="") is None  # fmt: skip


@pytest.mark.req("GOV-3")
def test_a_release_is_about_what_was_seen() -> None:
    """Any other attempt, error, input or code makes it another request; the wording of a message does not."""
    state = decided(run_at(1), kind=SCHEMA)
    held = held_run(run_at(1), state, payload_hash=digest("a"), inputs=(), error_classes=("schema",),
                    error_code="KFM303", error_message="x")  # fmt: skip
    assert held is not None
    changes: list[dict[str, Any]] = [
        {"attempts": 2}, {"error_code": "KFM309"}, {"payload_hash": digest("b")}, {"code_sha": "other"},
        {"error_classes": ("schema", "schema")}, {"reason": "attempts-spent"}, {"held_at_ms": 1},
    ]  # fmt: skip
    digests = {release_digest(replace(held, **change)) for change in changes}
    assert len(digests | {release_digest(held)}) == len(changes) + 1
    assert release_digest(replace(held, error_message="y")) == release_digest(held)
