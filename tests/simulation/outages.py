"""Providers that are down for a while, and the lines to them behind the circuits that all processes share."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from kfm.calls.breakers import SharedBreakers
from kfm.calls.guarded_clients import CircuitGuard, GuardedBucket, GuardedHttp
from kfm.model.breaker import provider_of
from kfm.model.errors import UpstreamUnavailable
from kfm.model.records import Found, ObjectStat, Window
from kfm.model.settings import Settings, SourceSettings
from tests.simulation.adapters import SimClock, SimUpstream
from tests.simulation.scheduler import Chances

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process
    from tests.simulation.world import World

ASKED_MAX_S = 3_600
SECOND_MS, MINUTE_MS = 1_000, 60_000
LASTS_MS = (5 * SECOND_MS, 40 * SECOND_MS, 7 * MINUTE_MS, 40 * MINUTE_MS, 200 * MINUTE_MS)
NAMES: tuple[dict[str, str], ...] = (  # a source without a name is called, and has no circuit
    {"gauges": "all.example", "models": "all.example", "counties": "all.example"},
    {"gauges": "rivers.example", "models": "rivers.example"},
    {"gauges": "gauges.example", "counties": "s3://shelf"},
    {"gauges": "gauges.example", "models": "models.example", "counties": "s3://shelf"},
)
KINDS = ("cut", "timeout", "busy", "busy", "throttled", "gone")


class Outages:
    """Has dice of its own: a world without trouble is the same as if there could be none."""

    def __init__(self, seed: int, now_ms: int, *, slow: bool, trouble: float = Chances.trouble) -> None:
        self.rng = random.Random(f"outages {seed}")
        self.is_troubled = self.rng.random() < trouble
        self.is_over = False
        begins_max_ms = 60 * MINUTE_MS if slow else 12 * SECOND_MS
        self._spans: dict[str, list[tuple[int, int, str]]] = {}
        for place in ("gauges", "models", "counties") if self.is_troubled else ():
            self._spans[place] = []
            for _ in range(self.rng.randrange(0, 3)):
                start_ms = now_ms + self.rng.randrange(begins_max_ms)
                end_ms = start_ms + self.rng.choice(LASTS_MS)
                self._spans[place].append((start_ms, end_ms, self.rng.choice(KINDS)))

    def named(self, settings: Settings) -> Settings:
        """The same sources, of which some have a provider."""
        if not self.is_troubled:
            return settings
        names = self.rng.choice(NAMES)
        sources = [
            replace(source, provider=names.get(source.id), idempotent=self.rng.random() < 0.93)
            if not source.members
            else source
            for source in settings.sources
        ]
        return replace(settings, sources=tuple(sources))

    def trouble(self, place: str, now_ms: int) -> UpstreamUnavailable | None:
        if self.is_over:
            return None
        kind = next((kind for start, end, kind in self._spans.get(place, ()) if start <= now_ms < end), None)
        if kind is None:
            return None
        told = f"simulated: {kind}"
        if kind == "cut":
            return UpstreamUnavailable(told, transient=True, cause="network")
        if kind == "timeout":
            return UpstreamUnavailable(told, transient=True, cause="timeout")
        if kind == "gone":
            return UpstreamUnavailable(told, status=404)
        facts: dict[str, Any] = {"status": 429 if kind == "throttled" else 503}
        if kind == "throttled":
            facts["retry_after"] = str(self.rng.choice((1, 20, 100, 900, ASKED_MAX_S)))
        return UpstreamUnavailable(told, **facts)


class Line:
    """The line to one place, as one process has it."""

    def __init__(self, world: World, source: SourceSettings, process: Process) -> None:
        self._world = world
        self._place = source.id
        self._provider = provider_of(source)
        self._process = process

    def begin(self) -> None:
        """A request goes out."""
        if self._provider is not None:
            self._world.checks.circuits.on_call(self._provider, self._process)
        self.pause()

    def pause(self) -> None:
        scheduler = self._world.scheduler
        scheduler.point(self._process, "net")
        if scheduler.unlucky(scheduler.chances.fail_before):
            raise UpstreamUnavailable("simulated: the connection was cut", transient=True, cause="network")
        trouble = self._world.outages.trouble(self._place, scheduler.now_ms)
        if trouble is not None:
            scheduler.counts["provider down"] += 1
            raise trouble


class SimResponse:
    status = 200
    headers: Mapping[str, str] = {}
    address = "http://simulated/"

    def __init__(self, data: bytes, pause: Callable[[], None]) -> None:
        self._data = data
        self._pause = pause

    def chunks(self) -> Iterator[bytes]:
        step = max(64, len(self._data) // 4)
        for start in range(0, len(self._data), step):
            self._pause()
            yield self._data[start : start + step]


class SimHttp:
    def __init__(self, line: Line, content: Callable[[], Mapping[str, bytes]]) -> None:
        self._line = line
        self._content = content

    @contextmanager
    def open(
        self, method: str, url: str, headers: Mapping[str, str], timeout_ms: int, **_more: Any
    ) -> Iterator[SimResponse]:
        del method, headers, timeout_ms
        self._line.begin()
        yield SimResponse(_whole(self._content, url), self._line.pause)


class SimShelf:
    """As much of a bucket as reading needs."""

    def __init__(self, line: Line, content: Callable[[], Mapping[str, bytes]]) -> None:
        self._line = line
        self._content = content

    def get(self, key: str) -> tuple[bytes, str] | None:
        self._line.begin()
        data = self._content().get(key)
        return None if data is None else (data, "etag")

    def head(self, key: str) -> ObjectStat | None:
        self._line.begin()
        data = self._content().get(key)
        return None if data is None else ObjectStat(key=key, size=len(data), modified_ms=None, etag="etag")

    def list(self, prefix: str) -> Iterator[ObjectStat]:
        self._line.begin()
        for key, data in sorted(self._content().items()):
            if key.startswith(prefix):
                yield ObjectStat(key=key, size=len(data), modified_ms=None, etag="etag")

    @contextmanager
    def read(
        self, key: str, *, offset: int = 0, if_match: str | None = None
    ) -> Iterator[tuple[ObjectStat, Iterator[bytes]]]:
        del offset, if_match
        self._line.begin()
        data = _whole(self._content, key)
        stat = ObjectStat(key=key, size=len(data), modified_ms=None, etag="etag")
        yield stat, SimResponse(data, self._line.pause).chunks()


def _whole(content: Callable[[], Mapping[str, bytes]], path: str) -> bytes:
    data = content().get(path) if path else b"{}"
    if data is None:
        raise UpstreamUnavailable("simulated: the object is gone", status=404)
    return data


class GuardedUpstream(SimUpstream):
    """A source whose every request passes its provider's circuit, as the real ones' do."""

    def __init__(
        self, world: World, source: SourceSettings, window: Window, process: Process, circuits: Any
    ) -> None:
        content = world.provider.look(source.id, window)
        media_type = world.provider.kits[source.id].media_type
        super().__init__(content, source.id, media_type, world.scheduler, process)
        self._http: Any = None
        self._bucket: Any = None
        line = Line(world, source, process)
        name = provider_of(source)
        if name is None:
            self._http = SimHttp(line, content)
            return
        breakers: SharedBreakers = circuits
        circuit_guard = CircuitGuard(breakers.circuit(name), SimClock(world.scheduler, process))
        if name.startswith("s3:"):
            self._bucket = GuardedBucket(SimShelf(line, content), circuit_guard)  # type: ignore[arg-type]
        else:
            self._http = GuardedHttp(SimHttp(line, content), circuit_guard)

    def discover(self, window: Window) -> list[Found]:
        if self._bucket is not None:
            keys = [stat.key for stat in self._bucket.list("")]
            if keys and self._scheduler.steps % 3 == 0:
                self._bucket.head(keys[0])
                self._bucket.get(keys[0])
        else:
            with self._http.open("GET", "", {}, SECOND_MS) as response:
                b"".join(response.chunks())
        return [self._found(path, data) for path, data in sorted(self._content().items())]

    @contextmanager
    def open(self, found: Found, offset: int) -> Iterator[Any]:
        if self._bucket is not None:
            with self._bucket.read(found.path) as (_stat, chunks):
                yield self._streamed(found, offset, chunks)
        else:
            with self._http.open("GET", found.path, {}, SECOND_MS) as response:
                yield self._streamed(found, offset, response.chunks())

    def _streamed(self, found: Found, offset: int, chunks: Iterator[bytes]) -> Streamed:
        now = self._found(found.path, self._content()[found.path])
        return Streamed(now, offset if now.etag == found.etag else 0, chunks)


class Streamed:
    """A download that comes in while its request is under way."""

    def __init__(self, found: Found, offset: int, chunks: Iterator[bytes]) -> None:
        self.found = found
        self.offset = offset
        self._chunks = chunks

    def chunks(self) -> Iterator[bytes]:
        skip = self.offset
        for chunk in self._chunks:
            if len(chunk) > skip:
                yield chunk[skip:]
            skip = max(0, skip - len(chunk))
