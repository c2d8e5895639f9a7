"""The lineage emitter: OpenLineage events of attempts, written in the transactions that they report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from kfm.lineage.facets import NAMED_MAX, Facet, Facets, below, dataset_name, instant, source_uri
from kfm.lineage.masking import Mask, masked_attempt, masked_circumstances, masked_invocation, masked_run
from kfm.model.canonical import INT_MAX, canonical_bytes
from kfm.model.dataset_changes import ToldChange
from kfm.model.errors import UnhashableInput
from kfm.model.keys import attempt_id, file_of_urn, refused_call_id, uuid5
from kfm.model.records import Invocation, Run
from kfm.model.redaction import PREFIX as MASK_PREFIX
from kfm.model.runs import Attempt, Circumstances, Ending, LineageEvent
from kfm.model.times import is_all_time

if TYPE_CHECKING:
    from kfm.lineage.pipeline_emitter import PipelineEmitter


TOPIC = "openlineage"


class LineageEmitter:
    """Makes OpenLineage events of attempts and invocations. Pure: the same facts make the same bytes."""

    def __init__(
        self,
        *,
        namespace: str,
        producer_version: str,
        outputs: Callable[..., Sequence[Name]] = lambda _dataset_id: (),
        masked: Callable[[str], bool] = lambda _dataset_id: False,
        mask: Callable[[str], str] = lambda text: text,
        folder: str = "",
        hide: Callable[[str], str] = lambda text: text,
        check: Callable[[dict[str, Any]], None] = lambda _event: None,
        passes: Callable[[], PipelineEmitter | None] = lambda: None,
    ) -> None:
        """`outputs` names a dataset's locations; `masked` is true for one that must not be named at all;
        relative paths are resolved against `folder`; `hide` redacts the secrets that this process knows;
        `check` raises at a start that is not valid. Ends are not checked: an attempt must be closed
        even if its event is not valid. `passes` gives the emitter of pipeline runs, for those whose
        process is gone."""
        self.passes = passes
        self._builder = RunEventBuilder(
            namespace,
            Facets(f"urn:kfm:producer:{producer_version}", producer_version),
            outputs,
            folder,
            lambda dataset_id: self._mask(dataset_id) if masked(dataset_id) else None,
        )
        self._masked = masked
        self._mask: Mask = lambda text: mask(writable(text))
        self._hide = hide
        self._check = check

    def started(self, attempt: Attempt, run: Run, known: Circumstances) -> LineageEvent:
        return self._attempt("START", attempt, run, known)

    def ended(self, attempt: Attempt, run: Run, known: Circumstances) -> LineageEvent | None:
        return None if attempt.ending is None else self._attempt(ENDINGS[attempt.ending], attempt, run, known)

    def refused(self, invocation: Invocation, known: Circumstances, at_ms: int) -> tuple[LineageEvent, ...]:
        if invocation.outcome not in ("refused", "failed"):
            return ()
        lineage_id = refused_call_id(invocation.invocation_id)
        subject = invocation.run_id or invocation.invocation_id
        if self._masked(invocation.dataset_id):
            known = masked_circumstances(known, self._mask)
            invocation = masked_invocation(invocation, self._mask)
        end: EventType = "ABORT" if invocation.outcome == "refused" else "FAIL"
        asked_ms = min(invocation.requested_at_ms, at_ms)
        start = self._builder.call("START", lineage_id, invocation, Circumstances(), asked_ms)
        over = self._builder.call(end, lineage_id, invocation, known, at_ms)
        return (
            self._sealed("START", lineage_id, subject, start),
            self._sealed(end, lineage_id, subject, over),
        )

    def changed(self, told: ToldChange) -> tuple[LineageEvent, ...]:
        """The version that a person's change made, with the versions that it came from as its inputs."""
        change = told.change
        lineage_id, hidden = change.change_id, self._masked(change.dataset_id)
        name = self._mask(change.dataset_id) if hidden else change.dataset_id
        made = self._builder.change(told, name, hidden=hidden)
        return tuple(
            self._sealed(kind, lineage_id, change.change_id, {**made, "eventType": kind})
            for kind in ("START", "COMPLETE")
        )

    def _attempt(self, kind: EventType, attempt: Attempt, run: Run, known: Circumstances) -> LineageEvent:
        mask = self._mask if self._masked(run.dataset_id) else None
        if mask is not None:
            attempt, run = masked_attempt(attempt), masked_run(run, mask)
            known = masked_circumstances(known, mask)
        event = self._builder.attempt(kind, attempt, run, known, mask)
        if kind == "START":
            self._check(event)
        return self._sealed(kind, attempt.lineage_id, run.run_id, event)

    def _sealed(self, kind: EventType, lineage_id: str, subject: str, event: dict[str, Any]) -> LineageEvent:
        body = canonical_text(event, self._hide)
        return LineageEvent(event_id=uuid5(lineage_id, kind), topic=TOPIC, subject=subject, body=body)


