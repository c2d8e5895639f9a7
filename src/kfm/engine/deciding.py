"""What must run, and why: each node's hash beside what is known of it.

Nothing here runs a node or writes anything: a plan is made by the same decisions as a pass.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from kfm.core.errors import BackendUnavailable, KfmError, UnhashableInput, UsageError
from kfm.core.hashing import (
    DEPENDENCY,
    are_plain,
    dependencies_bytes,
    dependency_text,
    inputs_bytes,
    sha256_text,
)
from kfm.core.records import NodeOutcome
from kfm.core.run_states import (
    NO_OUTPUTS,
    UNCHANGED,
    Decision,
    Head,
    Known,
    decide,
    outputs_hash,
    outputs_of,
    outputs_of_each,
    outputs_text,
    stands,
)
from kfm.engine.passes import NodeReport, PassKernel, PassReport, Wish
from kfm.runs.code import CodeHashes
from kfm.runs.declare import NodeSpec, Pipeline, Wired
from kfm.runs.graph import ancestors, descendants, near
from kfm.runs.inputs import FileChecksums, Inputs

UNTELLING = (UnhashableInput, BackendUnavailable)  # a node whose inputs nobody can tell fails, and closed
UNTOLD = "its inputs can't be told"
_AS_REPORT = partial(tuple.__new__, NodeReport)  # ten thousand at once: without a function of Python for each


class Deciding:
    """One pass, as far as it only looks."""

    def __init__(self, kernel: PassKernel, pipeline: Pipeline, wish: Wish, run: Any = None) -> None:
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
        self._known = Known({}, {})
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

    def _decide(self, spec: NodeSpec) -> tuple[Decision, str]:
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

    def _settle(self, node: str, decision: Decision, inputs_hash: str) -> None:
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
