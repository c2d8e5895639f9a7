"""The decision whether work may start: one function for every starter. Pure.

What asks is a schedule, a webhook, announced objects, a person, a promised attempt, a preview. Facts are read
before; no other module compares attempts, times, switches or fates to decide on a start.
"""

from __future__ import annotations

from typing import Literal

from kfm.model.gates import GateDecision
from kfm.model.quantities import counted, moment
from kfm.model.quarantine import RetryState
from kfm.model.records import ReasonCode, Record, ReopenReason, Run, Trigger
from kfm.model.requests import TOGETHER, PutOff, RequestOutcome, Settlement, UpdateRequest, spread_ms
from kfm.model.retry_budgets import (
    CIRCUIT_OPEN,
    NOT_RETRIED,
    RETRIED_THEN,
    RetryLimits,
    grant_usage,
    has_attempts,
    is_spent,
    may_be_granted,
    may_be_granted_today,
    prospect,
)
from kfm.model.times import holds, rfc3339

SWITCH_MS = 15_000  # how soon a request that a switch blocks is looked at again; lifting it wakes it
UPSTREAM_CHANGED = ReopenReason(code="upstream-changed", text="Upstream has changed.")


class Asked(Record, frozen=True):
    """What asks for work, as far as the decision needs it."""

    trigger: Trigger
    name: str = ""  # of the request: gives it a place among those that wait for the same thing
    by_person: bool = False  # an interactive terminal, or a call with a declared person's token
    can_wait: bool = False  # a stored request; else it is refused what it would have to wait for
    plan: str | None = None  # the digest that binds what it may promote
    promised: bool = False  # it is an attempt that was promised to its run: never a person's


class StartFacts(Record, frozen=True):
    """What is known when it asks."""

    gates: GateDecision
    is_live: bool = False  # a living process works on the run
    state: RetryState | None = None  # what was decided about the run's last attempt
    acts: tuple[str, ...] = ()  # what the last attempt may have done outside and must not be repeated
    idempotent: bool = True  # its source is declared so
    bound: str | None = None  # the digest that binds the run's attempts
    corrected: Run | None = None  # the run of the same correction
    fingerprint: str | None = None  # upstream's now; None: it was not asked
    reopens: ReopenReason | None = None  # why done work has to run although upstream is unchanged
    circuit: CircuitWait | None = None  # of a provider that it needs
    next_run_ms: int | None = None  # of its schedule: an attempt that is promised ends before
    limits: RetryLimits = RetryLimits()


class CircuitWait(Record, frozen=True):
    """An open circuit, or one that has just closed and lets work through bit by bit."""

    provider: str
    until_ms: int


class StartDecision(Record, frozen=True):
    """May it start?

    admitted: as `how` says · waits: until then, for what blocks it · refused: not by this starter ·
    duplicate: the work is done · busy: a living process does it · compare: upstream's fingerprint decides.
    """

    kind: Literal["admitted", "waits", "refused", "duplicate", "busy", "compare"]
    code: ReasonCode
    reason: str
    run: Run | None = None
    revision: int = 0
    how: Literal["start", "restart"] = "start"
    grant: Literal["", "governed", "inputs", "late"] = ""  # a new grant that comes with it
    until_ms: int = 0
    blocked_by: str = ""


def may_start(asked: Asked, run: Run | None, facts: StartFacts, now_ms: int) -> StartDecision:
    """The decision about the newest run of the work that is asked for; None: there is none."""
    if run is not None and run.status == "running" and facts.is_live:
        return StartDecision(
            kind="busy", code="running", run=run, revision=run.revision, reason="The same work is running."
        )
    if not facts.gates.allowed:
        return _gated(asked, facts, now_ms)
    decision = _by_run(asked, run, facts, now_ms)
    if decision.kind in ("admitted", "compare") and facts.circuit is not None:
        return _waits(decision.code, f"circuit:{facts.circuit.provider}", facts.circuit.until_ms)
    return decision


def _by_run(asked: Asked, run: Run | None, facts: StartFacts, now_ms: int) -> StartDecision:
    trigger, corrected = asked.trigger, facts.corrected
    if corrected is not None and corrected.status == "success" and not trigger.force:
        reason = f"Correction {trigger.correction} was applied as revision {corrected.revision}."
        return _at(corrected, "duplicate", "correction-applied", reason)
    if run is None:
        return StartDecision(kind="admitted", code="first-time", reason="This work has not been done yet.")
    if trigger.force:
        return opens(run, ReopenReason(code="forced", text="Forced"))
    if run.dataset_id != trigger.dataset_id:
        text = f"The source feeds {trigger.dataset_id} now, not {run.dataset_id}"
        return opens(run, ReopenReason(code="dataset-changed", text=text))
    if trigger.correction is not None and run.correction != trigger.correction:
        return opens(run, ReopenReason(code="correction", text=f"Correction {trigger.correction}"))
    if run.status == "success":
        return _done_before(run, facts)
    return _again(asked, run, facts, now_ms)


