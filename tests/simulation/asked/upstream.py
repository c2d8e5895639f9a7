"""Upstream of the worlds of requests: content that changes, outages, and pipelines that act outside."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kfm.calls.breakers import SharedBreakers
from kfm.calls.guarded_clients import CircuitGuard
from kfm.model.breaker import provider_of
from kfm.model.errors import UpstreamUnavailable
from kfm.model.records import Found, Window
from kfm.model.settings import SourceSettings
from tests.simulation.adapters import SimClock, SimDownload
from tests.simulation.light import found_at
from tests.simulation.scheduler import Process

if TYPE_CHECKING:
    from tests.simulation.asked.world import AskedWorld

MINUTE_MS = 60_000
LASTS_MS = (5_000, MINUTE_MS, 40 * MINUTE_MS, 9 * 60 * MINUTE_MS)
KINDS = ("away", "busy", "throttled", "broken", "broken")


class Upstream:
    """What all processes share. Has dice of its own."""

    def __init__(self, world: AskedWorld, seed: int) -> None:
        self._world = world
        self.rng = rng = random.Random(f"upstream {seed}")
        self._versions: dict[tuple[str, int], int] = {}
        self._bad: set[tuple[str, int, int]] = set()  # contents that no pipeline can use
        self.is_well = False
        self.bad = rng.choice((0.0, 0.1, 0.4))
        self.begun_ms = world.scheduler.now_ms
        self._spans: dict[str, list[tuple[int, int, str]]] = {}
        for source in world.sources:
            self._spans[source] = [
                (self.begun_ms + rng.randrange(90_000), rng.choice(LASTS_MS), rng.choice(KINDS))
                for _ in range(rng.choice((0, 0, 1, 2)))
            ]

    def change(self, source: str, window_ms: int) -> None:
        place = (source, window_ms)
        version = self._versions[place] = self._versions.get(place, 0) + 1
        if not self.is_well and self.rng.random() < self.bad:
            self._bad.add((source, window_ms, version))

    def version(self, source: str, window_ms: int) -> int:
        return self._versions.get((source, window_ms), 0)

    def mend(self) -> None:
        """From now on all is well; what is bad stays so until it changes."""
        self.is_well = True

    def trouble(self, source: str) -> str | None:
        if self.is_well:
            return None
        now_ms = self._world.scheduler.now_ms
        return next(
            (kind for start, lasts, kind in self._spans[source] if start <= now_ms < start + lasts), None
        )

    def is_bad(self, source: str, window_ms: int, data: bytes) -> bool:
        return (source, window_ms, int(data)) in self._bad

    def call(self, source: str, process: Process) -> None:
        """One request to the provider."""
        scheduler = self._world.scheduler
        scheduler.point(process, "net")
        if scheduler.unlucky(scheduler.chances.fail_before):
            raise UpstreamUnavailable("simulated: the connection was cut", transient=True, cause="network")
        kind = self.trouble(source)
        if kind in (None, "broken"):
            return
        scheduler.counts["provider down"] += 1
        if kind == "away":
            raise UpstreamUnavailable("simulated: no answer", transient=True, cause="network")
        if kind == "busy":
            raise UpstreamUnavailable("simulated: busy", status=503)
        after = str(self.rng.choice((1, 20, 100, 900)))
        raise UpstreamUnavailable("simulated: too many", status=429, retry_after=after)


class SimSource:
    """Implements `ports.Source` for one process; each request passes the provider's circuit."""

    def __init__(
        self,
        world: AskedWorld,
        process: Process,
        source: SourceSettings,
        window: Window,
        circuits: SharedBreakers,
    ) -> None:
        self._world, self._process = world, process
        self._source, self._window = source.id, window
        name = provider_of(source)
        clock = SimClock(world.scheduler, process)
        self._guard = CircuitGuard(circuits.circuit(name), clock) if name is not None else None
        self._name = name

    def _call(self) -> bytes:
        upstream = self._world.upstream

        def request() -> None:
            if self._name is not None:
                self._world.checks.circuits.on_call(self._name, self._process)
            upstream.call(self._source, self._process)

        if self._guard is None:
            request()
        else:
            self._guard.call(request)
        return str(upstream.version(self._source, self._window.start_ms)).encode()

    def discover(self, window: Window) -> list[Found]:
        del window
        return [self._found(self._call())]

    def _found(self, data: bytes) -> Found:
        return found_at(self._source, f"{self._source}/{self._window.start_ms}.csv", data)

    @contextmanager
    def open(self, found: Found, offset: int) -> Iterator[SimDownload]:
        del offset
        data = self._call()
        yield SimDownload(self._found(data), 0, data, lambda: None)


def pipeline(world: AskedWorld, process: Process) -> Callable[[Any], None]:
    """Publishes what it finds; some act outside, and then fail, or are killed."""

    def transform(context: Any) -> None:
        scheduler, dice, source = world.scheduler, world.dice, context.source_id
        scheduler.point(process, "work")
        if not world.is_calm and dice.random() < world.long_work:
            scheduler.sleep(process, dice.randrange(1_000, world.work_ms_max))
        data = context.inputs[0].read()
        if not context.dry_run:
            _act(world, process, source)
        scheduler.point(process, "work")
        if world.upstream.is_bad(source, context.window.start_ms, data):
            raise ValueError("simulated: what is this?")
        if world.upstream.trouble(source) == "broken" and dice.random() < 0.7:
            raise TimeoutError("simulated: no answer")
        context.publisher.write_file(context.inputs[0].path, data, {"media_type": "text/csv"})

    return transform


def _act(world: AskedWorld, process: Process, source: str) -> None:
    kind, calls = world.acts[source], process.facts["own calls"]
    if kind is None:
        return
    if kind == "call":
        calls.acts("tell others")
    run = calls._run
    world.scheduler.point(process, "act")
    world.checks.starts.on_act(run.work_base, run.run_id, run.attempts)
    world.scheduler.point(process, "acted")
