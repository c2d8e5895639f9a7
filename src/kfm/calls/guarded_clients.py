"""HTTP clients, buckets and upstream readers behind the circuit breaker of their provider."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Literal, TypeVar

from kfm.calls.breakers import SharedCircuit
from kfm.calls.guard import asked_ms, classify_call
from kfm.model.breaker import PROBE_LEASE_MS
from kfm.model.errors import BackendUnavailable, ChecksumMismatch, KfmError, UpstreamUnavailable
from kfm.model.records import ObjectStat
from kfm.model.units import provider_of
from kfm.ports import Bucket, Clock, Http, ManyPuts, NewObject, ObjectAttributes, Response, Upstream

RENEW_MS = PROBE_LEASE_MS // 3
_OURS = ("contention", "circuit-open")  # passing trouble of this machine, or none at all

T = TypeVar("T")


class CircuitGuard:
    """One provider's circuit, around single requests."""

    def __init__(self, circuit: SharedCircuit, clock: Clock) -> None:
        self._circuit = circuit
        self._clock = clock

    @contextmanager
    def request(self) -> Iterator[GuardedRequest]:
        """Raises CircuitOpen before anything goes out."""
        circuit = self._circuit
        fence = None if circuit.quiet else circuit.before()
        request = GuardedRequest(circuit, fence, self._clock)
        try:
            yield request
        except Exception as error:
            request.failed(error)
            raise
        except BaseException:  # cancelled
            request.undecided()
            raise
        circuit.after(True, fence)

    def call(self, work: Callable[[], T]) -> T:
        with self.request() as request, request.theirs():
            return work()


