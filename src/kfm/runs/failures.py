"""Failures of runs: retry, when and how often, or quarantine; and what dead processes left behind."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kfm.calls.guard import classify_call
from kfm.calls.runtime import handed_up
from kfm.model.errors import Cancelled, CircuitOpen, KfmError, PlanDrifted, SwitchThrown
from kfm.model.quarantine import RetryState
from kfm.model.records import Record, Run
from kfm.model.retry import (
    CAUSES_MAX,
    UNKNOWN,
    Classification,
    classify,
    classify_exception,
    failure_of,
    policy_for,
)
from kfm.model.retry_budgets import REAPED, grant_usage, judge
from kfm.model.times import rfc3339
from kfm.model.transactions import Reaped
from kfm.model.wording import counted, moment
from kfm.ports import Liveness
from kfm.runs.kernel import Kernel

if TYPE_CHECKING:
    from kfm.db.ledger import Ledger

STOPPED = (Cancelled, SwitchThrown, PlanDrifted)  # ended on purpose
CIRCUIT_OPEN = Classification(retryable=True, error_class="circuit-open")


class Advice(Record, frozen=True):
    """What happens next after a failure, for the person who reads it."""

    retryable: bool
    error_class: str
    attempts_left: int
    free_until: str  # the end of the budget window, UTC
    sentence: str


def kind_of(error: BaseException) -> Classification:
    """Is it worth another attempt? What an adapter saw of upstream's answer says most."""
    for each in _causes(error):
        if isinstance(each, CircuitOpen):
            return CIRCUIT_OPEN
        if (handed := handed_up(each)) is not None:  # a pipeline's own call has judged it
            return Classification(retryable=handed.retryable, error_class=handed.error_class)
        if isinstance(each, KfmError) and {"transient", "status"} & each.facts.keys():
            return classify_call(each)
        if classify(failure_of(each)) != UNKNOWN:
            break  # it speaks for itself
    return classify_exception(error)


def has_opened(error: BaseException) -> bool:
    """Was it the failure that opened a provider's circuit, or was it refused by one?"""
    return any(
        isinstance(each, CircuitOpen) or (isinstance(each, KfmError) and bool(each.facts.get("circuit_open")))
        for each in _causes(error)
    )


def judged(
    run: Run,
    error: KfmError,
    prior: RetryState | None,
    *,
    idempotent: bool,
    now_ms: int,
    unit_random: float,
    acted: bool = False,
    automatic: bool = False,
    next_run_ms: int | None = None,
    lasts_ms: int = 0,
) -> RetryState:
    """What becomes of a run whose attempt has just ended with this error.

    Stopping a process that makes due retries ends that process; it says nothing about its runs.
    """
    ended_with_process = automatic and isinstance(error, Cancelled)
    return judge(
        run,
        REAPED if ended_with_process else kind_of(error),
        prior,
        now_ms=now_ms,
        unit_random=unit_random,
        asked_ms=_asked_ms(error, now_ms),
        idempotent=idempotent,
        counts=not any(isinstance(each, CircuitOpen) for each in _causes(error)),
        stopped=isinstance(error, STOPPED) and not ended_with_process,
        acted=acted,
        next_run_ms=next_run_ms,
        lasts_ms=lasts_ms,
    )


def advise(run: Run, state: RetryState, now_ms: int) -> Advice:
    """What happens next by itself, and what a person can do."""
    policy = policy_for(run.trigger_type)
    used = grant_usage(run, state)
    left = max(0, policy.attempts_max - used.attempts)
    ends_ms = used.since_ms + policy.budget_ms
    free = f"{counted(left, 'attempt')} {'is' if left == 1 else 'are'} free until {moment(ends_ms)}"
    if left == 0 or now_ms >= ends_ms:
        sentence = "The budget is used up: the next attempt needs --rationale and --ticket."
    elif state.fate == "retry":
        now = "The same command tries again at once"
        if state.reason == CIRCUIT_OPEN.error_class:
            now = "Until then its provider is not called, and no attempt is spent"
        elif state.reason == "retry-after":  # upstream asked for it, or the circuit that these tries opened
            now += ", unless its provider's circuit is open (`kfm breaker list`)"
        due = "is due"
        if state.reason == "next-run":
            due = "is made with the next run of its schedule, due"
        sentence = (
            f"The next automatic attempt {due} at {moment(state.not_before_ms or now_ms)}: "
            f"`kfm retry --due` makes it then. {now}; {free}."
        )
    else:
        sentence = f"{_WHY_NOT.get(state.reason, _WHY_NOT[''])}; {free}."
    return Advice(
        retryable=state.fate == "retry",
        error_class=state.error_class,
        attempts_left=left,
        free_until=rfc3339(ends_ms),
        sentence=sentence,
    )


_WHY_NOT = {
    "non-retryable": (
        "Trying again will not help before the cause is gone, so it is held (`kfm quarantine list`)"
    ),
    "stopped": "It was stopped, so nothing tries it again by itself; the same command does",
    "not-idempotent": (
        "Its source is declared `idempotent: false`, so nothing tries it again by itself: see what the "
        "attempt has done on the outside, then use the same command. Where doing it twice does no more harm "
        "than doing it once, say `idempotent: true`"
    ),
    "acted": (
        "Its pipeline made a call that is declared `idempotent=False`, so nothing tries it again by itself: "
        "see what that call has done, then use the same command. Where doing it twice does no more harm than "
        "doing it once, declare it: kfm.call(…, idempotent=True)"
    ),
    "needs-approval": (
        "It was approved for this attempt only, so nothing tries it again by itself: ask for another "
        "approval with `kfm approvals request --run RUN --rationale TEXT`, then use the same command"
    ),
    "retry-after-exceeds-budget": (
        "Upstream asks for more time than the budget has, so it is held as a dead letter; the same command "
        "tries again"
    ),
    "": "Nothing tries it again by itself, and it is held as a dead letter; the same command tries again",
}


def _asked_ms(error: BaseException, now_ms: int) -> int | None:
    """How long upstream, or its breaker, wants us to stay away."""
    for each in _causes(error):
        handed = handed_up(each)
        at_ms = handed.not_before_ms if handed is not None else None
        if at_ms is None and isinstance(each, KfmError):
            at_ms = each.facts.get("not_before_ms")
        if isinstance(at_ms, int):
            return max(0, at_ms - now_ms)
    return None


def _causes(error: BaseException) -> list[BaseException]:
    """The error and what it was raised from."""
    found: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and len(found) < CAUSES_MAX:
        found.append(current)
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return found


logger = logging.getLogger(__name__)


def sweep(store: Ledger, liveness: Liveness) -> list[Reaped]:
    """End the runs whose process is gone, so that their locks are free and their work can be resumed."""
    reaped = store.reap(liveness.is_dead)
    for each in reaped:
        why = "its lease has lapsed" if each.lapsed else "its process is gone"
        logger.info(
            "recover: run %s was interrupted (%s); %s is free again",
            each.run_id,
            why,
            each.scope,
            extra={"run_id": each.run_id, "scope": each.scope},
        )
    return reaped


def next_run_ms(kernel: Kernel, run: Run) -> int | None:
    """When the next run of the same schedule begins; None for whatever was not started by one.

    What a failed run leaves is tried with that one: its retries never overlap it.
    """
    return kernel.next_scheduled_ms(run) if run.trigger_type == "cron" else None
