"""Executor of a pipeline run: runs the nodes that the planner names, and records each as it ends."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from kfm.model.canonical import canonical_bytes
from kfm.model.errors import Busy, Cancelled, KfmError, LostLease, NodesFailed
from kfm.model.input_hash import INPUTS_TAG, sha256_text
from kfm.model.records import Node
from kfm.model.run_state import (
    NOTHING_CHECKED,
    BeginPass,
    EndPass,
    Fence,
    PassState,
    outputs_hash,
    outputs_of,
    outputs_text,
)
from kfm.model.runs import LineageEvent
from kfm.pipelines.declaration import NodeSpec
from kfm.pipelines.options import NodeReport, PipelineOptions, PipelineReport
from kfm.pipelines.pipeline_observer import PipelineObserver
from kfm.pipelines.planner import INPUTS_UNKNOWN, UNKNOWN_INPUTS, PipelinePlanner, uncollected
from kfm.pipelines.workers import NodeJob, NodeResult, Workers

DOCUMENT_BYTES_MAX = 256 * 1024  # what a hash was made of is kept up to this size
logger = logging.getLogger(__name__)


class PipelineExecutor:
    """One pipeline run under way."""

    def __init__(self, planner: PipelinePlanner) -> None:
        self._planner = planner
        self._kernel = planner.kernel
        self._options = planner.options
        self._report = planner.report
        self._failures = 0
        self._cancel = threading.Event()
        self._fence = Fence(planner.options.scope, 0)
        self._branch_head: str | None = None
        self._observer = PipelineObserver(planner.kernel, planner.options)

    def cancel(self) -> None:
        """Start nothing more; nodes at work are asked to stop."""
        self._cancel.set()

    def run(self) -> PipelineReport:
        kernel, options, planner = self._kernel, self._options, self._planner
        kernel.liveness.claim(kernel.worker_id)
        reads = planner.graph.reads
        begun = kernel.pipeline_runs.begin(
            BeginPass(
                run_id=options.run_id,
                pipeline_id=options.pipeline_id,
                branch=options.branch,
                from_branch=options.from_branch,
                graph=tuple(zip(planner.order, map(reads.__getitem__, planner.order), strict=True)),
                worker_id=kernel.worker_id,
                lease_ms=kernel.lease_ms,
                scope=options.scope,
                fence=options.fence,
                parent=options.parent,
                emit=kernel.emitter.began if kernel.emitter else None,
            ),
            kernel.liveness.is_dead,
        )
        if begun.held_by is not None:
            raise _busy(begun.held_by, options)
        self._fence = Fence(options.scope, begun.fence)
        self._report.attempt = begun.attempt
        self._branch_head = begun.branch_head
        self._observer.begun(begun)
        stop = self._start_heartbeat()
        with self._observer.span(self._report):
            self._work(stop)
        return self._report

    def _work(self, stop: Callable[[], None]) -> None:
        options, report = self._options, self._report
        try:
            pending = self._planner.pending()
            if pending:
                self._execute(pending)
            report.state, report.error = self._verdict()
        except KeyboardInterrupt:
            self.cancel()
            report.state, report.error = "cancelled", Cancelled(f"Pipeline run {options.run_id}.")
        except KfmError as error:
            report.state, report.error = "failed", error
            if isinstance(error, LostLease):
                raise
        finally:
            stop()
        with uncollected():
            self._end()

    def _start_heartbeat(self) -> Callable[[], None]:
        """Renews the lease until the function that it returns is called."""
        heartbeat = self._kernel.heartbeat
        if heartbeat is None or self._options.fence is not None:
            return lambda: None
        fence, lease_ms = self._fence, self._kernel.lease_ms

        def renew(store: Any) -> None:
            if store.renew(fence.scope, fence.fence, lease_ms) is None:
                self.cancel()

        return heartbeat.start(renew, max(1, lease_ms // 3))

    # --- nodes -----------------------------------------------------------------------------

    def _execute(self, pending: list[str]) -> None:
        """Run what must run, never more than `jobs` at a time, each after what it reads from."""
        queue = ReadyNodes(pending, self._planner.graph.reads, self._planner.hashes)
        with self._kernel.workers(self._options.jobs) as workers:
            while True:
                try:
                    while queue.ready and not workers.full and not self._stopping():
                        self._begin(queue.next(), workers, queue)
                    if not workers.busy:
                        break
                    for node in self._record(workers.wait(self._cancel)):
                        queue.done(node)
                except KeyboardInterrupt:
                    if self._cancel.is_set():  # asked again: what is at work is not waited for
                        raise
                    self.cancel()
                    if workers.busy:
                        logger.info("stopping: nodes at work are waited for, and recorded")

    def _stopping(self) -> bool:
        return self._cancel.is_set() or (self._failures > 0 and not self._options.keep_going)

    def _begin(self, node: str, workers: Workers, queue: ReadyNodes) -> None:
        spec = self._planner.pipeline.nodes[node]
        try:
            decision, inputs_hash = self._planner.decide(spec)
        except UNKNOWN_INPUTS as error:
            self._record([self._not_run(spec, error)])
            return
        if decision.verdict == "run":
            self._observer.starts(alone=self._options.jobs == 1)
            workers.start(self._job(spec, decision.reason, inputs_hash))
        else:
            self._planner.reuse(node, decision, inputs_hash)
            self._kernel.on_node(self._report.nodes[node])
            queue.done(node)

    def _job(self, spec: NodeSpec, reason: str, inputs_hash: str) -> NodeJob:
        planner = self._planner
        bindings = planner.graph.bindings[spec.id]
        return NodeJob(
            spec=spec,
            reason=reason,
            inputs_hash=inputs_hash,
            code_sha=planner.code_sha(spec),
            document=planner.document(spec),
            attempt=planner.attempt(spec.id),
            arguments={name: outputs_of(planner.outputs(node)) for name, node in bindings.items()},
            run_id=self._options.run_id,
            branch=self._options.branch,
            run=planner.run,
            sees_run=not planner.graph.reads[spec.id],
        )

    def _not_run(self, spec: NodeSpec, error: KfmError) -> NodeResult:
        """A node whose inputs are unknown fails without having run; it is recorded like any failure."""
        document = canonical_bytes({"inputs": [], "kfm": INPUTS_TAG, "params": {}, "untold": error.detail})
        job = NodeJob(
            spec=spec,
            reason=INPUTS_UNKNOWN,
            inputs_hash=sha256_text(document),
            code_sha=self._planner.code_sha(spec),
            document=document,
            attempt=self._planner.attempt(spec.id),
            arguments={},
            run_id=self._options.run_id,
            branch=self._options.branch,
            run=self._planner.run,
        )
        return NodeResult(job, "failed", (), dict(NOTHING_CHECKED), error, 0)

    def _record(self, finished: list[NodeResult]) -> list[str]:
        """Those that ended at the same time, in one transaction; returns those that others can read from."""
        from kfm.model.redaction import (
            redacted_document,  # late: a run that executes nothing does not need it
        )

        records: list[Node] = []
        documents: list[tuple[str, str]] = []
        events: list[LineageEvent] = []
        for done in finished:
            node = self._node(done)
            records.append(node)
            events += self._observer.events(node, done.job.document)
            if len(done.job.document) <= DOCUMENT_BYTES_MAX:
                documents.append((done.job.inputs_hash, redacted_document(done.job.document.decode())))
        if not self._kernel.states.record(self._fence, records, documents=documents, events=tuple(events)):
            raise LostLease(f"{self._options.scope} has passed to another process.")
        for done, node in zip(finished, records, strict=True):
            for name in done.job.spec.outputs:
                self._planner.checksums.forget(name)
            if node.outcome in ("success", "partial"):
                self._planner.settle(node.dataset_id, outputs_hash(node.outputs))
            else:
                self._failures += 1
                if isinstance(done.error, Cancelled):  # the node saw the interruption first
                    self.cancel()
            report = self._report.nodes[node.dataset_id] = NodeReport(
                node.dataset_id,
                node.outcome,
                done.job.reason,
                node.inputs_hash,
                None,
                outputs_text(node.outputs),
                done.error,
                done.duration_ms,
                ran=True,
            )
            self._kernel.on_node(report)
            self._observer.recorded(node)
        return [node.dataset_id for node in records if node.dataset_id in self._planner.hashes]

    def _node(self, done: NodeResult) -> Node:
        error = done.error
        return Node(
            dataset_id=done.job.spec.id,
            run_id=self._options.run_id,
            lakefs_branch=self._options.branch,
            inputs_hash=done.job.inputs_hash,
            validation_summary=done.summary,
            outcome=done.outcome,
            recorded_at_ms=self._kernel.clock.now_ms(),
            attempt=done.job.attempt,
            outputs=tuple(sorted(done.outputs, key=lambda each: each.name)),
            code_sha=done.job.code_sha,
            pipeline_id=self._options.pipeline_id,
            duration_ms=done.duration_ms,
            error_code=_code_of(error) if error else None,
            error_message=self._kernel.redact(error.message) if error else None,
            reason=done.job.reason,
        )

    # --- the end ---------------------------------------------------------------------------

    def _verdict(self) -> tuple[PassState, KfmError | None]:
        reports = self._report.nodes.values()
        outcomes = {each.outcome for each in reports}
        if self._cancel.is_set():
            return "cancelled", Cancelled(f"Pipeline run {self._options.run_id}.")
        if "failed" in outcomes:
            failed = [each for each in reports if each.outcome == "failed"]
            names = ", ".join(each.id for each in failed[:5]) + (" …" if len(failed) > 5 else "")
            first = failed[0].error.message if failed[0].error else failed[0].reason
            return "failed", NodesFailed(f"{len(failed)} of {len(self._planner.order)}: {names}. {first}")
        if "partial" in outcomes:
            return "partial", None
        return "success", None

    def _end(self) -> None:
        options, report, order = self._options, self._report, self._planner.order
        if len(report.nodes) < len(order):
            for node in order:
                if node not in report.nodes:
                    report.nodes[node] = NodeReport(node, None, self._blocked_by(node))
        self._planner.checksums.keep()
        ended = self._kernel.pipeline_runs.end(
            EndPass(
                run_id=options.run_id,
                pipeline_id=options.pipeline_id,
                scope=options.scope,
                fence=self._fence.fence,
                branch=options.branch,
                state=report.state,
                counts=report.counts,
                author=self._kernel.actor,
                error_code=_code_of(report.error) if report.error else None,
                commits=report.state in ("success", "partial"),
                releases=options.fence is None,
                emit=partial(self._observer.ended, report),
            ),
            self._planner.skips(self._branch_head),
        )
        if not ended.landed:
            raise LostLease(f"{options.scope} has passed to another process.")
        report.commit = ended.commit

    def _blocked_by(self, node: str) -> str:
        for each in self._planner.graph.reads[node]:
            report = self._report.nodes.get(each)
            if report is not None and report.outcome == "failed":
                return f"{each} failed"
        return "the pipeline run stopped before"


class ReadyNodes:
    """Queue of nodes whose dependencies are settled."""

    def __init__(
        self, pending: Sequence[str], reads: Mapping[str, tuple[str, ...]], settled: Collection[str]
    ) -> None:
        self.ready: deque[str] = deque()
        self._dependants: dict[str, list[str]] = {}
        self._missing: dict[str, int] = {}
        for node in pending:
            ahead = [each for each in reads[node] if each not in settled]
            self._missing[node] = len(ahead)
            for each in ahead:
                self._dependants.setdefault(each, []).append(node)
            if not ahead:
                self.ready.append(node)

    def next(self) -> str:
        return self.ready.popleft()

    def done(self, node: str) -> None:
        for each in self._dependants.pop(node, ()):
            self._missing[each] -= 1
            if not self._missing[each]:
                self.ready.append(each)


def _code_of(error: KfmError) -> str:
    return "CANCELLED" if isinstance(error, Cancelled) else error.code


def _busy(lock: Any, options: PipelineOptions) -> Busy:
    holder = lock.holder
    return Busy(
        f"Run {holder.run_id if holder else '?'} works on {options.pipeline_id} on branch {options.branch}."
    )