class NullEmitter:
    """Emits nothing: lineage is switched off."""

    def passes(self) -> None: ...
    def started(self, attempt: Attempt, run: Run, known: Circumstances) -> None: ...
    def ended(self, attempt: Attempt, run: Run, known: Circumstances) -> None: ...
    def refused(
        self,
        invocation: Invocation,  # noqa: ARG002
        known: Circumstances,  # noqa: ARG002
        at_ms: int,  # noqa: ARG002
    ) -> tuple[LineageEvent, ...]:
        return ()


def canonical_text(event: dict[str, Any], hide: Callable[[str], str]) -> str:
    body = _body(event)
    if hide(body) != body:  # looked for in one go; masked in each text, so that it stays JSON
        from kfm.model.redaction import within  # late: few know a secret

        body = _body(within(event, hide))
    return body


def _body(event: dict[str, Any]) -> str:
    try:
        return canonical_bytes(event).decode("utf-8")
    except UnhashableInput:
        # A file's name may hold bytes that are no text: that must not cost a run its evidence.
        return canonical_bytes(writable(event)).decode("utf-8")


def writable(value: Any) -> Any:
    """A copy that has a canonical form: half characters replaced, numbers kept within their range."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {writable(name): writable(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [writable(member) for member in value]
    if type(value) is int:
        return min(max(value, -INT_MAX), INT_MAX)
    return value


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
        self,
        namespace: str,
        facets: Facets,
        outputs: Callable[..., Sequence[Name]],
        folder: str,
        masked: Callable[[str], str | None] = lambda _dataset_id: None,
    ) -> None:
        """Files of the project that are named by relative paths are seen from `folder`; `masked` is the
        mask of a dataset that must not be named."""
        self._mask_of = masked
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
            if not is_all_time(run.window_start_ms, run.window_end_ms):
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
        """An event about an invocation that never became an attempt: what it asked for, and why not."""
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

    def change(self, told: ToldChange, name: str, *, hidden: bool) -> dict[str, Any]:
        """A rollback, a withdrawal, a retirement, a lift or a renaming: the dataset is made from itself."""
        change = told.change
        facets, at = self._facets, instant(change.changed_at_ms)
        homes = [(MASKED_NAMESPACE, name)] if hidden else self._homes(change.dataset_id)
        run_facets: dict[str, Facet] = {
            "processing_engine": facets.engine(),
            "tags": facets.tags(trigger="manual"),
            "kfmRunState": facets.change_state(told, name, at),
        }
        inputs = [self._dataset(homes[0], {"version": facets.version(one)}) for one in told.came_from]
        facts = {
            "version": facets.version(told.version_id),
            "lifecycleStateChange": facets.lifecycle(told.lifecycle),
        }
        made = homes
        if change.kind == "rename" and not hidden:
            renamed = msgspec.json.decode(change.plan)["rename"]["new"]
            made = list(self._outputs(change.dataset_id, renamed))[:NAMED_MAX] or [(self._namespace, renamed)]
        datasets = Datasets(inputs, [self._dataset(home, facts) for home in made], {})
        job_facets = {"jobType": facets.job_type("TASK")}
        return self._event(
            "START", at, change.change_id, run_facets, f"{name}.{change.kind}", job_facets, datasets
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
        inputs, named = self._pinned(known), known.inputs[:NAMED_MAX]
        for found in named:
            name = self._input_name(found.uri)
            if name is not None:
                inputs.append(self._dataset(name, {"kfmContent": facets.content(found)}))
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

    def _pinned(self, known: Circumstances) -> list[dict[str, Any]]:
        """The versions of other datasets that are read, named as by the runs that made them."""
        found = []
        for pin in known.pins[:NAMED_MAX]:
            hidden = self._mask_of(pin.dataset_id)
            name = self._homes(pin.dataset_id)[0] if hidden is None else (MASKED_NAMESPACE, hidden)
            version = {"version": self._facets.version(pin.version_id)} if pin.version_id else {}
            found.append(self._dataset(name, version))
        return found

    def _input_name(self, uri: str) -> Name | None:
        """The name of an input; None: it is a file of a dataset that must not be named."""
        file = file_of_urn(uri)
        if file is None:
            return dataset_name(uri, self._folder)
        if self._mask_of(file[0]) is not None or file[0].startswith(MASK_PREFIX):
            return None
        return below(self._homes(file[0])[0], file[1])

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
        joined = [one for one in self._pinned(known) if one["namespace"] == MASKED_NAMESPACE]
        inputs = joined + [self._dataset((MASKED_NAMESPACE, mask(found.uri))) for found in named]
        outputs = []
        if known.outputs or known.version_id is not None:
            version = {} if known.version_id is None else {"version": self._facets.version(known.version_id)}
            outputs.append(self._dataset((MASKED_NAMESPACE, dataset_id), version))
        more = {"inputs": len(known.inputs) - len(named), "outputs": len(known.outputs)}
        return Datasets(inputs, outputs, {kind: count for kind, count in more.items() if count})
