"""What telemetry is told about a call, by names that anybody may read."""

from __future__ import annotations

from contextlib import AbstractContextManager

from kfm.admission.subject import Subject
from kfm.core import keys
from kfm.core.evidence import Attempt
from kfm.core.records import Run, TriggerType
from kfm.engine.kernel import Kernel
from kfm.ports import Span


class Watch:
    """One call, as telemetry sees it."""

    def __init__(self, kernel: Kernel, subject: Subject) -> None:
        self._telemetry = kernel.telemetry
        self.dataset = kernel.public_name(subject.dataset.id)
        # A source's name tells as much as its dataset's.
        self.source = subject.source.id if self.dataset == subject.dataset.id else self.dataset

    # --- spans: run → node → call ----------------------------------------------------------

    def run(self, run: Run, trigger: TriggerType) -> AbstractContextManager[Span]:
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

    def node(self, run: Run, node: str) -> AbstractContextManager[Span]:
        return self._telemetry.span(
            "kfm.node", run_id=run.run_id, attempt=run.attempts, node=node, dataset=self.dataset
        )

    def call(self, run: Run, node: str, number: int) -> AbstractContextManager[Span]:
        return self._telemetry.span(
            "kfm.call", run_id=run.run_id, attempt=run.attempts, node=node, call=number
        )

    def own_call(
        self, run: Run, node: str, number: int, lasted_ms: int, *, alone: bool
    ) -> AbstractContextManager[Span]:
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
