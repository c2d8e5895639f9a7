"""Retry budgets: how many attempts and how much time a run or a unit still has."""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from kfm.model.quantities import moment
from kfm.model.quarantine import NOT_HELD, Fate, RetryState
from kfm.model.records import Record, Run
from kfm.model.requests import TOGETHER
from kfm.model.retry import (
    Classification,
    RetryPolicy,
    before_next_run,
    budget_state,
    decide_retry,
    policy_for,
)
from kfm.model.settings import RetrySettings, Settings

REAPED = Classification(retryable=True, error_class="lease")  # the process is gone, the work may be fine
CIRCUIT_OPEN = "circuit-open"
DAY_MS = 86_400_000
NEEDS_APPROVAL = "needs-approval"
# Why the next attempt is due then, and why there is none: half sentences. The twin reads them, too.
RETRIED_THEN = {
    "retry": "by the backoff of its trigger, with jitter",
    "retry-after": "because its provider is not to be called before",
    CIRCUIT_OPEN: "because its provider's circuit is open until then",
    "granted": "because it was granted new attempts",
    "switch": "because of a switch",
    "freeze": "because of a freeze",
    "next-run": "together with the next run of its schedule, which its retries never overlap",
}
NOT_RETRIED = {
    "non-retryable": "its error is of a class that trying again does not cure",
    "attempts-spent": "its attempts are used up",
    "budget-spent": "the time of its budget is over",
    "retry-after-exceeds-budget": "its provider is not to be called for more time than its budget has",
    "not-idempotent": (
        "its source is declared `idempotent: false`; where doing it twice does no more harm than doing it "
        "once, say `idempotent: true`"
    ),
    "acted": (
        "its pipeline made a call that is declared idempotent=False; where doing that twice does no more "
        "harm than doing it once, say kfm.call(…, idempotent=True)"
    ),
    NEEDS_APPROVAL: "it was approved for one attempt only",
    "stopped": "it was stopped by a person",
    "superseded": "a newer revision of the same work has begun",
    "source-gone": "its source is not in the configuration any more",
    "code-changed": "its pipeline has changed since, and with the new code it is other work",
    "dataset-changed": "its source feeds another dataset now",
    "refused": "a rule refuses it now",
    "drifted": "what it would publish now is not what was approved",
    TOGETHER: "it is published together with other windows, or not at all; asked for again, all are tried",
    "": "it was given up",
}


class GrantUsage(Record, frozen=True):
    """What the present grant has been used for."""

    grants: int
    attempts: int
    since_ms: int


def grant_usage(run: Run, state: RetryState | None) -> GrantUsage:
    """Attempts that were never judged, because their process died, count."""
    if state is None:
        return GrantUsage(grants=1, attempts=run.attempts, since_ms=run.start_time_ms)
    return GrantUsage(
        grants=state.grants,
        attempts=state.grant_attempts + run.attempts - state.attempt,
        since_ms=state.granted_at_ms,
    )


class RetryLimits(Record, frozen=True):
    """The limits of a source's runs: what is configured, the nearest last, else the shipped matrix."""

    chosen: tuple[RetrySettings, ...] = ()

    def of(self, trigger_type: str) -> RetryPolicy:
        return policy_for(trigger_type, self.chosen)

    @property
    def grants(self) -> int:
        """Grants for one content."""
        return self.of("manual").grants_max

    @property
    def per_day(self) -> int:
        """Grants of one piece of work in a day, whatever its content."""
        return self.of("manual").grants_per_day_max


DEFAULTS = RetryLimits()


def limits_of(settings: Settings | None, source_id: str) -> RetryLimits:
    """The limits of a source as configured now; of one that is not declared any more the project's."""
    return DEFAULTS if settings is None else RetryLimits(chosen=settings.retry_of(source_id))


def budget_ends_ms(run: Run, state: RetryState | None, limits: RetryLimits = DEFAULTS) -> int:
    """Until when attempts need no person who answers for them; the calls' waiting is in it."""
    return grant_usage(run, state).since_ms + limits.of(run.trigger_type).budget_ms


