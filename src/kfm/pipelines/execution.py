"""One pipeline run: decide which nodes must run, run them, record each as it ends."""

from __future__ import annotations

import gc
import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from kfm.model.attempts import LineageEvent
from kfm.model.canonical import canonical_bytes
from kfm.model.errors import (
    BackendUnavailable,
    Busy,
    Cancelled,
    KfmError,
    LostLease,
    NodesFailed,
    UnhashableInput,
    UsageError,
)
from kfm.model.input_hash import (
    DEPENDENCY,
    INPUTS_TAG,
    are_plain,
    dependencies_bytes,
    dependency_text,
    inputs_bytes,
    sha256_text,
)
from kfm.model.records import Node, NodeOutcome
from kfm.model.run_state import (
    NO_OUTPUTS,
    NOTHING_CHECKED,
    UNCHANGED,
    BeginPass,
    EndPass,
    Fence,
    Head,
    KnownNodes,
    NodeDecision,
    PassState,
    Skips,
    decide,
    outputs_hash,
    outputs_of,
    outputs_of_each,
    outputs_text,
    stands,
)
from kfm.pipelines.code_hash import CodeHashes
from kfm.pipelines.declaration import NodeSpec, Pipeline, Wired
from kfm.pipelines.graph import ancestors, descendants, near
from kfm.pipelines.inputs import FileChecksums, Inputs
from kfm.pipelines.options import NodeReport, PassKernel, PassReport, PipelineOptions
from kfm.pipelines.pipeline_observer import PipelineObserver
from kfm.pipelines.workers import NodeJob, Outcome, Workers

UNTELLING = (UnhashableInput, BackendUnavailable)  # a node whose inputs nobody can tell fails, and closed
UNTOLD = "its inputs can't be told"
_AS_REPORT = partial(tuple.__new__, NodeReport)  # ten thousand at once: without a function of Python for each


