"""Facets of OpenLineage events, and the names that datasets have there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any

from kfm.model.dataset_changes import ToldChange
from kfm.model.energy import Energy
from kfm.model.patterns import late
from kfm.model.records import Check, Found, GateResult, Invocation, Run
from kfm.model.runs import Attempt, Code, DataColumn
from kfm.model.times import MS_MAX, MS_MIN, rfc3339

Facet = dict[str, Any]

OWN_SCHEMA = "urn:kfm:schema:openlineage-event"
PUBLIC = "https://openlineage.io/spec/facets"
# The version of each public schema that our facet was checked against.
PUBLIC_SCHEMAS = {
    "parent": "1-2-0/ParentRunFacet.json#/$defs/ParentRunFacet",
    "errorMessage": "1-0-1/ErrorMessageRunFacet.json#/$defs/ErrorMessageRunFacet",
    "nominalTime": "1-0-1/NominalTimeRunFacet.json#/$defs/NominalTimeRunFacet",
    "processing_engine": "1-1-1/ProcessingEngineRunFacet.json#/$defs/ProcessingEngineRunFacet",
    "tags": "1-0-0/TagsRunFacet.json#/$defs/TagsRunFacet",
    "jobType": "2-0-4/JobTypeJobFacet.json#/$defs/JobTypeJobFacet",
    "sourceCodeLocation": "1-1-0/SourceCodeLocationJobFacet.json#/$defs/SourceCodeLocationJobFacet",
    "dataSource": "1-0-1/DatasourceDatasetFacet.json#/$defs/DatasourceDatasetFacet",
    "schema": "1-2-0/SchemaDatasetFacet.json#/$defs/SchemaDatasetFacet",
    "lifecycleStateChange": (
        "1-0-1/LifecycleStateChangeDatasetFacet.json#/$defs/LifecycleStateChangeDatasetFacet"
    ),
    "version": "1-0-1/DatasetVersionDatasetFacet.json#/$defs/DatasetVersionDatasetFacet",
    "dataQualityAssertions": (
        "1-1-0/DataQualityAssertionsDatasetFacet.json#/$defs/DataQualityAssertionsDatasetFacet"
    ),
    "outputStatistics": (
        "1-0-2/OutputStatisticsOutputDatasetFacet.json#/$defs/OutputStatisticsOutputDatasetFacet"
    ),
}

NAMED_MAX = 500  # datasets, checks, columns, gates, policy ids: of each, this many are named
MESSAGE_CHARS_MAX = 2000
TEXT_CHARS_MAX = 1000

# Members of the documents behind keys. Anything else stays at home.
_OWN_TEXTS = frozenset({"kfm", "trigger_type", "source_id", "dataset_id", "window_start", "window_end"})
_GIVEN_TEXTS = frozenset(
    "partition output_version pipeline_version code_sha request_uuid message_id source_uri content_tag "
    "correction".split()
)
_NUMBERS = ("revision", "force")
_SPANS = ("window", "period")
# What may come with a trigger besides its key: hashes and verdicts, never the payload.
UPSTREAM, INGEST = "upstream-event", "event.ingest"  # the trigger, and the event that it makes
_ENVELOPE_TEXTS = ("envelope_sha256", "signature", "reason", "etag", "md5", "watermark_time")


def instant(ms: int) -> str:
    """Always with milliseconds, so that times of one run sort as text."""
    text = rfc3339(min(max(ms, MS_MIN), MS_MAX))
    return text if "." in text else f"{text[:-1]}.000Z"


@lru_cache(1024)  # a run says the same of itself when it begins and when it ends
def short(text: str, chars_max: int = TEXT_CHARS_MAX) -> str:
    """Text that may be shown: redacted, bounded."""
    from kfm.model.redaction import redact  # late: most passes say nothing that was not made by us

    text = redact(text)
    return text if len(text) <= chars_max else f"{text[:chars_max]}…"


class Facets:
    """Makes facets that bear one producer's name."""

    def __init__(self, producer: str, version: str) -> None:
        self.producer = producer
        self._version = version

    def _public(self, name: str, /, **members: Any) -> Facet:
        return {"_producer": self.producer, "_schemaURL": f"{PUBLIC}/{PUBLIC_SCHEMAS[name]}", **members}

    def _own(self, name: str, /, **members: Any) -> Facet:
        return {"_producer": self.producer, "_schemaURL": f"{OWN_SCHEMA}#/$defs/{name}", **members}

    # --- of runs, as everybody knows them ---------------------------------------------

    def parent(self, job: tuple[str, str], run_id: str, root: tuple[str, str, str] | None = None) -> Facet:
        namespace, name = job
        root_namespace, root_name, root_id = root or (namespace, name, run_id)
        return self._public(
            "parent",
            run={"runId": run_id},
            job={"namespace": namespace, "name": name},
            root={"run": {"runId": root_id}, "job": {"namespace": root_namespace, "name": root_name}},
        )

    def error(self, code: str | None, message: str | None) -> Facet:
        shown = ": ".join(part for part in (code, message) if part) or "The cause is not known."
        return self._public(
            "errorMessage", message=short(shown, MESSAGE_CHARS_MAX), programmingLanguage="PYTHON"
        )

    def nominal_time(self, run: Run) -> Facet:
        return self._public(
            "nominalTime",
            nominalStartTime=instant(run.window_start_ms),
            nominalEndTime=instant(run.window_end_ms),
        )

    def engine(self) -> Facet:
        return self._public(
            "processing_engine", name="kfm", version=self._version, openlineageAdapterVersion=self._version
        )

    def tags(self, **tags: str) -> Facet:
        return self._public(
            "tags", tags=[{"key": key, "value": tags[key], "source": "KFM"} for key in sorted(tags)]
        )

    # --- of runs, as only we know them ------------------------------------------------

    def run_state(self, attempt: Attempt, run: Run, at: str, version_id: str | None) -> Facet:
        """A run's facts, or a node's record of run-state."""
        state: Facet = {
            "run_id": run.run_id,
            "dataset_id": run.dataset_id,
            "attempt": attempt.attempt,
            "invocation_id": attempt.invocation_id,
            "outcome": attempt.outcome,
            "recorded_at": at,
            "delay_ms": attempt.delay_ms,
            "inputs_hash": attempt.inputs_hash,
            "validation_summary": summary(attempt.validation),
            "code_sha": attempt.code_sha,
            "output_commit": version_id,
            **_trouble(attempt),
        }
        if attempt.node:
            return self._own("kfmRunState", kind="node", node=attempt.node, lakefs_branch=None, **state)
        return self._own(
            "kfmRunState",
            kind="run",
            source_id=run.source_id,
            pipeline_id=run.pipeline_id,
            pipeline_version=run.pipeline_version,
            revision=run.revision,
            fence=run.fence,
            force=run.force,
            trigger_type=run.trigger_type,
            window=run.window_spec,
            partition=run.partition,
            **state,
        )

    def pass_state(self, **state: Any) -> Facet:
        """Of one attempt at a pipeline run."""
        return self._own("kfmRunState", kind="pass", **state)

    def node_record(self, **state: Any) -> Facet:
        """A node's record of run-state, by the names that everybody knows its fields by."""
        return self._own("kfmRunState", kind="pass-node", **state)

    def call_state(self, invocation: Invocation, at: str, *, over: bool) -> Facet:
        """Of an invocation that never became an attempt."""
        return self._own(
            "kfmRunState",
            kind="call",
            invocation_id=invocation.invocation_id,
            run_id=invocation.run_id,
            dataset_id=invocation.dataset_id,
            source_id=invocation.source_id,
            trigger_type=invocation.trigger_type,
            attempt=0,
            outcome=invocation.outcome if over else None,
            recorded_at=at,
        )

    def change_state(self, told: ToldChange, dataset_id: str, at: str) -> Facet:
        """What a person changed. The reason stays at home."""
        change = told.change
        return self._own(
            "kfmRunState",
            kind="change",
            change_id=change.change_id,
            change=change.kind,
            dataset_id=dataset_id,
            base_sequence=change.base_sequence,
            sequence=change.sequence,
            to_sequence=change.to_sequence,
            output_commit=told.version_id,
            purge=told.withdrawal is not None and told.withdrawal.purge,
            lifts=list(told.lifts),
            recorded_at=at,
        )

    def unit_state(self, **state: Any) -> Facet:
        """Of one attempt at a unit of the write-ahead ledger."""
        return self._own("kfmRunState", kind="unit", **state)

    def announcement(self, actor: str, **shown: str) -> Facet:
        """Upstream's facts of an object."""
        return self._own("kfmTrigger", type=UPSTREAM, event=INGEST, actor=actor, **shown)

    def idempotency(self, key: str, work_key: str | None, documents: Mapping[str, Any]) -> Facet:
        return self._own(
            "kfmIdempotency",
            idempotency_key=key,
            work_key=work_key,
            documents={
                name: key_document(documents[name]) for name in ("trigger", "work") if name in documents
            },
        )

    def trigger(self, invocation: Invocation, documents: Mapping[str, Any]) -> Facet:
        """Who or what asked. A payload is its hash, a signature its verdict."""
        asked: Facet = {"type": invocation.trigger_type, "actor": invocation.actor}
        if invocation.trigger_type == UPSTREAM:
            asked["event"] = INGEST
        if invocation.ticket is not None:
            asked["ticket"] = short(invocation.ticket)
        first = documents.get("first")
        if isinstance(first, Mapping):  # of an attempt made again: what asked for the run
            asked |= {f"first_{name}": first[name] for name in ("type", "actor")}
            if first["type"] == UPSTREAM:
                asked["event"] = INGEST
        key = documents.get("trigger")
        if isinstance(key, Mapping):
            for name in ("request_uuid", "message_id", "source_uri", "content_tag"):
                if isinstance(key.get(name), str):
                    asked[name] = _address(key[name]) if name == "source_uri" else short(key[name])
            if isinstance(key.get("member_keys"), (list, tuple)):
                asked["members"] = len(key["member_keys"])
        envelope = documents.get("envelope")
        if isinstance(envelope, Mapping):
            asked |= {n: short(envelope[n]) for n in _ENVELOPE_TEXTS if isinstance(envelope.get(n), str)}
            if type(envelope.get("watermark_sequence")) is int:
                asked["watermark_sequence"] = envelope["watermark_sequence"]
        return self._own("kfmTrigger", **asked)

    def gates(self, results: Sequence[GateResult], bundle: str | None) -> Facet:
        return self._own(
            "kfmGates",
            policies=bundle,
            gates=[
                {
                    "gate": result.gate,
                    "allowed": result.allowed,
                    "reason": short(result.reason),
                    "policy_ids": list(result.policy_ids[:NAMED_MAX]),
                    "overridable": result.overridable,
                    "overridden": result.overridden,
                    "halts": result.halts,
                }
                for result in results[:NAMED_MAX]
            ],
        )

    def energy(self, energy: Energy) -> Facet:
        return self._own(
            "kfmEnergy",
            cpu_us=energy.cpu_us,
            energy_uwh=energy.energy_uwh,
            co2_ug=energy.co2_ug,
            method=energy.method,
            assumption=energy.assumption,
            package_uwh=energy.package_uwh,
        )

    def more(self, **counts: int) -> Facet:
        return self._own("kfmMore", **counts)

    # --- of jobs ----------------------------------------------------------------------

    def job_type(self, kind: str) -> Facet:
        return self._public("jobType", processingType="BATCH", integration="KFM", jobType=kind)

    def code(self, code: Code) -> Facet:
        path, _, function = code.path.rpartition(":")
        path = path or code.path
        from urllib.parse import quote

        address = f"file:{quote(path, safe='/', errors='replace')}"
        if path != code.path:
            address += f"#{quote(function, safe='', errors='replace')}"
        return self._public("sourceCodeLocation", type="file", url=address, path=path, version=code.sha)

    # --- of datasets ------------------------------------------------------------------

    def data_source(self, namespace: str, uri: str) -> Facet:
        return self._public("dataSource", name=namespace, uri=uri)

    def columns(self, columns: Sequence[DataColumn]) -> Facet:
        return self._public("schema", fields=[_column(column) for column in columns[:NAMED_MAX]])

    def version(self, version_id: str) -> Facet:
        return self._public("version", datasetVersion=version_id)

    def lifecycle(self, change: str) -> Facet:
        return self._public("lifecycleStateChange", lifecycleStateChange=change)

    def assertions(self, checks: Sequence[Check]) -> Facet:
        """Which checks held. What they found stays at home: it may quote the data."""
        return self._public("dataQualityAssertions", assertions=[_assertion(c) for c in checks[:NAMED_MAX]])

    def content(self, found: Found) -> Facet:
        checksum = found.checksum or ""
        return self._own(
            "kfmContent",
            sha256=checksum.removeprefix("sha256:") if checksum.startswith("sha256:") else None,
            etag=found.etag,
            version=found.version,
            size=found.size,
            **({"origin": found.origin} if found.origin else {}),
        )

    def content_signs(self, sha256: str | None, etag: str | None, version: str | None) -> Facet:
        return self._own("kfmContent", sha256=sha256, etag=etag, version=version, size=None)

    def object_content(
        self, etag: str | None, version: str | None, size: int | None, sha256: str | None = None
    ) -> Facet:
        """`sha256` where all bytes were read."""
        return self._own("kfmContent", sha256=sha256, etag=etag, version=version, size=size)

    def file_content(self, sha256: str, size: int) -> Facet:
        return self._own("kfmContent", sha256=sha256, etag=None, version=None, size=size)

    def output_statistics(self, sizes: Sequence[int]) -> Facet:
        return self._public("outputStatistics", size=sum(sizes), fileCount=len(sizes))


