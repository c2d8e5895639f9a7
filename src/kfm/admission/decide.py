"""What a call means, given what the ledger says of the same work. Pure."""

from __future__ import annotations

from typing import Literal

from kfm.core.grants import is_spent, may_be_granted, standing
from kfm.core.holding import RetryState
from kfm.core.records import Lock, Record, Run, Trigger
from kfm.core.times import rfc3339


class Verdict(Record, frozen=True):
    """start: a new revision · restart: the same run again · compare: ask upstream first ·
    done: nothing to ask · busy: somebody is at it · stop: a person has to answer for it."""

    kind: Literal["start", "restart", "compare", "done", "busy", "stop"]
    reason: str
    revision: int = 0
    run: Run | None = None
    governed: bool = False  # past the budget, answered for


def is_live(lock: Lock | None, run: Run, now_ms: int, dead: bool) -> bool:
    """Does somebody hold the lock for this run, with time left, and is not known to be dead?"""
    return (
        lock is not None
        and lock.holder is not None
        and lock.holder.run_id == run.run_id
        and lock.lease_until_ms > now_ms
        and not dead
    )


def decide(
    run: Run | None, trigger: Trigger, *, live: bool, now_ms: int, state: RetryState | None = None
) -> Verdict:
    if run is None:
        return Verdict(kind="start", reason="This work has not been done yet.")
    if run.status == "running" and live:
        return Verdict(kind="busy", run=run, reason="The same work is running.")
    if trigger.force:
        return _next(run, "Forced")
    if run.dataset_id != trigger.dataset_id:
        return _next(run, f"The source feeds {trigger.dataset_id} now, not {run.dataset_id}")
    if trigger.correction is not None and run.correction != trigger.correction:
        return _next(run, f"Correction {trigger.correction}")
    if run.status == "success":
        reason = f"Done as revision {run.revision}."
        return Verdict(kind="compare", run=run, revision=run.revision, reason=reason)
    return _again(run, trigger, now_ms, state)


def _next(run: Run, why: str) -> Verdict:
    """A new revision of the same work."""
    number = run.revision + 1
    return Verdict(kind="start", run=run, revision=number, reason=f"{why}: revision {number} opens.")


def _again(run: Run, trigger: Trigger, now_ms: int, state: RetryState | None) -> Verdict:
    """A failed run, or one whose worker is gone: within budget freely, past it answered for."""
    why = (
        f"Attempt {run.attempts} failed with {run.error_code}."
        if run.status == "failed"
        else f"Attempt {run.attempts} was interrupted."
    )
    if not is_spent(run, state, now_ms):
        return Verdict(kind="restart", run=run, revision=run.revision, reason=why)
    if trigger.rationale and trigger.ticket and may_be_granted(run, state):
        return Verdict(
            kind="restart",
            run=run,
            revision=run.revision,
            governed=True,
            reason=f"{why} Retried past its budget by {trigger.actor} ({trigger.ticket}).",
        )
    used = standing(run, state)
    spent = f"{why} {used.attempts} attempts since {rfc3339(used.since_ms)} have used up its budget."
    if not may_be_granted(run, state):
        spent += f" It was granted {used.grants} times; only a new revision (--force) goes on."
    return Verdict(kind="stop", run=run, revision=run.revision, reason=spent)
