"""A pipeline of nodes as the transform step of a governed run.

It works on a branch of its own. The promotion merges that branch in its own transaction, so that what
nodes made and what is published stand or fall together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kfm.model.errors import NodesFailed
from kfm.model.records import Fetched, Found, Output
from kfm.model.run_state import MAIN, Fence, Parent
from kfm.pipelines.declaration import Pipeline
from kfm.pipelines.execution import PipelineExecutor
from kfm.pipelines.options import PipelineKernel, PipelineOptions, PipelineReport
from kfm.pipelines.planner import PipelinePlanner
from kfm.publish.publisher import Publisher
from kfm.runs.transform import Context

JOBS = 4


def own_branch(run_id: str) -> str:
    return f"run/{run_id}"


class GovernedRun:
    """What nodes see of the run that they are part of."""

    def __init__(self, context: Context, publisher: Publisher) -> None:
        self.context = context
        self.publisher = publisher

    def input_rows(self) -> list[Mapping[str, Any]]:
        """What every node that reads from no other reads from: the objects, and the span of time."""
        window = self.context.window
        span = f"{window.start_ms}/{window.end_ms}/{self.context.partition or ''}"
        return [
            {"id": "window", "version": span},
            *({"uri": each.uri, "checksum": f"sha256:{each.sha256}"} for each in self.context.inputs),
        ]

    def adopt(self, outputs: Sequence[Output]) -> None:
        """Publish again what a node made in another run."""
        for output in outputs:
            asset = output.asset
            if asset is None:
                continue
            found = Found(
                uri=asset.source_uri or "",
                path=asset.path,
                media_type=asset.media_type,
                modified_ms=asset.modified_ms,
            )
            described = {"source_uri": asset.source_uri, "roles": list(asset.roles)}
            self.publisher.write_file(
                asset.path, Fetched(found=found, sha256=asset.sha256, size=asset.size), described
            )


def conduct(
    kernel: PipelineKernel,
    pipeline: Pipeline,
    context: Context,
    publisher: Publisher,
    *,
    run_id: str,
    fence: Fence | None,
) -> PipelineReport:
    """Run the pipeline's nodes; raises what the first one that failed raised."""
    options = PipelineOptions(
        run_id=run_id,
        pipeline_id=pipeline.id,
        branch=own_branch(run_id),
        from_branch=MAIN,
        scope=fence.scope if fence else "",
        fence=fence.fence if fence else 0,
        jobs=pipeline.jobs or JOBS,
        parent=Parent(context.source_id, context.dataset_id),
    )
    planner = PipelinePlanner(kernel, pipeline, options, GovernedRun(context, publisher))
    report = PipelineExecutor(planner).run()
    if report.error is not None:
        failed = next((each.error for each in report.nodes.values() if each.error is not None), None)
        raise failed or report.error
    if report.state == "partial":
        raise NodesFailed("Some nodes were done in part: nothing is published until they are whole.")
    return report