def summary(validation: Mapping[str, int] | None) -> dict[str, int] | None:
    if validation is None:
        return None
    passed, failed = validation.get("passed", 0), validation.get("failed", 0)
    return {"checks": validation.get("checks", passed + failed), "passed": passed, "failed": failed}


def key_document(document: Any) -> Facet:
    """What a key was made of. `complete` says that hashing the document gives the key."""
    if not isinstance(document, Mapping):
        return {"complete": False, "document": {}}
    shown: Facet = {}
    for name, value in document.items():
        if name in _OWN_TEXTS and (value is None or isinstance(value, str)):
            shown[name] = None if value is None else value[:TEXT_CHARS_MAX]
        elif name in _GIVEN_TEXTS and (value is None or isinstance(value, str)):
            shown[name] = _address(value) if name == "source_uri" and value else _plain(value)
        elif name in _NUMBERS and type(value) is int:
            shown[name] = value
        elif name in _SPANS and isinstance(value, Mapping):
            shown[name] = {edge: str(value[edge]) for edge in ("start", "end") if edge in value}
        elif name == "member_keys" and isinstance(value, (list, tuple)):
            shown[name] = [str(key) for key in value[:NAMED_MAX]]
    return {"complete": shown == _listed(document), "document": shown}


def _listed(document: Mapping[str, Any]) -> Facet:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in document.items()}