class Deciding:
    """One pass, as far as it only looks."""

    def __init__(
        self, kernel: PassKernel, pipeline: Pipeline, wish: PipelineOptions, run: Any = None
    ) -> None:
        self._kernel = kernel
        self._pipeline = pipeline
        self._wish = wish
        self._run = run  # a governed run's publisher and inputs
        self._graph: Wired = pipeline.graph()
        self._order = self._wanted(self._graph)
        self._checksums = FileChecksums(kernel.files, kernel.passes, kernel.clock.now_ms, verify=wish.verify)
        self._inputs = Inputs(kernel.files, self._checksums, kernel.signs)
        self._codes = CodeHashes()
        self._code_of: dict[Callable[..., Any], str] = {}
        self._asked = self._asked_for()
        self._report = PassReport(wish.run_id, wish.pipeline_id, wish.branch)
        self._known = KnownNodes({}, {})
        self._hashes: dict[str, str] = {}  # node → what its dependants see of its outputs
        self._said: dict[str, str] = {}  # … and how their hashes say so
        self._skips: list[tuple[str, str, str | None, str, str]] = []
        self._restored: list[Head] = []
        self._sizes: dict[str, int | None] = {}

    def plan(self) -> PassReport:
        """What a pass would do: the same decisions, and nothing else."""
        self._learn()
        unsure: dict[str, str] = {}
        hopeless: dict[str, KfmError] = {}
        for node in self._order:
            lost = next((each for each in self._graph.reads[node] if each in hopeless), None)
            if lost is not None:
                hopeless[node] = hopeless[lost]
                self._report.nodes[node] = NodeReport(node, None, f"{lost} would fail", error=hopeless[lost])
                continue
            if any(each in unsure for each in self._graph.reads[node]):
                unsure[node] = "reads from what would run"
            else:
                try:
                    decision, inputs_hash = self._decide(self._pipeline.nodes[node])
                except UNTELLING as error:
                    hopeless[node] = error
                    self._report.nodes[node] = NodeReport(node, "failed", UNTOLD, error=error)
                    continue
                if decision.verdict != "run":
                    self._settle(node, decision, inputs_hash)
                    continue
                unsure[node] = decision.reason
            self._report.nodes[node] = NodeReport(node, None, unsure[node])
        return self._report

    # --- what was asked for --------------------------------------------------------------

    def _wanted(self, graph: Wired) -> list[str]:
        if not self._wish.only:
            return graph.order
        kept = ancestors(graph.reads, self._existing(self._wish.only))
        return [node for node in graph.order if node in kept]

    def _asked_for(self) -> dict[str, str]:
        asked = dict.fromkeys(self._existing(self._wish.force), "asked to run")
        if self._wish.fork_from is not None:
            start = self._wish.fork_from
            self._existing([start])
            again = descendants(self._graph.reads, [start])
            asked |= dict.fromkeys(again, f"forked from {start}")
        return asked

    def _existing(self, names: Collection[str]) -> Collection[str]:
        for name in names:
            if name not in self._graph.reads:
                raise UsageError(f"{self._pipeline.id} has no node {name}{near(name, self._graph.reads)}.")
        return names

    # --- deciding --------------------------------------------------------------------------

    def _learn(self) -> None:
        states, wish = self._kernel.states, self._wish
        self._known = states.known(wish.branch, wish.run_id, self._order)
        for node in states.of_run(wish.fork_of) if wish.fork_of is not None else ():
            if node.outcome in ("success", "skipped"):
                self._known.heads[node.dataset_id] = Head(
                    node.skipped_because or node.run_id,
                    node.inputs_hash,
                    node.code_sha,
                    outputs_hash(node.outputs),
                    outputs_text(node.outputs),
                )

    def look(self) -> list[str]:
        """Read what is known, and leave alone whatever can be; returns what is left, in order."""
        with uncollected():
            self._learn()
            pending: list[str] = []
            if self._is_plain():
                self._sweep_plainly(pending)
            else:
                for node in self._order:
                    self._leave_or_keep(node, pending)
            for node in pending:  # before any of them runs: a node may alter what another's code is told by
                self._code(self._pipeline.nodes[node])
        return pending

    def _leave_or_keep(self, node: str, pending: list[str]) -> None:
        hashes = self._hashes
        for each in self._graph.reads[node]:
            if each not in hashes:
                pending.append(node)
                return
        try:
            decision, inputs_hash = self._decide(self._pipeline.nodes[node])
        except UNTELLING:  # it fails in its turn
            pending.append(node)
            return
        if decision.verdict == "run":
            pending.append(node)
        else:
            self._settle(node, decision, inputs_hash)

    def _is_plain(self) -> bool:
        """A new run with no special wishes: then a node whose head stands is left alone, and that is all."""
        return (
            not self._known.own
            and not self._asked
            and self._run is None
            and self._wish.fork_of is None
            and self._pipeline.skip_scope == "branch"
            and are_plain(self._order)
        )

    def _sweep_plainly(self, pending: list[str]) -> None:
        """Most nodes of most passes, in as few steps as there can be; the others take the usual way."""
        head_of, said_of, settled = self._known.heads.get, self._said, self._hashes
        nodes, reads, intact = self._pipeline.nodes, self._graph.reads, self._intact()
        code_of, missing, left_alone, told = self._code, self._missing, self._skips.append, self._report.nodes
        for node in self._order:
            spec, head = nodes[node], head_of(node)
            if head is not None and spec.inputs == ():
                try:
                    rows = [said_of[each] for each in sorted(reads[node])]
                    inputs_hash = sha256_text(dependencies_bytes(rows, spec.params))
                except (KeyError, *UNTELLING):  # something before it must run, or it fails in its turn
                    pending.append(node)
                    continue
                code_sha = code_of(spec)
                made_by, _, _, digest, outputs, _, _ = head
                if stands(head, inputs_hash, code_sha) and (outputs in intact or missing(outputs) is None):
                    settled[node] = digest
                    said_of[node] = DEPENDENCY % (digest, node)
                    left_alone((node, inputs_hash, code_sha, made_by, UNCHANGED))
                    told[node] = _AS_REPORT(
                        (node, "skipped", UNCHANGED, inputs_hash, made_by, outputs, None, 0, False)
                    )
                    continue
            self._leave_or_keep(node, pending)

    def _intact(self) -> set[str]:
        """Outputs in which nothing is missing, as far as that can be seen in one look at all objects."""
        heads, size_of = self._known.heads, self._kernel.object_size
        texts = list(dict.fromkeys([heads[node].outputs for node in self._order if node in heads]))
        found = set()
        for text, outputs in zip(texts, outputs_of_each(texts), strict=True):
            for each in outputs:
                if each.kind == "file" or size_of(each.checksum[7:]) != each.size:
                    break
            else:
                found.add(text)
        return found

    def _decide(self, spec: NodeSpec) -> tuple[NodeDecision, str]:
        node = spec.id
        inputs_hash = sha256_text(self._document(spec))
        return decide(
            node,
            inputs_hash,
            self._code(spec),
            self._known.own.get(node),
            self._known.heads.get(node),
            self._missing,
            self._elsewhere,
            self._pipeline.skip_scope,
            self._asked.get(node) if self._asked else None,
        ), inputs_hash

    def _elsewhere(self, node: str, inputs_hash: str, code_sha: str | None) -> Head | None:
        return self._kernel.states.made(self._wish.branch, node, inputs_hash, code_sha)

    def _code(self, spec: NodeSpec) -> str:
        if spec.version is not None:
            return f"version:{spec.version}"
        known = self._code_of.get(spec.function)
        if known is None:
            known = self._code_of[spec.function] = self._codes.of(spec.function)
        return known

    def _document(self, spec: NodeSpec) -> bytes:
        """What the node's inputs_hash is made of."""
        reads = self._graph.reads[spec.id]
        if spec.inputs == () and self._run is None:
            said = self._said
            rows_said = [said[each] for each in (sorted(reads) if len(reads) > 1 else reads)]
            if all(rows_said):
                return dependencies_bytes(rows_said, spec.params)
        rows: list[Mapping[str, Any]] = [{"id": each, "checksum": self._hashes[each]} for each in reads]
        if spec.inputs != ():
            rows += self._inputs.rows(spec.id, spec.inputs, spec.params)
        if self._run is not None and not reads:
            rows += self._run.input_rows()
        return inputs_bytes(rows, spec.params)

    def _missing(self, outputs: str) -> str | None:
        """Which output is gone or altered, in words; None if all are as they were."""
        if outputs == NO_OUTPUTS:
            return None
        sizes = self._sizes
        for each in outputs_of(outputs):
            if each.kind == "file":
                try:
                    seen = self._checksums.of(each.name)
                except OSError:  # a folder, or something that nobody may read, is in its place
                    return f"{each.name} can't be read"
                if seen != each.checksum:
                    return f"{each.name} is {'gone' if seen is None else 'altered'}"
                continue
            if each.checksum not in sizes:
                sizes[each.checksum] = self._kernel.object_size(each.checksum[7:])
            size = sizes[each.checksum]
            if size != each.size:
                return f"{each.name} is {'gone' if size is None else 'altered'}"
        return None

    def _settled(self, node: str, digest: str) -> None:
        """From here on others can read from it."""
        self._hashes[node] = digest
        self._said[node] = dependency_text(node, digest)

    def _settle(self, node: str, decision: NodeDecision, inputs_hash: str) -> None:
        self._settled(node, decision.outputs_hash)
        if decision.verdict == "skip":
            assert decision.made_by is not None
            spec = self._pipeline.nodes[node]
            code_sha = self._code(spec)
            self._skips.append((node, inputs_hash, code_sha, decision.made_by, decision.reason))
            if decision.earlier:
                self._restored.append(
                    Head(
                        decision.made_by,
                        inputs_hash,
                        code_sha,
                        decision.outputs_hash,
                        decision.outputs,
                        dataset_id=node,
                    )
                )
        outcome: NodeOutcome = "skipped" if decision.made_by is not None else "success"
        if self._run is not None:
            self._run.adopt(outputs_of(decision.outputs))
        self._report.nodes[node] = NodeReport(
            node, outcome, decision.reason, inputs_hash, decision.made_by, decision.outputs
        )


