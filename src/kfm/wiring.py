"""The composition root: settings → adapters → engine. The only importer of adapters."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kfm.core.errors import ConfigError, PlanError, UsageError
from kfm.core.records import Window
from kfm.core.settings import Settings, Source
from kfm.engine.requests import ProjectionReport, RunRequest, RunReport
from kfm.ports import Clock, LedgerReader, Objects, Progress, Store
from kfm.ports import Source as Upstream
from kfm.system import FlockLiveness, PosixFiles, SystemClock, SystemIds, SystemRng

if TYPE_CHECKING:
    from kfm.config import Loaded
    from kfm.engine.kernel import Kernel
    from kfm.policy.cedar import CedarPolicies
    from kfm.publish.collect import Collection


class Quiet:
    """Nobody watches."""

    def phase(self, name: str, total: int | None = None) -> None: ...
    def advance(self, amount: int, note: str = "") -> None: ...
    def done(self) -> None: ...


def open_store(settings: Settings, state: str, clock: Clock) -> Store:
    """The ledger, made or migrated as needed."""
    from kfm.store.ledger import SqlStore
    from kfm.store.migrations import migrate

    if _is_postgres(settings.store):
        from kfm.store.postgres import PostgresDatabase

        assert settings.store is not None
        server = PostgresDatabase(settings.store)
        migrate(server, "postgresql", clock.now_ms())
        return SqlStore(server)
    from kfm.store.sqlite import SqliteDatabase

    path = sqlite_path(settings, state)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    database = SqliteDatabase(path, clock)
    migrate(database, "sqlite", clock.now_ms())
    return SqlStore(database)


def open_ledger(settings: Settings, state: str, clock: Clock) -> LedgerReader:
    """The ledger for reading only; leaves no trace, also where there is none yet."""
    from kfm.store.migrations import check, applied, migrate
    from kfm.store.reading import Ledger

    if _is_postgres(settings.store):
        from kfm.store.postgres import PostgresDatabase

        assert settings.store is not None
        server = PostgresDatabase(settings.store, read_only=True)
        if server.is_empty():
            server.close()
        else:
            check(applied(server.session))
            return Ledger(server)
    else:
        from kfm.store.sqlite import SqliteReader

        path = sqlite_path(settings, state)
        if os.path.exists(path) and os.path.getsize(path) > 0:
            reader = SqliteReader(path, clock)
            check(applied(reader.session))
            return Ledger(reader)
    from kfm.store.memory import MemoryDatabase

    nothing = MemoryDatabase(clock)
    migrate(nothing, "sqlite", clock.now_ms())
    return Ledger(nothing)


def _is_postgres(store: str | None) -> bool:
    return store is not None and store.startswith(("postgresql://", "postgres://"))


def sqlite_path(settings: Settings, state: str) -> str:
    if settings.store is None:
        return os.path.join(state, "kfm.db")
    if not settings.store.startswith("sqlite:"):
        raise ConfigError(
            f"The store {settings.store.partition(':')[0]} is not known; write sqlite:PATH or postgresql://…"
        )
    return os.path.join(os.path.dirname(state), settings.store.removeprefix("sqlite:"))


class ThreadHeart:
    """Renews a lease from a thread with a connection of its own."""

    def __init__(self, open_own_store: Callable[[], Store]) -> None:
        self._open = open_own_store

    def start(self, beat: Callable[[Store], None], interval_ms: int) -> Callable[[], None]:
        stop = threading.Event()

        def beating() -> None:
            store: Store | None = None
            while not stop.wait(interval_ms / 1000):
                store = store or self._open()
                beat(store)
            if store is not None:
                store.close()

        thread = threading.Thread(target=beating, name="kfm-heart", daemon=True)
        thread.start()

        def finish() -> None:
            stop.set()
            thread.join()

        return finish


class App:
    """What the commands talk to."""

    def __init__(self, loaded: Loaded, *, read_only: bool, progress: Progress | None) -> None:
        self.loaded = loaded
        self.settings = loaded.settings
        self.read_only = read_only
        self.clock = SystemClock()
        self.ids = SystemIds()
        self.rng = SystemRng()
        self.files = PosixFiles()
        self.state = loaded.resolve(self.settings.state).rstrip("/")
        self.progress = progress or Quiet()
        self.announce: Callable[[str], None] = lambda _line: None
        self.liveness = FlockLiveness(f"{self.state}/workers")
        self.store: Store | None = None
        if read_only:
            self.ledger: LedgerReader = open_ledger(self.settings, self.state, self.clock)
        else:
            self.store = open_store(self.settings, self.state, self.clock)
            self.ledger = self.store

    def close(self) -> None:
        self.ledger.close()
        self.liveness.close()

    # --- adapters, made when first needed --------------------------------------------

    @cached_property
    def policies(self) -> CedarPolicies:
        from kfm.policy.cedar import CedarPolicies

        return CedarPolicies(self.settings.policies, self.loaded.folder)

    @cached_property
    def objects(self) -> Objects:
        from kfm.objects.local import LocalObjects

        return LocalObjects(self.files, f"{self.state}/objects", self.ids)

    def _scratch(self) -> Objects:
        from kfm.objects.scratch import ScratchObjects

        return ScratchObjects()

    def _upstream(self, source: Source, window: Window) -> Upstream:
        from kfm.sources.registry import make_source

        return make_source(source, self.settings, self._source_means(), window)

    def _source_means(self) -> Any:
        raise NotImplementedError

    @cached_property
    def kernel(self) -> Kernel:
        from kfm.engine.kernel import Kernel
        from kfm.publish.projections.registry import make_projections

        return Kernel(
            settings=self.settings,
            ledger=self.ledger,
            writer=self.store,
            clock=self.clock,
            ids=self.ids,
            files=self.files,
            objects=self.objects,
            scratch=self._scratch,
            upstream=self._upstream,
            policies=self.policies,
            projections=make_projections(self.settings.publish),
            liveness=self.liveness,
            worker_id=self.ids.new(),
            progress=self.progress,
            read_project=self._read,
            load_pipeline=self._pipeline,
            runs_folder=f"{self.state}/runs",
            heart=None if self.read_only else ThreadHeart(self._own_store),
            announce=lambda line: self.announce(line),
        )

    def _own_store(self) -> Store:
        return open_store(self.settings, self.state, SystemClock())

    def _read(self, path: str) -> bytes:
        with open(self.loaded.resolve(path), "rb") as file:
            return file.read()

    def _pipeline(self, reference: str) -> Callable[[Any], None]:
        from kfm.runs.loading import load_function

        path, _, name = reference.rpartition(":")
        return load_function(self.loaded.resolve(path), name)

    # --- what a command can ask for ---------------------------------------------------

    def run(self, request: RunRequest) -> RunReport:
        from kfm.engine.run import Updating

        plan = self._plan(request)
        return Updating(
            self.kernel,
            self._subject(request, plan),
            force=request.force,
            artifacts_dir=request.artifacts_dir,
            plan=plan,
        ).run()

    def preview(self, request: RunRequest) -> RunReport:
        from kfm.engine.preview import preview

        return preview(
            self.kernel, self._subject(request, None), force=request.force, artifacts_dir=request.artifacts_dir
        )

    def project(self, *, everything: bool = False) -> list[ProjectionReport]:
        from kfm.engine.projecting import project

        return project(self.kernel, everything=everything)


@contextmanager
def open_app(loaded: Loaded, *, read_only: bool = False, progress: Progress | None = None) -> Iterator[App]:
    app = App(loaded, read_only=read_only, progress=progress)
    try:
        yield app
    finally:
        app.close()
