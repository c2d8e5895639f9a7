"""A pipeline as a DAG: each node is a task, and run-state decides whether it has anything to do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from airflow.sdk import DAG, BaseOperator

import kfm
from kfm.model.errors import PipelineError
from kfm.model.run_state import Graph
from kfm.pipelines.declaration import NodeSpec, Pipeline

TASK_ID_MAX = 250
_ODD = re.compile(r"[^A-Za-z0-9_.-]")


class NodeOperator(BaseOperator):  # type: ignore[misc]
    """Operator of one node. Its outputs stay in kfm's object store; XCom gets the run that made them."""

    ui_color = "#dfe9f5"

    def __init__(
        self,
        *,
        spec: NodeSpec,
        needs: Mapping[str, str],
        graph: Graph,
        pipeline: Pipeline,
        directory: str | None = None,
        config: str | None = None,
        branch: str | None = None,
        **task: Any,
    ) -> None:
        super().__init__(**task)
        self._node = spec
        self._needs = needs
        self._graph = graph
        self._pipeline = pipeline
        self._place: dict[str, Any] = {
            "directory": directory,
            "config": config,
            "branch": branch or pipeline.branch,
        }

    def execute(self, context: Any) -> dict[str, str]:
        spec = self._node
        state = kfm.run_state(
            spec.id,
            inputs=spec.inputs,
            params=spec.params,
            outputs=spec.outputs,
            needs=self._needs,
            after=spec.after,
            version=spec.version,
            run_id=run_id_of(context),
            pipeline=self._pipeline.id,
            graph=self._graph,
            skip_scope=self._pipeline.skip_scope,
            **self._place,
        )
        settled = state.settle(spec.function)
        word = "ran" if settled.ran else "unchanged"
        self.log.info("%s: %s, %s; made by run %s", spec.id, word, settled.reason, settled.made_by)
        return {
            "node": spec.id,
            "outcome": settled.outcome,
            "reason": settled.reason,
            "run_id": settled.run_id,
            "made_by": settled.made_by,
        }


def run_id_of(context: Any) -> str:
    """Airflow's id of a run is unique only among those of one DAG."""
    dag_run = context["dag_run"]
    return f"{dag_run.dag_id}.{dag_run.run_id}"


def dag_of(
    pipeline: Pipeline,
    *,
    dag_id: str | None = None,
    directory: str | None = None,
    config: str | None = None,
    branch: str | None = None,
    task: dict[str, Any] | None = None,
    **dag: Any,
) -> DAG:
    """The pipeline as a DAG of the same name, one task a node.

    `directory` or `config` name where its run-state is, as for `Pipeline.run`; `task` goes to each operator
    (retries, pool, …), all the rest to Airflow's DAG (schedule, start_date, …).
    """
    wired = pipeline.graph()
    graph: Graph = tuple((node, wired.reads[node]) for node in wired.order)
    made = DAG(dag_id=dag_id or _name(pipeline.id), **{"schedule": None, "catchup": False, **dag})
    tasks: dict[str, NodeOperator] = {}
    names: dict[str, str] = {}
    for node in wired.order:
        name = _name(node)
        if name in names:
            raise PipelineError(f"{node} and {names[name]} would both be the task {name}.")
        names[name] = node
        tasks[node] = NodeOperator(
            task_id=name,
            dag=made,
            doc_md=pipeline.nodes[node].function.__doc__,
            spec=pipeline.nodes[node],
            needs=wired.bindings[node],
            graph=graph,
            pipeline=pipeline,
            directory=directory,
            config=config,
            branch=branch,
            **(task or {}),
        )
        for before in wired.reads[node]:
            tasks[node].set_upstream(tasks[before])
    return made


def _name(node: str) -> str:
    return _ODD.sub("_", node)[:TASK_ID_MAX]
