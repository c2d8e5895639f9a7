"""Options, dependencies and report of a pipeline run."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypedDict

import msgspec
from msgspec import field

from kfm.model.errors import KfmError
from kfm.model.records import NodeOutcome
from kfm.model.run_state import NO_OUTPUTS, Parent, PassState
from kfm.model.settings import EnergyModel
from kfm.periodic import GRACE_MS
from kfm.telemetry.exporter import Off

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader
    from kfm.lineage.pipeline_emitter import PipelineEmitter
    from kfm.pipelines.workers import Workers
    from kfm.ports import (
        Clock,
        Heartbeat,
        InputVersions,
        Liveness,
        Meter,
        Objects,
        PipelineRuns,
        ProjectFiles,
        RunStates,
        Telemetry,
    )


class PipelineKernel(msgspec.Struct, frozen=True, eq=False):
    """Dependencies of a pipeline run: stores, clock, workers, evidence."""

    states: "RunStates"
    pipeline_runs: "PipelineRuns"
    objects: "Objects"
    object_size: Callable[[str], int | None]  # of an object by its sha256; None if it is not there
    files: "ProjectFiles"
    input_versions: "InputVersions"
    clock: "Clock"
    liveness: "Liveness"
    worker_id: str
    workers: Callable[[int], "Workers"]
    actor: str
    object_sizes: Callable[[Iterable[str]], dict[str, int | None]] | None = None  # where each is a request
    lease_ms: int = 60_000
    heartbeat: "Heartbeat | None" = None
    ledger: "LedgerReader | None" = None  # whose switches it obeys; None: those of the governed run
    run_ms: int | None = None  # how long it may take
    grace_ms: int = GRACE_MS  # in which functions have to end after a stop
    redact: Callable[[str], str] = lambda text: text
    on_node: Callable[["NodeReport"], None] = lambda _report: None
    emitter: "PipelineEmitter | None" = None
    telemetry: "Telemetry" = field(default_factory=Off)
    public_name: Callable[[str], str] = str  # of nodes and pipelines, in what is public
    meter: "Meter | None" = None
    energy: EnergyModel = field(default_factory=EnergyModel)


class OptionArguments(TypedDict, total=False):
    """Keyword arguments that the options of a pipeline run are made from."""

    branch: str | None  # else the pipeline's own
    run_id: str | None  # else a new one
    resume: str | None  # go on with this run
    fork: str | None  # take what that run made; needs `fork_from`
    fork_from: str | None
    force: Collection[str]
    only: Collection[str]
    jobs: int | None
    keep_going: bool
    verify: bool


class PlanArguments(OptionArguments, total=False):
    """Keyword arguments of `Pipeline.plan`."""

    directory: str | None  # the project's; else by the configuration, else the current one
    config: str | None


class RunArguments(PlanArguments, total=False):
    """Keyword arguments of `Pipeline.run`."""

    workers: str | None  # threads, processes, or a cluster's address
    on_node: Callable[["NodeReport"], None]


class PipelineOptions(NamedTuple):
    """Options of one pipeline run, resolved."""

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
    verify: bool = False  # read files again, also if their times are unchanged
    parent: Parent | None = None  # the governed run that it is a part of


class NodeReport(NamedTuple):
    """Result of one node in a pipeline run."""

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


class PipelineReport(msgspec.Struct, eq=False):
    """Result of a pipeline run."""

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