def is_spent(run: Run, state: RetryState | None, now_ms: int, limits: RetryLimits = DEFAULTS) -> bool:
    """Does the next attempt need a person who answers for it?"""
    now = grant_usage(run, state)
    return budget_state(now.attempts, now.since_ms, now_ms, limits.of(run.trigger_type)) != "free"


def has_attempts(run: Run, state: RetryState | None, limits: RetryLimits = DEFAULTS) -> bool:
    """Has the present grant attempts left, whatever the time is?"""
    return grant_usage(run, state).attempts < limits.of(run.trigger_type).attempts_max


def may_be_granted(run: Run, state: RetryState | None, limits: RetryLimits = DEFAULTS) -> bool:
    """Grants are few: after the last one only a new revision goes on."""
    return grant_usage(run, state).grants < limits.grants


def may_be_granted_today(state: RetryState | None, now_ms: int, limits: RetryLimits = DEFAULTS) -> bool:
    """One piece of work gets so many grants in a UTC day, whatever its inputs are."""
    return _grants_of_day(state, now_ms) < limits.per_day


def _grants_of_day(state: RetryState | None, now_ms: int) -> int:
    today = state is not None and state.granted_at_ms // DAY_MS == now_ms // DAY_MS
    return state.day_grants if state is not None and today else 0


def granted(run: Run, state: RetryState | None, now_ms: int, *, fingerprint: str | None = None) -> RetryState:
    """A new grant for a run that has ended: its attempts and its time begin anew, and it is due at once.

    `fingerprint`: of other inputs than those of the last attempt; their grants are counted from one.
    """
    return RetryState(
        run_id=run.run_id,
        attempt=run.attempts,
        grants=1 if fingerprint is not None else grant_usage(run, state).grants + 1,
        grant_attempts=0,
        granted_at_ms=now_ms,
        not_before_ms=now_ms,
        fate="retry",
        error_class=state.error_class if state else "unknown",
        reason="granted",
        updated_at_ms=now_ms,
        fingerprint=fingerprint or (state.fingerprint if state else None),
        day_grants=_grants_of_day(state, now_ms) + 1,
    )


def judge(
    run: Run,
    kind: Classification,
    prior: RetryState | None,
    *,
    now_ms: int,
    unit_random: float,
    asked_ms: int | None = None,
    idempotent: bool = True,
    acted: bool = False,
    counts: bool = True,
    stopped: bool = False,
    next_run_ms: int | None = None,
    lasts_ms: int = 0,
    fingerprint: str | None = None,
    limits: RetryLimits = DEFAULTS,
) -> RetryState:
    """What becomes of a run whose attempt has just ended without success.

    `asked_ms`: how long upstream wants us to wait. `acted`: the attempt did something on the outside that
    must not be repeated. `counts`: False where a breaker refused the call, so that nothing was tried.
    `stopped`: a person ended it on purpose; only a person starts it again.
    `next_run_ms`: when the schedule begins its next run, with which what is left is tried.
    `fingerprint`: of the inputs that the attempt saw; other ones than before have a budget of their own.
    """
    now, day_grants = grant_usage(run, prior), prior.day_grants if prior else 0
    if _has_other_inputs(prior, fingerprint) and may_be_granted_today(prior, now_ms, limits):
        now = GrantUsage(grants=1, attempts=1, since_ms=now_ms - lasts_ms)
        day_grants = _grants_of_day(prior, now_ms) + 1
    attempts = now.attempts if counts else now.attempts - 1
    policy = limits.of(run.trigger_type)
    decision = decide_retry(kind, policy, attempts, now.since_ms, now_ms, unit_random, asked_ms)
    decision = before_next_run(decision, next_run_ms, lasts_ms, now.since_ms + policy.budget_ms)
    fate: Fate = "retry" if decision.retry else "spent"
    reason = decision.reason
    if reason == "retry" and asked_ms is not None and asked_ms >= (decision.delay_ms or 0):
        reason = CIRCUIT_OPEN if kind.error_class == CIRCUIT_OPEN else "retry-after"
    if stopped:
        fate, reason = "spent", "stopped"
    elif not kind.retryable:
        fate = "quarantine"
    elif not idempotent:
        fate, reason = "spent", "not-idempotent"
    elif acted:
        fate, reason = "spent", "acted"
    elif fate == "spent" and now.grants >= limits.grants:
        fate = "quarantine"
    return RetryState(
        run_id=run.run_id,
        attempt=run.attempts,
        grants=now.grants,
        grant_attempts=attempts,
        granted_at_ms=now.since_ms,
        not_before_ms=decision.not_before_ms,
        fate=fate,
        error_class=kind.error_class,
        reason=reason,
        updated_at_ms=now_ms,
        fingerprint=fingerprint or (prior.fingerprint if prior else None),
        day_grants=day_grants,
    )


