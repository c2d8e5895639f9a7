"""Observer of a pipeline run: lineage events for its transactions, a span, a few metrics.

A skipped node costs no more here than its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kfm.model.energy import Energy, energy_of
from kfm.model.records import Node
from kfm.model.run_state import Begun, NodeDone, PassEnd, PassTry, pass_id
from kfm.model.runs import LineageEvent
from kfm.telemetry.exporter import Off

if TYPE_CHECKING:
    from kfm.pipelines.options import PipelineKernel, PipelineOptions, PipelineReport
    from kfm.ports import TelemetrySpan

SKIPPED_CHARS_MAX = 1000  # of their names, in the span: its attributes are short


class PipelineObserver:
    """Lineage and telemetry of one pipeline run."""

    def __init__(self, kernel: PipelineKernel, options: PipelineOptions) -> None:
        self._kernel = kernel
        self._options = options
        self._telemetry = kernel.telemetry
        self._unwatched = isinstance(kernel.telemetry, Off)
        self._about = PassTry(options.run_id, options.pipeline_id, options.branch, 1, 0, options.parent)
        self._cpu_us: int | None = None
        self._energy: Energy | None = None
        self._began_ms = 0
        self._pipeline = self._name(options.pipeline_id)

    def _name(self, name: str) -> str:
        """The public name: what belongs to a masked dataset is as masked as the dataset."""
        public, parent = self._kernel.public_name, self._options.parent
        if parent is not None and public(parent.dataset_id) != parent.dataset_id:
            return public(f"{parent.dataset_id}.{name}")
        return public(name)

    def begun(self, begun: Begun) -> None:
        self._about = self._about._replace(attempt=begun.attempt, started_at_ms=begun.started_at_ms)
        self._began_ms = self._kernel.clock.monotonic_ms()

    # --- events --------------------------------------------------------------------------

    def starts(self, *, alone: bool) -> None:
        """A node is about to run. Only one that runs alone can be metered: the clock is the process's."""
        meter = self._kernel.meter
        self._cpu_us = meter.cpu_us() if alone and meter is not None else None

    def events(self, node: Node, document: bytes) -> Sequence[LineageEvent]:
        """Start and end of a node that was executed."""
        self._energy = None
        if self._cpu_us is not None and self._kernel.meter is not None:
            used_us = max(0, self._kernel.meter.cpu_us() - self._cpu_us)
            self._energy, self._cpu_us = energy_of(used_us, self._kernel.energy), None
        emitter = self._kernel.emitter
        if emitter is None:
            return ()
        return emitter.did(self._about, NodeDone(node, document, self._energy))

    def ended(self, report: PipelineReport, commit: str | None, now_ms: int) -> Sequence[LineageEvent]:
        emitter = self._kernel.emitter
        if emitter is None:
            return ()
        error = report.error
        end = PassEnd(
            state=report.state,
            ended_at_ms=now_ms,
            counts=report.counts,
            skipped=self._named(report, "skipped"),
            failed=self._named(report, "failed"),
            commit=commit,
            error_code=None if error is None else error.code,
            error_message=None if error is None else self._kernel.redact(error.message),
        )
        return emitter.ended(self._about, end)

    def _named(self, report: PipelineReport, outcome: str) -> list[str]:
        return [each.id for each in report.nodes.values() if each.outcome == outcome]

    # --- spans and counts ----------------------------------------------------------------

    @contextmanager
    def span(self, report: PipelineReport) -> Iterator[None]:
        about = self._about
        if self._unwatched:
            yield
            return
        trace_id = None  # inside a governed run the trace is that run's
        if about.parent is None:
            trace_id = pass_id(about.run_id, about.attempt).replace("-", "")
        with self._telemetry.span(
            "kfm.pass",
            trace_id=trace_id,
            run_id=about.run_id,
            attempt=about.attempt,
            pipeline=self._pipeline,
            branch=about.branch if self._pipeline == about.pipeline_id else "",
        ) as span:
            yield
            self._sum_up(report, span)

    def recorded(self, node: Node) -> None:
        """A node was executed, and its record is durable."""
        if self._unwatched:
            return
        about, telemetry = self._about, self._telemetry
        labels = {"pipeline": self._pipeline, "outcome": node.outcome}
        name = self._name(node.dataset_id)
        lasted_ms = node.duration_ms or 0
        with telemetry.span(
            "kfm.node",
            lasted_ms=lasted_ms,
            run_id=about.run_id,
            attempt=about.attempt,
            node=name,
            dataset=self._kernel.public_name(about.parent.dataset_id) if about.parent else name,
            outcome=node.outcome,
            objects=len(node.outputs),
            bytes=sum(output.size for output in node.outputs),
        ) as span:
            if node.error_code is not None:
                span.note(error_type=node.error_code)
        telemetry.add("kfm.pass.nodes_total", 1, **labels)
        telemetry.observe("kfm.pass.node_duration_seconds", lasted_ms / 1000, **labels)
        if self._energy is not None:
            telemetry.add("kfm.pass.node_cpu_seconds_total", self._energy.cpu_us, pipeline=labels["pipeline"])

    def _sum_up(self, report: PipelineReport, span: TelemetrySpan) -> None:
        telemetry, counts = self._telemetry, report.counts
        pipeline = self._pipeline
        took_ms = self._kernel.clock.monotonic_ms() - self._began_ms
        known = sum(counts.values())
        telemetry.add("kfm.pass.passes_total", pipeline=pipeline, outcome=report.state)
        telemetry.observe(
            "kfm.pass.duration_seconds", took_ms / 1000, pipeline=pipeline, outcome=report.state
        )
        if counts["skipped"]:
            telemetry.add("kfm.pass.nodes_total", counts["skipped"], pipeline=pipeline, outcome="skipped")
        if known:
            telemetry.observe("kfm.pass.skip_ratio", counts["skipped"] / known, pipeline=pipeline)
        span.note(outcome=report.state, nodes=known, **counts)
        if counts["skipped"]:
            span.note(skipped_nodes=self._few(report))
        if report.error is not None:
            span.note(error_type=report.error.code)

    def _few(self, report: PipelineReport) -> str:
        """Names of skipped nodes as far as an attribute holds them; the event has all."""
        names: list[str] = []
        chars = 0
        for each in report.nodes.values():
            if each.outcome == "skipped":
                chars += len(each.id) + 1
                if chars > SKIPPED_CHARS_MAX:
                    return " ".join([*names, "…"])
                names.append(self._name(each.id))
        return " ".join(names)
