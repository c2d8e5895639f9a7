"""Planner of a pipeline run: which nodes must run, and why, from the records alone. It writes nothing."""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from hashlib import sha256
from itertools import repeat
from typing import Any

from kfm.model.errors import BackendUnavailable, KfmError, StoreCorrupt, UnhashableInput, UsageError
from kfm.model.input_hash import (
    DEPENDENCY,
    are_plain,
    dependencies_bytes,
    dependency_text,
    inputs_bytes,
    sha256_text,
)
from kfm.model.quantities import did_you_mean, stopped
from kfm.model.records import NodeOutcome
from kfm.model.run_state import (
    NO_OUTPUTS,
    UNCHANGED,
    Head,
    KnownNodes,
    NodeDecision,
    Skips,
    decide,
    is_sole_object,
    outputs_of,
    stands,
)
from kfm.objects.local import verify_object
from kfm.pipelines.code_hash import CodeHashes
from kfm.pipelines.declaration import NodeSpec, Pipeline
from kfm.pipelines.graph import ancestors, descendants
from kfm.pipelines.inputs import FileChecksums, Inputs
from kfm.pipelines.options import NodeReport, PipelineKernel, PipelineOptions, PipelineReport

DAMAGED = -1  # the size of an object whose bytes are not those that were stored
INPUTS_UNKNOWN = "its inputs can't be determined"
UNKNOWN_INPUTS = (UnhashableInput, BackendUnavailable)  # the node fails, and is not run
_AS_REPORT = partial(tuple.__new__, NodeReport)  # ten thousand at once: without a function of Python for each