def _has_other_inputs(prior: RetryState | None, fingerprint: str | None) -> bool:
    known = prior.fingerprint if prior else None
    return known is not None and fingerprint is not None and known != fingerprint


def given_up(state: RetryState, reason: str, now_ms: int) -> RetryState:
    """An automatic attempt that will not be made after all."""
    return replace(state, fate="spent", reason=reason, updated_at_ms=now_ms)


def attended(state: RetryState, approved: bool, now_ms: int) -> RetryState:
    """Work that a second person approved for one attempt is never tried again by itself."""
    return given_up(state, NEEDS_APPROVAL, now_ms) if approved and state.fate == "retry" else state


def tied(state: RetryState, together: bool, now_ms: int) -> RetryState:
    """Work that was to be published together with other windows is never tried again alone by itself."""
    return given_up(state, TOGETHER, now_ms) if together and state.fate == "retry" else state


def prospect(state: RetryState, now_ms: int) -> str:
    """What happens by itself to a run that has failed, and why; without the full stop."""
    if state.fate != "retry":
        why = NOT_RETRIED.get(state.reason, NOT_RETRIED[""])
        held = "" if state.reason in NOT_HELD else "; it is quarantined"
        return f"It is not retried automatically: {why}{held}"
    at_ms = state.not_before_ms or now_ms
    due = "is due since" if at_ms <= now_ms else "is not made before"
    why = RETRIED_THEN.get(state.reason, RETRIED_THEN["retry"])
    return f"The next automatic attempt {due} {moment(at_ms)}, {why}"


TRIGGER = "upstream-event"
LAPSED = Classification(retryable=True, error_class="lease")


def unit_policy(settings: Settings | None, dataset_id: str) -> RetryPolicy:
    """The attempts, delays, budget and grants of a dataset's units, as configured now."""
    return policy_for(TRIGGER, () if settings is None else settings.unit_retry_of(dataset_id))


class Outlook(Record, frozen=True):
    fate: Literal["retry", "spent", "quarantine"]
    reason: str
    not_before_ms: int | None = None


def fate_of(
    kind: Classification,
    *,
    grants: int,
    grant_attempts: int,
    granted_at_ms: int,
    now_ms: int,
    unit_random: float,
    asked_ms: int | None = None,
    charged: bool = True,
    policy: RetryPolicy | None = None,
) -> Outlook:
    """After a failure. `grant_attempts` includes the attempt that just ended, which may not be charged."""
    attempts = grant_attempts if charged else grant_attempts - 1
    policy = policy or policy_for(TRIGGER)
    decision = decide_retry(kind, policy, attempts, granted_at_ms, now_ms, unit_random, asked_ms)
    if decision.retry:
        return Outlook(fate="retry", reason=decision.reason, not_before_ms=decision.not_before_ms)
    if not kind.retryable:
        return Outlook(fate="quarantine", reason=decision.reason)
    if grants >= policy.grants_max:
        return Outlook(fate="quarantine", reason="grants-spent")
    return Outlook(fate="spent", reason=decision.reason)


def lapse_fate(
    *,
    alone: bool,
    grants: int,
    grant_attempts: int,
    granted_at_ms: int,
    now_ms: int,
    unit_random: float,
    policy: RetryPolicy | None = None,
) -> Outlook:
    """After a lease lapsed."""
    if not alone:
        return Outlook(fate="retry", reason="isolate")  # claimed again at once, by itself
    return fate_of(
        LAPSED,
        grants=grants,
        grant_attempts=grant_attempts,
        granted_at_ms=granted_at_ms,
        now_ms=now_ms,
        unit_random=unit_random,
        policy=policy,
    )
