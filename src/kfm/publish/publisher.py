"""The publisher: the only way in which a pipeline changes anything, with a trace of each operation."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, Protocol

import msgspec

from kfm.model.canonical import canonical_bytes, canonical_hashed
from kfm.model.contracts import require_valid
from kfm.model.errors import (
    DryRunViolated,
    IllegalTransition,
    KfmError,
    LimitExceeded,
    PathConflict,
    SchemaViolation,
    SecretInData,
)
from kfm.model.records import Asset, Fetched, Record
from kfm.model.settings import Limits
from kfm.model.templates import safe_path
from kfm.model.times import rfc3339
from kfm.ports import Objects

CHUNK_BYTES = 1024 * 1024
WRITTEN_PATH_REMEDY = "Correct the path that the pipeline gives write_file: plain and relative, as a/b.csv."


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


Data = bytes | Readable | Fetched  # Fetched: the bytes are staged already
Leaks = Callable[[Any], bool]  # does a document tell a secret of the configuration?


class FileMetadata(Record, frozen=True):
    """Metadata of a published file."""

    media_type: str = "application/octet-stream"
    source_uri: str | None = None
    modified_ms: int | None = None
    roles: tuple[str, ...] = ("data",)


class PublisherEvent(Record, frozen=True):
    event_type: str
    payload: dict[str, Any]


class StateUpdate(Record, frozen=True):
    state_key: str
    value: Any


class Staged(Record, frozen=True):
    """Everything that a run has staged, for the promotion to commit at once."""

    assets: tuple[Asset, ...]
    events: tuple[PublisherEvent, ...]
    states: tuple[StateUpdate, ...]
    release: dict[str, Any] | None


class Publisher(ABC):
    """Five operations, for dry-run and real runs alike. Closed when the run ends."""

    dry_run: bool

    @abstractmethod
    def write_file(self, path: str, data: Data, metadata: Mapping[str, Any] | None = None) -> Asset:
        """Publish these bytes at this path of the dataset."""

    @abstractmethod
    def emit_event(self, event_type: str, payload: Mapping[str, Any]) -> None:
        """Tell the world, once the promotion stands."""

    @abstractmethod
    def update_state(self, state_key: str, value: Any) -> None:
        """Remember a value with the promotion; the last one for a key counts."""

    @abstractmethod
    def publish_release(self, release_metadata: Mapping[str, Any]) -> None:
        """Describe the version that the run makes. Once for each run."""

    @abstractmethod
    def noop_guard(self) -> None:
        """In a dry-run: raise unless nothing was changed. In a real run: nothing to guard."""

    @abstractmethod
    def staged(self) -> Staged:
        """Everything taken in so far: files by path, states by key, events as they came."""

    @abstractmethod
    def close(self) -> None:
        """The run is over: any later operation raises."""


class _Collecting(Publisher):
    """What both publishers share: checks, bounds, the trace, and the collection."""

    def __init__(
        self,
        trace: Trace,
        *,
        limits: Limits | None = None,
        leaks: Leaks | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """`check` raises once the run was stopped: from then on nothing is taken in."""
        self._trace = trace
        self._check = check
        self._limits = limits or Limits()
        self._leaks = leaks or (lambda _value: False)
        self._assets: dict[str, Asset] = {}
        self._events: list[PublisherEvent] = []
        self._states: dict[str, Any] = {}
        self._release: dict[str, Any] | None = None
        self._bytes = 0
        self._closed = False

    @abstractmethod
    def _take(self, data: Data) -> tuple[str, int]:
        """Take the bytes in; returns (sha256 hex, size)."""

    def write_file(self, path: str, data: Data, metadata: Mapping[str, Any] | None = None) -> Asset:
        self._require_open("write_file")
        try:
            asset = self._asset(path, data, metadata)
        except KfmError as error:
            self._trace.record("write_file", "refused", error_code=error.code)
            raise
        self._assets[asset.path] = asset
        self._bytes += asset.size
        self._trace.record(
            "write_file",
            self._outcome,
            path=asset.path,
            size=asset.size,
            sha256=asset.sha256,
            media_type=asset.media_type,
        )
        return asset

    def _asset(self, path: str, data: Data, metadata: Mapping[str, Any] | None) -> Asset:
        path = safe_path(path, WRITTEN_PATH_REMEDY)
        details = _details(data, metadata)
        self._require_discretion("The name of a file or its metadata tells it.", path, metadata)
        if path in self._assets:
            raise PathConflict(f"{path} was written twice by one run.")
        if len(self._assets) >= self._limits.objects_per_run_max:
            raise LimitExceeded(f"objects_per_run_max is {self._limits.objects_per_run_max}.")
        sha256, size = self._take(data)
        if self._bytes + size > self._limits.run_bytes_max:
            raise LimitExceeded(f"run_bytes_max is {self._limits.run_bytes_max}.")
        return Asset(
            path=path,
            sha256=sha256,
            size=size,
            media_type=details.media_type,
            source_uri=details.source_uri,
            modified_ms=details.modified_ms,
            roles=details.roles,
        )

    def emit_event(self, event_type: str, payload: Mapping[str, Any]) -> None:
        self._require_open("emit_event")
        self._require_discretion("An event tells it.", event_type, payload)
        digest = payload_hash(payload)
        self._events.append(PublisherEvent(event_type=event_type, payload=dict(payload)))
        self._trace.record("emit_event", self._outcome, event_type=event_type, payload_sha256=digest)

    def update_state(self, state_key: str, value: Any) -> None:
        self._require_open("update_state")
        self._require_discretion("A state tells it.", state_key, value)
        digest = payload_hash({"value": value})
        self._states[state_key] = value
        self._trace.record("update_state", self._outcome, state_key=state_key, payload_sha256=digest)

    def publish_release(self, release_metadata: Mapping[str, Any]) -> None:
        self._require_open("publish_release")
        if self._release is not None:
            raise IllegalTransition("A run publishes one release.")
        self._require_discretion("The release's metadata tell it.", release_metadata)
        digest = payload_hash(release_metadata)
        self._release = dict(release_metadata)
        self._trace.record("publish_release", self._outcome, payload_sha256=digest)

    def staged(self) -> Staged:
        return Staged(
            assets=tuple(self._assets[path] for path in sorted(self._assets)),
            events=tuple(self._events),
            states=tuple(StateUpdate(state_key=key, value=self._states[key]) for key in sorted(self._states)),
            release=self._release,
        )

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._trace.record("close", "closed")

    @property
    def _outcome(self) -> Any:
        return "intended" if self.dry_run else "staged"

    def _require_open(self, operation: str) -> None:
        if self._closed:
            raise IllegalTransition(f"{operation} was called after the run had ended.")
        self._check()

    def _require_discretion(self, detail: str, *values: Any) -> None:
        if any(self._leaks(dict(each) if isinstance(each, Mapping) else each) for each in values):
            raise SecretInData(detail)

    def _chunks(self, data: bytes | Readable) -> Iterator[bytes]:
        """The data in bounded pieces; stops a file that is larger than allowed while it arrives."""
        size = 0
        for chunk in _pieces(data):
            self._check()
            size += len(chunk)
            if size > self._limits.object_bytes_max:
                raise LimitExceeded(f"object_bytes_max is {self._limits.object_bytes_max}.")
            yield chunk


def _details(data: Data, metadata: Mapping[str, Any] | None) -> FileMetadata:
    """The caller's metadata, over what discovery knows of a fetched object."""
    known: dict[str, Any] = {}
    if isinstance(data, Fetched):
        found = data.found
        known = {"media_type": found.media_type, "source_uri": found.uri, "modified_ms": found.modified_ms}
    try:
        return msgspec.convert({**known, **(metadata or {})}, FileMetadata)
    except msgspec.ValidationError as error:
        raise SchemaViolation(f"File metadata: {error}") from error


