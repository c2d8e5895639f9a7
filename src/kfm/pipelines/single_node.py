"""A pipeline run over one node, whose other nodes are run elsewhere: by another task, another process.

The node is planned, run and recorded as in a run over its whole pipeline, from the same document and by the
same functions, so that each of the two skips what the other has done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from kfm.model.errors import PipelineError
from kfm.model.run_state import (
    BeginPass,
    Begun,
    EndedPass,
    EndPass,
    Graph,
    Head,
    Own,
    Skips,
    SkipScope,
    stands,
)
from kfm.pipelines.declaration import NodeSpec, Pipeline, PipelineGraph
from kfm.pipelines.execution import PipelineExecutor
from kfm.pipelines.options import NodeReport, PipelineKernel, PipelineOptions
from kfm.pipelines.planner import PipelinePlanner
from kfm.ports import PipelineRuns, RunStates

Checksums = dict[str, tuple[int, int, int, str]]


@dataclass(frozen=True)
class SingleNode:
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


def run_node(kernel: PipelineKernel, node: SingleNode, options: PipelineOptions) -> NodeReport:
    """Run the node, if it must run; raises the error that it failed with."""
    graph = node.graph or ((node.spec.id, node.reads),)
    shared = SharedRun(kernel.pipeline_runs, kernel.states, node.spec.id, graph)
    planner = SingleNodePlanner(replace(kernel, pipeline_runs=shared), node, options)
    report = PipelineExecutor(planner).run()
    found = report.nodes.get(node.spec.id)
    if found is not None and found.error is not None:
        raise found.error
    if found is None or found.outcome is None or found.outcome == "failed":
        assert report.error is not None
        raise report.error
    return found


class SingleNodePlanner(PipelinePlanner):
    """Planner for one node that reads recorded outputs of nodes which are not part of this run."""

    def __init__(self, kernel: PipelineKernel, node: SingleNode, options: PipelineOptions) -> None:
        super().__init__(kernel, _SingleNodePipeline(node), options)
        self._node = node
        self._recorded: dict[str, str] = {}  # node that it reads from → its outputs

    def learn(self) -> None:
        node, options = self._node, self.options
        self.known = self.kernel.states.known(options.branch, options.run_id, [node.spec.id, *node.reads])
        self._standing = self.known.heads
        for each in node.reads:
            own, head = self.known.own.get(each), self.known.heads.get(each)
            if (
                own is not None
                and own.outcome in ("success", "skipped", "partial")
                and own.outputs is not None
            ):
                self.settle(each, own.outputs_hash)
                self._recorded[each] = own.outputs
            elif head is not None and head.rerun is None and (not node.reads_run or _skipped_for(own, head)):
                self.settle(each, head.outputs_hash)
                self._recorded[each] = head.outputs
            else:
                where = f"in run {options.run_id}" if node.reads_run else f"on branch {options.branch}"
                raise PipelineError(
                    f"{node.spec.id} reads from {each}, of which there is no result {where}.",
                    remedy=f"Run {each} first, under the same run id.",
                )

    def outputs(self, node: str) -> str:
        return self._recorded[node]

    def code_sha(self, spec: NodeSpec) -> str:
        code = self._node.code
        if spec.version is None and not isinstance(code, str):
            return self._code_hashes.of(code)
        return f"version:{spec.version}" if spec.version is not None else str(code)


def _skipped_for(own: Own | None, head: Head) -> bool:
    """This run skipped the node for what the branch knows of it, whatever its maker has on record since."""
    return own is not None and own.outcome == "skipped" and stands(head, own.inputs_hash, own.code_sha)


class _SingleNodePipeline(Pipeline):
    """A pipeline of one node that reads from nodes which are not here."""

    def __init__(self, node: SingleNode) -> None:
        super().__init__(node.pipeline_id, skip_scope=node.skip_scope)
        self.add(node.spec)
        self._node = node

    def graph(self) -> PipelineGraph:
        spec = self._node.spec
        return PipelineGraph([spec.id], {spec.id: self._node.reads}, {spec.id: dict(spec.needs)})


class SharedRun:
    """Implements `ports.PipelineRuns` for a node that shares its run with others."""

    def __init__(self, runs: PipelineRuns, states: RunStates, node: str, graph: Graph) -> None:
        self._runs = runs
        self._states = states
        self._node = node
        self._graph = graph

    def begin(self, request: BeginPass, dead: Callable[[str], bool]) -> Begun:
        return self._runs.begin(replace(request, lone=self._node, graph=self._graph), dead)

    def end(self, request: EndPass, skips: Skips | None = None) -> EndedPass:
        outcomes = {node.dataset_id: node.outcome for node in self._states.of_run(request.run_id)}
        for row in skips.rows if skips else ():
            outcomes[row[0]] = "skipped"
        counts: Mapping[str, int] = Counter(outcomes.values())
        return self._runs.end(replace(request, lone=self._node, counts=dict(counts)), skips)

    def checksums(self, first: str, last: str) -> Checksums:
        return self._runs.checksums(first, last)

    def keep_checksums(self, seen: Checksums) -> None:
        self._runs.keep_checksums(seen)
