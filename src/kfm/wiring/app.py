"""What the commands can ask for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from kfm.config import token as shown_token
from kfm.core.errors import PlanError
from kfm.core.settings import Source
from kfm.engine.requests import ProjectionReport, RunReport, RunRequest
from kfm.wiring.adapters import Adapters

if TYPE_CHECKING:
    from kfm.admission.subject import Subject
    from kfm.config import Loaded
    from kfm.core.breaker import Breaker
    from kfm.core.gates import GateDecision
    from kfm.core.records import Run, Switch
    from kfm.core.requests import UpdateRequest
    from kfm.core.roles import Identity, Role
    from kfm.core.schedule_coverage import Backfill
    from kfm.core.schedule_states import ScheduleState
    from kfm.core.schedules import Schedule
    from kfm.core.sealing import Seal
    from kfm.lineage.delivery import Delivered
    from kfm.policy.fixtures import FixtureResult
    from kfm.ports import Progress
    from kfm.publish.collect import Collected, Collection
    from kfm.publish.plan import Plan
    from kfm.wiring.incidents import HookPass


class App(Adapters):
    """What the commands talk to."""

    @cached_property
    def identity(self) -> Identity:
        """Who is asking, and what he may do."""
        return self.loaded.identity()

    @property
    def actor(self) -> str:
        """The name under which whatever is done now is recorded."""
        return self.identity.subject

    def run(self, request: RunRequest) -> RunReport:
        from kfm.engine.run import Updating

        return Updating(
            self.kernel,
            self.subject(request),
            force=request.force,
            artifacts_dir=request.artifacts_dir,
            plan=self._plan(request),
        ).run()

    def preview(self, request: RunRequest) -> RunReport:
        from kfm.engine.preview import preview

        return preview(
            self.kernel, self.subject(request), force=request.force, artifacts_dir=request.artifacts_dir
        )

    def _plan(self, request: RunRequest) -> Plan | None:
        from kfm.publish import plan

        if request.plan_path is None:
            return None
        try:
            with open(request.plan_path, "rb") as file:
                return plan.read(file.read(plan.PLAN_BYTES_MAX + 1))
        except OSError as error:
            raise PlanError(f"{request.plan_path}: {error.strerror or error}.") from None

    def subject(self, request: RunRequest) -> Subject:
        """What a request is about, by the configuration of now."""
        from kfm.admission.subject import describe
        from kfm.core.windows import resolve_window
        from kfm.runs.version import output_version
        from kfm.triggers.manual import manual_trigger

        source = self.settings.source(request.source_id)
        window = resolve_window(request.window_spec or source.window, source.time_zone, self.clock.now_ms())
        members = [self.settings.source(member) for member in source.members]
        trigger = manual_trigger(
            source,
            kind=request.trigger_type,
            actor=request.actor,
            claimed_actor=self._discreet(request.claimed_actor),
            rationale=self._discreet(request.rationale),
            ticket=self._discreet(request.ticket),
            correction=self._discreet(request.correction),
            message_id=request.message_id,
            request_uuid=request.request_uuid,
            envelope=request.envelope,
        )
        return describe(
            source,
            self.settings.dataset(source.dataset),
            window,
            output_version(source, members, self._read),
            trigger,
            self.settings.environment,
        )

    def admission(self, request: RunRequest) -> GateDecision:
        """Would the gates let this begin right now? Reads only."""
        from kfm.engine import gating

        return gating.at_admission(self.kernel, self.subject(request), dry_run=True)

    def address(self, source: Source) -> tuple[str, str, dict[str, str]]:
        """An HTTP source's address for its window now, as it goes out and as it may be shown; its headers."""
        from kfm.core.windows import resolve_window
        from kfm.sources.address import Address
        from kfm.sources.placing import place_fields

        window = resolve_window(source.window, source.time_zone, self.clock.now_ms())
        address = Address(source, self.loaded.secret)
        first = address.first(place_fields(source, window))
        return address.outgoing(first), address.shown(first), address.headers()

    def project(self, *, everything: bool = False) -> list[ProjectionReport]:
        """Bring the targets up to date with the heads, after ending what dead processes left."""
        from kfm.engine.projecting import project
        from kfm.recovery.sweep import sweep

        sweep(self.kernel.store, self.liveness, self._tell)
        return project(self.kernel, everything=everything)

    def export_runs(self, runs: Sequence[Run], path: str) -> None:
        """The ledger's runs as JSON Lines, Parquet or Feather, by the file's name."""
        from kfm.store.export import export_runs

        export_runs(runs, path)

    def evaluate_fixtures(self, path: str) -> list[FixtureResult]:
        """What the policies say of each fixture in a file, beside what it expects."""
        return self.policies.evaluate_fixtures(path)

    def plan_collection(self, grace_ms: int | None = None) -> Collection:
        """What `kfm gc` would remove."""
        from kfm.engine import collecting

        return collecting.plan(self.kernel, self._collectable, grace_ms)

    def collect(
        self, *, actor: str, rationale: str, grace_ms: int | None = None
    ) -> tuple[Collection, Collected]:
        from kfm.engine import collecting

        return collecting.carry_out(
            self.kernel,
            self._collectable,
            actor=actor,
            rationale=self.loaded.discretion.said(rationale),
            grace_ms=grace_ms,
        )

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
        from kfm.core.records import GovernanceEntry, Switch

        store = self.kernel.store
        rationale = self.loaded.discretion.said(rationale)
        switch = Switch(
            scope=scope, position=position, rationale=rationale, actor=actor, set_at_ms=store.now_ms()
        )
        entry = GovernanceEntry(
            kind="switch",
            subject=scope,
            actor=actor,
            recorded_at_ms=switch.set_at_ms,
            rationale=rationale,
            ticket=self._discreet(ticket),
            details={"position": position, "claimed_actor": self._discreet(claimed_actor)},
        )
        store.set_switch(switch, entry)
        return switch

    def reset_breaker(self, provider: str, **why: Any) -> tuple[Breaker, Breaker]:
        """Close a provider's circuit because a person says so: what it was, and what it is now."""
        from kfm.wiring.providers import reset_breaker

        return reset_breaker(self.kernel.store, provider, self._discreet, **why)

    # --- for those who ask over HTTP ---------------------------------------------------

    def set_schedule_paused(self, schedule: Schedule, paused: bool, **why: Any) -> tuple[ScheduleState, bool]:
        """Pause or resume a schedule: its state now, and whether that changed anything."""
        from kfm.wiring.schedule_changes import set_paused

        return set_paused(self, schedule, paused, **why)

    def plan_backfill(self, schedule: Schedule, start_ms: int, end_ms: int, **how: Any) -> list[Backfill]:
        """The instants of a span that can be made up for. Reads only."""
        from kfm.wiring.schedule_changes import plan_backfill

        return plan_backfill(self, schedule, start_ms, end_ms, **how)

    def make_backfill(
        self, schedule: Schedule, planned: Sequence[Backfill], **why: Any
    ) -> list[UpdateRequest]:
        """Requests for those instants that have none; the new ones."""
        from kfm.wiring.schedule_changes import make_backfill

        return make_backfill(self, schedule, planned, **why)

    # --- evidence ----------------------------------------------------------------------

    def deliver(self) -> Delivered:
        """Hand over the events that wait, for a bounded time."""
        from kfm.wiring.evidence import deliver

        return deliver(self)

    def tell_incidents(self, *, on_request: bool = False) -> list[HookPass]:
        """Hand the changes of incidents to the hooks, for a bounded time each."""
        from kfm.wiring.incidents import deliver_incidents

        return deliver_incidents(self, on_request=on_request)

    def seal(self, *, actor: str, minimum: int = 1, stream: str = "outbox") -> list[Seal]:
        """Seal the rows of a stream that came since its last seal, if there are that many."""
        from kfm.audit.seals import seal_all

        return seal_all(self.kernel.store, actor, minimum, stream)

    def provenance(self, wanted: str, *, internal: bool = False) -> bytes:
        """The PROV-O document of a run, or of a call that never became one."""
        from kfm.wiring.evidence import provenance

        return provenance(self, wanted, internal=internal)

    def leave_provenance(self, report: RunReport) -> None:
        from kfm.wiring.evidence import leave_provenance

        if report.run is not None and report.artifacts_dir is not None:
            leave_provenance(self, report.run.run_id, report.artifacts_dir)


@contextmanager
def open_app(
    loaded: Loaded,
    *,
    read_only: bool = False,
    progress: Progress | None = None,
    role: Role | None = None,
    what: str = "This",
) -> Iterator[App]:
    """The application, for somebody who may: whatever can change something needs a role that says so."""
    needed: Role = role or ("read" if read_only else "operate")
    if loaded.settings.people and (needed != "read" or shown_token() is not None):
        from kfm.wiring.access import require

        require(loaded, needed, what, lambda: App(loaded, read_only=False, progress=None))
    app = App(loaded, read_only=read_only, progress=progress)
    try:
        yield app
    finally:
        app.close()