def _plain(value: str | None) -> str | None:
    return None if value is None else short(value)


def _address(uri: str) -> str:
    from kfm.model.redaction import redact_url

    return short(redact_url(uri))


def _column(column: DataColumn) -> dict[str, str]:
    shown = {"name": column.name, "type": column.type}
    if column.description is not None:
        shown["description"] = short(column.description)
    return shown


def _assertion(check: Check) -> dict[str, Any]:
    kind = check.name.partition(":")[0]
    shown: dict[str, Any] = {"assertion": kind, "name": check.name, "success": check.passed}
    if check.path is not None:
        shown["params"] = {"path": check.path}
    return shown


def _trouble(attempt: Attempt) -> dict[str, Any]:
    return {
        "error_code": attempt.error_code,
        "error_class": attempt.error_class,
        "retryable": attempt.retryable,
    }


NAME_CHARS_MAX = 2048
POSTGRES_PORT = 5432
_DEFAULT_PORTS = {"http": 80, "https": 443}
_BUCKETS = frozenset({"s3", "gs", "az", "abfs", "abfss", "wasb", "wasbs"})
_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "postgresql": "postgres"}
_SCHEME = late(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)\Z", re.DOTALL)


def dataset_name(uri: str, folder: str = "") -> tuple[str, str]:
    """Namespace and name of what a URI leads to. Relative files are seen from a folder."""
    from urllib.parse import unquote, urlsplit  # late: most passes name no dataset

    from kfm.model.redaction import redact

    match = _SCHEME.match(uri)
    if match is None:
        return _bounded("file" if uri.startswith("/") else "kfm", redact(uri) or "/")
    scheme = match[1].lower()
    scheme = _ALIASES.get(scheme, scheme)
    try:
        parts = urlsplit(uri)
        authority = _authority(parts.netloc, scheme)
    except ValueError:  # no address at all, such as a bracket that is never closed
        return _bounded("kfm", redact(uri))
    if scheme == "file":
        path = unquote(parts.path) or "/"
        return _bounded("file", f"{folder}/{path}" if folder and not path.startswith("/") else path)
    if not authority:
        rest = match[2].partition("?")[0].partition("#")[0]
        return _bounded(scheme, redact(rest) or "/")
    if scheme in _BUCKETS:
        return _bounded(f"{scheme}://{authority}", unquote(parts.path).removeprefix("/") or "/")
    if scheme == "postgres":
        return _bounded(f"postgres://{authority}", parts.path.strip("/").replace("/", ".") or "/")
    return _bounded(f"{scheme}://{authority}", redact(parts.path) or "/")


