"""The application: the one composition root, from settings to adapters and use cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

from kfm.config.loader import require_role
from kfm.config.state_folder import StateFolder, open_bucket
from kfm.db.connection import closed_if_it_fails
from kfm.model.completeness import expectation_rules
from kfm.model.errors import PlanError
from kfm.model.feeds import ShippedFeed, feed_rules
from kfm.model.records import Window
from kfm.model.roles import Identity, Role
from kfm.model.settings import SourceSettings
from kfm.system import ProcessMeter, SystemClock

if TYPE_CHECKING:
    from kfm.calls.breakers import SharedBreakers
    from kfm.config.loader import Loaded
    from kfm.db.ledger import Ledger
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.gates import GateDecision
    from kfm.model.incidents import IncidentRenderer
    from kfm.model.records import Run, Switch
    from kfm.model.requests import RequestPart
    from kfm.objects.http_client import HttpxClient
    from kfm.pipelines.declaration import Pipeline
    from kfm.pipelines.inputs import RemoteInputVersions
    from kfm.pipelines.options import PipelineKernel
    from kfm.policy.cedar import CedarPolicies
    from kfm.ports import (
        Branches,
        Bucket,
        Clock,
        CollectableObjects,
        Emitter,
        Guard,
        Objects,
        Progress,
        Projection,
        Retrying,
        Telemetry,
    )
    from kfm.ports import Source as Upstream
    from kfm.runs.kernel import Kernel, ProjectionReport, RunReport, RunRequest
    from kfm.runs.plan import RunPlan
    from kfm.runs.subjects import RunSubject, Start
    from kfm.service.incidents import HookPass
    from kfm.service.scheduler import Timetable
    from kfm.sources.source_kinds import Tools
    from kfm.storage.artifacts import ArtifactFolders
    from kfm.storage.retention import RetentionPass


class App:
    """The application of one configuration: its adapters, made when first needed, and its use cases.

    A use case of one feature is a function of that feature that takes the application.
    """

    def __init__(
        self,
        loaded: Loaded,
        *,
        read_only: bool,
        progress: Progress | None,
        upgrading: Callable[[], Progress] | None = None,
    ) -> None:
        self.loaded = loaded
        self.settings = loaded.settings
        self.read_only = read_only
        self.state_folder = StateFolder.of(loaded)
        self.state_folder.upgrading = upgrading
        self.state = self.state_folder.path
        self.clock: Clock = self.state_folder.clock
        self.ids = self.state_folder.ids
        self.files = self.state_folder.files
        self.liveness = self.state_folder.liveness
        self.rng = self.state_folder.rng
        self.progress = progress or Quiet()
        self._on_retry: Callable[[Retrying], None] | None = None
        self._leave_calls: Callable[[], None] = lambda: None
        self._emitter: Emitter | None = None
        self._renderer: IncidentRenderer | None = None
        if not read_only:
            self._prepare_logging()
        self.store: Ledger | None = None if read_only else self._emitting_store()
        self.ledger: LedgerReader = self.store or self.state_folder.open_reader()

    def _prepare_logging(self) -> None:
        from kfm.telemetry.log_records import install  # here: `kfm status` starts without logging

        install(self.loaded.discretion)

    def _emitting_store(self) -> Ledger:
        """The ledger, with a lineage emitter: events are written with the changes that they report."""
        from kfm.lineage.collectors import MaskKey, make_emitter
        from kfm.service.incidents import make_incident_renderer

        key = MaskKey()
        self._emitter = make_emitter(self.loaded, key)
        self._renderer = make_incident_renderer(self.loaded, key.mask)
        store = self.state_folder.open_ledger(self._emitter, self._renderer)
        with closed_if_it_fails(store):
            key.take(store, self.settings, lambda: self.ids.new() + self.ids.new())
            store.windows().expect([*expectation_rules(self.settings), *feed_rules(self.settings)])
        return store

    def close(self) -> None:
        if "worker_id" in self.__dict__ and self.store is not None:
            self.state_folder.release(self.store, self.worker_id)
        else:
            self.liveness.close()
        if "telemetry" in self.__dict__:
            self.telemetry.close()
        if "breakers" in self.__dict__:
            self._leave_calls()
            self.breakers.close()
        self.ledger.close()

    @property
    def writer(self) -> Ledger:
        """The ledger, for changes."""
        assert self.store is not None, "a dry-run was about to write"
        return self.store

    def shipped_feed(self, name: str) -> ShippedFeed:
        """What comes with an announced dataset: its cadence, its buckets."""
        from kfm.nodd.dataset_registry import shipped_feed  # here: projects without feeds load no grammars

        return shipped_feed(name)

    @cached_property
    def worker_id(self) -> str:
        """The id of this application in leases and claims."""
        return self.ids.new()

    @cached_property
    def identity(self) -> Identity:
        """The caller, and the roles that it has."""
        return self.loaded.identity()

    @property
    def actor(self) -> str:
        """The name under which changes are recorded."""
        return self.identity.subject

    def another(self, *, read_only: bool = False, what: str = "This") -> AbstractContextManager[App]:
        """Another application of the same configuration: a connection belongs to one thread."""
        return open_app(self.loaded, read_only=read_only, what=what)

    # --- use cases -------------------------------------------------------------------

    def run(self, request: RunRequest) -> RunReport:
        from kfm.runs.executor import RunExecutor

        return RunExecutor(self.kernel, self.subject(request), self._start(request)).run()

    def preview(self, request: RunRequest) -> RunReport:
        from msgspec.structs import replace

        from kfm.runs.gates import asks_approval
        from kfm.runs.preview import preview

        subject, start = self.subject(request), self._start(request)
        # Whom an approval is asked of may look before it is given.
        may_look = self.identity.declared and "approve" in self.identity.roles
        assume = may_look and asks_approval(self.kernel, subject, None)
        return preview(self.kernel, subject, replace(start, assume=assume))

    def _start(self, request: RunRequest) -> Start:
        from kfm.runs.subjects import Start

        return Start(
            by_person=request.by_person,
            force=request.force,
            artifacts_dir=request.artifacts_dir,
            plan=self._plan(request),
        )

    def _plan(self, request: RunRequest) -> RunPlan | None:
        from kfm.runs import plan

        if request.plan_path is None:
            return None
        try:
            with open(request.plan_path, "rb") as file:
                return plan.read(file.read(plan.PLAN_BYTES_MAX + 1))
        except OSError as error:
            raise PlanError(f"{request.plan_path}: {error.strerror or error}.") from None

    def subject(self, request: RunRequest) -> RunSubject:
        """What a request is about, by the configuration of now."""
        from kfm.model.keys import make_trigger
        from kfm.model.windows import asked_window
        from kfm.runs.subjects import describe
        from kfm.runs.transform import output_version

        source = self.settings.source(request.source_id)
        window = asked_window(request.window_spec, source.window, source.time_zone, self.ledger.now_ms())
        members = [self.settings.source(member) for member in source.members]
        trigger = make_trigger(
            source,
            kind=request.trigger_type,
            actor=request.actor,
            claimed_actor=self._redacted(request.claimed_actor),
            rationale=self._redacted(request.rationale),
            ticket=self._redacted(request.ticket),
            correction=self._redacted(request.correction),
            message_id=request.message_id,
            request_uuid=request.request_uuid,
            envelope=request.envelope,
        )
        return describe(
            source,
            # One that is declared no more is refused by the gates, by its name.
            self.loaded.current().declared(source.dataset) or self.settings.dataset(source.dataset),
            window,
            output_version(source, members, self._read),
            trigger,
            self.settings.environment,
        )

    def _redacted(self, text: str | None) -> str | None:
        return text and self.loaded.discretion.said(text)

    def admission(self, request: RunRequest) -> GateDecision:
        """Would the gates let this begin right now? Reads only."""
        from kfm.runs.gates import at_admission

        return at_admission(self.kernel, self.subject(request), dry_run=True)

    def ask_address(self, source: SourceSettings, timeout_ms: int) -> tuple[str, int]:
        """Ask an HTTP source's address for its window now with HEAD, as a run would: the address as it may be
        shown, and the status."""
        from kfm.model.windows import resolve_window
        from kfm.sources.http_address import Address
        from kfm.sources.placement import place_fields

        window = resolve_window(source.window, source.time_zone, self.ledger.now_ms())
        address = Address(source, self.loaded.secret)
        first = address.first(place_fields(source, window))
        shown = address.shown(first)
        with self.http.open(
            "HEAD",
            address.outgoing(first),
            address.headers(),
            timeout_ms,
            shown=shown,
            secrets=address.secrets(),
            allow=source.allow,
        ) as answer:
            return shown, answer.status

    def project(self, dataset_id: str | None = None, *, everything: bool = False) -> list[ProjectionReport]:
        """Bring the targets up to date with the heads, after ending what dead processes left."""
        from kfm.runs.outcome import sweep
        from kfm.runs.target_updates import project

        sweep(self.writer, self.liveness)
        return project(self.kernel, dataset_id, everything=everything)

    def set_switch(
        self,
        scope: str,
        position: Literal["running", "paused", "stopped"],
        *,
        rationale: str,
        actor: str,
        claimed_actor: str | None = None,
        ticket: str | None = None,
    ) -> Switch:
        from kfm.model.records import Switch, governance_entry, justified

        store = self.writer
        by = justified(self.loaded.discretion.said, actor, rationale, ticket, claimed_actor)
        switch = Switch(
            scope=scope,
            position=position,
            rationale=by.rationale or "",
            actor=actor,
            set_at_ms=store.now_ms(),
        )
        entry = governance_entry("switch", scope, switch.set_at_ms, by, position=position)
        store.set_switch(switch, entry)
        return switch

    def deliver_incidents(self) -> list[HookPass]:
        """Send the changes of incidents to the hooks; here for workers, which are below the service."""
        from kfm.service.incidents import deliver_incidents

        return deliver_incidents(self)

    def mark_overdue(self) -> int:
        """Look for expected data that has not come; here for workers, which are below the service."""
        from kfm.service.overdue import mark_overdue

        return mark_overdue(self)

    def dispatch_due(self, part: RequestPart, **more: Any) -> int:
        """Work off the requests that are due; here for workers, which are below the service."""
        from kfm.service.runner import dispatch_due

        return dispatch_due(self, part, **more)

    # --- adapters, made when first needed --------------------------------------------

    @cached_property
    def policies(self) -> CedarPolicies:
        from kfm.policy.cedar import CedarPolicies

        return CedarPolicies(self.settings.policies, self.loaded.folder)

    @cached_property
    def objects(self) -> CollectableObjects:
        return self.state_folder.objects(self.loaded)

    @property
    def artifact_folders(self) -> ArtifactFolders:
        from kfm.storage.artifacts import ArtifactFolders

        return ArtifactFolders(f"{self.state}/runs", self.ledger)

    def retention_pass(self, rationale: str | None = None, *, again: bool = False) -> RetentionPass:
        """One pass over old rows of the ledger, by a person with a rationale, or by kfm itself."""
        from kfm.model.records import Justification
        from kfm.storage.retention import RetentionPass

        assert self.store is not None
        self.liveness.claim(self.worker_id)
        return RetentionPass(
            self.store,
            self.settings.retention,
            worker_id=self.worker_id,
            is_dead=self.liveness.is_dead,
            by=Justification(actor=self.actor, rationale=rationale),
            folders=self.artifact_folders,
            again=again,
        )

    @cached_property
    def breakers(self) -> SharedBreakers:
        """The circuits of all providers, shared through the ledger."""
        from kfm.calls.breakers import BreakerAccess, SharedBreakers
        from kfm.model.breaker import limits_of

        another: Callable[[], LedgerReader] = self._open_own_ledger
        if self.read_only:
            another = self.state_folder.open_reader
        access = BreakerAccess(self.ledger, self.store, another)
        return SharedBreakers(
            access, self.clock, limits=lambda provider: limits_of(provider, self.settings.providers)
        )

    def try_bucket(self, address: str, options: Mapping[str, str], timeout_ms: int) -> None:
        """Ask a bucket for the first entry of its list: raises where that can't be done."""
        next(iter(self._bucket(address, options, timeout_ms).list("")), None)

    def _bucket(self, address: str, options: Mapping[str, str], timeout_ms: int | None = None) -> Bucket:
        return open_bucket(self.loaded, address, options, timeout_ms)

    @cached_property
    def projections(self) -> list[Projection]:
        from kfm.config.loader import github
        from kfm.publish.targets.target_kinds import TargetParts, build
        from kfm.runs.provider_breakers import call_target, guard_target

        job = github()
        return build(
            self.settings.publish,
            TargetParts(
                root=self.loaded.folder,
                files=self.files,
                objects=self.objects,
                ids=self.ids,
                bucket=lambda address, options: (self._bucket(address, options), ""),
                circuit_guard=lambda target, bucket: guard_target(target, bucket, self.breakers, self.clock),
                append=_append,
                github_output=job.output if job else None,
                github_summary=job.step_summary if job else None,
                branches=self._branches,
                secret=self.loaded.secret,
                clock=self.clock,
                progress=self.progress,
                call=lambda target, work: call_target(target, work, self.breakers, self.clock),
            ),
        )

    def _branches(self) -> Branches:
        from kfm.runs.branch_merges import branches

        return branches(self)

    @cached_property
    def telemetry(self) -> Telemetry:
        """Spans and metrics on their way to a collector, where one is named. A dry-run sends nothing."""
        from kfm.telemetry.exporter import Off, configured

        return Off() if self.read_only else configured(self.loaded, self.ids.new)

    @cached_property
    def public_name(self) -> Callable[[str], str]:
        from kfm.telemetry.exporter import PublicNames

        return PublicNames(self.settings, self.ledger)

    @cached_property
    def _timetable(self) -> Timetable:
        from kfm.service.scheduler import Timetable

        return Timetable(self.loaded, self.ledger)

    def input_versions(self) -> RemoteInputVersions:
        """Versions of remote inputs, asked for as sources do: the same retries, circuits and credentials."""
        from kfm.calls.guarded_clients import CircuitGuard
        from kfm.pipelines.inputs import RemoteInputVersions

        return RemoteInputVersions(
            lambda: self._source_tools.http,
            self._guard,
            lambda address: self._bucket(address, {}),
            self.ledger.branch_reader,
            lambda provider: CircuitGuard(self.breakers.circuit(provider), self.clock),
            self.clock.now_ms,
        )

    def _read(self, path: str) -> bytes:
        with open(self.loaded.resolve(path), "rb") as file:
            return file.read()

    def _watched(self, objects: Objects) -> Objects:
        """Objects that refuse bytes with a secret of the configuration."""
        secrets = self.loaded.referenced_secrets()
        if not secrets:
            return objects
        from kfm.objects.secret_scan import WatchedObjects, needles

        return WatchedObjects(objects, needles(secrets))

    # --- sources: everything around their bytes --------------------------------------

    def _upstream(self, source: SourceSettings, _window: Window) -> Upstream:
        """A source, with every layer that its bytes pass. From the caller to the network:

        1. `RedactedSource`, where secrets are configured: names and errors leave it without them.
        2. The source of its kind: listing, paging, placement, limits.
        3. The retry guard, `calls.guard.guarded`: each request is tried again by the call policy. Downloads
           pass `RecordedNodes.guard` instead, which also records each try as evidence of the run.
        4. The circuit guard, `GuardedHttp` or `GuardedBucket`: no request while the provider's circuit is
           open; each result counts.
        5. The client: `HttpxClient`, or the bucket of `objects.bucket_client`.

        What is fetched is then staged in `WatchedObjects`, which refuses bytes that hold a secret of the
        configuration, around the object store itself.
        """
        from kfm.sources.source_kinds import make_source

        made = make_source(source, self.settings, self._source_tools)
        if not self.loaded.discretion.redactor.secrets or source.kind == "dataset":
            return made  # names in our own versions were redacted when they were published
        from kfm.sources.source_kinds import RedactedSource

        return RedactedSource(made, self.loaded.discretion.hide)

    @cached_property
    def http(self) -> HttpxClient:
        from kfm.objects.http_client import HttpxClient

        return HttpxClient()

    @cached_property
    def _source_tools(self) -> Tools:
        from kfm.runs.provider_breakers import guard_tools
        from kfm.sources.source_kinds import Tools

        return Tools(
            http=self.http,
            guard=self._guard,
            clock=self.clock,
            open_bucket=self._bucket,
            resolve_secret=self.loaded.secret,
            resolve_path=self.loaded.resolve,
            limits=self.settings.limits,
            head=self.ledger.head,
            objects=lambda: self.objects,
            public_name=lambda dataset_id: self.public_name(dataset_id),
            circuit_guard=lambda source, tools: guard_tools(source, tools, self.breakers, self.clock),
        )

    @cached_property
    def _guard(self) -> Guard:
        import logging

        from kfm.calls.guard import guarded, retry_fields, retry_text

        logger = logging.getLogger(__name__)

        def retried(retrying: Retrying) -> None:
            logger.info("%s", retry_text(retrying), extra=retry_fields(retrying))
            if self._on_retry is not None:
                self._on_retry(retrying)

        return partial(
            guarded,
            clock=self.clock,
            rng=self.rng,
            timeout_ms=self.settings.limits.call_timeout_ms,
            on_retry=retried,
        )

    # --- the kernel ------------------------------------------------------------------

    @cached_property
    def kernel(self) -> Kernel:
        from kfm.objects.scratch import ScratchObjects
        from kfm.periodic import LeaseHeartbeat
        from kfm.runs.kernel import Kernel
        from kfm.runs.provider_breakers import observe_calls

        self._prepare_logging()
        return Kernel(
            settings=self.settings,
            ledger=self.ledger,
            writer=self.store,
            clock=self.clock,
            ids=self.ids,
            files=self.files,
            objects=self._watched(self.objects),
            scratch=lambda: self._watched(ScratchObjects()),
            upstream=self._upstream,
            guard=self._guard,
            policies=self.policies,
            projections=self.projections,
            liveness=self.liveness,
            worker_id=self.worker_id,
            progress=self.progress,
            read_project=self._read,
            load_pipeline=self._load_pipeline,
            runs_folder=f"{self.state}/runs",
            heartbeat=None if self.read_only else LeaseHeartbeat(self._open_for_renewals),
            redact=self.loaded.discretion,
            meter=ProcessMeter(),
            telemetry=self.telemetry,
            rng=self.rng,
            providers=self.breakers,
            public_name=self.public_name,
            observe_retries=self._observe_retries,
            observe_calls=observe_calls,
            intend=self._intend,
            make_pipeline_kernel=self._pipeline_kernel,
            next_scheduled_ms=lambda run: self._timetable.next_run_ms(run),
            settings_now=self.loaded.current,
        )

    def _intend(self, run: Run, name: str) -> None:
        """From whichever thread: with a store of its own."""
        from kfm.model.errors import LostLease

        ledger = self._open_own_ledger()
        try:
            if not ledger.intend(run, name):
                raise LostLease(f"Run {run.run_id} has passed to another.")
        finally:
            ledger.close()

    def _pipeline_kernel(self, objects: Objects, dry_run: bool) -> PipelineKernel:
        from kfm.pipelines.project import governed_kernel

        return governed_kernel(self, objects, dry_run=dry_run)

    def _observe_retries(self, on_retry: Callable[[Retrying], None] | None) -> None:
        self._on_retry = on_retry

    def _load_pipeline(self, reference: str) -> Callable[[Any], None] | Pipeline:
        from kfm.runs.provider_breakers import share_calls
        from kfm.runs.transform import load_function

        # A pipeline's own calls pass the same circuits as ours.
        self._leave_calls()
        self._leave_calls = share_calls(self.breakers, self.clock, self.rng)
        path, _, name = reference.rpartition(":")
        return load_function(self.loaded.resolve(path), name)

    def _open_own_ledger(self) -> Ledger:
        """The ledger once more, for another thread."""
        return self.state_folder.open_ledger(self._emitter, self._renderer)

    def _open_for_renewals(self) -> Ledger:
        return self.state_folder.open_ledger(self._emitter, self._renderer, urgent=True)


@contextmanager
def open_app(
    loaded: Loaded,
    *,
    read_only: bool = False,
    progress: Progress | None = None,
    upgrading: Callable[[], Progress] | None = None,
    role: Role | None = None,
    what: str = "This",
) -> Iterator[App]:
    """The application, for a caller that has the role; `operate` by default, `read` where it only reads."""
    require_role(loaded, role or ("read" if read_only else "operate"), what, SystemClock())
    app = App(loaded, read_only=read_only, progress=progress, upgrading=upgrading)
    try:
        yield app
    finally:
        app.close()


class Quiet:
    """Progress that is shown nowhere."""

    def phase(self, name: str, total: int | None = None) -> None: ...
    def advance(self, amount: int, note: str = "") -> None: ...
    def done(self) -> None: ...


def _append(path: str, data: bytes) -> None:
    with open(path, "ab") as file:
        file.write(data)
