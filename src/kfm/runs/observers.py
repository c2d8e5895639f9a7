"""Telemetry of a run, and the calls that its pipeline makes: spans, counts, call records."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal, Protocol

from kfm.model import keys
from kfm.model.errors import KfmError
from kfm.model.records import Run, TriggerType
from kfm.model.runs import Attempt
from kfm.ports import Clock, TelemetrySpan
from kfm.runs.kernel import Kernel
from kfm.runs.subjects import RunSubject

if TYPE_CHECKING:
    from kfm.calls.runtime import FailedTry


OPEN_MAX = 10_000  # calls under way whose tries are counted
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
    """One call with failed tries."""

    def __init__(self, number: int, began_ms: int) -> None:
        self.number = number
        self.began_ms = began_ms
        self.recorded = 0  # tries on record


class OwnCalls:
    """Records the calls that a pipeline makes by itself. Called from any thread."""

    def __init__(
        self,
        run: Run,
        node: str,
        *,
        watch: RunObserver,
        clock: Clock,
        ahead_ms: int,
        take_number: Callable[[], int],
        note: Note,
        log_try: Callable[[str, str], None],
        intend: Callable[[str], None],
    ) -> None:
        self._run = run
        self._node = node
        self._watch = watch
        self._clock = clock
        self._ahead_ms = ahead_ms  # how far the ledger's time is before the clock that nothing sets
        self._take_number = take_number
        self._note = note
        self._log_try = log_try  # with a sentence for people, and the class of the error
        self._calls: dict[int, _Call] = {}
        self._home = threading.get_ident()
        self._turn = threading.Lock()
        self._intend = intend  # makes it durable that a call is about to act, from any thread
        self._intended: set[str] = set()

    def acts(self, call: str) -> None:
        """A call that must not be repeated is about to be made: not before that is durable."""
        with self._turn:
            if call not in self._intended:
                self._intend(call)
                self._intended.add(call)

    def observe(self, tried: FailedTry) -> None:
        """A try failed, or a call succeeded after failures."""
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
                call.recorded = tried.attempt
                self._row(call, tried, tried.attempt, tried.error_class, "retried")
                self._watch.retried(self._node, tried.error_class, tried.delay_ms)
            else:
                self._gave_up(call, tried)
        self._log_try(_sentence(tried), tried.error_class)

    def _gave_up(self, call: _Call, tried: FailedTry) -> None:
        number, kind = tried.attempt, tried.error_class
        if call.recorded == number:  # its failure is on record: the try after it was not made
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
            at_ms=self._clock.monotonic_ms() + self._ahead_ms,
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
    message = error.message if isinstance(error, KfmError) else f"{type(error).__name__}: {error}"
    if tried.outcome == "recovered":
        return f"{tried.call}: it succeeded after {tried.attempt + 1} tries."
    if tried.outcome == "retry":
        wait = f"the next in {tried.delay_ms / 1000:.1f} s"
        return f"{tried.call}: {message} Attempt {tried.attempt} failed; {wait}."
    return f"{tried.call}: {message} Attempt {tried.attempt} failed; no further try ({tried.reason})."


class RunObserver:
    """Telemetry of one invocation: spans and metrics."""

    def __init__(self, kernel: Kernel, subject: RunSubject) -> None:
        self._telemetry = kernel.telemetry
        self.dataset = kernel.public_name(subject.dataset.id)
        # A source's name tells as much as its dataset's.
        self.source = subject.source.id if self.dataset == subject.dataset.id else self.dataset

    # --- spans: run → node → call ----------------------------------------------------------

    def run(self, run: Run, trigger: TriggerType) -> AbstractContextManager[TelemetrySpan]:
        return self._telemetry.span(
            "kfm.run",
            trace_id=_trace_id(run),
            run_id=run.run_id,
            attempt=run.attempts,
            dataset=self.dataset,
            source=self.source,
            trigger=trigger,
            window=run.window_spec,
        )

    def node(self, run: Run, node: str) -> AbstractContextManager[TelemetrySpan]:
        return self._telemetry.span(
            "kfm.node", run_id=run.run_id, attempt=run.attempts, node=node, dataset=self.dataset
        )

    def call(self, run: Run, node: str, number: int) -> AbstractContextManager[TelemetrySpan]:
        return self._telemetry.span(
            "kfm.call", run_id=run.run_id, attempt=run.attempts, node=node, call=number
        )

    def own_call(
        self, run: Run, node: str, number: int, lasted_ms: int, *, alone: bool
    ) -> AbstractContextManager[TelemetrySpan]:
        """A call that is over; `alone` where the run's own span is not open, in another thread."""
        return self._telemetry.span(
            "kfm.call",
            trace_id=_trace_id(run) if alone else None,
            lasted_ms=lasted_ms,
            run_id=run.run_id,
            attempt=run.attempts,
            node=node,
            call=number,
        )

    # --- metrics -----------------------------------------------------------------------------

    def answered(self, trigger: TriggerType, outcome: str) -> None:
        self._telemetry.add(
            "kfm.updater.invocations_total", dataset=self.dataset, trigger=trigger, outcome=outcome
        )

    def retried(self, node: str, error_class: str, delay_ms: int) -> None:
        self._telemetry.add("kfm.call.retries_total", node=node, error_class=error_class)
        self._telemetry.add("kfm.call.wait_seconds_total", delay_ms * 1000, node=node)

    def gave_up(self, node: str, error_class: str) -> None:
        self._telemetry.add("kfm.call.gave_up_total", node=node, error_class=error_class)

    def tried(self, node: str, took_ms: int, *, succeeded: bool) -> None:
        outcome = "success" if succeeded else "failed"
        self._telemetry.observe("kfm.call.duration_seconds", took_ms / 1000, node=node, outcome=outcome)

    def fetched(self, objects: int, size: int) -> None:
        self._telemetry.add("kfm.updater.fetched_objects_total", objects, dataset=self.dataset)
        self._telemetry.add("kfm.updater.fetched_bytes_total", size, dataset=self.dataset)

    def ended(self, attempt: Attempt, trigger: TriggerType) -> None:
        """An attempt at a node, or at the run, is over."""
        if attempt.ended_at_ms is None or attempt.ending is None:
            return
        seconds = max(0, attempt.ended_at_ms - attempt.started_at_ms) / 1000
        if attempt.node:
            self._node_ended(attempt, seconds)
        else:
            self._run_ended(attempt, seconds, trigger)

    def _node_ended(self, attempt: Attempt, seconds: float) -> None:
        telemetry, node = self._telemetry, attempt.node
        outcome = "aborted" if attempt.ending == "abort" else attempt.outcome or "failed"
        telemetry.add("kfm.pattern.node_writes_total", dataset=self.dataset, node=node, outcome=outcome)
        telemetry.observe("kfm.pattern.node_duration_seconds", seconds, node=node, outcome=outcome)
        if attempt.energy is not None:
            # Energy and carbon of a node follow from this figure; the ledger's own metrics have them, too.
            used_us = attempt.energy.cpu_us
            telemetry.add("kfm.pattern.node_cpu_seconds_total", used_us, dataset=self.dataset, node=node)

    def _run_ended(self, attempt: Attempt, seconds: float, trigger: TriggerType) -> None:
        telemetry, ending = self._telemetry, str(attempt.ending)
        telemetry.add("kfm.updater.runs_total", dataset=self.dataset, trigger=trigger, outcome=ending)
        telemetry.observe("kfm.updater.run_duration_seconds", seconds, dataset=self.dataset, outcome=ending)
        if attempt.attempt > 1:
            telemetry.add("kfm.updater.retries_total", dataset=self.dataset, trigger=trigger)
        if attempt.energy is not None:
            used = attempt.energy
            labels = {"dataset": self.dataset, "retry": "true" if attempt.attempt > 1 else "false"}
            telemetry.add("kfm.updater.cpu_seconds_total", used.cpu_us, **labels)
            telemetry.add("kfm.updater.energy_wh_total", used.energy_uwh, **labels)
            telemetry.add("kfm.updater.co2_g_total", used.co2_ug, **labels)


def _trace_id(run: Run) -> str:
    return keys.attempt_id(run.run_id, run.attempts).replace("-", "")
