"""What the settings choose: a store, objects, sources, targets, a clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from kfm.core.errors import KfmError, UsageError
from kfm.core.records import Window
from kfm.core.settings import Source, Target
from kfm.system import FlockLiveness, PosixFiles, ProcessMeter, SystemClock, SystemIds, SystemRng
from kfm.wiring.heart import ThreadHeart
from kfm.wiring.stores import make_folder, open_ledger, open_store

if TYPE_CHECKING:
    from kfm.config import Loaded
    from kfm.core.heralds import Herald
    from kfm.engine.kernel import Kernel, Overhearing
    from kfm.engine.passes import PassKernel
    from kfm.objects.local import LocalObjects
    from kfm.policy.cedar import CedarPolicies
    from kfm.ports import (
        Bucket,
        Clock,
        Guard,
        LedgerReader,
        Objects,
        Progress,
        Projection,
        Retrying,
        Store,
        Telemetry,
    )
    from kfm.ports import Source as Upstream
    from kfm.recovery.breakers import SharedBreakers
    from kfm.runs.declare import Pipeline
    from kfm.sources.registry import Tools
    from kfm.wiring.schedules import Timetable
    from kfm.wiring.signs import FarSigns


class Quiet:
    """Nobody watches."""

    def phase(self, name: str, total: int | None = None) -> None: ...
    def advance(self, amount: int, note: str = "") -> None: ...
    def done(self) -> None: ...


class Adapters:
    """Settings, and what they stand for; everything is made when it is first needed."""

    def __init__(self, loaded: Loaded, *, read_only: bool, progress: Progress | None) -> None:
        self.loaded = loaded
        self.settings = loaded.settings
        self.read_only = read_only
        self.clock: Clock = SystemClock()
        self.ids = SystemIds()
        self.rng = SystemRng()
        self.files = PosixFiles()
        self.state = loaded.resolve(self.settings.state).rstrip("/")
        self.progress = progress or Quiet()
        self.announce: Callable[[str], None] = lambda _line: None
        self._hearer: Callable[[Retrying], None] | None = None
        self._leave_calls: Callable[[], None] = lambda: None
        self._herald: Herald | None = None
        self.liveness = FlockLiveness(f"{self.state}/workers")
        self.store: Store | None = None
        if read_only:
            self.ledger: LedgerReader = open_ledger(loaded.store, self.state, self.clock)
        else:
            make_folder(self.state)
            self.store = self.ledger = self._testifying_store()

    def _testifying_store(self) -> Store:
        """The ledger, with a witness that posts an event for whatever it changes."""
        from kfm.wiring.evidence import MaskKey, make_witness
        from kfm.wiring.incidents import make_herald

        key = MaskKey()
        witness, self._herald = make_witness(self.loaded, key), make_herald(self.loaded, key.mask)
        store = open_store(self.loaded.store, self.state, self.clock, witness, self._herald)
        key.take(store, self.settings, lambda: self.ids.new() + self.ids.new())
        return store

    def close(self) -> None:
        if not self._holds_a_lock():
            self.liveness.close()
        # Otherwise the sign of life stays until the process ends: then everybody sees that it is dead.
        if "telemetry" in self.__dict__:
            self.telemetry.close()
        if "breakers" in self.__dict__:
            self._leave_calls()
            self.breakers.close()
        self.ledger.close()

    def _holds_a_lock(self) -> bool:
        if "kernel" not in self.__dict__ or self.store is None:
            return False
        try:
            holders = [lock.holder for lock in self.store.locks()]
        except KfmError:
            return True
        return any(holder is not None and holder.worker_id == self.kernel.worker_id for holder in holders)

    # --- adapters, made when first needed --------------------------------------------

    @cached_property
    def policies(self) -> CedarPolicies:
        from kfm.policy.cedar import CedarPolicies

        return CedarPolicies(self.settings.policies, self.loaded.folder)

    @cached_property
    def objects(self) -> Objects:
        if self.settings.objects is not None:
            from kfm.objects.remote import RemoteObjects

            return RemoteObjects(self._bucket(self.settings.objects, self.settings.objects_options))
        from kfm.objects.local import LocalObjects

        return LocalObjects(self.files, f"{self.state}/objects", self.ids)

    @property
    def _collectable(self) -> LocalObjects:
        from kfm.objects.local import LocalObjects

        if not isinstance(self.objects, LocalObjects):
            raise UsageError(
                "Objects in a bucket are not collected.",
                remedy="Remove what is old with the bucket's own rules.",
            )
        return self.objects

    def _scratch(self) -> Objects:
        from kfm.objects.scratch import ScratchObjects

        return self._watched(ScratchObjects())

    def _watched(self, objects: Objects) -> Objects:
        """Objects that take in none of the configuration's secrets."""
        secrets = self.loaded.referenced_secrets()
        if not secrets:
            return objects
        from kfm.objects.watched import WatchedObjects, needles

        return WatchedObjects(objects, needles(secrets))

    def _tell(self, line: str) -> None:
        self.announce(self.loaded.discretion(line))

    def _discreet(self, text: str | None) -> str | None:
        """What a person gave us to keep, without secrets."""
        return text and self.loaded.discretion.said(text)

    def _upstream(self, source: Source, _window: Window) -> Upstream:
        from kfm.sources.registry import make_source

        made = make_source(source, self.settings, self._source_tools)
        if not self.loaded.discretion.redactor.secrets:
            return made
        from kfm.sources.discreet import DiscreetSource

        return DiscreetSource(made, self.loaded.discretion.hide)

    @cached_property
    def _source_tools(self) -> Tools:
        from kfm.http.client import HttpxClient
        from kfm.sources.registry import Tools

        return Tools(
            http=HttpxClient(),
            guard=self._guard,
            clock=self.clock,
            open_bucket=self._bucket,
            resolve_secret=self.loaded.secret,
            resolve_path=self.loaded.resolve,
            limits=self.settings.limits,
            shield=self._shielded,
        )

    def _shielded(self, source: Source, tools: Tools) -> Tools:
        from kfm.wiring.providers import shielded

        return shielded(source, tools, self.breakers, self.clock)

    @cached_property
    def breakers(self) -> SharedBreakers:
        """The circuits of all providers, shared through the ledger."""
        from kfm.recovery.breakers import Access, SharedBreakers

        another: Callable[[], LedgerReader] = self._own_store
        if self.read_only:
            another = partial(open_ledger, self.loaded.store, self.state, self.clock)
        return SharedBreakers(Access(self.ledger, self.store, another), self.clock)

    @cached_property
    def _guard(self) -> Guard:
        from kfm.calls.guard import guarded, retry_text

        def told(retrying: Retrying) -> None:
            self._tell(retry_text(retrying))
            if self._hearer is not None:
                self._hearer(retrying)

        return partial(
            guarded,
            clock=self.clock,
            rng=self.rng,
            timeout_ms=self.settings.limits.call_timeout_ms,
            on_retry=told,
        )

    def _bucket(self, address: str, options: Mapping[str, str]) -> Bucket:
        from kfm.objects.bucket import open_bucket

        resolved = {name: self.loaded.secret(value) for name, value in options.items()}
        return open_bucket(
            address,
            resolved,
            timeout_ms=self.settings.limits.call_timeout_ms,
            discreet=self.loaded.discretion,
        )

    def _shielded_target(self, target: Target, bucket: Bucket) -> Bucket:
        from kfm.wiring.providers import shielded_target

        return shielded_target(target, bucket, self.breakers, self.clock)

    @cached_property
    def projections(self) -> list[Projection]:
        from kfm.config import github
        from kfm.publish.projections.registry import Surroundings, build

        job = github()
        return build(
            self.settings.publish,
            Surroundings(
                root=self.loaded.folder,
                files=self.files,
                objects=self.objects,
                ids=self.ids,
                bucket=lambda address, options: (self._bucket(address, options), ""),
                shield=self._shielded_target,
                append=_append,
                github_output=job.output if job else None,
                github_summary=job.step_summary if job else None,
            ),
        )

    @cached_property
    def telemetry(self) -> Telemetry:
        """Spans and metrics on their way to a collector, where one is named. A dry-run sends nothing."""
        from kfm.config import otlp
        from kfm.telemetry.choice import choose

        named = otlp(self.settings.telemetry)
        if named is None or self.read_only:
            return choose(None)
        return choose(
            named.endpoint,
            headers={name: self.loaded.secret(value) for name, value in named.headers.items()},
            service=named.service,
            environment=self.settings.environment,
            instance=self.ids.new(),
            announce=lambda line: self.announce(line),
        )

    @cached_property
    def public_name(self) -> Callable[[str], str]:
        from kfm.telemetry.public_names import PublicNames

        return PublicNames(self.settings, self.ledger)

    @cached_property
    def kernel(self) -> Kernel:
        from kfm.engine.kernel import Kernel

        return Kernel(
            settings=self.settings,
            ledger=self.ledger,
            writer=self.store,
            clock=self.clock,
            ids=self.ids,
            files=self.files,
            objects=self._watched(self.objects),
            scratch=self._scratch,
            upstream=self._upstream,
            guard=self._guard,
            policies=self.policies,
            projections=self.projections,
            liveness=self.liveness,
            worker_id=self.ids.new(),
            progress=self.progress,
            read_project=self._read,
            load_pipeline=self._pipeline,
            runs_folder=f"{self.state}/runs",
            heart=None if self.read_only else ThreadHeart(self._own_store, self._tell),
            announce=self._tell,
            redact=self.loaded.discretion,
            meter=ProcessMeter(),
            telemetry=self.telemetry,
            rng=self.rng,
            providers=self.breakers,
            public_name=self.public_name,
            listen=self._listen,
            overheard=self._overheard,
            passing=self._passing,
            next_scheduled_ms=lambda run: self._timetable.next_run_ms(run),
        )

    @cached_property
    def _timetable(self) -> Timetable:
        from kfm.wiring.schedules import Timetable

        return Timetable(self.loaded, self.ledger, self.clock, self._tell)

    def signs(self) -> FarSigns:
        """Asks about what is far away as sources do, with the same patience and the same credentials."""
        from kfm.wiring.signs import FarSigns

        return FarSigns(
            lambda: self._source_tools.http,
            self._guard,
            lambda address: self._bucket(address, {}),
            self.ledger.branch_reader,
        )

    def _passing(self, objects: Objects, dry_run: bool) -> PassKernel:
        from kfm.wiring.passes import governed_kernel

        return governed_kernel(self, objects, dry_run=dry_run)

    def _overheard(self, by: Overhearing, left_ms: int) -> AbstractContextManager[None]:
        from kfm.wiring.providers import overheard

        return overheard(by, left_ms)

    def _listen(self, hearer: Callable[[Retrying], None] | None) -> None:
        self._hearer = hearer

    def _own_store(self) -> Store:
        return open_store(self.loaded.store, self.state, SystemClock(), herald=self._herald)

    def _read(self, path: str) -> bytes:
        with open(self.loaded.resolve(path), "rb") as file:
            return file.read()

    def _pipeline(self, reference: str) -> Callable[[Any], None] | Pipeline:
        from kfm.runs.loading import load_function

        self._share_calls()
        path, _, name = reference.rpartition(":")
        return load_function(self.loaded.resolve(path), name)

    def _share_calls(self) -> None:
        """A pipeline's own `kfm.call`s pass the same circuits as ours."""
        from kfm.wiring.providers import share_calls

        self._leave_calls()
        self._leave_calls = share_calls(self.breakers, self.clock, self.rng)


def _append(path: str, data: bytes) -> None:
    with open(path, "ab") as file:
        file.write(data)