@contextmanager
def uncollected() -> Iterator[None]:
    """Many small things that all stay: looking for garbage among them again and again finds none."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


DOCUMENT_BYTES_MAX = 256 * 1024  # what a hash was made of is kept up to this size
logger = logging.getLogger(__name__)


class PipelineExecutor(Deciding):
    """One pass on its way."""

    def __init__(
        self, kernel: PassKernel, pipeline: Pipeline, wish: PipelineOptions, run: Any = None
    ) -> None:
        super().__init__(kernel, pipeline, wish, run)
        self._failures = 0
        self._cancel = threading.Event()
        self._fence = Fence(wish.scope, 0)
        self._branch_head: str | None = None
        self._watch = PipelineObserver(kernel, wish)

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
                emit=kernel.emitter.began if kernel.emitter else None,
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
        queue = ReadyNodes(pending, self._graph.reads, self._hashes)
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
                        logger.info("stopping: nodes at work are waited for, and recorded")

    def _stopping(self) -> bool:
        return self._cancel.is_set() or (self._failures > 0 and not self._wish.keep_going)

    def _begin(self, node: str, workers: Workers, queue: ReadyNodes) -> None:
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
        job = NodeJob(
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

    def _job(self, spec: NodeSpec, reason: str, inputs_hash: str) -> NodeJob:
        own = self._known.own.get(spec.id)
        bindings = self._graph.bindings[spec.id]
        return NodeJob(
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
        from kfm.model.redaction import redacted_document  # late: where nothing runs, nobody needs it

        records: list[Node] = []
        documents: list[tuple[str, str]] = []
        events: list[LineageEvent] = []
        for done in finished:
            node = self._node(done)
            records.append(node)
            events += self._watch.events(node, done.job.document)
            if len(done.job.document) <= DOCUMENT_BYTES_MAX:
                documents.append((done.job.inputs_hash, redacted_document(done.job.document.decode())))
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
                emit=partial(self._watch.ended, report),
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


class ReadyNodes:
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


def _busy(lock: Any, wish: PipelineOptions) -> Busy:
    holder = lock.holder
    return Busy(
        f"Run {holder.run_id if holder else '?'} works on {wish.pipeline_id} on branch {wish.branch}."
    )
