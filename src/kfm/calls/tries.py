"""The tries of one call: what is permitted, what a failure means, when the next one is due.

The loops of synchronous code, of coroutines and of `for attempt in …` differ in how they wait and
in nothing else; what they decide is decided here.
"""

from __future__ import annotations

from kfm.calls.deadlines import DEADLINE_MS
from kfm.calls.foreign import classify_error, retry_after_ms
from kfm.calls.plan import Plan
from kfm.calls.surroundings import HERE
from kfm.calls.tried import FailedTry, HandedUp, Outcome, handed_up, mark
from kfm.core.classify import UNKNOWN, Classification
from kfm.core.errors import CallTimedOut, CircuitOpen, KfmError
from kfm.core.retry import decide_call_retry

# An error of one of these classes is an answer: the provider is up, and does not like what we ask.
_ANSWERS = ("access", "missing", "neo4j-client")

_WHY = {
    "not-idempotent": (
        "Not tried again: {call} is not declared idempotent. If doing it twice does no more harm than "
        "doing it once, declare it: kfm.call(…, idempotent=True)."
    ),
    "attempts-spent": "Not tried again: {attempts} attempts were made.",
    "deadline-spent": "Not tried again: the next try would begin after the deadline{asked}.",
    "retry-after-for-run-tier": "Not tried again now{asked}, which is too long to wait inside a step.",
    "circuit-open": "Not tried again now: {provider} failed three times in a row and is left alone.",
    "retried-inside": "Not tried again: a call inside {call} has done so already.",
    "abandoned": "Not tried again: the try that was abandoned may still be running.",
}


