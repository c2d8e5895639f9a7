"""The kernel of runs: the adapters that they use, chosen by `kfm.app`; requests and reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from kfm.model.errors import KfmError
from kfm.model.next_steps import NextStep
from kfm.model.records import Check, GateResult, Run, TriggerType, Window
from kfm.model.redaction import Discretion
from kfm.model.settings import DatasetSettings, Settings, SourceSettings
from kfm.model.targets import ReachedTarget, reached
from kfm.periodic import GRACE_MS
from kfm.ports import (
    Clock,
    Files,
    Guard,
    Heartbeat,
    Ids,
    Liveness,
    Meter,
    Objects,
    PolicyEngine,
    Progress,
    Projection,
    Retrying,
    Rng,
    Telemetry,
)
from kfm.ports import Source as Upstream
from kfm.telemetry.exporter import Off

if TYPE_CHECKING:
    from kfm.calls.breakers import SharedBreakers
    from kfm.db.ledger import Ledger
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.admission import StartDecision
    from kfm.pipelines.declaration import Pipeline
    from kfm.pipelines.options import PipelineKernel
    from kfm.runs.observers import OwnCalls


class Unmetered:
    """A meter that measures nothing."""

    def cpu_us(self) -> int:
        return 0

    def package_uj(self) -> int | None:
        return None


class Midway:
    """Randomness without chance: every delay is its nominal one."""

    def unit(self) -> float:
        return 0.5


def _unobserved(_by: OwnCalls, _left_ms: int) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True)
class Kernel:
    """The adapters of runs; what the simulator replaces is a callable here, not an import."""

    settings: Settings
    ledger: LedgerReader
    clock: Clock
    ids: Ids
    files: Files
    objects: Objects
    scratch: Callable[[], Objects]
    upstream: Callable[[SourceSettings, Window], Upstream]
    guard: Guard  # the call tier, around each fetch
    policies: PolicyEngine
    projections: Sequence[Projection]
    liveness: Liveness
    worker_id: str
    progress: Progress
    read_project: Callable[[str], bytes]  # a file of the project, by its path in the configuration
    load_pipeline: Callable[[str], Callable[[Any], None] | Pipeline]
    runs_folder: str  # where the artifacts of runs go by default
    writer: Ledger | None = None  # None in a dry-run: there is nothing to write with
    heartbeat: Heartbeat | None = None
    redact: Discretion = field(default_factory=Discretion)  # what is kept or said passes it first
    meter: Meter = field(default_factory=Unmetered)
    telemetry: Telemetry = field(default_factory=Off)
    rng: Rng = field(default_factory=Midway)  # the jitter of retries
    providers: SharedBreakers | None = None  # None: there are no circuits
    public_name: Callable[[str], str] = lambda dataset_id: dataset_id  # what a dataset is called in public
    # Sets what is called for each try that failed while upstream is being discovered; None: nothing.
    observe_retries: Callable[[Callable[[Retrying], None] | None], None] = lambda _on_retry: None
    # Around a pipeline: its own calls are observed, and have this long until the run's budget ends.
    observe_calls: Callable[[OwnCalls, int], AbstractContextManager[None]] = _unobserved
    # Makes it durable that a run is about to act outside, which must not be repeated; from any thread.
    intend: Callable[[Run, str], None] = lambda _run, _name: None
    # When the schedule begins its next run, with which what a failed one leaves is tried; None: no schedule.
    next_scheduled_ms: Callable[[Run], int | None] = lambda _run: None

    # The settings as the configuration says now; None: it does not change.
    settings_now: Callable[[], Settings] | None = None
    grace_ms: int = GRACE_MS  # in which a function has to end after a stop
    # What the nodes of a pipeline run with, given where bytes go; None: there are no such pipelines here.
    make_pipeline_kernel: Callable[[Objects, bool], PipelineKernel] | None = None

    def pipeline_kernel(self, objects: Objects, *, dry_run: bool) -> PipelineKernel:
        assert self.make_pipeline_kernel is not None, "this kernel runs no pipelines of nodes"
        return self.make_pipeline_kernel(objects, dry_run)

    def dataset_now(self, dataset_id: str) -> DatasetSettings | None:
        """The dataset as it is declared now, with its rights; None: it is declared no more."""
        return self._now().declared(dataset_id)

    def settings_as_of_now(self) -> Settings:
        """The settings as the configuration says now."""
        return self._now()

    def reached(self, dataset: DatasetSettings) -> tuple[ReachedTarget, ...]:
        """The targets that take this dataset: by the settings that this process began with, and by those of
        now."""
        return reached(self.settings, self._now(), dataset)

    def _now(self) -> Settings:
        return self.settings if self.settings_now is None else self.settings_now()

    @property
    def store(self) -> Ledger:
        assert self.writer is not None, "a dry-run was about to write"
        return self.writer

    @property
    def lease_ms(self) -> int:
        return round(self.settings.lease.seconds * 1000)

    def run_ms(self, source: SourceSettings) -> int:
        """How long one attempt of this source may take."""
        return (source.run_seconds or self.settings.limits.run_seconds) * 1000

    @property
    def heartbeat_ms(self) -> int:
        chosen = self.settings.lease.heartbeat_seconds
        return round(chosen * 1000) if chosen is not None else max(1, self.lease_ms // 3)


Outcome = Literal["success", "noop", "failed", "refused", "busy", "planned"]


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to bring one source up to date."""

    source_id: str
    window_spec: str | None = None  # None: the source's own
    trigger_type: TriggerType = "manual"
    dry_run: bool = False
    by_person: bool = False  # an interactive terminal, or a declared person's token
    force: bool = False
    correction: str | None = None
    artifacts_dir: str | None = None
    actor: str = "unknown"
    claimed_actor: str | None = None
    rationale: str | None = None
    ticket: str | None = None
    plan_path: str | None = None
    message_id: str | None = None  # upstream-event: what it is known by
    request_uuid: str | None = None  # webhook: likewise
    envelope: dict[str, str] = {}  # webhook: what is told of it


class ProjectionReport(msgspec.Struct, frozen=True, kw_only=True):
    """The update of one target: the version that it shows now, or its error."""

    dataset_id: str
    target: str
    sequence: int | None
    error: dict[str, Any] | None = None


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one request."""

    outcome: Outcome
    word: str  # published | unchanged | planned | blocked | failed | busy: the word that people read
    source_id: str
    dataset_id: str
    window_start_ms: int
    window_end_ms: int
    invocation_id: str | None
    reason: str
    run: Run | None = None
    error: KfmError | None = None
    next_step: NextStep | None = None  # what a person does next about the run
    advice: str | None = None  # after a failure: what trying again means
    gates: tuple[GateResult, ...] = ()
    failed_checks: tuple[Check, ...] = ()  # of the contract, where the contract's gate refused
    checks_made: int = 0  # by the contract, then
    changes: tuple[Any, ...] = ()  # kfm.publish.manifest.VersionChange
    version_id: str | None = None
    sequence: int | None = None
    projections: tuple[ProjectionReport, ...] = ()
    artifacts_dir: str | None = None
    plan: Any = None  # kfm.runs.plan.RunPlan
    found: Literal["data", "empty", "absent"] = "data"  # at upstream, where a plan was made
    prepared: Any = None  # kfm.runs.preparation.PreparedVersion, where a plan was made
    decision: StartDecision | None = None  # where no attempt was made
    duration_ms: int = 0
