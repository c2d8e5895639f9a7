"""One pass over a pipeline's graph: decide, run what must run, record each node as it ends.

A node's record is durable before anything that reads from it begins, so after a kill only those
nodes run again that were at work. What is left alone is recorded at the end, all at once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from kfm.core.canonical import canonical_bytes
from kfm.core.errors import Busy, Cancelled, KfmError, LostLease, NodesFailed
from kfm.core.evidence import Testimony
from kfm.core.hashing import INPUTS_TAG, sha256_text
from kfm.core.records import Node
from kfm.core.run_states import (
    NOTHING_CHECKED,
    BeginPass,
    EndPass,
    Fence,
    PassState,
    Skips,
    outputs_hash,
    outputs_of,
    outputs_text,
)
from kfm.engine.deciding import UNTELLING, UNTOLD, Deciding, uncollected
from kfm.engine.pass_watching import PassWatch
from kfm.engine.passes import NodeReport, PassKernel, PassReport, Wish
from kfm.engine.working import Job, Outcome, Workers
from kfm.runs.declare import NodeSpec, Pipeline

DOCUMENT_BYTES_MAX = 256 * 1024  # what a hash was made of is kept up to this size


class Passing(Deciding):
    """One pass on its way."""

    def __init__(self, kernel: PassKernel, pipeline: Pipeline, wish: Wish, run: Any = None) -> None:
        super().__init__(kernel, pipeline, wish, run)
        self._failures = 0
        self._cancel = threading.Event()
        self._fence = Fence(wish.scope, 0)
        self._branch_head: str | None = None
        self._watch = PassWatch(kernel, wish)

    # --- the pass ------------------------------------------------------------------------

    def cancel(self) -> None:
        """Start nothing more; nodes at work are asked to stop."""
        self._cancel.set()

    def run(self) -> PassReport:
        kernel, wish, report = self._kernel, self._wish, self._report
        kernel.liveness.claim(kernel.worker_id)
        begun = kernel.passes.begin(
            BeginPass(
                run_id=wish.run_id,
                pipeline_id=wish.pipeline_id,
                branch=wish.branch,
                from_branch=wish.from_branch,
                graph=tuple(zip(self._order, map(self._graph.reads.__getitem__, self._order), strict=True)),
                worker_id=kernel.worker_id,
                lease_ms=kernel.lease_ms,
                scope=wish.scope,
                fence=wish.fence,
                parent=wish.parent,
                testify=kernel.witness.began if kernel.witness else None,
            ),
            kernel.liveness.is_dead,
        )
        if begun.held_by is not None:
            raise _busy(begun.held_by, wish)
        self._fence = Fence(wish.scope, begun.fence)
        report.attempt = begun.attempt
        self._branch_head = begun.branch_head
        self._watch.begun(begun)
        stop = self._beat()
        with self._watch.span(report):
            self._work(stop)
        return report

    def _work(self, stop: Callable[[], None]) -> None:
        wish, report = self._wish, self._report
        try:
            pending = self.look()
            if pending:
                self._execute(pending)
            report.state, report.error = self._verdict()
        except KeyboardInterrupt:
            self.cancel()
            report.state, report.error = "cancelled", Cancelled(f"Pass {wish.run_id}.")
        except KfmError as error:
            report.state, report.error = "failed", error
            if isinstance(error, LostLease):
                raise
        finally:
            stop()
        with uncollected():
            self._end()

    # --- running ---------------------------------------------------------------------------

    def _execute(self, pending: list[str]) -> None:
        """Run what must run, never more than `jobs` at a time, each after what it reads from."""
        queue = Queue(pending, self._graph.reads, self._hashes)
        with self._kernel.workers(self._wish.jobs) as workers:
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
                        self._kernel.announce("stopping: nodes at work are waited for, and recorded")

    def _stopping(self) -> bool:
        return self._cancel.is_set() or (self._failures > 0 and not self._wish.keep_going)

    def _begin(self, node: str, workers: Workers, queue: Queue) -> None:
        spec = self._pipeline.nodes[node]
        try:
            decision, inputs_hash = self._decide(spec)
        except UNTELLING as error:  # fails its node, and closed
            self._record([self._untold(spec, error)])
            return
        if decision.verdict == "run":
            self._watch.starts(alone=self._wish.jobs == 1)
            workers.start(self._job(spec, decision.reason, inputs_hash))
        else:
            self._settle(node, decision, inputs_hash)
            self._kernel.on_node(self._report.nodes[node])
            queue.done(node)

    def _untold(self, spec: NodeSpec, error: KfmError) -> Outcome:
        """A node that was not run, since nobody can tell what it would read: on record like any failure."""
        document = canonical_bytes({"inputs": [], "kfm": INPUTS_TAG, "params": {}, "untold": error.detail})
        own = self._known.own.get(spec.id)
        job = Job(
            spec=spec,
            reason=UNTOLD,
            inputs_hash=sha256_text(document),
            code_sha=self._code(spec),
            document=document,
            attempt=own.attempt + 1 if own else 1,
            arguments={},
            run_id=self._wish.run_id,
            branch=self._wish.branch,
            run=self._run,
        )
        return Outcome(job, "failed", (), dict(NOTHING_CHECKED), error, 0)

    def _tell(self, report: NodeReport) -> None:
        self._report.nodes[report.id] = report
        self._kernel.on_node(report)

    def _job(self, spec: NodeSpec, reason: str, inputs_hash: str) -> Job:
        own = self._known.own.get(spec.id)
        bindings = self._graph.bindings[spec.id]
        return Job(
            spec=spec,
            reason=reason,
            inputs_hash=inputs_hash,
            code_sha=self._code(spec),
            document=self._document(spec),
            attempt=own.attempt + 1 if own else 1,
            arguments={name: outputs_of(self._report.nodes[node].outputs) for name, node in bindings.items()},
            run_id=self._wish.run_id,
            branch=self._wish.branch,
            run=self._run,
            sees_run=not self._graph.reads[spec.id],
        )

    def _record(self, finished: list[Outcome]) -> list[str]:
        """Those that ended at the same time, in one transaction; returns those that others can read from."""
        from kfm.core.hushed import hushed  # late: where nothing runs, nobody needs it

        records: list[Node] = []
        documents: list[tuple[str, str]] = []
        events: list[Testimony] = []
        for done in finished:
            node = self._node(done)
            records.append(node)
            events += self._watch.events(node, done.job.document)
            if len(done.job.document) <= DOCUMENT_BYTES_MAX:
                documents.append((done.job.inputs_hash, hushed(done.job.document.decode())))
        if not self._kernel.states.record(self._fence, records, documents=documents, events=tuple(events)):
            raise LostLease(f"{self._wish.scope} has passed to another process.")
        for done, node in zip(finished, records, strict=True):
            for name in done.job.spec.outputs:
                self._checksums.forget(name)
            if node.outcome in ("success", "partial"):
                self._settled(node.dataset_id, outputs_hash(node.outputs))
            else:
                self._failures += 1
                if isinstance(done.error, Cancelled):  # somebody wants to stop, and a node heard it first
                    self.cancel()
            report = NodeReport(
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
            self._tell(report)
            self._watch.recorded(node)
        return [node.dataset_id for node in records if node.dataset_id in self._hashes]

    def _node(self, done: Outcome) -> Node:
        error = done.error
        return Node(
            dataset_id=done.job.spec.id,
            run_id=self._wish.run_id,
            lakefs_branch=self._wish.branch,
            inputs_hash=done.job.inputs_hash,
            validation_summary=done.summary,
            outcome=done.outcome,
            recorded_at_ms=self._kernel.clock.now_ms(),
            attempt=done.job.attempt,
            outputs=tuple(sorted(done.outputs, key=lambda each: each.name)),
            code_sha=done.job.code_sha,
            pipeline_id=self._wish.pipeline_id,
            duration_ms=done.duration_ms,
            error_code=_code_of(error) if error else None,
            error_message=self._kernel.redact(error.message) if error else None,
            reason=done.job.reason,
        )

    # --- the end ---------------------------------------------------------------------------

    def _failed(self) -> list[NodeReport]:
        return [each for each in self._report.nodes.values() if each.outcome == "failed"]

    def _blocked_by(self, node: str) -> str:
        for each in self._graph.reads[node]:
            report = self._report.nodes.get(each)
            if report is not None and report.outcome == "failed":
                return f"{each} failed"
        return "the pass stopped before"

    def _verdict(self) -> tuple[PassState, KfmError | None]:
        outcomes = {each.outcome for each in self._report.nodes.values()}
        failed = self._failed() if "failed" in outcomes else []
        if self._cancel.is_set():
            return "cancelled", Cancelled(f"Pass {self._wish.run_id}.")
        if failed:
            names = ", ".join(each.id for each in failed[:5]) + (" …" if len(failed) > 5 else "")
            first = failed[0].error.message if failed[0].error else failed[0].reason
            return "failed", NodesFailed(f"{len(failed)} of {len(self._order)}: {names}. {first}")
        if "partial" in outcomes:
            return "partial", None
        return "success", None

    def _end(self) -> None:
        wish, report = self._wish, self._report
        if len(report.nodes) < len(self._order):
            for node in self._order:
                if node not in report.nodes:
                    report.nodes[node] = NodeReport(node, None, self._blocked_by(node))
        self._checksums.keep()
        ended = self._kernel.passes.end(
            EndPass(
                run_id=wish.run_id,
                pipeline_id=wish.pipeline_id,
                scope=wish.scope,
                fence=self._fence.fence,
                branch=wish.branch,
                state=report.state,
                counts=report.counts,
                author=self._kernel.actor,
                error_code=_code_of(report.error) if report.error else None,
                commits=report.state in ("success", "partial"),
                releases=wish.fence is None,
                testify=partial(self._watch.ended, report),
            ),
            self._left_alone(),
        )
        if not ended.landed:
            raise LostLease(f"{wish.scope} has passed to another process.")
        report.commit = ended.commit

    def _left_alone(self) -> Skips | None:
        if not self._skips:
            return None
        whole = None
        heads, order = self._known.heads, self._order
        if len(self._skips) == len(heads) == len(order) and not self._restored and not self._wish.fork_of:
            whole = (min(heads), max(heads), self._branch_head)
        wish = self._wish
        return Skips(wish.run_id, wish.branch, wish.pipeline_id, self._skips, self._restored, whole)

    def _beat(self) -> Callable[[], None]:
        heart = self._kernel.heart
        if heart is None or self._wish.fence is not None:
            return lambda: None
        fence, lease_ms = self._fence, self._kernel.lease_ms

        def beat(store: Any) -> None:
            if store.renew(fence.scope, fence.fence, lease_ms) is None:
                self.cancel()

        return heart.start(beat, max(1, lease_ms // 3))


class Queue:
    """Nodes that wait for what they read from."""

    def __init__(
        self, pending: Sequence[str], reads: Mapping[str, tuple[str, ...]], settled: Collection[str]
    ) -> None:
        self.waiting = dict.fromkeys(pending)
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
        node = self.ready.popleft()
        del self.waiting[node]
        return node

    def done(self, node: str) -> None:
        for each in self._dependants.pop(node, ()):
            self._missing[each] -= 1
            if not self._missing[each]:
                self.ready.append(each)


def _code_of(error: KfmError) -> str:
    return "CANCELLED" if isinstance(error, Cancelled) else error.code


def _busy(lock: Any, wish: Wish) -> Busy:
    holder = lock.holder
    return Busy(
        f"Run {holder.run_id if holder else '?'} works on {wish.pipeline_id} on branch {wish.branch}."
    )
