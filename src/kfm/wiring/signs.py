"""What identifies things that are far away: validators of HTTP, ETags of buckets, commits of branches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kfm.core.errors import RefNotFound, UnhashableInput, UpstreamUnavailable
from kfm.core.redact import redact

if TYPE_CHECKING:
    from kfm.branch_ports import BranchReader
    from kfm.ports import Bucket, Clock, Guard, Http

CALL_TIMEOUT_MS = 60_000
BRANCH = "branch:"
_WEB = ("http://", "https://")
_VALIDATORS = (("etag", "etag"), ("last-modified", "last_modified"))


class FarSigns:
    """Implements `ports.Signs`. Each address is asked once for each pass; nothing is fetched."""

    def __init__(
        self,
        http: Callable[[], Http],
        guard: Guard,
        open_bucket: Callable[[str], Bucket],
        branches: Callable[[], BranchReader],
    ) -> None:
        self._http = http
        self._guard = guard
        self._open_bucket = open_bucket
        self._branches = branches
        self._known: dict[str, Mapping[str, Any]] = {}

    def of(self, uri: str) -> Mapping[str, Any]:
        if uri not in self._known:
            self._known[uri] = self._asked(uri)
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
        def ask(timeout_ms: int) -> Mapping[str, str]:
            with self._http().open("HEAD", uri, {}, timeout_ms) as response:
                if response.status != 200:
                    raise UpstreamUnavailable(
                        f"{redact(uri)} answered {response.status}.",
                        status=response.status,
                        retry_after=response.headers.get("retry-after"),
                    )
                return dict(response.headers)

        headers = self._guard(ask)
        told = {name: headers[header] for header, name in _VALIDATORS if headers.get(header)}
        if not told:
            raise UnhashableInput(
                f"{uri} is sent without an ETag or a time of modification.",
                field=uri,
                remedy="Fetch it in a node of its own, and let others read from that node.",
            )
        return {"uri": uri, **told}

    def _in_bucket(self, uri: str) -> Mapping[str, Any]:
        scheme, _, rest = uri.partition("://")
        name, _, key = rest.partition("/")
        if not name or not key:
            raise UnhashableInput(f"{uri} names no object.", field=uri)
        bucket = self._open_bucket(f"{scheme}://{name}")
        found = self._guard(lambda _timeout_ms: bucket.head(key))
        if found is None:
            raise UnhashableInput(f"{uri} is not there.", field=uri)
        told = {"version": found.version, "etag": found.etag, "modified_ms": found.modified_ms}
        return {"uri": uri, "size": found.size, **{name: value for name, value in told.items() if value}}


def plain_signs(clock: Clock, branches: Callable[[], BranchReader]) -> FarSigns:
    """Without a configuration: what anybody may read, and buckets by the environment's credentials."""
    from functools import partial

    from kfm.calls.guard import guarded
    from kfm.objects.bucket import open_bucket
    from kfm.system import SystemRng

    def http() -> Http:
        from kfm.http.client import HttpxClient

        return HttpxClient()

    return FarSigns(
        http,
        partial(guarded, clock=clock, rng=SystemRng(), timeout_ms=CALL_TIMEOUT_MS),
        lambda address: open_bucket(address, {}, timeout_ms=CALL_TIMEOUT_MS),
        branches,
    )
