"""Everything that a run needs, chosen by the wiring."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from kfm.core.records import Run, Window
from kfm.core.redact import Discretion
from kfm.core.settings import Settings, Source
from kfm.ports import (
    Clock,
    Files,
    Guard,
    Heart,
    Ids,
    LedgerReader,
    Liveness,
    Meter,
    Objects,
    PolicyEngine,
    Progress,
    Projection,
    Providers,
    Retrying,
    Rng,
    Store,
    Telemetry,
)
from kfm.ports import Source as Upstream
from kfm.telemetry.off import Off

if TYPE_CHECKING:
    from kfm.calls.tried import FailedTry
    from kfm.engine.passes import PassKernel
    from kfm.publish.plan import Plan
    from kfm.runs.declare import Pipeline


class Unmetered:
    """Where nobody counts what work costs."""

    def cpu_us(self) -> int:
        return 0

    def package_uj(self) -> int | None:
        return None


class Midway:
    """No chance: every delay is its nominal one."""

    def unit(self) -> float:
        return 0.5


class Overhearing(Protocol):
    """Who keeps account of the calls that a pipeline makes by itself. Asked from any thread."""

    def heard(self, tried: FailedTry) -> None:
        """A try failed, or a call succeeded after failures."""

    def acted(self, call: str) -> None:
        """A call is being made that nobody may repeat."""


def _unheard(_by: Overhearing, _left_ms: int) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True)
class Kernel:
    settings: Settings
    ledger: LedgerReader
    clock: Clock
    ids: Ids
    files: Files
    objects: Objects
    scratch: Callable[[], Objects]
    upstream: Callable[[Source, Window], Upstream]
    guard: Guard  # the call tier, around each fetch
    policies: PolicyEngine
    projections: Sequence[Projection]
    liveness: Liveness
    worker_id: str
    progress: Progress
    read_project: Callable[[str], bytes]  # a file of the project, by its path in the configuration
    load_pipeline: Callable[[str], Callable[[Any], None] | Pipeline]
    runs_folder: str  # where the artifacts of runs go by default
    writer: Store | None = None  # None in a dry-run: there is nothing to write with
    heart: Heart | None = None
    announce: Callable[[str], None] = lambda _line: None
    redact: Discretion = field(default_factory=Discretion)  # what is kept or said passes it first
    meter: Meter = field(default_factory=Unmetered)
    telemetry: Telemetry = field(default_factory=Off)
    rng: Rng = field(default_factory=Midway)  # the jitter of retries
    providers: Providers | None = None  # None: nobody keeps account of who is left alone
    public_name: Callable[[str], str] = lambda dataset_id: dataset_id  # what a dataset is called in public
    # Who hears of tries that failed while upstream is being discovered; None: nobody any more.
    listen: Callable[[Callable[[Retrying], None] | None], None] = lambda _hearer: None
    # Around a pipeline: its own calls are heard, and have this long until the run's budget ends.
    overheard: Callable[[Overhearing, int], AbstractContextManager[None]] = _unheard
    # When the schedule begins its next run, with which what a failed one leaves is tried; None: no schedule.
    next_scheduled_ms: Callable[[Run], int | None] = lambda _run: None

    # Why the run is to stop, once somebody wants it to.
    cancelled: Callable[[], str | None] = lambda: None
    # The request that asks for the run, and the worker that has claimed it.
    claim: tuple[str, str] | None = None
    # What is about to be published, before it is; None: nobody asked for it to be kept.
    keep_plan: Callable[[Plan], None] | None = None

    # What the nodes of a pipeline run with, given where bytes go; None: there are no such pipelines here.
    passing: Callable[[Objects, bool], PassKernel] | None = None

    def pass_kernel(self, objects: Objects, *, dry_run: bool) -> PassKernel:
        assert self.passing is not None, "this kernel runs no pipelines of nodes"
        return self.passing(objects, dry_run)

    @property
    def store(self) -> Store:
        assert self.writer is not None, "a dry-run was about to write"
        return self.writer

    @property
    def lease_ms(self) -> int:
        return round(self.settings.lease.seconds * 1000)

    @property
    def heartbeat_ms(self) -> int:
        chosen = self.settings.lease.heartbeat_seconds
        return round(chosen * 1000) if chosen is not None else max(1, self.lease_ms // 3)
