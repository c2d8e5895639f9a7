"""One node by itself, in a run whose other nodes come from elsewhere: another task, another process.

It is decided, run and recorded as in a pass over its whole pipeline, from the same document and by the
same function, so either of the two leaves alone what the other has done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from kfm.model.errors import PipelineError
from kfm.model.run_state import BeginPass, Begun, EndedPass, EndPass, Graph, Pass, Skips, SkipScope
from kfm.pipelines.declaration import NodeSpec, Pipeline, Wired
from kfm.pipelines.execution import PipelineExecutor
from kfm.pipelines.options import NodeReport, PassKernel, PipelineOptions
from kfm.ports import Passes, RunStates

Checksums = dict[str, tuple[int, int, int, str]]


@dataclass(frozen=True)
class Lone:
    """A node, and what is known of the graph around it."""

    spec: NodeSpec
    code: Callable[..., Any] | str  # what is hashed as its code, or the hash
    pipeline_id: str
    graph: Graph = ()  # of the whole pipeline, where it is known
    skip_scope: SkipScope = "branch"
    reads_run: bool = False  # only what this very run made; else the branch's newest

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.spec.needs.values(), *self.spec.after]))


class Single(PipelineExecutor):
    """A pass over one node."""

    def __init__(self, kernel: PassKernel, lone: Lone, wish: PipelineOptions) -> None:
        graph = lone.graph or ((lone.spec.id, lone.reads),)
        kernel = replace(kernel, passes=Jointly(kernel.passes, kernel.states, lone.spec.id, graph))
        super().__init__(kernel, _OneNode(lone), wish)
        self._lone = lone

    def settle(self) -> NodeReport:
        """What became of it; raises what went wrong."""
        report = self.run()
        node = report.nodes.get(self._lone.spec.id)
        if node is not None and node.error is not None:
            raise node.error
        if node is None or node.outcome is None or node.outcome == "failed":
            assert report.error is not None
            raise report.error
        return node

    def _learn(self) -> None:
        lone, wish = self._lone, self._wish
        self._known = self._kernel.states.known(wish.branch, wish.run_id, [lone.spec.id, *lone.reads])
        for each in lone.reads:
            own, head = self._known.own.get(each), self._known.heads.get(each)
            if own is not None and own.outcome in ("success", "skipped", "partial"):
                self._give(each, own.outputs_hash, own.outputs)
            elif head is not None and head.rerun is None and not lone.reads_run:
                self._give(each, head.outputs_hash, head.outputs)
            else:
                where = f"in run {wish.run_id}" if lone.reads_run else f"on branch {wish.branch}"
                raise PipelineError(
                    f"{lone.spec.id} reads from {each}, of which there is no result {where}.",
                    remedy=f"Run {each} first, under the same run id.",
                )

    def _give(self, node: str, digest: str, outputs: str) -> None:
        self._settled(node, digest)
        self._report.nodes[node] = NodeReport(node, "success", "", outputs=outputs)

    def _code(self, spec: NodeSpec) -> str:
        code = self._lone.code
        if spec.version is not None or isinstance(code, str):
            return f"version:{spec.version}" if spec.version is not None else str(code)
        return self._codes.of(code)

    def _end(self) -> None:
        for each in self._lone.reads:
            self._report.nodes.pop(each, None)
        super()._end()


class _OneNode(Pipeline):
    """A pipeline of one node that reads from nodes which are not here."""

    def __init__(self, lone: Lone) -> None:
        super().__init__(lone.pipeline_id, skip_scope=lone.skip_scope)
        self.add(lone.spec)
        self._lone = lone

    def graph(self) -> Wired:
        spec = self._lone.spec
        return Wired([spec.id], {spec.id: self._lone.reads}, {spec.id: dict(spec.needs)})


class Jointly:
    """Implements `ports.Passes` for a node that shares its run with others."""

    def __init__(self, passes: Passes, states: RunStates, node: str, graph: Graph) -> None:
        self._passes = passes
        self._states = states
        self._node = node
        self._graph = graph

    def begin(self, request: BeginPass, dead: Callable[[str], bool]) -> Begun:
        return self._passes.begin(replace(request, lone=self._node, graph=self._graph), dead)

    def end(self, request: EndPass, skips: Skips | None = None) -> EndedPass:
        outcomes = {node.dataset_id: node.outcome for node in self._states.of_run(request.run_id)}
        for row in skips.rows if skips else ():
            outcomes[row[0]] = "skipped"
        counts: Mapping[str, int] = Counter(outcomes.values())
        return self._passes.end(replace(request, lone=self._node, counts=dict(counts)), skips)

    def get(self, run_id: str) -> Pass | None:
        return self._passes.get(run_id)

    def passes(
        self, *, pipeline_id: str | None = None, branch: str | None = None, limit: int = 50
    ) -> list[Pass]:
        return self._passes.passes(pipeline_id=pipeline_id, branch=branch, limit=limit)

    def checksums(self, first: str, last: str) -> Checksums:
        return self._passes.checksums(first, last)

    def keep_checksums(self, seen: Checksums) -> None:
        self._passes.keep_checksums(seen)