class GuardedRequest:
    """One request under way."""

    def __init__(self, circuit: SharedCircuit, fence: int | None, clock: Clock) -> None:
        self._circuit = circuit
        self._fence = fence
        self._clock = clock
        self._renewed_ms = clock.monotonic_ms()
        self._blamed: Exception | None = None

    @contextmanager
    def theirs(self) -> Iterator[None]:
        """Whatever is raised in here came from the other side."""
        try:
            yield
        except Exception as error:
            self._blamed = error
            raise

    def chunks(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Bytes of the other side; while they come, a probe stays ours."""
        while True:
            with self.theirs():
                chunk = next(chunks, None)
            if chunk is None:
                return
            self._renew()
            yield chunk

    def sent(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Bytes for the other side; while they go out, a probe stays ours."""
        for chunk in chunks:
            self._renew()
            yield chunk

    def _renew(self) -> None:
        if self._fence is not None and self._clock.monotonic_ms() - self._renewed_ms >= RENEW_MS:
            self._renewed_ms = self._clock.monotonic_ms()
            self._circuit.renew(self._fence)

    def failed(self, error: Exception) -> None:
        kind = classify_call(error)
        theirs = error is self._blamed or isinstance(error, UpstreamUnavailable)
        if not theirs or kind.error_class in _OURS:
            self.undecided()
        elif isinstance(error, ChecksumMismatch) or not kind.retryable:
            self._answered(error)
        elif wanted_ms := asked_ms(error, self._clock.now_ms()):
            # The provider is up and says when to come back: that is obeyed, and its circuit is spared.
            if self._fence is not None:
                self._circuit.put_off(self._fence, wanted_ms)
        else:
            self._circuit.after(False, self._fence)
            self._hand_up(error)

    def _answered(self, error: Exception) -> None:
        """With a status the provider answered; a malformed address, say, is no evidence about it."""
        status = error.facts.get("status") if isinstance(error, KfmError) else None
        if status is not None or isinstance(error, ChecksumMismatch):
            self._circuit.after(True, self._fence)
        else:
            self.undecided()

    def undecided(self) -> None:
        if self._fence is not None:
            self._circuit.give_up(self._fence)

    def _hand_up(self, error: Exception) -> None:
        """The failure that opened the circuit is the run's business: no wait inside a call is that long."""
        wait_s = -(-self._circuit.wait_ms() // 1000)
        if wait_s <= 0 or not isinstance(error, BackendUnavailable):
            return
        error.facts["circuit_open"] = True
        error.facts["retry_after"] = str(wait_s)


class GuardedHttp:
    """`ports.Http` behind a circuit."""

    def __init__(self, http: Http, circuit_guard: CircuitGuard) -> None:
        self._http = http
        self._circuit_guard = circuit_guard

    @contextmanager
    def open(
        self,
        method: Literal["GET", "HEAD"],
        url: str,
        headers: Mapping[str, str],
        timeout_ms: int,
        *,
        shown: str | None = None,
        secrets: Collection[str] = (),
        allow: Collection[str] = (),
    ) -> Iterator[Response]:
        with (
            self._circuit_guard.request() as request,
            self._http.open(
                method, url, headers, timeout_ms, shown=shown, secrets=secrets, allow=allow
            ) as response,
        ):
            yield _Watched(response, request)


class _Watched:
    """A response whose bytes keep a probe alive."""

    def __init__(self, response: Response, request: GuardedRequest) -> None:
        self.status = response.status
        self.headers = response.headers
        self.address = response.address
        self._response = response
        self._request = request

    def chunks(self) -> Iterator[bytes]:
        return self._request.chunks(iter(self._response.chunks()))


class GuardedBucket:
    """`ports.Bucket` behind a circuit."""

    def __init__(self, bucket: Bucket, circuit_guard: CircuitGuard) -> None:
        self._bucket = bucket
        self._circuit_guard = circuit_guard

    def get(self, key: str) -> tuple[bytes, str] | None:
        return self._circuit_guard.call(lambda: self._bucket.get(key))

    def put(
        self,
        key: str,
        data: bytes,
        *,
        if_match: str | None = None,
        if_none_match: bool = False,
        attributes: ObjectAttributes | None = None,
    ) -> bool:
        return self._circuit_guard.call(
            lambda: self._bucket.put(
                key, data, if_match=if_match, if_none_match=if_none_match, attributes=attributes
            )
        )

    def put_many(self, objects: Sequence[NewObject], *, if_none_match: bool = False) -> None:
        """One request to the circuit: what is in flight at once succeeds or fails together."""
        bucket = self._bucket

        def put() -> None:
            if isinstance(bucket, ManyPuts):
                bucket.put_many(objects, if_none_match=if_none_match)
                return
            for key, data, attributes in objects:
                bucket.put(key, data, if_none_match=if_none_match, attributes=attributes)

        self._circuit_guard.call(put)

    def put_stream(
        self, key: str, chunks: Iterable[bytes], *, attributes: ObjectAttributes | None = None
    ) -> None:
        with self._circuit_guard.request() as request, request.theirs():
            self._bucket.put_stream(key, request.sent(chunks), attributes=attributes)

    def head(self, key: str) -> ObjectStat | None:
        return self._circuit_guard.call(lambda: self._bucket.head(key))

    def delete(self, key: str) -> None:
        self._circuit_guard.call(lambda: self._bucket.delete(key))

    def copy(self, key: str, to: str) -> bool:
        return self._circuit_guard.call(lambda: self._bucket.copy(key, to))

    def list(self, prefix: str) -> Iterator[ObjectStat]:
        with self._circuit_guard.request() as request:
            listed = iter(self._bucket.list(prefix))
            while True:
                with request.theirs():
                    stat = next(listed, None)
                if stat is None:
                    return
                yield stat

    def read(
        self, key: str, *, offset: int = 0, if_match: str | None = None
    ) -> AbstractContextManager[tuple[ObjectStat, Iterator[bytes]]]:
        return self._read(key, offset, if_match)

    @contextmanager
    def _read(
        self, key: str, offset: int, if_match: str | None
    ) -> Iterator[tuple[ObjectStat, Iterator[bytes]]]:
        with self._circuit_guard.request() as request, ExitStack() as stack:
            with request.theirs():
                opened = self._bucket.read(key, offset=offset, if_match=if_match)
                stat, chunks = stack.enter_context(opened)
            yield stat, request.chunks(iter(chunks))


class GuardedUpstream:
    """Implements `Upstream`. Raises CircuitOpen before anything goes out."""

    def __init__(self, upstream: Upstream, circuit_guard: Callable[[str], CircuitGuard]) -> None:
        self._upstream = upstream
        self._circuit_guard = circuit_guard  # by provider

    def _of(self, object_uri: str) -> CircuitGuard:
        return self._circuit_guard(provider_of(object_uri.partition("://")[0]) or "unknown")

    def head(self, object_uri: str) -> ObjectStat | None:
        return self._of(object_uri).call(lambda: self._upstream.head(object_uri))

    def read(self, object_uri: str, start: int, length: int) -> bytes:
        return self._of(object_uri).call(lambda: self._upstream.read(object_uri, start, length))

    def stream(self, object_uri: str) -> Iterator[bytes]:
        with self._of(object_uri).request() as request:
            yield from request.chunks(iter(self._upstream.stream(object_uri)))

    def list(self, provider: str, bucket: str, prefix: str) -> Iterator[ObjectStat]:
        return self._upstream.list(provider, bucket, prefix)
