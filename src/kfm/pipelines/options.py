"""What a pass is asked for, what it works with, and what it reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import field

from kfm.model.errors import KfmError
from kfm.model.records import NodeOutcome
from kfm.model.run_state import NO_OUTPUTS, Parent, PassState
from kfm.model.settings import EnergyModel
from kfm.telemetry.exporter import Off

if TYPE_CHECKING:
    from kfm.lineage.pipeline_emitter import PipelineEmitter
    from kfm.pipelines.workers import Workers
    from kfm.ports import (
        Clock,
        Heart,
        Liveness,
        Meter,
        Objects,
        Passes,
        RunStates,
        Signs,
        Telemetry,
    )
    from kfm.ports import ProjectFiles as Files


class PassKernel(msgspec.Struct, frozen=True, eq=False):
    """Everything that a pass needs, chosen by the wiring."""

    states: RunStates
    passes: Passes
    objects: Objects
    object_size: Callable[[str], int | None]  # of an object by its sha256; None if it is not there
    files: Files
    signs: Signs
    clock: Clock
    liveness: Liveness
    worker_id: str
    workers: Callable[[int], Workers]
    actor: str
    lease_ms: int = 60_000
    heart: Heart | None = None
    redact: Callable[[str], str] = lambda text: text
    on_node: Callable[[NodeReport], None] = lambda _report: None
    emitter: PipelineEmitter | None = None
    telemetry: Telemetry = field(default_factory=Off)
    public_name: Callable[[str], str] = str  # of nodes and pipelines, in what anybody may read
    meter: Meter | None = None
    energy: EnergyModel = field(default_factory=EnergyModel)


class PipelineOptions(NamedTuple):
    """How a pass was asked for."""

    run_id: str
    pipeline_id: str
    branch: str
    scope: str  # the lock
    from_branch: str | None = None  # where the branch begins, if it is new
    fence: int | None = None  # the lock that a governed run holds already
    jobs: int = 4
    keep_going: bool = False
    force: Collection[str] = ()  # run these in any case
    only: Collection[str] = ()  # these, and what they read from; empty: all
    fork_of: str | None = None  # take what that run made, …
    fork_from: str | None = None  # … but run this node and all that reads from it
    verify: bool = False  # read files again, whatever their times say
    parent: Parent | None = None  # the governed run that it is a part of


class NodeReport(NamedTuple):
    """What became of one node."""

    id: str
    outcome: NodeOutcome | None  # None: it did not run, since something before it did not succeed
    reason: str
    inputs_hash: str = ""
    made_by: str | None = None
    outputs: str = NO_OUTPUTS
    error: KfmError | None = None
    duration_ms: int = 0
    ran: bool = False


_OUTCOME_AND_RAN = attrgetter("outcome", "ran")


class PassReport(msgspec.Struct, eq=False):
    """What became of a pass."""

    run_id: str
    pipeline_id: str
    branch: str
    state: PassState = "running"
    attempt: int = 1
    nodes: dict[str, NodeReport] = field(default_factory=dict)
    commit: str | None = None
    error: KfmError | None = None

    @property
    def counts(self) -> dict[str, int]:
        counts = {"success": 0, "skipped": 0, "failed": 0, "partial": 0, "blocked": 0, "done": 0}
        for (outcome, ran), number in Counter(map(_OUTCOME_AND_RAN, self.nodes.values())).items():
            if outcome is None:
                counts["blocked"] += number
            elif ran or outcome == "skipped":
                counts[outcome] += number
            else:
                counts["done"] += number
        return counts
