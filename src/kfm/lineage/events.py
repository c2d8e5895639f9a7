"""OpenLineage events as plain documents: one when an attempt begins, one when it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from kfm.lineage.facets import NAMED_MAX, Facet, Facets, instant
from kfm.lineage.masking import Mask
from kfm.lineage.naming import below, dataset_name, source_uri
from kfm.model.attempts import Attempt, Circumstances, Ending
from kfm.model.keys import attempt_id
from kfm.model.records import Invocation, Run

EventType = Literal["START", "COMPLETE", "FAIL", "ABORT"]
Name = tuple[str, str]  # namespace, name

EVENT_SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
ENDINGS: dict[Ending, EventType] = {"complete": "COMPLETE", "fail": "FAIL", "abort": "ABORT"}
MASKED_NAMESPACE = "masked"


class Datasets(NamedTuple):
    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    more: dict[str, int]  # how many of each kind are not named


class RunEventBuilder:
    """Writes events for the jobs of one namespace."""

    def __init__(
        self, namespace: str, facets: Facets, outputs: Callable[[str], Sequence[Name]], folder: str
    ) -> None:
        """Files of the project that are named by relative paths are seen from `folder`."""
        self._namespace = namespace
        self._folder = folder
        self._facets = facets
        self._outputs = outputs

    def attempt(
        self, kind: EventType, attempt: Attempt, run: Run, known: Circumstances, mask: Mask | None
    ) -> dict[str, Any]:
        """An event about a run's attempt, or about a node's. `mask`: names were masked."""
        facets, job = self._facets, (self._namespace, run.pipeline_id)
        over = kind != "START"
        at_ms = attempt.started_at_ms
        if over:
            # A clock that was set back must not let an end come before its start.
            at_ms = max(at_ms, at_ms if attempt.ended_at_ms is None else attempt.ended_at_ms)
        at = instant(at_ms)
        datasets = self._datasets(run.dataset_id, known, mask)
        run_facets: dict[str, Facet] = {
            "parent": self._parent(attempt, run, job),
            "kfmRunState": facets.run_state(attempt, run, at, known.version_id),
        }
        if not attempt.node:  # facts of the whole run are not repeated for each of its nodes
            run_facets["nominalTime"] = facets.nominal_time(run)
            run_facets["processing_engine"] = facets.engine()
            run_facets["tags"] = facets.tags(trigger=run.trigger_type)
            run_facets["kfmIdempotency"] = facets.idempotency(
                run.idempotency_key, run.work_key, known.key_documents
            )
        self._add_known(run_facets, known)
        if attempt.energy is not None:
            run_facets["kfmEnergy"] = facets.energy(attempt.energy)
        if kind in ("FAIL", "ABORT"):
            run_facets["errorMessage"] = facets.error(attempt.error_code, attempt.error_message)
        if datasets.more:
            run_facets["kfmMore"] = facets.more(**datasets.more)
        name = f"{run.pipeline_id}.{attempt.node}" if attempt.node else run.pipeline_id
        job_facets = {"jobType": facets.job_type("TASK" if attempt.node else "DAG")}
        if known.code is not None:
            job_facets["sourceCodeLocation"] = facets.code(known.code)
        return self._event(kind, at, attempt.lineage_id, run_facets, name, job_facets, datasets)

    def call(
        self, kind: EventType, lineage_id: str, invocation: Invocation, known: Circumstances, at_ms: int
    ) -> dict[str, Any]:
        """An event about a call that never became an attempt: what it asked for, and why not."""
        facets, over = self._facets, kind != "START"
        at = instant(at_ms)
        run_facets: dict[str, Facet] = {
            "processing_engine": facets.engine(),
            "tags": facets.tags(trigger=invocation.trigger_type),
            "kfmRunState": facets.call_state(invocation, at, over=over),
            "kfmIdempotency": facets.idempotency(invocation.idempotency_key, None, known.key_documents),
        }
        if invocation.run_id is not None:
            job = (self._namespace, invocation.source_id)
            run_facets["parent"] = facets.parent(job, invocation.run_id)
        if over:
            asked = replace(
                known, invocation=known.invocation or invocation, gates=known.gates or invocation.gates
            )
            self._add_known(run_facets, asked)
            run_facets["errorMessage"] = facets.error(None, invocation.reason)
        job_facets = {"jobType": facets.job_type("DAG")}
        return self._event(
            kind, at, lineage_id, run_facets, invocation.source_id, job_facets, Datasets([], [], {})
        )

    def _event(
        self,
        kind: EventType,
        at: str,
        lineage_id: str,
        run_facets: dict[str, Facet],
        job: str,
        job_facets: dict[str, Facet],
        datasets: Datasets,
    ) -> dict[str, Any]:
        return {
            "eventType": kind,
            "eventTime": at,
            "producer": self._facets.producer,
            "schemaURL": EVENT_SCHEMA,
            "run": {"runId": lineage_id, "facets": run_facets},
            "job": {"namespace": self._namespace, "name": job, "facets": job_facets},
            "inputs": datasets.inputs,
            "outputs": datasets.outputs,
        }

    def _parent(self, attempt: Attempt, run: Run, job: Name) -> Facet:
        if not attempt.node:
            return self._facets.parent(job, run.run_id)
        return self._facets.parent(job, attempt_id(run.run_id, attempt.attempt), root=(*job, run.run_id))

    def _add_known(self, run_facets: dict[str, Facet], known: Circumstances) -> None:
        if known.invocation is not None:
            run_facets["kfmTrigger"] = self._facets.trigger(known.invocation, known.key_documents)
        if known.gates or known.policies is not None:
            run_facets["kfmGates"] = self._facets.gates(known.gates, known.policies)

    # --- inputs and outputs -----------------------------------------------------------

    def _datasets(self, dataset_id: str, known: Circumstances, mask: Mask | None) -> Datasets:
        if mask is not None:
            return self._masked(dataset_id, known, mask)
        facets = self._facets
        inputs, named = [], known.inputs[:NAMED_MAX]
        for found in named:
            inputs.append(
                self._dataset(dataset_name(found.uri, self._folder), {"kfmContent": facets.content(found)})
            )
        more = {"inputs": len(known.inputs) - len(named)}
        written = bool(known.outputs) or known.version_id is not None
        homes = self._homes(dataset_id) if written or known.report is not None else []
        outputs: list[dict[str, Any]] = []
        if written:
            outputs, more["outputs"] = self._written(homes, known)
        if known.report is not None:
            more["checks"] = max(0, len(known.report.checks) - NAMED_MAX)
            assertions = {"dataQualityAssertions": facets.assertions(known.report.checks)}
            if outputs:
                outputs[0]["facets"] |= assertions
            else:  # the dataset, as it was staged, is what the checks read
                judged = self._dataset(homes[0], self._declared(known))
                inputs.append({**judged, "inputFacets": assertions})
        more["columns"] = max(0, len(known.columns) - NAMED_MAX)
        return Datasets(inputs, outputs, {kind: count for kind, count in more.items() if count})

    def _homes(self, dataset_id: str) -> list[Name]:
        """Where a dataset is published; by its own id where it is published nowhere."""
        return list(self._outputs(dataset_id))[:NAMED_MAX] or [(self._namespace, dataset_id)]

    def _written(self, homes: list[Name], known: Circumstances) -> tuple[list[dict[str, Any]], int]:
        """The dataset at each of its homes, then its files at the first; and how many are not named."""
        facets = self._facets
        declared = self._declared(known)
        if known.version_id is not None:
            declared["version"] = facets.version(known.version_id)
        outputs = [self._dataset(home, declared) for home in homes]
        if known.outputs:
            statistics = facets.output_statistics([asset.size for asset in known.outputs])
            for output in outputs:
                output["outputFacets"] = {"outputStatistics": statistics}
        assets = known.outputs[: NAMED_MAX - len(outputs)]
        for asset in assets:
            content = facets.file_content(asset.sha256, asset.size)
            outputs.append(self._dataset(below(homes[0], asset.path), {"kfmContent": content}))
        return outputs, len(known.outputs) - len(assets)

    def _declared(self, known: Circumstances) -> dict[str, Facet]:
        return {"schema": self._facets.columns(known.columns)} if known.columns else {}

    def _dataset(self, name: Name, facets: Mapping[str, Facet] = {}) -> dict[str, Any]:
        source = self._facets.data_source(name[0], source_uri(name[0]))
        return {"namespace": name[0], "name": name[1], "facets": {"dataSource": source, **facets}}

    def _masked(self, dataset_id: str, known: Circumstances, mask: Mask) -> Datasets:
        """Masked inputs still differ from each other, and are recognized as the same next time."""
        named = known.inputs[:NAMED_MAX]
        inputs = [self._dataset((MASKED_NAMESPACE, mask(found.uri))) for found in named]
        outputs = []
        if known.outputs or known.version_id is not None:
            version = {} if known.version_id is None else {"version": self._facets.version(known.version_id)}
            outputs.append(self._dataset((MASKED_NAMESPACE, dataset_id), version))
        more = {"inputs": len(known.inputs) - len(named), "outputs": len(known.outputs)}
        return Datasets(inputs, outputs, {kind: count for kind, count in more.items() if count})
