"""Inputs of a node from outside, as rows that can be hashed: files, arguments, remote validators."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from kfm.model.errors import (
    BackendUnavailable,
    KfmError,
    RefNotFound,
    UnhashableInput,
    UpstreamUnavailable,
)
from kfm.model.redaction import redact
from kfm.model.times import is_strong_date
from kfm.pipelines.declaration import CONTEXT_NAMES
from kfm.pipelines.node_values import NodeFiles, StoredFile

if TYPE_CHECKING:
    from kfm.calls.breakers import SharedBreakers
    from kfm.calls.guarded_clients import CircuitGuard
    from kfm.ports import BranchReader, Bucket, Clock, Guard, Http, InputVersions, PipelineRuns, ProjectFiles

INPUTS_PER_NODE_MAX = 1_000_000
DEPTH_MAX = 100
CALL_TIMEOUT_MS = 60_000
BRANCH = "branch:"
_RECENT_NS = 2_000_000_000  # a file changed that recently may change again without its time showing it
_PLAIN = (str, int, float, bool, type(None))
_WEB = ("http://", "https://")
_VALIDATORS = (("etag", "etag"), ("last-modified", "last_modified"))
REMEDY = (
    "Say what identifies the call: params=lambda …: {…}, a function of the same arguments; "
    "or declare what it reads in inputs."
)
Remembered = tuple[int, int, int, str]


class Inputs:
    """Rows of a node's declared inputs, for its hash."""

    def __init__(self, files: ProjectFiles, checksums: FileChecksums, versions: InputVersions) -> None:
        self._files = files
        self._checksums = checksums
        self._versions = versions

    def rows(self, node: str, declared: Any, params: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        for index, entry in enumerate(_entries(declared, params)):
            found += self._rows(entry, f"{node}: inputs[{index}]")
            if len(found) > INPUTS_PER_NODE_MAX:
                raise UnhashableInput(f"{node} has more than {INPUTS_PER_NODE_MAX} inputs.", field="inputs")
        return found

    def _rows(self, entry: Any, here: str) -> Iterable[Mapping[str, Any]]:
        if isinstance(entry, Mapping):
            return [entry]
        if hasattr(entry, "__fspath__"):
            entry = entry.__fspath__()
        if not isinstance(entry, str):
            raise UnhashableInput(
                f"{here} is a {type(entry).__name__}: write a path, an address, or a mapping with a uri.",
                field=here,
            )
        if "://" in entry or entry.startswith("branch:"):
            return [self._versions.of(entry)]
        return self._file_rows(entry, here)

    def _file_rows(self, pattern: str, here: str) -> list[Mapping[str, Any]]:
        paths = self._files.match(pattern)
        if not paths:
            raise UnhashableInput(
                f"{here}: no file is called {pattern}, or matches it.",
                field=here,
                remedy="Put the file there, or correct the path: it is seen from the project's folder.",
            )
        rows: list[Mapping[str, Any]] = []
        for path in paths:
            try:
                checksum = self._checksums.of(path)
            except IsADirectoryError:
                raise UnhashableInput(
                    f"{here}: {path} is a folder.",
                    field=here,
                    remedy=f"Name its files: {path}/* or, with all that is below, {path}/**.",
                ) from None
            except OSError as error:
                raise UnhashableInput(
                    f"{here}: {path} can't be read: {error.strerror or error}.",
                    field=here,
                    remedy="Make it a file that can be read, or leave it out of `inputs`.",
                ) from None
            if checksum is None:
                raise UnhashableInput(f"{here}: {path} went away while it was looked at.", field=here)
            rows.append({"uri": f"file:{path}", "checksum": checksum})
        return rows


def _entries(declared: Any, params: Mapping[str, Any]) -> Iterable[Any]:
    if callable(declared):
        declared = declared(params) if _takes_one(declared) else declared()
    if isinstance(declared, str | Mapping) or hasattr(declared, "__fspath__"):
        return [declared]
    return declared  # type: ignore[no-any-return]


def _takes_one(function: Callable[..., Any]) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and code.co_argcount > 0


class FileChecksums:
    """Checksums of files, for one pipeline run; what was learnt is kept at its end."""

    def __init__(
        self, files: ProjectFiles, kept: PipelineRuns, now_ms: Callable[[], int], *, verify: bool = False
    ) -> None:
        self._files = files
        self._kept = kept
        self._now_ms = now_ms
        self._verify = verify
        self._known: dict[str, Remembered] | None = None
        self._seen: dict[str, str | None] = {}
        self._learnt: dict[str, Remembered] = {}

    def of(self, path: str) -> str | None:
        """The file's checksum; None if it is not there. Computed once for each run, unless forgotten."""
        if path not in self._seen:
            self._seen[path] = self._look(path)
        return self._seen[path]

    def forget(self, path: str) -> None:
        """It was, or may have been, written since."""
        self._seen.pop(path, None)

    def _look(self, path: str) -> str | None:
        stat = self._files.stat(path)
        if stat is None:
            return None
        if self._known is None:
            self._known = self._kept.checksums("", "\U0010ffff")
        kept = self._learnt.get(path) or self._known.get(path)
        if kept is not None and kept[:3] == stat and not self._verify:
            return kept[3]
        try:
            checksum = self._files.checksum(path)
        except FileNotFoundError:
            return None
        after = self._files.stat(path)
        # Only a file that did not change while it was read, nor shortly before, is identified by its times.
        if after == stat and self._now_ms() * 1_000_000 - stat[1] > _RECENT_NS:
            self._learnt[path] = (*stat, checksum)
        return checksum

    def keep(self) -> None:
        if self._learnt:
            self._kept.keep_checksums(self._learnt)
            self._learnt = {}


# --- arguments of a call -----------------------------------------------------------------


class BoundCall:
    """A callable with the arguments of one call."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.function = function
        try:
            self._signature: inspect.Signature | None = inspect.signature(function)
        except (TypeError, ValueError):
            self._signature = None
        if self._signature is None:
            self.given: dict[str, Any] = {**{str(i): each for i, each in enumerate(args)}, **kwargs}
            self._args, self._kwargs = args, kwargs
        else:
            bound = self._signature.bind_partial(*args, **kwargs)
            self.given = dict(bound.arguments)
            self._args, self._kwargs = bound.args, bound.kwargs

    def hashed(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """What was declared and what was given, which wins."""
        return {**params, **{name: plain(value, name) for name, value in self.given.items()}}

    def call(self, context: Any, params: Mapping[str, Any], read: Mapping[str, Any]) -> Any:
        """With the results that it reads, parameters of its arguments' names, and a context if it has one."""
        if self._signature is None:
            return self.function(*self._args, **self._kwargs)
        extra = dict(read)
        known = self._signature.parameters
        extra |= {name: value for name, value in params.items() if name in known and name not in extra}
        extra |= {name: context for name in CONTEXT_NAMES if name in known}
        kwargs = {name: value for name, value in extra.items() if name not in self.given}
        return self.function(*self._args, **{**self._kwargs, **kwargs})


def plain(value: Any, where: str, depth: int = 0) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if depth > DEPTH_MAX:
        raise UnhashableInput(f"{where} is nested too deeply.", field=where)
    if isinstance(value, bytes | bytearray | memoryview):
        return {"bytes": len(value), "sha256": sha256(value).hexdigest()}
    if isinstance(value, StoredFile):
        return {"name": value.name, "checksum": value.checksum}
    if isinstance(value, NodeFiles):
        return {name: value[name].checksum for name in value}
    if hasattr(value, "__fspath__"):
        return str(value)
    if isinstance(value, msgspec.Struct) or (hasattr(value, "__dataclass_fields__") and kind is not type):
        try:
            return plain(msgspec.to_builtins(value), where, depth + 1)
        except TypeError as error:
            raise UnhashableInput(f"{where}: {error}.", field=where, remedy=REMEDY) from None
    if isinstance(value, Mapping):
        if not all(type(key) is str for key in value):
            raise UnhashableInput(f"{where} has a key that is not text.", field=where)
        return {key: plain(each, f"{where}.{key}", depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each, f"{where}[{index}]", depth + 1) for index, each in enumerate(value)]
    raise UnhashableInput(
        f"{where} is a {kind.__module__}.{kind.__qualname__}, whose content can't be hashed.",
        field=where,
        remedy=REMEDY,
    )


# --- remote inputs -----------------------------------------------------------------------


class RemoteInputVersions:
    """Implements `ports.InputVersions`: each address is asked once for each run; nothing is fetched.

    Every request passes the circuit of its provider, as a source's do.
    """

    def __init__(
        self,
        http: Callable[[], Http],
        guard: Guard,
        open_bucket: Callable[[str], Bucket],
        branches: Callable[[], BranchReader],
        circuit_guard: Callable[[str], CircuitGuard],
        now_ms: Callable[[], int],
    ) -> None:
        self._http = http
        self._guard = guard
        self._open_bucket = open_bucket
        self._branches = branches
        self._circuit_guard = circuit_guard  # by provider
        self._now_ms = now_ms
        self._known: dict[str, Mapping[str, Any]] = {}
        self._failed: dict[str, KfmError] = {}

    def of(self, uri: str) -> Mapping[str, Any]:
        if uri in self._failed:
            raise self._failed[uri]
        if uri not in self._known:
            try:
                self._known[uri] = self._asked(uri)
            except BackendUnavailable as error:  # its tries are spent: no second round in the same run
                self._failed[uri] = error
                raise
        return self._known[uri]

    def _asked(self, uri: str) -> Mapping[str, Any]:
        if uri.startswith(BRANCH):
            return self._on_branch(uri)
        if uri.startswith(_WEB):
            return self._on_web(uri)
        return self._in_bucket(uri)

    def _on_branch(self, uri: str) -> Mapping[str, Any]:
        """`branch:NAME` is the commit, `branch:NAME:PATH` the entry at that path, whatever the commit."""
        ref, _, path = uri.removeprefix(BRANCH).partition(":")
        branches = self._branches()
        try:
            if not path:
                return {"uri": uri, "commit": branches.resolve(ref).commit_id}
            entry = branches.lookup(ref, [path]).get(path)
        except RefNotFound as error:
            raise UnhashableInput(f"{uri}: {error.message}", field=uri) from error
        if entry is None:
            raise UnhashableInput(f"{ref} has no {path}.", field=uri)
        return {"uri": uri, "checksum": f"sha256:{entry.sha256}"}

    def _on_web(self, uri: str) -> Mapping[str, Any]:
        # Late imports: most pipelines have no remote input.
        from kfm.calls.guarded_clients import GuardedHttp
        from kfm.model.breaker import provider_of_address

        http, provider = self._http(), provider_of_address(uri)
        if provider is not None:
            http = GuardedHttp(http, self._circuit_guard(provider))

        def ask(timeout_ms: int) -> Mapping[str, str]:
            from urllib.parse import urlsplit  # late: most inputs are files

            # Its host may be anywhere: the pipeline's own code names it. Where it redirects to may not.
            host = urlsplit(uri).hostname or ""
            with http.open("HEAD", uri, {}, timeout_ms, allow=(host,)) as response:
                if response.status != 200:
                    raise UpstreamUnavailable(
                        f"{redact(uri)} answered {response.status}.",
                        status=response.status,
                        retry_after=response.headers.get("retry-after"),
                    )
                return dict(response.headers)

        headers = self._guard(ask)
        validators = {name: headers[header] for header, name in _VALIDATORS if headers.get(header)}
        if not validators:
            raise UnhashableInput(
                f"{uri} is sent without an ETag or a time of modification.",
                field=uri,
                remedy="Fetch it in a node of its own, and let others read from that node.",
            )
        if "etag" not in validators and not is_strong_date(headers, self._now_ms()):
            validators["date"] = headers.get("date") or str(self._now_ms())  # equal to no later answer
        return {"uri": uri, **validators}

    def _in_bucket(self, uri: str) -> Mapping[str, Any]:
        from kfm.calls.guarded_clients import GuardedBucket
        from kfm.model.breaker import provider_of_address

        scheme, _, rest = uri.partition("://")
        name, _, key = rest.partition("/")
        if not name or not key:
            raise UnhashableInput(f"{uri} names no object.", field=uri)
        bucket, provider = self._open_bucket(f"{scheme}://{name}"), provider_of_address(uri)
        if provider is not None:
            bucket = GuardedBucket(bucket, self._circuit_guard(provider))
        found = self._guard(lambda _timeout_ms: bucket.head(key))
        if found is None:
            raise UnhashableInput(f"{uri} is not there.", field=uri)
        facts = {"version": found.version, "etag": found.etag, "modified_ms": found.modified_ms}
        return {"uri": uri, "size": found.size, **{name: value for name, value in facts.items() if value}}


def unconfigured_input_versions(
    clock: Clock, branches: Callable[[], BranchReader], breakers: SharedBreakers
) -> RemoteInputVersions:
    """Without a configuration: public addresses, and buckets by the environment's credentials."""
    from functools import partial

    from kfm.calls.guard import guarded
    from kfm.calls.guarded_clients import CircuitGuard
    from kfm.objects.bucket_client import open_bucket
    from kfm.system import SystemRng

    def http() -> Http:
        from kfm.objects.http_client import HttpxClient

        return HttpxClient()

    return RemoteInputVersions(
        http,
        partial(guarded, clock=clock, rng=SystemRng(), timeout_ms=CALL_TIMEOUT_MS),
        lambda address: open_bucket(address, {}, timeout_ms=CALL_TIMEOUT_MS),
        branches,
        lambda provider: CircuitGuard(breakers.circuit(provider), clock),
        clock.now_ms,
    )