def _done_before(run: Run, facts: StartFacts) -> StartDecision:
    if facts.fingerprint is None:
        return _at(run, "compare", "compared", f"Done as revision {run.revision}.")
    if facts.fingerprint != run.fingerprint:
        return opens(run, UPSTREAM_CHANGED)
    if facts.reopens is not None:
        return opens(run, facts.reopens)
    return _at(run, "duplicate", "unchanged", f"Upstream is unchanged since revision {run.revision}.")


def opens(run: Run, why: ReopenReason) -> StartDecision:
    """The next revision of the same work."""
    number = run.revision + 1
    reason = f"{why.text.rstrip('.')}: revision {number} opens."
    return StartDecision(kind="admitted", code=why.code, run=run, revision=number, reason=reason)


def _again(asked: Asked, run: Run, facts: StartFacts, now_ms: int) -> StartDecision:
    """A failed run, or one whose worker is gone."""
    failed, person = run.status == "failed", is_answered(asked, facts)
    code: ReasonCode = "attempt-failed" if failed else "attempt-interrupted"
    ended = f"failed with {run.error_code}" if failed else "was interrupted"
    why = f"Attempt {run.attempts} {ended}."
    state = facts.state if facts.state is not None and facts.state.attempt == run.attempts else None
    elsewhere = facts.bound is not None and facts.bound != asked.plan
    # Two persons have answered for another attempt at it, and at nothing else.
    released = state is not None and state.reason == "granted" and not elsewhere
    if facts.acts and not (released or (person and (asked.trigger.rationale or facts.gates.answered))):
        reason = (
            f"{why} It may have acted outside ({', '.join(facts.acts)}): a person has to see what it did."
        )
        return _at(run, "refused", "acted", reason, blocked_by="acts")
    if not facts.idempotent and not (released or person):
        reason = f"{why} Nothing retries it automatically: {NOT_RETRIED['not-idempotent']}."
        return _at(run, "refused", "not-idempotent", reason, blocked_by="acts")
    if elsewhere:
        text = f"Revision {run.revision} publishes what was approved for it, or nothing"
        return opens(run, ReopenReason(code="bound", text=text))
    if state is None or state.reason in ("stopped", TOGETHER):  # nothing was decided against it
        return _restarted(run, code, why)
    if state.fate == "retry":
        return _as_promised(asked, run, state, facts, now_ms, _at(run, "admitted", code, why, how="restart"))
    if person:
        return _by_person(asked, run, state, facts, now_ms, why)
    return _quarantined(run, state, facts, now_ms, why)


def is_answered(asked: Asked, facts: StartFacts) -> bool:
    """Does a person answer for this start: who asks, or who approved it?"""
    return (asked.by_person and not asked.promised) or facts.gates.answered


def _as_promised(
    asked: Asked, run: Run, state: RetryState, facts: StartFacts, now_ms: int, admitted: StartDecision
) -> StartDecision:
    """An attempt is ahead of the run: made when it is due, also late; a person may be earlier."""
    due_ms = state.not_before_ms or 0
    if holds(due_ms, now_ms, due_ms - state.updated_at_ms) and not is_answered(asked, facts):
        return _waits(admitted.code, blocker_of(state), due_ms, run=run)
    overtaken = asked.promised and state.reason != "next-run" and facts.next_run_ms is not None
    if overtaken and facts.next_run_ms is not None and facts.next_run_ms > now_ms:
        return _waits(admitted.code, "next-run", facts.next_run_ms, run=run)
    return admitted


def _by_person(
    asked: Asked, run: Run, state: RetryState, facts: StartFacts, now_ms: int, why: str
) -> StartDecision:
    """Freely within the budget; once its attempts are used up, at other inputs, or with a rationale and a
    ticket."""
    code: ReasonCode = "attempt-failed"
    if not is_spent(run, state, now_ms, facts.limits):
        return _restarted(run, code, why)
    if has_attempts(run, state, facts.limits) and may_be_granted_today(state, now_ms, facts.limits):
        return _at(
            run,
            "admitted",
            code,
            f"{why} Its time is over, its attempts are not.",
            how="restart",
            grant="late",
        )
    trigger, used = asked.trigger, grant_usage(run, state)
    if trigger.rationale and trigger.ticket and may_be_granted(run, state, facts.limits):
        reason = f"{why} Retried past its budget by {trigger.actor} ({trigger.ticket})."
        return _at(run, "admitted", "budget-spent", reason, how="restart", grant="governed")
    if facts.fingerprint is None:
        return _at(run, "compare", "compared", why)
    if facts.fingerprint != state.fingerprint and may_be_granted_today(state, now_ms, facts.limits):
        return _at_other_inputs(run, why)
    spent = f"{why} {counted(used.attempts, 'attempt')} since {rfc3339(used.since_ms)} used up its budget."
    if not may_be_granted(run, state, facts.limits):
        spent += f" It was granted {counted(used.grants, 'time')}; only a new revision (--force) goes on."
    return _at(run, "refused", "budget-spent", spent, blocked_by="budget")