def object_name(object_uri: str) -> tuple[str, str]:
    """Namespace and name of an object by its canonical address, whose key is taken as it is."""
    scheme, separator, rest = object_uri.partition("://")
    authority, _, key = rest.partition("/")
    if not separator or scheme not in _BUCKETS or not authority:
        return dataset_name(object_uri)
    return _bounded(f"{scheme}://{authority}", key or "/")


def below(dataset: tuple[str, str], path: str) -> tuple[str, str]:
    """The name of a file of a dataset."""
    namespace, name = dataset
    return _bounded(namespace, f"{name.rstrip('/')}/{path}" if name else path)


def source_uri(namespace: str) -> str:
    """An address for a namespace: the namespace itself, where it is one."""
    if namespace == "file":
        return "file:///"
    from urllib.parse import quote

    if "://" in namespace:
        return quote(namespace, safe=":/@[]%~+-._!$&'()*,;=", errors="replace")
    return f"urn:kfm:namespace:{quote(namespace, safe='', errors='replace')}"


def _authority(netloc: str, scheme: str) -> str:
    host, port = netloc.rpartition("@")[2], ""
    if scheme in _BUCKETS:
        return host  # the letters of a bucket's name count
    if not host.endswith("]"):
        head, colon, tail = host.rpartition(":")
        if colon and (tail.isdecimal() or not tail):
            host, port = head, tail
    if scheme == "postgres":
        return f"{host.lower()}:{port or POSTGRES_PORT}" if host else ""
    if port and int(port) != _DEFAULT_PORTS.get(scheme):
        return f"{host.lower()}:{port}"
    return host.lower()


def _bounded(namespace: str, name: str) -> tuple[str, str]:
    """A name too long to be carried is cut; its hash keeps it apart from its neighbours."""
    return _cut(namespace), _cut(name)


def _cut(text: str) -> str:
    if len(text) <= NAME_CHARS_MAX:
        return text
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{text[: NAME_CHARS_MAX - 17]}~{digest}"
