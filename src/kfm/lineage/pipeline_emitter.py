"""The lineage emitter of pipeline runs: OpenLineage events of the runs and of the nodes that they execute.

A skipped node has no events of its own: the pipeline run names it. So a run over ten thousand unchanged
nodes emits two events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from kfm.lineage.emitter import EVENT_SCHEMA, MASKED_NAMESPACE, TOPIC, EventType, Name, writable
from kfm.lineage.facets import (
    NAMED_MAX,
    Facet,
    Facets,
    below,
    dataset_name,
    instant,
    short,
    source_uri,
    summary,
)
from kfm.lineage.masking import Mask
from kfm.model.canonical import canonical_bytes
from kfm.model.errors import UnhashableInput
from kfm.model.keys import uuid5
from kfm.model.records import Node, Output
from kfm.model.run_state import (
    Left,
    NodeDone,
    PassEnd,
    PassTry,
    outputs_hash,
    pass_id,
    pass_node_id,
    run_uuid,
)
from kfm.model.runs import LineageEvent

SKIPPED_MAX = 100_000  # names of nodes in one event
FAILED_MAX = NAMED_MAX
COUNTS = ("success", "failed", "partial", "skipped", "blocked", "done")
ENDINGS: dict[str, EventType] = {
    "success": "COMPLETE",
    "partial": "COMPLETE",
    "failed": "FAIL",
    "cancelled": "ABORT",
    "aborted": "ABORT",
}
GONE = "The process that ran it is gone."
WITHHELD = "Withheld: the dataset is masked."
_WINDOW = "window"  # not a dataset: the span of time that a governed run is about


class _Read(NamedTuple):
    """Something that a node read from."""

    uri: str | None
    id: str | None
    sha256: str | None
    etag: str | None
    version: str | None


class PipelineEmitter:
    """Makes OpenLineage events of pipeline runs and their nodes. Pure: the same facts make the same bytes."""

    def __init__(
        self,
        *,
        namespace: str,
        producer_version: str,
        masked: Callable[[str], bool] | None = None,
        mask: Callable[[str], str] = lambda text: text,
        folder: str = "",
        hide: Callable[[str], str] = lambda text: text,
    ) -> None:
        """As for `LineageEmitter`. `masked` is true for a node or dataset that must not be named; None: all
        may be."""
        self._namespace = namespace
        self._facets = Facets(f"urn:kfm:producer:{producer_version}", producer_version)
        self._masked = masked
        self._mask: Mask = lambda text: mask(writable(text))
        self._folder = folder
        self._hide = hide

    # --- events of a pipeline run --------------------------------------------------------

    def began(self, about: PassTry, left: Sequence[Left]) -> list[LineageEvent]:
        events = []
        for each, code in left:
            over = PassEnd("aborted", about.started_at_ms, error_code=code, error_message=GONE)
            events += self.ended(each, over)
        event = self._pass_event("START", about, None)
        return [*events, self._sealed("START", about, event)]

    def ended(self, about: PassTry, end: PassEnd) -> list[LineageEvent]:
        kind = ENDINGS[end.state]
        return [self._sealed(kind, about, self._pass_event(kind, about, end))]

    def did(self, about: PassTry, done: NodeDone) -> list[LineageEvent]:
        """Both at once: what a killed process had begun has no record, and needs no event."""
        end: EventType = "COMPLETE" if done.node.outcome in ("success", "partial", "skipped") else "FAIL"
        if done.node.error_code == "CANCELLED":
            end = "ABORT"
        reads = _reads(done.document, governed=about.parent is not None)
        start = self._node_event("START", about, done, reads)
        over = self._node_event(end, about, done, reads)
        return [
            self._sealed("START", about, start),
            self._sealed(end, about, over),
        ]

    # --- names ---------------------------------------------------------------------------

    def _hidden(self, about: PassTry, name: str) -> bool:
        if self._masked is None:
            return False
        return self._masked(name) or (about.parent is not None and self._masked(about.parent.dataset_id))

    def _named(self, about: PassTry, name: str) -> str:
        return self._mask(name) if self._hidden(about, name) else name

    def _all_named(self, about: PassTry, names: Sequence[str]) -> list[str]:
        if self._masked is None:
            return list(names)
        return [self._named(about, name) for name in names]

    def _branch(self, about: PassTry) -> str:
        """A branch that people name may tell what a masked pipeline is about."""
        own = about.branch in ("main", f"run/{about.run_id}")
        return about.branch if own else self._mask_if(self._hidden(about, about.pipeline_id), about.branch)

    def _mask_if(self, hidden: bool, text: str) -> str:
        return self._mask(text) if hidden else text

    def _run_job(self, about: PassTry) -> tuple[Name, str]:
        """The run that a pipeline run is an attempt at, or a part of: its job, and its id."""
        if about.parent is None:
            job = self._named(about, about.pipeline_id)
        else:
            job = self._mask_if(self._hidden(about, about.parent.dataset_id), about.parent.job)
        return (self._namespace, job), run_uuid(about.run_id)

    # --- events --------------------------------------------------------------------------

    def _pass_event(self, kind: EventType, about: PassTry, end: PassEnd | None) -> dict[str, Any]:
        at_ms = about.started_at_ms if end is None else max(about.started_at_ms, end.ended_at_ms)
        at, facets = instant(at_ms), self._facets
        hidden = self._hidden(about, about.pipeline_id)
        job, run_id = self._run_job(about)
        outcome = end or PassEnd("running", at_ms)
        skipped = self._all_named(about, outcome.skipped[:SKIPPED_MAX])
        failed = self._all_named(about, outcome.failed[:FAILED_MAX])
        run_facets: dict[str, Facet] = {
            "parent": facets.parent(job, run_id),
            "processing_engine": facets.engine(),
            "kfmRunState": facets.pass_state(
                run_id=about.run_id,
                pipeline_id=self._named(about, about.pipeline_id),
                lakefs_branch=self._branch(about),
                attempt=about.attempt,
                outcome=None if end is None else end.state,
                recorded_at=at,
                counts={name: int(outcome.counts.get(name, 0)) for name in COUNTS},
                skipped=skipped,
                failed=failed,
                output_commit=outcome.commit,
                error_code=outcome.error_code,
            ),
        }
        if kind in ("FAIL", "ABORT"):
            message = WITHHELD if hidden else outcome.error_message
            run_facets["errorMessage"] = facets.error(outcome.error_code, message)
        more = len(outcome.skipped) - len(skipped) + len(outcome.failed) - len(failed)
        if more:
            run_facets["kfmMore"] = facets.more(nodes=more)
        lineage_id = pass_id(about.run_id, about.attempt)
        name = self._named(about, about.pipeline_id)
        return self._event(kind, at, lineage_id, run_facets, name, "DAG", [], [])

    def _node_event(
        self, kind: EventType, about: PassTry, done: NodeDone, reads: list[_Read]
    ) -> dict[str, Any]:
        node, facets, over = done.node, self._facets, kind != "START"
        began_ms = max(about.started_at_ms, node.recorded_at_ms - (node.duration_ms or 0))
        at = instant(max(began_ms, node.recorded_at_ms) if over else began_ms)
        hidden, name = self._hidden(about, node.dataset_id), self._named(about, node.dataset_id)
        pipeline = self._named(about, about.pipeline_id)
        root, run_id = self._run_job(about)
        run_facets: dict[str, Facet] = {
            "parent": facets.parent(
                (self._namespace, pipeline), pass_id(about.run_id, about.attempt), root=(*root, run_id)
            ),
            "kfmRunState": self._record(about, node, name, pipeline, at, over=over, hidden=hidden),
        }
        if over and done.energy is not None:
            run_facets["kfmEnergy"] = facets.energy(done.energy)
        if kind in ("FAIL", "ABORT"):
            run_facets["errorMessage"] = facets.error(
                node.error_code, WITHHELD if hidden else node.error_message
            )
        inputs = [self._input(about, read, hidden=hidden) for read in reads[:NAMED_MAX]]
        outputs = self._outputs(node, hidden=hidden) if over and node.outputs else []
        more = {"inputs": len(reads) - len(inputs)}
        if over and node.outputs:
            more["outputs"] = len(node.outputs) + 1 - len(outputs)
        more = {kind: count for kind, count in more.items() if count > 0}
        if more:
            run_facets["kfmMore"] = facets.more(**more)
        # A masked node by its mask: a guess at its name must not be confirmed by an id.
        lineage_id = pass_node_id(about.run_id, about.attempt, name)
        return self._event(kind, at, lineage_id, run_facets, f"{pipeline}.{name}", "TASK", inputs, outputs)

    def _record(
        self, about: PassTry, node: Node, name: str, pipeline: str, at: str, *, over: bool, hidden: bool
    ) -> Facet:
        return self._facets.node_record(
            dataset_id=name,
            run_id=about.run_id,
            lakefs_branch=self._branch(about),
            inputs_hash=node.inputs_hash,
            validation_summary=summary(node.validation_summary) if over else None,
            outcome=node.outcome if over else None,
            recorded_at=at,
            attempt=node.attempt,
            output_commit=node.output_commit,
            outputs=_named_outputs(node.outputs) if over and not hidden else [],
            skipped_because=node.skipped_because,
            code_sha=None if hidden else node.code_sha,
            pipeline_id=pipeline,
            duration_ms=node.duration_ms if over else None,
            error_code=node.error_code if over else None,
            reason=None if hidden or node.reason is None else short(node.reason),
        )

    def _event(
        self,
        kind: EventType,
        at: str,
        lineage_id: str,
        run_facets: dict[str, Facet],
        job: str,
        job_type: str,
        inputs: list[dict[str, Any]],
        outputs: list[dict[str, Any]],
    ) -> dict[str, Any]:
        return {
            "eventType": kind,
            "eventTime": at,
            "producer": self._facets.producer,
            "schemaURL": EVENT_SCHEMA,
            "run": {"runId": lineage_id, "facets": run_facets},
            "job": {
                "namespace": self._namespace,
                "name": job,
                "facets": {"jobType": self._facets.job_type(job_type)},
            },
            "inputs": inputs,
            "outputs": outputs,
        }

    # --- datasets ------------------------------------------------------------------------

    def _input(self, about: PassTry, read: _Read, *, hidden: bool) -> dict[str, Any]:
        if read.id is not None:
            if hidden or self._hidden(about, read.id):
                return self._dataset((MASKED_NAMESPACE, self._mask(read.id)))
            return self._dataset((self._namespace, read.id), self._content(read))
        uri = read.uri or ""
        if hidden:
            return self._dataset((MASKED_NAMESPACE, self._mask(uri)))
        own = uri.startswith("file:") and not uri.startswith("file:/")  # as it is, with all its signs
        place = self._file(uri[5:]) if own else dataset_name(uri, self._folder)
        return self._dataset(place, self._content(read))

    def _file(self, path: str) -> Name:
        return below(("file", self._folder), path)

    def _content(self, read: _Read) -> dict[str, Facet]:
        return {"kfmContent": self._facets.content_signs(read.sha256, read.etag, read.version)}

    def _outputs(self, node: Node, *, hidden: bool) -> list[dict[str, Any]]:
        """The node as a dataset, as its readers name it; then each thing that it made."""
        facets = self._facets
        version = {"version": facets.version(outputs_hash(node.outputs))}
        if hidden:
            return [self._dataset((MASKED_NAMESPACE, self._mask(node.dataset_id)))]
        home = (self._namespace, node.dataset_id)
        whole = self._dataset(home, version)
        whole["outputFacets"] = {
            "outputStatistics": facets.output_statistics([output.size for output in node.outputs])
        }
        return [whole, *(self._made(home, output) for output in node.outputs[: NAMED_MAX - 1])]

    def _made(self, home: Name, output: Output) -> dict[str, Any]:
        place = below(home, output.name)
        if output.kind == "file":
            place = self._file(output.name)
        sha256 = output.checksum.removeprefix("sha256:")
        return self._dataset(place, {"kfmContent": self._facets.file_content(sha256, output.size)})

    def _dataset(self, name: Name, facets: dict[str, Facet] | None = None) -> dict[str, Any]:
        source = self._facets.data_source(name[0], source_uri(name[0]))
        return {"namespace": name[0], "name": name[1], "facets": {"dataSource": source, **(facets or {})}}

    # --- bytes ---------------------------------------------------------------------------

    def _sealed(self, kind: EventType, about: PassTry, event: dict[str, Any]) -> LineageEvent:
        body = _body(event)
        if self._hide(body) != body:
            from kfm.model.redaction import within  # late: few know a secret

            body = _body(within(event, self._hide))
        event_id = uuid5(event["run"]["runId"], kind)
        return LineageEvent(event_id=event_id, topic=TOPIC, subject=about.run_id, body=body)


def _body(event: dict[str, Any]) -> str:
    try:
        return canonical_bytes(event).decode("utf-8")
    except UnhashableInput:
        return canonical_bytes(writable(event)).decode("utf-8")


def _named_outputs(outputs: Iterable[Output]) -> list[dict[str, Any]]:
    return [
        {"name": each.name, "checksum": each.checksum, "size": each.size, "kind": each.kind}
        for each in list(outputs)[:NAMED_MAX]
    ]


def _reads(document: bytes, *, governed: bool) -> list[_Read]:
    """What the node read from, by the document behind its inputs_hash. Parameters stay at home."""
    try:
        rows = msgspec.json.decode(document)["inputs"] if document else []
    except (msgspec.DecodeError, KeyError, TypeError):
        return []
    found = []
    for row in rows if isinstance(rows, list) else ():
        if not isinstance(row, dict) or (governed and row.get("id") == _WINDOW):
            continue
        uri, name = row.get("uri"), row.get("id")
        if isinstance(uri, str) or isinstance(name, str):
            checksum = _text(row.get("checksum")) or ""
            found.append(
                _Read(
                    uri if isinstance(uri, str) else None,
                    name if isinstance(name, str) and not isinstance(uri, str) else None,
                    checksum.removeprefix("sha256:") if checksum.startswith("sha256:") else None,
                    _text(row.get("etag")),
                    _text(row.get("version")) or _text(row.get("commit")),
                )
            )
    return found


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
