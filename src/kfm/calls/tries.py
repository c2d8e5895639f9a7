"""The tries of one call: what is permitted, what a failure means, when the next one is due.

The loops of synchronous code, of coroutines and of `for attempt in …` differ in how they wait and
in nothing else; what they decide is decided here.
"""

from __future__ import annotations

from itertools import count
from typing import NoReturn

from msgspec.structs import replace

from kfm.calls.deadlines import DEADLINE_MS
from kfm.calls.foreign import classify_error, retry_after_ms
from kfm.calls.plan import Plan
from kfm.calls.surroundings import HERE
from kfm.calls.tried import FailedTry, HandedUp, Outcome, handed_up_inside, mark
from kfm.core.classify import UNKNOWN, Classification
from kfm.core.errors import CallTimedOut, CircuitOpen, KfmError
from kfm.core.retry import decide_call_retry

_SEQUENCES = count(1)  # only calls that meet trouble take a number

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

    __slots__ = (
        "_deadline_ms",
        "_fence",
        "_last",
        "_outer_ms",
        "_sequence",
        "attempt",
        "limit_ms",
        "plan",
        "until_ms",
    )

    def __init__(self, plan: Plan, began_ms: int | None = None, outer_ms: int | None = None) -> None:
        """From now on, or (after a first try that was made without us) from when that began."""
        self.plan = plan
        self.attempt = 0
        if began_ms is None:
            began_ms, outer_ms = HERE.clock.monotonic_ms(), DEADLINE_MS.get()
        else:
            self.attempt = 1
        self.limit_ms = plan.timeout_ms  # what this try may take
        self.until_ms = outer_ms  # the deadline of everything inside
        self._outer_ms = outer_ms
        self._fence: int | None = None
        self._last: FailedTry | None = None
        self._sequence = 0
        self._deadline_ms = _earlier(began_ms + plan.timeout_ms, outer_ms) if plan.timed else outer_ms

    def open(self) -> None:
        """Begin a try: there must be time left, and the circuit must let it pass."""
        plan = self.plan
        if self._deadline_ms is not None:
            now_ms = HERE.clock.monotonic_ms()
            self.limit_ms = self._deadline_ms - now_ms
            if self.limit_ms <= 0:
                self._refuse(
                    self.timed_out("nothing was left of its time, so it was not made"), "deadline-spent"
                )
            if plan.attempt_timeout_ms is not None and plan.attempt_timeout_ms < self.limit_ms:
                self.limit_ms = plan.attempt_timeout_ms
            if plan.timed:
                self.until_ms = now_ms + self.limit_ms
        circuit = plan.line.circuit
        if circuit.quiet:
            self._fence = None
        else:
            try:
                self._fence = circuit.before()
            except CircuitOpen as error:
                self._refuse(error, "circuit-open")
        self.attempt += 1
        if plan.acts and HERE.acting is not None:
            HERE.acting(plan.name)

    def succeeded(self) -> None:
        circuit = self.plan.line.circuit
        if not circuit.quiet:
            circuit.after(True, self._fence)
        if self._last is not None and HERE.hearer is not None:
            HERE.hearer(_with_outcome(self._last, "recovered", "recovered"))

    def failed(self, error: Exception) -> int | None:
        """After a try failed: how long to wait, in ms; None if the error is to be raised."""
        plan = self.plan
        kind = classify_error(error)
        if kind == UNKNOWN and isinstance(error, plan.retry_on):
            kind = Classification(retryable=True, error_class="declared")
        now_ms = HERE.clock.now_ms()
        asked_ms = retry_after_ms(error, now_ms)
        monotonic_ms = HERE.clock.monotonic_ms()
        if self._deadline_ms is None or (self.attempt == 1 and not plan.timed):
            # What takes no limit could not have been cut short, so its limit counts from the first failure.
            self._deadline_ms = _earlier(monotonic_ms + plan.timeout_ms, self._outer_ms)
        open_ms = self._tell_circuit(error, kind)
        decision = decide_call_retry(
            kind,
            plan.policy,
            self.attempt,
            now_ms + self._deadline_ms - monotonic_ms,
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
        self._sequence = self._sequence or next(_SEQUENCES)
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
            sequence=self._sequence,
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
        elif self._outer_ms is not None and self._deadline_ms == self._outer_ms:
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

    def _refuse(self, error: CallTimedOut | CircuitOpen, reason: str) -> NoReturn:
        """A try is not made. If others were made before it, their story ends here."""
        if self._last is None:
            raise error
        ending = _with_outcome(self._last, "gave-up", reason, error.facts.get("not_before_ms"))
        for hear in (self.plan.on_give_up, HERE.hearer):
            if hear is not None:
                hear(ending)
        raise error from self._last.error

    def _tell_circuit(self, error: Exception, kind: Classification) -> int:
        """Blame or thank the provider; what is neither (a defect of ours, say) is not told.

        Returns how long the provider is now left alone. A refusal by the circuit itself is no news of it.
        """
        circuit = self.plan.line.circuit
        if isinstance(error, CircuitOpen) or handed_up_inside(error, self.plan.origin) is not None:
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
            inner = handed_up_inside(cause, self.plan.origin) if cause is not None else None
            if inner is not None and inner.attempts > 1:
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
        if last.reason != "retried-inside":  # else the mark of the call that did retry tells more
            mark(error, handed, self.plan.origin)
        if isinstance(error, KfmError):
            error.facts["error_class"] = last.error_class
            if last.not_before_ms is not None:
                error.facts["not_before_ms"] = last.not_before_ms
        who = last.provider or "the other side"
        asked = "" if asked_ms is None else f"; {who} asks for {asked_ms // 1000} s"
        error.add_note(
            _WHY[last.reason].format(
                call=last.call, provider=last.provider, attempts=self.attempt, asked=asked
            )
        )


def _with_outcome(
    tried: FailedTry, outcome: Outcome, reason: str, not_before_ms: int | None = None
) -> FailedTry:
    return replace(tried, outcome=outcome, reason=reason, delay_ms=0, not_before_ms=not_before_ms)


def _earlier(own_ms: int, outer_ms: int | None) -> int:
    return own_ms if outer_ms is None else min(own_ms, outer_ms)