def _quarantined(run: Run, state: RetryState, facts: StartFacts, now_ms: int, why: str) -> StartDecision:
    """A machine may try it again only at other inputs."""
    if facts.fingerprint is None:
        return _at(run, "compare", "compared", why)
    if facts.fingerprint == state.fingerprint:
        given_up = NOT_RETRIED.get(state.reason, NOT_RETRIED[""])
        reason = f"{why} It is not retried automatically: {given_up}. Upstream is unchanged since."
        return _at(run, "refused", "quarantined", reason, blocked_by="quarantine")
    if not may_be_granted_today(state, now_ms, facts.limits):
        reason = (
            f"{why} Upstream has changed, and the work had all grants of the day ({facts.limits.per_day})."
        )
        return _at(run, "refused", "budget-spent", reason, blocked_by="budget")
    return _at_other_inputs(run, why)


def _at_other_inputs(run: Run, why: str) -> StartDecision:
    """A budget is for one content."""
    reason = f"{why} Upstream has changed since."
    return _at(run, "admitted", "inputs-changed", reason, how="restart", grant="inputs")


def _gated(asked: Asked, facts: StartFacts, now_ms: int) -> StartDecision:
    """A switch and a freeze are waited for, where waiting is possible; every other gate refuses."""
    blocker = facts.gates.first_blocker
    assert blocker is not None, "what is not allowed has a blocker"
    if asked.can_wait and blocker.gate == "switch":
        until_ms = now_ms + SWITCH_MS + spread_ms(asked.name, SWITCH_MS)
        return _waits("blocked", "switch", until_ms, blocker.reason)
    if asked.can_wait and blocker.gate == "freeze" and isinstance(blocker.until_ms, int):
        return _waits("blocked", "freeze", blocker.until_ms + spread_ms(asked.name), blocker.reason)
    # It answers with no run: what was done before is not what was asked for.
    return StartDecision(
        kind="refused", code="blocked", reason=blocker.reason, blocked_by=f"gate:{blocker.gate}"
    )


def blocker_of(state: RetryState) -> str:
    """What a promised attempt waits for, as a request names it."""
    return state.reason if state.reason in RETRIED_THEN else "retry"


def may_preview(request: UpdateRequest, limits: RetryLimits) -> bool:
    """May its preview be made once more? Not where each try so far has ended its process."""
    return request.tries <= limits.of(request.kind).attempts_max


def settlement(
    state: RetryState, reason: str, now_ms: int, *, outcome: str = "failed", provider: str | None = None
) -> Settlement:
    """What becomes of the requests of a run whose attempt has ended without success: they wait for the next
    one, or end with it."""
    reason = f"{reason} {prospect(state, now_ms)}."
    if state.fate != "retry":
        return RequestOutcome(state="done", outcome=outcome, reason=reason)
    blocked_by = blocker_of(state)
    return PutOff(
        not_before_ms=state.not_before_ms or 0,
        blocked_by=f"circuit:{provider}" if blocked_by == CIRCUIT_OPEN and provider else blocked_by,
        reason=reason,
    )


def _waits(
    code: ReasonCode, blocked_by: str, until_ms: int, reason: str = "", *, run: Run | None = None
) -> StartDecision:
    """`run`: what it waits for is that run's promised attempt; it ends with that run."""
    kind = CIRCUIT_OPEN if blocked_by.startswith("circuit:") else blocked_by
    because = RETRIED_THEN.get(kind, RETRIED_THEN["retry"])
    return StartDecision(
        kind="waits",
        code=code,
        run=run,
        revision=run.revision if run else 0,
        reason=reason or f"It waits until {moment(until_ms)}, {because}.",
        until_ms=until_ms,
        blocked_by=blocked_by,
    )


def _restarted(run: Run, code: ReasonCode, why: str) -> StartDecision:
    return _at(run, "admitted", code, why, how="restart")


def _at(
    run: Run,
    kind: Literal["admitted", "refused", "duplicate", "compare"],
    code: ReasonCode,
    reason: str,
    *,
    how: Literal["start", "restart"] = "start",
    grant: Literal["", "governed", "inputs", "late"] = "",
    blocked_by: str = "",
) -> StartDecision:
    return StartDecision(
        kind=kind,
        code=code,
        reason=reason,
        run=run,
        revision=run.revision,
        how=how,
        grant=grant,
        blocked_by=blocked_by,
    )
