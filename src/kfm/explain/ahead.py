"""What a run that has not succeeded has ahead of it: attempts, time, and when the next one is made."""

from __future__ import annotations

from kfm.core.grants import budget_ends_ms, standing
from kfm.core.holding import RetryState
from kfm.core.records import Run
from kfm.core.retry import policy_for
from kfm.core.retry_rules import retry_rules
from kfm.core.wording import counted, duration, moment
from kfm.explain.sentences import Sentence, of_run
from kfm.ports import LedgerReader

_WHY_THEN = {
    "retry-after": "because upstream asked for that much time",
    "circuit-open": "because its provider is left alone until then",
    "granted": "because somebody granted it new attempts",
    "next-run": "together with the next run of its schedule, which its retries never overlap",
}
_WHY_NOT = {
    "non-retryable": "its error is of a class that trying again does not cure",
    "attempts-spent": "its attempts are used up",
    "budget-spent": "the time of its budget is over",
    "retry-after-exceeds-budget": "upstream asked for more time than its budget has",
    "not-idempotent": (
        "its source is declared `idempotent: false`; where doing it twice does no more harm than doing it "
        "once, say `idempotent: true`"
    ),
    "acted": (
        "its pipeline made a call that is declared idempotent=False; where doing that twice does no more "
        "harm than doing it once, say kfm.call(…, idempotent=True)"
    ),
    "stopped": "somebody stopped it",
    "superseded": "a newer revision of the same work has begun",
    "source-gone": "its source is not in the configuration any more",
    "code-changed": "its pipeline has changed since, and with the new code it is other work",
    "dataset-changed": "its source feeds another dataset now",
}


def ahead(ledger: LedgerReader, run: Run, now_ms: int) -> list[Sentence]:
    if run.status == "success":
        return []
    state = ledger.retry_state(run.run_id)
    told = [_attempts(run, state), _budget(run, state, now_ms)]
    if run.status == "failed":
        told.append(_next(run, state, now_ms))
    return [of_run(text, run) for text in told]


def _attempts(run: Run, state: RetryState | None) -> str:
    used, limit = standing(run, state), policy_for(run.trigger_type).attempts_max
    left = max(0, limit - used.attempts)
    return (
        f"Of grant {used.grants} (at most {retry_rules().grants_max} are given) {used.attempts} of "
        f"{counted(limit, 'attempt')} are used and {left} left; what a breaker refused is not counted."
    )


def _budget(run: Run, state: RetryState | None, now_ms: int) -> str:
    since_ms, ends_ms = standing(run, state).since_ms, budget_ends_ms(run, state)
    used_ms = max(0, min(now_ms, ends_ms) - since_ms)
    left = f"{duration(ends_ms - now_ms)} left" if now_ms < ends_ms else "nothing left"
    return (
        f"Its budget of {duration(ends_ms - since_ms)} began at {moment(since_ms)} and ends at "
        f"{moment(ends_ms)}: {duration(used_ms)} used, {left}."
    )


def _next(run: Run, state: RetryState | None, now_ms: int) -> str:
    if state is None or state.attempt < run.attempts:
        return "Nobody has decided yet whether it is tried again by itself; the next `kfm retry --due` does."
    if state.fate != "retry":
        why = _WHY_NOT.get(state.reason, state.reason)
        held = " It is held: `kfm quarantine list`." if state.fate == "quarantine" else ""
        return f"Nothing tries it again by itself: {why}.{held}"
    at_ms = state.not_before_ms or now_ms
    why = _WHY_THEN.get(state.reason, "by the backoff of its trigger, with jitter")
    due = "is due since" if at_ms <= now_ms else "is not made before"
    return f"The next automatic attempt {due} {moment(at_ms)}, {why}; `kfm retry --due` makes it then."