def _pieces(data: bytes | Readable) -> Iterator[bytes]:
    if isinstance(data, bytes):
        for start in range(0, len(data), CHUNK_BYTES):
            yield data[start : start + CHUNK_BYTES]
        return
    while chunk := data.read(CHUNK_BYTES):
        yield chunk


class StagingPublisher(_Collecting):
    """Stages bytes in the object store; the promotion makes them visible."""

    dry_run = False

    def __init__(
        self,
        objects: Objects,
        trace: Trace,
        *,
        limits: Limits | None = None,
        leaks: Leaks | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(trace, limits=limits, leaks=leaks, check=check)
        self._objects = objects

    def _take(self, data: Data) -> tuple[str, int]:
        if isinstance(data, Fetched):
            if not self._objects.has(data.sha256):
                raise IllegalTransition(f"The object of {data.found.path} is not staged.")
            return data.sha256, data.size
        return _stage(self._objects, self._chunks(data))

    def noop_guard(self) -> None:
        self._require_open("noop_guard")
        self._trace.record("noop_guard", "checked")


class NoopPublisher(_Collecting):
    """Records what it would do. Bytes are hashed, and kept only in scratch that vanishes by itself.

    `fingerprint` reads what must not change (the database's change counter, a folder's listing), at the
    beginning and in the guard.
    """

    dry_run = True

    def __init__(
        self,
        trace: Trace,
        *,
        scratch: Objects | None = None,
        fingerprint: Callable[[], object] | None = None,
        limits: Limits | None = None,
        leaks: Leaks | None = None,
    ) -> None:
        super().__init__(trace, limits=limits, leaks=leaks)
        self._scratch = scratch
        self._fingerprint = fingerprint
        self._before = fingerprint() if fingerprint else None

    def _take(self, data: Data) -> tuple[str, int]:
        if isinstance(data, Fetched):
            return data.sha256, data.size
        if self._scratch is not None:
            return _stage(self._scratch, self._chunks(data))
        digest, size = hashlib.sha256(), 0
        for chunk in self._chunks(data):
            digest.update(chunk)
            size += len(chunk)
        return digest.hexdigest(), size

    def noop_guard(self) -> None:
        self._require_open("noop_guard")
        if self._fingerprint is not None and self._fingerprint() != self._before:
            self._trace.record("noop_guard", "refused", error_code=DryRunViolated.code)
            raise DryRunViolated
        self._trace.record("noop_guard", "checked")


def _stage(objects: Objects, chunks: Iterator[bytes]) -> tuple[str, int]:
    staging, _ = objects.stage()
    try:
        for chunk in chunks:
            staging.write(chunk)
        return staging.commit()
    except BaseException:
        staging.abort()
        raise


Operation = Literal[
    "write_file", "emit_event", "update_state", "publish_release", "noop_guard", "close", "promote", "project"
]
Outcome = Literal[
    "staged", "intended", "checked", "refused", "closed", "promoted", "unchanged", "shown", "failed"
]

MASKED = "[restricted]"


class TraceLine(Record, frozen=True, omit_defaults=True):
    """One operation of a publisher."""

    trace: Literal[1]
    seq: int
    at: str
    run_id: str
    publisher: str
    dry_run: bool
    operation: Operation
    outcome: Outcome
    path: str | None = None
    size: int | None = None
    sha256: str | None = None
    media_type: str | None = None
    event_type: str | None = None
    state_key: str | None = None
    payload_sha256: str | None = None
    target: str | None = None
    sequence: int | None = None
    version_id: str | None = None
    error_code: str | None = None


class Trace:
    """Numbers, checks and hands on the lines of one run. The sink gets whole lines of JSON."""

    def __init__(
        self,
        sink: Callable[[bytes], None],
        now_ms: Callable[[], int],
        run_id: str,
        *,
        publisher: str,
        dry_run: bool,
        restricted: bool = False,
    ) -> None:
        self._sink = sink
        self._now_ms = now_ms
        self._run_id = run_id
        self._publisher = publisher
        self._dry_run = dry_run
        self._restricted = restricted
        self._seq = 0

    @property
    def dry_run(self) -> bool:
        return self._dry_run

    def record(self, operation: Operation, outcome: Outcome, **facts: Any) -> TraceLine:
        if self._restricted and facts.get("path") is not None:
            facts["path"] = MASKED
        self._seq += 1
        line = TraceLine(
            trace=1,
            seq=self._seq,
            at=rfc3339(self._now_ms()),
            run_id=self._run_id,
            publisher=self._publisher,
            dry_run=self._dry_run,
            operation=operation,
            outcome=outcome,
            **facts,
        )
        self._sink(encode(line))
        return line


def encode(line: TraceLine) -> bytes:
    """The line with its newline; refused if it does not match the schema."""
    plain = msgspec.to_builtins(line)
    require_valid("publisher-trace", plain)
    return canonical_bytes(plain) + b"\n"


def payload_hash(payload: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_hashed(dict(payload))).hexdigest()
