"""Everything that a run needs, chosen by the wiring."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kfm.core.records import Window
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
    load_pipeline: Callable[[str], Callable[[Any], None]]
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
