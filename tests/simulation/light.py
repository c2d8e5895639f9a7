"""A kernel for worlds of requests: real admission, executor and settlement; no disk and no targets."""

from __future__ import annotations

import hashlib
import io
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from kfm.calls.breakers import BreakerAccess, SharedBreakers
from kfm.calls.guard import guarded
from kfm.db.ledger import Ledger
from kfm.model.errors import LostLease
from kfm.model.records import Found, Run, Window
from kfm.model.settings import Settings, SourceSettings
from kfm.runs.kernel import Kernel
from tests.power import FolderNode, PowerCutFiles
from tests.simulation.adapters import (
    SimClock,
    SimHeartbeat,
    SimIds,
    SimLiveness,
    SimPolicies,
    SimRng,
)
from tests.simulation.scheduler import Process


class MemoryObjects:
    """Bytes under their SHA-256."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    def stage(self, resume_key: str | None = None) -> tuple[MemoryStaging, int]:
        del resume_key
        return MemoryStaging(self._kept), 0

    def has(self, sha256: str) -> bool:
        return sha256 in self._kept

    def size_of(self, sha256: str) -> int | None:
        return len(self._kept[sha256]) if sha256 in self._kept else None

    def open(self, sha256: str) -> io.BytesIO:
        return io.BytesIO(self._kept[sha256])

    def local_path(self, sha256: str) -> str | None:
        del sha256
        return None

    def delete(self, sha256: str) -> None:
        self._kept.pop(sha256, None)

    def all(self) -> Iterator[str]:
        yield from sorted(self._kept)

    def close(self) -> None:
        self._kept.clear()


class MemoryStaging:
    def __init__(self, kept: dict[str, bytes]) -> None:
        self._kept = kept
        self._data = b""

    def write(self, data: bytes) -> None:
        self._data += bytes(data)

    def commit(self) -> tuple[str, int]:
        sha256 = hashlib.sha256(self._data).hexdigest()
        self._kept[sha256] = self._data
        return sha256, len(self._data)

    def keep_partial(self) -> None: ...
    def abort(self) -> None: ...


class NoProgress:
    def phase(self, name: str, total: int | None = None) -> None: ...
    def advance(self, amount: int, note: str = "") -> None: ...
    def done(self) -> None: ...


class LightKernels:
    """Makes kernels for the processes of one world."""

    def __init__(
        self,
        world: Any,
        seed: int,
        settings: Settings,
        *,
        upstream: Callable[[Process, SourceSettings, Window, SharedBreakers], Any],
        pipeline: Callable[[Process], Callable[[Any], None]],
        heartbeat: bool,
    ) -> None:
        self._world = world
        self._settings = settings
        self._upstream = upstream
        self._pipeline = pipeline
        self._heartbeat = heartbeat
        self._objects = MemoryObjects()
        self._files = PowerCutFiles(random.Random(seed), FolderNode())
        self._rng = SimRng(random.Random(f"jitter {seed}"))
        self._numbers = 0

    def make(self, process: Process, store: Ledger) -> Kernel:
        world = self._world
        clock = SimClock(world.scheduler, process)
        self._numbers += 1
        ids = SimIds(f"{process.name}/{self._numbers}", clock)
        circuits = SharedBreakers(BreakerAccess(store, store, lambda: world.store(process)), clock)
        process.facts["circuits"] = circuits

        @contextmanager
        def observe_calls(by: Any, _left_ms: int) -> Iterator[None]:
            process.facts["own calls"] = by
            try:
                yield
            finally:
                process.facts["own calls"] = None

        def intend(run: Run, name: str) -> None:
            if not store.intend(run, name):
                raise LostLease(f"Run {run.run_id} has passed to another.")

        return Kernel(
            settings=self._settings,
            ledger=store,
            writer=store,
            clock=clock,
            ids=ids,
            files=self._files,
            objects=self._objects,
            scratch=MemoryObjects,  # type: ignore[arg-type]
            upstream=lambda source, window: self._upstream(process, source, window, circuits),
            guard=partial(guarded, clock=clock, rng=self._rng),
            policies=SimPolicies(lambda _action, _dataset: None),
            projections=[],
            liveness=SimLiveness(world.is_dead),
            worker_id=world.worker_id(process),
            progress=NoProgress(),
            read_project=lambda _path: b"",
            load_pipeline=lambda _reference: self._pipeline(process),
            runs_folder="/state/runs",
            heartbeat=SimHeartbeat(world.scheduler, process, world.store) if self._heartbeat else None,
            rng=self._rng,
            providers=circuits,
            observe_calls=observe_calls,
            intend=intend,
        )


def found_at(place: str, path: str, data: bytes) -> Found:
    return Found(
        uri=f"sim://{place}/{path}",
        path=path,
        media_type="text/csv",
        size=len(data),
        modified_ms=1_700_000_000_000,
        etag=hashlib.sha256(data).hexdigest()[:16],
    )
