"""Attempts of one call: which are permitted, what a failure means, when the next is due."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from contextvars import Token
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn

from msgspec.structs import replace

from kfm.calls.call_plan import CallPlan
from kfm.calls.foreign_errors import classify_error, retry_after_ms
from kfm.calls.runtime import DEADLINE_MS, HERE, FailedTry, HandedUp, Outcome, handed_up_inside, mark
from kfm.model.errors import CallTimedOut, CircuitOpen, KfmError, UsageError
from kfm.model.retry import UNKNOWN, Classification, decide_call_retry

if TYPE_CHECKING:
    from asyncio import Timeout


class LoopAttempt:
    """One run of the block. Leaving it without an error ends the loop."""

    __slots__ = ("_limit", "_token", "_tries", "delay_ms", "state")

    def __init__(self, tries: Tries) -> None:
        self._tries = tries
        self._token: Token[int | None] | None = None
        self._limit: Timeout | None = None
        self.state = "new"  # → entered → done | again
        self.delay_ms = 0

    @property
    def number(self) -> int:
        return self._tries.attempt

    @property
    def timeout(self) -> float:
        """Seconds that this attempt may still take: what to hand to a library."""
        return max(1, (self._tries.until_ms or 0) - HERE.clock.monotonic_ms()) / 1000

    def __enter__(self) -> LoopAttempt:
        if self.state != "new":
            raise UsageError("An attempt is entered once; the loop gives a new one for the next try.")
        self.state = "entered"
        self._token = DEADLINE_MS.set(self._tries.until_ms)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._token is not None:
            with suppress(ValueError):  # a generator may be closed in another context than it ran in
                DEADLINE_MS.reset(self._token)
        self.state = "done"
        if error is None:
            self._tries.succeeded()
            return False
        if not isinstance(error, Exception):
            return False
        delay_ms = self._tries.failed(error)
        if delay_ms is None:
            return False
        self.state, self.delay_ms = "again", delay_ms
        return True

    async def __aenter__(self) -> LoopAttempt:
        from asyncio import timeout

        self.__enter__()
        self._limit = timeout(self._tries.limit_ms / 1000)
        await self._limit.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        limit = self._limit
        if limit is None:
            raise AssertionError("entered before it is left")
        try:
            await limit.__aexit__(kind, error, trace)
        except TimeoutError:
            late = self._tries.timed_out("it was cut short")
            if self.__exit__(type(late), late, None):
                return True
            raise late from None
        return self.__exit__(kind, error, trace)


def attempts(plan: CallPlan) -> Iterator[LoopAttempt]:
    tries = Tries(plan)
    while True:
        tries.open()
        attempt = LoopAttempt(tries)
        yield attempt
        if not _again(attempt):
            return
        HERE.sleep_ms(attempt.delay_ms)


async def attempts_async(plan: CallPlan) -> AsyncIterator[LoopAttempt]:
    tries = Tries(plan)
    while True:
        tries.open()
        attempt = LoopAttempt(tries)
        yield attempt
        if not _again(attempt):
            return
        await HERE.sleep_async(attempt.delay_ms)


def _again(attempt: LoopAttempt) -> bool:
    if attempt.state in ("new", "entered"):
        raise UsageError(
            "The loop went on without its attempt.",
            remedy="Put the code into the attempt: `for attempt in kfm.call(…): with attempt: …`.",
        )
    return attempt.state == "again"


STOPPED = Classification(retryable=False, error_class="cancelled")  # a try under way when its run is stopped
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
    "circuit-open": "Not tried again now: {provider} failed repeatedly, and its circuit is open{asked}.",
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

    def __init__(self, plan: CallPlan, began_ms: int | None = None, outer_ms: int | None = None) -> None:
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
        """Begin a try: the run goes on, there is time left, and the circuit lets it pass."""
        plan = self.plan
        if (stop := HERE.stop) is not None:
            self._refuse(stop, "stopped")
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
        if plan.acts:
            HERE.acts(plan.name)

    def succeeded(self) -> None:
        circuit = self.plan.line.circuit
        if not circuit.quiet:
            circuit.after(True, self._fence)
        if self._last is not None:
            HERE.observe(_with_outcome(self._last, "recovered", "recovered"))

    def failed(self, error: Exception) -> int | None:
        """After a try failed: how long to wait, in ms; None if the error is to be raised."""
        plan = self.plan
        kind = STOPPED if HERE.stop is not None else classify_error(error)
        if kind == UNKNOWN and isinstance(error, plan.retry_on):
            kind = Classification(retryable=True, error_class="declared")
        now_ms = HERE.clock.now_ms()
        asked_ms = retry_after_ms(error, now_ms)
        monotonic_ms = HERE.clock.monotonic_ms()
        if self._deadline_ms is None or (self.attempt == 1 and not plan.timed):
            # What takes no limit could not have been cut short, so its limit counts from the first failure.
            self._deadline_ms = _earlier(monotonic_ms + plan.timeout_ms, self._outer_ms)
        open_ms = self._tell_circuit(error, kind, asked_ms)
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
            self._hand_up(error, self._last, now_ms, asked_ms)
        for observe in (hook, HERE.observe):
            if observe is not None:
                observe(self._last)
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

    def _refuse(self, error: KfmError, reason: str) -> NoReturn:
        """Refuse a try. If others were made before it, the observers learn that the call gave up."""
        if self._last is None:
            raise error
        ending = _with_outcome(self._last, "gave-up", reason, error.facts.get("not_before_ms"))
        for observe in (self.plan.on_give_up, HERE.observe):
            if observe is not None:
                observe(ending)
        raise error from self._last.error

    def _tell_circuit(self, error: Exception, kind: Classification, asked_ms: int | None) -> int:
        """Blame or thank the provider; what is neither (a defect of ours, say) is not told.

        A provider that says when to come back is obeyed, and its circuit is spared.

        Returns how long the provider's circuit is now open. A refusal by the circuit itself does not count.
        """
        circuit = self.plan.line.circuit
        if isinstance(error, CircuitOpen) or handed_up_inside(error, self.plan.origin) is not None:
            return 0
        if kind.retryable and asked_ms:
            if self._fence is not None:
                circuit.put_off(self._fence, asked_ms)
            self._fence = None
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

    def _hand_up(self, error: Exception, last: FailedTry, now_ms: int, asked_ms: int | None) -> None:
        if not last.retryable:
            return
        at_ms = last.not_before_ms
        wait_ms = None if at_ms is None else max(0, at_ms - now_ms)
        handed = HandedUp(
            call=last.call,
            provider=last.provider,
            attempts=self.attempt,
            reason=last.reason,
            error_class=last.error_class,
            retryable=last.retryable,
            not_before_ms=at_ms,
            wait_ms=wait_ms,
        )
        if last.reason != "retried-inside":  # else the mark of the call that did retry tells more
            mark(error, handed, self.plan.origin)
        if isinstance(error, KfmError):
            error.facts["error_class"] = last.error_class
            if at_ms is not None:
                error.facts |= {"not_before_ms": at_ms, "wait_ms": wait_ms}
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
