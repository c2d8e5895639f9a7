"""What a failure means for the run that met it: try again, when, and how often."""

from __future__ import annotations

from kfm.core.classify import classify_exception
from kfm.core.errors import KfmError
from kfm.core.records import Record, Run
from kfm.core.retry import policy_for
from kfm.core.times import rfc3339
from kfm.core.wording import counted, moment


class Advice(Record, frozen=True):
    """For the person who reads the failure."""

    retryable: bool
    error_class: str
    attempts_left: int
    free_until: str  # the end of the budget window, UTC
    sentence: str


def advise(run: Run, error: KfmError, now_ms: int) -> Advice:
    kind = classify_exception(error)
    policy = policy_for(run.trigger_type)
    left = max(0, policy.attempts_max - run.attempts)
    ends_ms = run.start_time_ms + policy.budget_ms
    free = left > 0 and now_ms < ends_ms
    attempts = f"{counted(left, 'attempt')} {'is' if left == 1 else 'are'}"
    if free and kind.retryable:
        sentence = f"The same command tries again; {attempts} free until {moment(ends_ms)}."
    elif free:
        sentence = (
            f"Trying again will not help before the cause is gone; {attempts} free until {moment(ends_ms)}."
        )
    else:
        sentence = "The budget is used up: the next attempt needs --rationale and --ticket."
    return Advice(
        retryable=kind.retryable,
        error_class=kind.error_class,
        attempts_left=left,
        free_until=rfc3339(ends_ms),
        sentence=sentence,
    )
