"""Executor of a pipeline run: runs the nodes that the planner names, and records each as it ends."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from kfm.model.canonical import canonical_bytes
from kfm.model.errors import (
    Busy,
    Cancelled,
    KfmError,
    LostLease,
    NodesFailed,
    RunTimedOut,
    code_on_record,
)
from kfm.model.input_hash import INPUTS_TAG, sha256_text
from kfm.model.records import Node
from kfm.model.run_state import (
    NOTHING_CHECKED,
    BeginPass,
    EndedPass,
    EndPass,
    Fence,
    PassState,
    outputs_hash,
    outputs_of,
    outputs_text,
)
from kfm.model.runs import LineageEvent
from kfm.periodic import HeldLease
from kfm.pipelines.declaration import NodeSpec
from kfm.pipelines.options import NodeReport, PipelineOptions, PipelineReport
from kfm.pipelines.pipeline_observer import PipelineObserver
from kfm.pipelines.planner import INPUTS_UNKNOWN, UNKNOWN_INPUTS, PipelinePlanner, uncollected
from kfm.pipelines.workers import Cancellation, NodeJob, NodeResult, Workers

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader

DOCUMENT_BYTES_MAX = 256 * 1024  # what a hash was made of is kept up to this size
ROUNDS_MAX = 10  # how often a switch may be set between the last look and the commit
logger = logging.getLogger(__name__)


class PipelineExecutor:
    """One pipeline run under way."""

    def __init__(self, planner: PipelinePlanner, check: Callable[[], None] = lambda: None) -> None:
        """`check` raises once the governed run that it is a part of was stopped."""
        self._planner = planner
        self._kernel = planner.kernel
        self._options = planner.options
        self._report = planner.report
        self._failures = 0
        self._cancel = Cancellation(check)
        self._lease: HeldLease | None = None  # of a governed run: its own
        self._epoch: int | None = None
        self._fence = Fence(planner.options.scope, 0)
        self._branch_head: str | None = None
        self._observer = PipelineObserver(planner.kernel, planner.options)

    def cancel(self) -> None:
        """Start nothing more; nodes at work are asked to stop."""
        self._cancel.set()

    def run(self) -> PipelineReport:
        kernel, options, planner = self._kernel, self._options, self._planner
        self._refuse_if_stopped()
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
        if begun.lost:
            raise LostLease(f"{options.scope} has passed to another process.")
        self._fence = Fence(options.scope, begun.fence)
        self._report.attempt = begun.attempt
        self._branch_head = begun.branch_head
        self._observer.begun(begun)
        self._lease = self._held_lease()
        with self._observer.span(self._report):
            self._work()
        return self._report

    def _work(self) -> None:
        options, report = self._options, self._report
        try:
            with self._lease.beating() if self._lease is not None else nullcontext():
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
        with uncollected():
            self._end()

    # --- stops -----------------------------------------------------------------------------

    def _refuse_if_stopped(self) -> None:
        ledger = self._kernel.ledger
        if ledger is not None:
            self._epoch = ledger.policy_epoch()  # first: a switch that is set after the look moves it
            error = _stopped(ledger, in_flight=False)
            if error is not None:
                raise error

    def _held_lease(self) -> HeldLease | None:
        kernel, options = self._kernel, self._options
        if kernel.heartbeat is None or options.fence is not None:
            return None
        lease = HeldLease(
            options.scope,
            self._fence.fence,
            options.run_id,
            clock=kernel.clock,
            lease_ms=kernel.lease_ms,
            renew_ms=max(1, kernel.lease_ms // 3),
            policy_epoch=self._epoch or 0,
            gate=partial(_stopped, in_flight=True),
            heartbeat=kernel.heartbeat,
            run_ms=kernel.run_ms,
            grace_ms=kernel.grace_ms,
            redact=kernel.redact,
        )
        self._cancel = Cancellation(lease.check)
        return lease

    def _look_again(self) -> None:
        """The policy epoch has moved since the last look."""
        ledger = self._kernel.ledger
        assert ledger is not None, "else no epoch is compared"
        self._epoch = ledger.policy_epoch()
        error = _stopped(ledger, in_flight=True)
        if error is not None:
            self._report.state, self._report.error = "cancelled", error

    # --- nodes -----------------------------------------------------------------------------

    def _execute(self, pending: list[str]) -> None:
        """Run what must run, never more than `jobs` at a time, each after what it reads from."""
        from kfm.calls.runtime import HERE  # late: a run that executes nothing does not need it

        queue = ReadyNodes(pending, self._planner.graph.reads, self._planner.hashes)
        with HERE.stopped_by(self._cancel.check), self._kernel.workers(self._options.jobs) as workers:
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
            error_code=code_on_record(error) if error else None,
            error_message=self._kernel.redact(error.message) if error else None,
            reason=done.job.reason,
        )

    # --- the end ---------------------------------------------------------------------------

    def _verdict(self) -> tuple[PassState, KfmError | None]:
        reports = self._report.nodes.values()
        outcomes = {each.outcome for each in reports}
        stopped = self._cancel.error
        if stopped is not None:
            return ("failed" if isinstance(stopped, RunTimedOut) else "cancelled"), stopped
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
        for _ in range(ROUNDS_MAX):
            ended = self._ended()
            if not ended.epoch_moved:
                break
            self._look_again()
        if not ended.landed:
            raise LostLease(f"{options.scope} has passed to another process.")
        report.commit = ended.commit

    def _ended(self) -> EndedPass:
        options, report = self._options, self._report
        return self._kernel.pipeline_runs.end(
            EndPass(
                run_id=options.run_id,
                pipeline_id=options.pipeline_id,
                scope=options.scope,
                fence=self._fence.fence,
                branch=options.branch,
                state=report.state,
                counts=report.counts,
                author=self._kernel.actor,
                error_code=code_on_record(report.error) if report.error else None,
                policy_epoch=self._epoch,
                commits=report.state in ("success", "partial"),
                releases=options.fence is None,
                emit=partial(self._observer.ended, report),
            ),
            self._planner.skips(self._branch_head),
        )

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


def _stopped(ledger: LedgerReader, *, in_flight: bool) -> KfmError | None:
    """The switch that keeps pipeline runs from starting, or from going on."""
    switches = ledger.switches()
    if not switches:
        return None
    from kfm.model.gates import combine, general_gate, refusal  # late: most environments have thrown none

    decision = combine([general_gate(switches, in_flight=in_flight)])
    return None if decision.allowed else refusal(decision, in_flight=in_flight)


def _busy(lock: Any, options: PipelineOptions) -> Busy:
    holder = lock.holder
    return Busy(
        f"Run {holder.run_id if holder else '?'} works on {options.pipeline_id} on branch {options.branch}."
    )