class Tries:
    """The state of one call. `open` before each try, then `succeeded` or `failed`."""

    __slots__ = ("_deadline_ms", "_fence", "_last", "_outer", "attempt", "limit_ms", "plan", "until_ms")

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.attempt = 0
        self.limit_ms = 0  # what this try may take
        self.until_ms = 0  # the same as a monotonic time
        self._fence: int | None = None
        self._last: FailedTry | None = None
        outer_ms = DEADLINE_MS.get()
        own_ms = HERE.clock.monotonic_ms() + plan.timeout_ms
        self._outer = outer_ms is not None and outer_ms < own_ms
        self._deadline_ms = outer_ms if outer_ms is not None and outer_ms < own_ms else own_ms

    def open(self) -> None:
        """Begin a try: there must be time left, and the circuit must let it pass."""
        plan = self.plan
        left_ms = self._deadline_ms - HERE.clock.monotonic_ms()
        self.limit_ms = left_ms
        if left_ms <= 0:
            raise self.timed_out("nothing was left of its time, so it was not made")
        if plan.attempt_timeout_ms is not None and plan.attempt_timeout_ms < left_ms:
            self.limit_ms = plan.attempt_timeout_ms
        self.until_ms = self._deadline_ms - left_ms + self.limit_ms
        circuit = plan.line.circuit
        if not circuit.quiet:
            self._fence = circuit.before()
        self.attempt += 1

    def succeeded(self) -> None:
        circuit = self.plan.line.circuit
        if not circuit.quiet:
            circuit.after(True, self._fence)
        if self._last is not None and HERE.hearer is not None:
            HERE.hearer(_with_outcome(self._last, "recovered"))

    def failed(self, error: Exception) -> int | None:
        """After a try failed: how long to wait, in ms; None if the error is to be raised."""
        plan = self.plan
        kind = classify_error(error)
        if kind == UNKNOWN and isinstance(error, plan.retry_on):
            kind = Classification(retryable=True, error_class="declared")
        now_ms = HERE.clock.now_ms()
        asked_ms = retry_after_ms(error, now_ms)
        open_ms = self._tell_circuit(error, kind)
        decision = decide_call_retry(
            kind,
            plan.policy,
            self.attempt,
            now_ms + self._deadline_ms - HERE.clock.monotonic_ms(),
            now_ms,
            HERE.rng.unit(),
            asked_ms,
        )
        reason, not_before_ms = decision.reason, decision.not_before_ms
        if kind.retryable and reason != "retry-after-for-run-tier":
            not_before_ms = None if asked_ms is None else now_ms + asked_ms
            if open_ms:
                reason, not_before_ms = "circuit-open", now_ms + max(open_ms, asked_ms or 0)
            elif not plan.idempotent:
                reason = "not-idempotent"
            elif reason == "retry" and self._retried_inside(error):
                reason = "retried-inside"
            elif reason == "retry" and isinstance(error, CallTimedOut) and error.facts.get("abandoned"):
                reason = "abandoned"
        retry = reason == "retry"
        self._last = FailedTry(
            call=plan.name,
            provider=plan.line.provider,
            attempt=self.attempt,
            outcome="retry" if retry else "gave-up",
            reason=reason,
            error_class=kind.error_class,
            retryable=kind.retryable,
            delay_ms=(decision.delay_ms or 0) if retry else 0,
            not_before_ms=decision.not_before_ms if retry else not_before_ms,
            circuit_open=bool(open_ms),
            error=error,
        )
        hook = plan.on_retry if retry else plan.on_give_up
        if not retry:
            self._hand_up(error, self._last, asked_ms)
        for hear in (hook, HERE.hearer):
            if hear is not None:
                hear(self._last)
        return self._last.delay_ms if retry else None

    def timed_out(self, how: str, *, abandoned: bool = False) -> CallTimedOut:
        """The error of a limit that was reached, naming whose limit it was."""
        plan = self.plan
        if plan.attempt_timeout_ms is not None and self.limit_ms == plan.attempt_timeout_ms:
            cause, whose = (
                "attempt-timeout",
                f"the limit of one try, {plan.attempt_timeout_ms / 1000:g} s",
            )
        elif self._outer:
            cause, whose = "outer-deadline", "what was left to the code around it"
        else:
            cause, whose = "timeout", f"its limit, {plan.timeout_ms / 1000:g} s"
        return CallTimedOut(
            f"{plan.name}: {how} ({whose}).",
            call=plan.name,
            provider=plan.line.provider,
            expired=cause,
            limit_ms=self.limit_ms,
            abandoned=abandoned,
        )

    def _tell_circuit(self, error: Exception, kind: Classification) -> int:
        """Blame or thank the provider; what is neither (a defect of ours, say) is not told.

        Returns how long the provider is now left alone. A refusal by the circuit itself is no news of it.
        """
        circuit = self.plan.line.circuit
        if isinstance(error, CircuitOpen) or handed_up(error) is not None:
            return 0
        if kind.retryable:
            circuit.after(False, self._fence)
        elif kind.error_class.startswith("HTTP_") or kind.error_class in _ANSWERS:
            circuit.after(True, self._fence)
        self._fence = None
        return 0 if circuit.quiet else circuit.wait_ms()

    def _retried_inside(self, error: Exception) -> bool:
        """Tiers are not multiplied: what another call has retried, or handed up, is not retried here."""
        for cause in (error, error.__cause__):
            inner = handed_up(cause) if cause is not None else None
            if inner is not None and inner.call != self.plan.name and inner.attempts > 1:
                return True
        return False

    def _hand_up(self, error: Exception, last: FailedTry, asked_ms: int | None) -> None:
        if not last.retryable:
            return
        handed = HandedUp(
            call=last.call,
            provider=last.provider,
            attempts=self.attempt,
            reason=last.reason,
            error_class=last.error_class,
            retryable=last.retryable,
            not_before_ms=last.not_before_ms,
        )
        mark(error, handed)
        if isinstance(error, KfmError):
            error.facts["error_class"] = last.error_class
            if last.not_before_ms is not None:
                error.facts["not_before_ms"] = last.not_before_ms
        asked = (
            "" if asked_ms is None else f"; {last.provider or 'the other side'} asks for {asked_ms // 1000} s"
        )
        error.add_note(
            _WHY[last.reason].format(
                call=last.call, provider=last.provider, attempts=self.attempt, asked=asked
            )
        )


def _with_outcome(tried: FailedTry, outcome: Outcome) -> FailedTry:
    from msgspec.structs import replace

    return replace(tried, outcome=outcome, reason=outcome, delay_ms=0, not_before_ms=None)
