"""The calls that a pipeline makes by itself, as evidence of its run: rows, a span, and figures.

A pipeline may call from many threads, so nothing here touches the store; the rows are kept with the
next transaction of the run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Protocol

from kfm.core.errors import KfmError
from kfm.core.records import Run
from kfm.engine.watching import Watch
from kfm.ports import Clock

if TYPE_CHECKING:
    from kfm.calls.tried import FailedTry

OPEN_MAX = 10_000  # calls under way whose tries are being told apart
_NOT_MADE = {"circuit-open": "circuit-open", "deadline-spent": "timeout"}  # classes of tries that were not


class Note(Protocol):
    def __call__(
        self,
        call: int,
        number: int,
        delay_ms: int,
        error_class: str,
        outcome: Literal["retried", "gave-up"],
        *,
        circuit_open: bool,
        retryable: bool,
        at_ms: int,
    ) -> None: ...


class _Call:
    """One call that met trouble."""

    def __init__(self, number: int, began_ms: int) -> None:
        self.number = number
        self.began_ms = began_ms
        self.told = 0  # tries on record


class OwnCalls:
    """What is heard of them; see `engine.kernel.Overhearing`."""

    def __init__(
        self,
        run: Run,
        node: str,
        *,
        watch: Watch,
        clock: Clock,
        ahead_ms: int,
        take_number: Callable[[], int],
        note: Note,
        told: Callable[[str, str], None],
    ) -> None:
        self._run = run
        self._node = node
        self._watch = watch
        self._clock = clock
        self._ahead_ms = ahead_ms  # how far the ledger's clock is before ours
        self._take_number = take_number
        self._note = note
        self._told = told  # a sentence for people, and the class of the error
        self._calls: dict[int, _Call] = {}
        self._home = threading.get_ident()
        self._turn = threading.Lock()
        self.acts: set[str] = set()  # calls that nobody may repeat

    def acted(self, call: str) -> None:
        self.acts.add(call)

    def heard(self, tried: FailedTry) -> None:
        with self._turn:
            call = self._calls.get(tried.sequence)
            if call is None:
                if not tried.retryable or len(self._calls) >= OPEN_MAX:
                    return  # an error that can't pass was never a matter of retries
                call = _Call(self._take_number(), self._clock.monotonic_ms())
                self._calls[tried.sequence] = call
            if tried.outcome != "retry":
                del self._calls[tried.sequence]
            if tried.outcome == "recovered":
                self._over(call, tried.attempt + 1, None)
            elif tried.outcome == "retry":
                call.told = tried.attempt
                self._row(call, tried, tried.attempt, tried.error_class, "retried")
                self._watch.retried(self._node, tried.error_class, tried.delay_ms)
            else:
                self._gave_up(call, tried)
        self._told(_sentence(tried), tried.error_class)

    def _gave_up(self, call: _Call, tried: FailedTry) -> None:
        number, kind = tried.attempt, tried.error_class
        if call.told == number:  # its failure is on record: the try after it was not made
            number, kind = number + 1, _NOT_MADE.get(tried.reason, kind)
        self._row(call, tried, number, kind, "gave-up")
        self._watch.gave_up(self._node, kind)
        self._over(call, number, kind)

    def _row(
        self,
        call: _Call,
        tried: FailedTry,
        number: int,
        error_class: str,
        outcome: Literal["retried", "gave-up"],
    ) -> None:
        self._note(
            call.number,
            number,
            tried.delay_ms,
            error_class,
            outcome,
            circuit_open=tried.circuit_open or tried.reason == "circuit-open",
            retryable=tried.retryable,
            at_ms=self._clock.now_ms() + self._ahead_ms,
        )

    def _over(self, call: _Call, tries: int, error_class: str | None) -> None:
        lasted_ms = max(0, self._clock.monotonic_ms() - call.began_ms)
        elsewhere = threading.get_ident() != self._home  # there no span of the run is open
        with self._watch.own_call(self._run, self._node, call.number, lasted_ms, alone=elsewhere) as span:
            if error_class is None:
                span.note(outcome="success", tries=tries)
            else:
                span.note(error_type=error_class, tries=tries)


def _sentence(tried: FailedTry) -> str:
    """One line for people."""
    error = tried.error
    said = error.message if isinstance(error, KfmError) else f"{type(error).__name__}: {error}"
    if tried.outcome == "recovered":
        return f"{tried.call}: it succeeded after {tried.attempt + 1} tries."
    if tried.outcome == "retry":
        return (
            f"{tried.call}: {said} Attempt {tried.attempt} failed; the next in {tried.delay_ms / 1000:.1f} s."
        )
    return f"{tried.call}: {said} Attempt {tried.attempt} failed; no further try ({tried.reason})."
