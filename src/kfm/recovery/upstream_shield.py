"""What units read their objects with, behind each provider's circuit."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kfm.core.object_schemes import PROVIDERS
from kfm.core.records import ObjectStat
from kfm.ingest_ports import Upstream
from kfm.recovery.shields import Shield


def circuit_name(provider: str) -> str:
    """The circuit that all objects of a provider share."""
    return f"objects.{provider}"


class ShieldedUpstream:
    """Implements `Upstream`. Raises CircuitOpen before anything goes out."""

    def __init__(self, upstream: Upstream, shield: Callable[[str], Shield]) -> None:
        self._upstream = upstream
        self._shield = shield  # by provider

    def _of(self, object_uri: str) -> Shield:
        return self._shield(PROVIDERS[object_uri.partition("://")[0]])

    def head(self, object_uri: str) -> ObjectStat | None:
        return self._of(object_uri).call(lambda: self._upstream.head(object_uri))

    def read(self, object_uri: str, start: int, length: int) -> bytes:
        return self._of(object_uri).call(lambda: self._upstream.read(object_uri, start, length))

    def stream(self, object_uri: str) -> Iterator[bytes]:
        with self._of(object_uri).request() as passage:
            yield from passage.chunks(iter(self._upstream.stream(object_uri)))

    def list(self, provider: str, bucket: str, prefix: str) -> Iterator[ObjectStat]:
        return self._upstream.list(provider, bucket, prefix)