class PipelinePlanner:
    """Decisions of one pipeline run, and the outputs that they rest on."""

    def __init__(
        self, kernel: PipelineKernel, pipeline: Pipeline, options: PipelineOptions, run: Any = None
    ) -> None:
        self.kernel = kernel
        self.pipeline = pipeline
        self.options = options
        self.run = run  # a governed run's publisher and inputs
        self.graph = pipeline.graph()
        self.order = self._selected()
        self.report = PipelineReport(options.run_id, options.pipeline_id, options.branch)
        self.known = KnownNodes({}, {})
        self._standing: Mapping[str, Head] = {}  # what the branch shows of its nodes
        self.hashes: dict[str, str] = {}  # node → the hash of its outputs; a node in here can be read from
        self.checksums = FileChecksums(
            kernel.files, kernel.pipeline_runs, kernel.clock.now_ms, verify=options.verify
        )
        self._inputs = Inputs(kernel.files, self.checksums, kernel.input_versions)
        self._forced = self._forced_nodes()
        self._code_hashes = CodeHashes()
        self._code_of: dict[Callable[..., Any], str] = {}
        self._dependency_texts: dict[str, str] = {}  # node → its row in the hashes of its dependants
        self._object_sizes: dict[str, int | None] = {}
        self._size_of = cache(self._verified_size) if options.verify else kernel.object_size
        self._skips: list[tuple[str, str, str | None, str, str]] = []
        self._restored: list[Head] = []

    # --- plans -----------------------------------------------------------------------------

    def plan(self) -> PipelineReport:
        """What a pipeline run would do: the same decisions, and nothing else."""
        self.learn()
        unsure: dict[str, str] = {}
        hopeless: dict[str, KfmError] = {}
        for node in self.order:
            lost = next((each for each in self.graph.reads[node] if each in hopeless), None)
            if lost is not None:
                hopeless[node] = hopeless[lost]
                self.report.nodes[node] = NodeReport(node, None, f"{lost} would fail", error=hopeless[lost])
                continue
            if any(each in unsure for each in self.graph.reads[node]):
                unsure[node] = "reads from what would run"
            else:
                try:
                    decision, inputs_hash = self.decide(self.pipeline.nodes[node])
                except UNKNOWN_INPUTS as error:
                    hopeless[node] = error
                    self.report.nodes[node] = NodeReport(node, "failed", INPUTS_UNKNOWN, error=error)
                    continue
                if decision.verdict != "run":
                    self.reuse(node, decision, inputs_hash)
                    continue
                unsure[node] = decision.reason
            self.report.nodes[node] = NodeReport(node, None, unsure[node])
        return self.report

    def pending(self) -> list[str]:
        """Nodes that must run, or may have to after those that they read from; all others are settled."""
        with uncollected():
            self.learn()
            pending: list[str] = []
            if self._is_plain():
                self._settle_plainly(pending)
            else:
                for node in self.order:
                    self._settle_or_keep(node, pending)
            for node in pending:  # before any of them runs: a node may alter the file of another's code
                self.code_sha(self.pipeline.nodes[node])
        return pending

    def learn(self) -> None:
        """Read what is on record of the nodes."""
        states, options = self.kernel.states, self.options
        self.known = states.known(options.branch, options.run_id, self.order)
        self._standing = dict(self.known.heads) if options.fork_of is not None else self.known.heads
        if options.fork_of is not None:
            self._learn_from(options.fork_of)
        self._look_at_objects()

    def _learn_from(self, forked: str) -> None:
        for node, own in self.kernel.states.own(forked).items():
            if own.outcome in ("success", "skipped") and own.outputs is not None:
                made_by = own.skipped_because or forked
                self.known.heads[node] = Head(
                    made_by, own.inputs_hash, own.code_sha, own.outputs_hash, own.outputs
                )

    # --- one node --------------------------------------------------------------------------

    def decide(self, spec: NodeSpec) -> tuple[NodeDecision, str]:
        """Whether the node must run, and the hash of its inputs; all that it reads from is settled."""
        node = spec.id
        inputs_hash = sha256_text(self.document(spec))
        return decide(
            node,
            inputs_hash,
            self.code_sha(spec),
            self.known.own.get(node),
            self.known.heads.get(node),
            self._missing,
            self._elsewhere,
            self.pipeline.skip_scope,
            self._forced.get(node) if self._forced else None,
            self._was_reverted,
        ), inputs_hash

    def document(self, spec: NodeSpec) -> bytes:
        """What the node's inputs_hash is made of."""
        reads = self.graph.reads[spec.id]
        if spec.inputs == () and self.run is None:
            texts = [self._dependency_texts[each] for each in (sorted(reads) if len(reads) > 1 else reads)]
            if all(texts):
                return dependencies_bytes(texts, spec.params)
        rows: list[Mapping[str, Any]] = [{"id": each, "checksum": self.hashes[each]} for each in reads]
        if spec.inputs != ():
            rows += self._inputs.rows(spec.id, spec.inputs, spec.params)
        if self.run is not None and not reads:
            rows += self.run.input_rows()
        return inputs_bytes(rows, spec.params)

    def code_sha(self, spec: NodeSpec) -> str:
        if spec.version is not None:
            return f"version:{spec.version}"
        known = self._code_of.get(spec.function)
        if known is None:
            known = self._code_of[spec.function] = self._code_hashes.of(spec.function)
        return known

    def outputs(self, node: str) -> str:
        """The outputs of a settled node, as text."""
        return self.report.nodes[node].outputs

    def attempt(self, node: str) -> int:
        """The number of the next attempt at a node in this run."""
        own = self.known.own.get(node)
        return own.attempt + 1 if own else 1

    def settle(self, node: str, digest: str) -> None:
        """From here on others can read from it."""
        self.hashes[node] = digest
        self._dependency_texts[node] = dependency_text(node, digest)

    def reuse(self, node: str, decision: NodeDecision, inputs_hash: str) -> None:
        """Settle a node that need not run with the outputs that it has."""
        self.settle(node, decision.outputs_hash)
        made_by, code_sha = decision.made_by or self.options.run_id, self.code_sha(self.pipeline.nodes[node])
        if decision.verdict == "skip":
            self._skips.append((node, inputs_hash, code_sha, made_by, decision.reason))
        shown = self._standing.get(node)
        if shown is None or not stands(shown, inputs_hash, code_sha) or decision.earlier:
            # Of an earlier run, of one that was forked, or of this one before another came between.
            made = Head(
                made_by, inputs_hash, code_sha, decision.outputs_hash, decision.outputs, dataset_id=node
            )
            self._restored.append(made)
        outcome: NodeOutcome = "skipped" if decision.made_by is not None else "success"
        if self.run is not None:
            self.run.adopt(outputs_of(decision.outputs))
        self.report.nodes[node] = NodeReport(
            node, outcome, decision.reason, inputs_hash, decision.made_by, decision.outputs
        )

    def skips(self, branch_head: str | None) -> Skips | None:
        """All nodes that were skipped, as they are recorded at the end; None if none was."""
        if not self._skips and not self._restored:
            return None
        whole, options, heads = None, self.options, self.known.heads
        if len(self._skips) == len(heads) == len(self.order) and not self._restored and not options.fork_of:
            whole = (min(heads), max(heads), branch_head)
        return Skips(options.run_id, options.branch, options.pipeline_id, self._skips, self._restored, whole)

    # --- selection -------------------------------------------------------------------------

    def _selected(self) -> list[str]:
        if not self.options.only:
            return self.graph.order
        kept = ancestors(self.graph.reads, self._existing(self.options.only))
        return [node for node in self.graph.order if node in kept]

    def _forced_nodes(self) -> dict[str, str]:
        """Nodes that run in any case, each with the reason."""
        forced = dict.fromkeys(self._existing(self.options.force), "asked to run")
        start = self.options.fork_from
        if start is not None:
            self._existing([start])
            forced |= dict.fromkeys(descendants(self.graph.reads, [start]), f"forked from {start}")
        return forced

    def _existing(self, names: Collection[str]) -> Collection[str]:
        for name in names:
            if name not in self.graph.reads:
                hint = did_you_mean(name, self.graph.reads)
                raise UsageError(stopped(f"{self.pipeline.id} has no node {name}{hint}"))
        return names

    # --- many nodes ------------------------------------------------------------------------

    def _settle_or_keep(self, node: str, pending: list[str]) -> None:
        hashes = self.hashes
        for each in self.graph.reads[node]:
            if each not in hashes:
                pending.append(node)
                return
        try:
            decision, inputs_hash = self.decide(self.pipeline.nodes[node])
        except UNKNOWN_INPUTS:  # it fails in its turn
            pending.append(node)
            return
        if decision.verdict == "run":
            pending.append(node)
        else:
            self.reuse(node, decision, inputs_hash)

    def _is_plain(self) -> bool:
        """A new run without special options: nodes are skipped if their heads stand, for no other reason."""
        return (
            not self.known.own
            and not self._forced
            and self.run is None
            and self.options.fork_of is None
            and self.pipeline.skip_scope == "branch"
            and are_plain(self.order)
        )

    def _settle_plainly(self, pending: list[str]) -> None:
        """Most nodes of most runs, in as few steps as there can be; the others take the usual way."""
        order, texts, digests, code_of = self.order, self._dependency_texts, self.hashes, self._code_of
        specs, heads_of, intact = self.pipeline.nodes, self.known.heads, self._intact()
        text_of, reads_of = texts.__getitem__, self.graph.reads.__getitem__
        unchanged: list[str] = []
        heads: list[Head] = []
        all_of = zip(
            order, map(specs.__getitem__, order), map(reads_of, order), map(heads_of.get, order), strict=True
        )
        for node, spec, upstream, head in all_of:
            if head is None or spec.inputs != ():
                self._settle_or_keep(node, pending)
                continue
            try:
                document = dependencies_bytes(map(text_of, sorted(upstream)), spec.params)
            except (KeyError, *UNKNOWN_INPUTS):  # something before it must run, or it fails in its turn
                pending.append(node)
                continue
            _, inputs_hash, code_sha, digest, outputs, rerun, _ = head
            if (
                rerun is not None
                or inputs_hash != "sha256:" + sha256(document).hexdigest()
                or code_sha != ((spec.version is None and code_of.get(spec.function)) or self.code_sha(spec))
            ):
                self._settle_or_keep(node, pending)
                continue
            if outputs in intact or self._missing(outputs) is None:
                digests[node] = digest
                texts[node] = DEPENDENCY % (digest, node)
                unchanged.append(node)
                heads.append(head)
            else:
                self._settle_or_keep(node, pending)
        if heads:
            self._note_unchanged(unchanged, heads)

    def _note_unchanged(self, nodes: list[str], heads: list[Head]) -> None:
        """What `reuse` notes of a node that is skipped because its head stands; of all of them at once."""
        made_by, inputs_hashes, codes, _, outputs, _, _ = zip(*heads, strict=True)
        count = len(nodes)
        self._skips += zip(nodes, inputs_hashes, codes, made_by, repeat(UNCHANGED, count), strict=True)
        columns = (repeat("skipped", count), repeat(UNCHANGED, count), inputs_hashes, made_by, outputs)
        others = (repeat(None, count), repeat(0, count), repeat(False, count))  # error, duration, ran
        reports = dict(zip(nodes, map(_AS_REPORT, zip(nodes, *columns, *others, strict=True)), strict=True))
        if self.report.nodes:  # all in the order in which they were settled
            reports |= self.report.nodes
            reports = {node: reports[node] for node in self.order if node in reports}
        self.report.nodes = reports

    # --- outputs ---------------------------------------------------------------------------

    def _intact(self) -> set[str]:
        """Outputs that are one object, which is there: as far as can be seen in one look at all objects."""
        heads, size_of = self.known.heads, self._size_of
        looked_at = {heads[node].outputs: heads[node].outputs_hash for node in self.order if node in heads}
        return {
            text for text, digest in looked_at.items() if is_sole_object(text, digest, size_of(digest[7:]))
        }

    def _look_at_objects(self) -> None:
        """At those of all nodes, where it would be a request for each."""
        if self.kernel.object_sizes is None or self.options.verify:
            return
        heads, own = self.known.heads.values(), self.known.own.values()
        texts = {each.outputs for each in heads} | {each.outputs for each in own}
        made = [each for text in texts if text for each in outputs_of(text) if each.kind != "file"]
        names, size_of = {each.checksum[7:] for each in made}, self.kernel.object_size
        sizes = self.kernel.object_sizes(names) if len(names) > 1 else {}
        none = {each.outputs_hash[7:] for each in heads} - names  # hashes of several: no objects
        there = dict.fromkeys(none) | {name: size for name, size in sizes.items() if size is not None}
        # What is not there is asked for in its turn: a node may have made it meanwhile.
        self._size_of = lambda sha256: there[sha256] if sha256 in there else size_of(sha256)

    def _missing(self, outputs: str) -> str | None:
        """Which output is gone or altered, in words; None if all are as they were made."""
        if outputs == NO_OUTPUTS:
            return None
        sizes = self._object_sizes
        for each in outputs_of(outputs):
            if each.kind == "file":
                try:
                    seen = self.checksums.of(each.name)
                except OSError:  # a folder, or something unreadable, is in its place
                    return f"{each.name} can't be read"
                if seen != each.checksum:
                    return f"{each.name} is {'gone' if seen is None else 'altered'}"
                continue
            if each.checksum not in sizes:
                sizes[each.checksum] = self._size_of(each.checksum[7:])
            size = sizes[each.checksum]
            if size != each.size:
                return f"{each.name} is {'gone' if size is None else 'altered'}"
        return None

    def _verified_size(self, sha256: str) -> int | None:
        """What `--verify` goes by: its bytes are read, once for each object."""
        if self.kernel.object_size(sha256) is None:
            return None
        try:
            return verify_object(self.kernel.objects, sha256)
        except (OSError, StoreCorrupt):
            return DAMAGED

    def _elsewhere(self, node: str, inputs_hash: str, code_sha: str | None) -> Head | None:
        return self.kernel.states.made(self.options.branch, node, inputs_hash, code_sha)

    def _was_reverted(self, node: str, inputs_hash: str, code_sha: str | None) -> bool:
        return self.kernel.states.was_reverted(self.options.branch, node, inputs_hash, code_sha)


# Did the application that loaded this freeze what it has? Counted once: counting looks at each object.
_FROZEN = gc.get_freeze_count() > 0


@contextmanager
def uncollected() -> Iterator[None]:
    """Without Python's garbage collection, which would look at many small objects that all stay."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            if not _FROZEN:
                gc.freeze()  # to the oldest generation without a look at each, …
                gc.unfreeze()  # … which the next collection of the youngest would take
            gc.enable()
