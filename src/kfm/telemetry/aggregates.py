"""The telemetry documents of a release, counted from the ledger in one pass.

Memory does not grow with the number of runs: counts per dataset and node, one counter per duration
in ms that occurred (exact, not sampled), and the retry sequences, which are listed and have a limit.
Only the ledger's own times are in the documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec.structs import replace

from kfm.db.ledger_reader import every
from kfm.model.records import Invocation, Record, Run
from kfm.model.run_state import PassFigures
from kfm.model.runs import Attempt, CallRetry
from kfm.model.times import rfc3339
from kfm.telemetry.counts import CostTally, NodeTally, PassTally, RunTally, UnitTally
from kfm.telemetry.documents import (
    COUNTERS,
    NO_INGEST,
    CarbonAccount,
    CarbonOf,
    DatasetNodes,
    DatasetRuns,
    EnergyAccount,
    EnergyOf,
    FocusTelemetry,
    IngestTelemetry,
    PatternsTelemetry,
    Period,
    UpdaterTelemetry,
    amount,
)
from kfm.telemetry.ledger_metrics import Figure
from kfm.telemetry.sequences import Sequences

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader

_T = TypeVar("_T")
PAGE = 1000
RUNS_REMEMBERED = 1000


class DatasetNames(Record, frozen=True):
    """What may be shown of a dataset: everything, or only its mask."""

    hidden: Callable[[str], bool]  # of a dataset's id
    mask: Callable[[str], str]  # of any name that goes with it
    hidden_units: Callable[[str], bool] = lambda _dataset: False  # of announced objects
    hidden_pipeline: Callable[[str], bool] = lambda _name: False  # of one that is part of no governed run

    def of_dataset(self, dataset_id: str) -> str:
        return self.mask(dataset_id) if self.hidden(dataset_id) else dataset_id

    def of_units(self, dataset: str) -> str:
        """What is announced publicly is no secret, unless its rights are declared here and say so."""
        return self.mask(dataset) if self.hidden_units(dataset) else dataset

    def of_pass(self, figures: PassFigures) -> PassFigures:
        owner = figures.dataset_id
        hidden = self.hidden_pipeline(figures.pipeline_id) if owner is None else self.hidden(owner)
        return replace(figures, pipeline_id=self.mask(figures.pipeline_id)) if hidden else figures

    def of_run(self, run: Run) -> Run:
        """The run with public names, and without texts that could name the rest."""
        shown = replace(run, error_message=None, correction=None)
        if not self.hidden(run.dataset_id):
            return shown
        return replace(
            shown,
            source_id=self.mask(run.source_id),
            dataset_id=self.mask(run.dataset_id),
            pipeline_id=self.mask(run.pipeline_id),
            pipeline_version=self.mask(run.pipeline_version),
            idempotency_key=self.mask(run.idempotency_key),
            work_key=self.mask(run.work_key),
            work_base=self.mask(run.work_base),
            partition=None if run.partition is None else self.mask(run.partition),
            fingerprint=None,
            version_id=None,
        )

    def of_attempt(self, attempt: Attempt, run: Run) -> Attempt:
        """The attempt without its words; of a hidden dataset also without what identifies its content."""
        shown = replace(attempt, error_message=None)
        return replace(shown, inputs_hash=None, code_sha=None) if self.hidden(run.dataset_id) else shown


class Visitor(Protocol):
    """A visitor of the ledger's rows. Runs come with public names."""

    def attempt(self, attempt: Attempt, run: Run) -> None: ...
    def retry(self, retry: CallRetry, run: Run) -> None: ...
    def call(self, invocation: Invocation, dataset_id: str) -> None: ...


class TimeBounds(Record, frozen=True):
    """Half open; None is without end. Counted is when an attempt or an invocation began, or a try failed."""

    since_ms: int | None = None
    until_ms: int | None = None

    def hold(self, at_ms: int) -> bool:
        return (self.since_ms is None or self.since_ms <= at_ms) and (
            self.until_ms is None or at_ms < self.until_ms
        )


def visit(ledger: LedgerReader, bounds: TimeBounds, names: DatasetNames, *visitors: Visitor) -> None:
    """Show each visitor everything within the bounds, in the ledger's order."""

    @lru_cache(maxsize=RUNS_REMEMBERED)
    def run_of(run_id: str) -> Run | None:
        run = ledger.run(run_id)
        return None if run is None else names.of_run(run)

    for attempt, run in _attempts(ledger):
        if bounds.hold(attempt.started_at_ms):
            shown, shown_run = names.of_attempt(attempt, run), names.of_run(run)
            for visitor in visitors:
                visitor.attempt(shown, shown_run)
    for retry in _retries(ledger):
        known = run_of(retry.run_id) if bounds.hold(retry.at_ms) else None
        if known is not None:
            for visitor in visitors:
                visitor.retry(retry, known)
    for invocation in _calls(ledger):
        if bounds.hold(invocation.requested_at_ms):
            for visitor in visitors:
                visitor.call(invocation, names.of_dataset(invocation.dataset_id))


def visit_passes(ledger: LedgerReader, bounds: TimeBounds, names: DatasetNames, counting: Aggregates) -> None:
    """The same for pipeline runs, which have attempts of their own."""
    for _, figures in every(ledger.pass_attempts_since):
        if bounds.hold(figures.started_at_ms):
            counting.passed(names.of_pass(figures))
    counting.units(ledger.unit_figures(), names.of_units)


def _attempts(ledger: LedgerReader) -> Iterator[tuple[Attempt, Run]]:
    return ((attempt, run) for _, attempt, run in every(ledger.attempts_since))


def _retries(ledger: LedgerReader) -> Iterator[CallRetry]:
    return (retry for _, retry in every(ledger.retries_since))


def _calls(ledger: LedgerReader) -> Iterator[Invocation]:
    return (invocation for _, invocation in every(ledger.invocations_since))


class Aggregates:
    """Counts while the ledger passes by; then makes the documents."""

    def __init__(self, release: str, environment: str, bounds: TimeBounds) -> None:
        self._release = release
        self._environment = environment
        self._bounds = bounds
        self._first_ms: int | None = None
        self._last_ms: int | None = None
        self._all = RunTally()
        self._datasets: dict[str, RunTally] = {}
        self._nodes: dict[str, NodeTally] = {}
        self._dataset_nodes: dict[str, dict[str, NodeTally]] = {}
        self._pipelines: dict[str, PassTally] = {}
        self._units = UnitTally()
        self._sequences = Sequences(f"releases/{release}/focus-telemetry.json")

    # --- seeing ------------------------------------------------------------------------

    def attempt(self, attempt: Attempt, run: Run) -> None:
        self._seen(attempt.started_at_ms)
        self._seen(attempt.ended_at_ms)
        if attempt.node:
            nodes = self._dataset_nodes.setdefault(run.dataset_id, {})
            for where in (self._nodes, nodes):
                where.setdefault(attempt.node, NodeTally()).add(attempt)
        else:
            for tally in self._tallies(run.dataset_id):
                tally.add(attempt)
            self._sequences.add_attempt(attempt, run)

    def units(self, figures: Iterable[Figure], public: Callable[[str], str]) -> None:
        """The counters of the ledger of units."""
        self._units.add(figures, public)

    def passed(self, figures: PassFigures) -> None:
        self._seen(figures.started_at_ms)
        self._seen(figures.ended_at_ms)
        self._pipelines.setdefault(figures.pipeline_id, PassTally()).add(figures)

    def retry(self, retry: CallRetry, run: Run) -> None:
        self._seen(retry.at_ms)
        for tally in self._tallies(run.dataset_id):
            tally.add_retry(retry)
        self._sequences.add_retry(retry, run)

    def call(self, invocation: Invocation, dataset_id: str) -> None:
        self._seen(invocation.requested_at_ms)
        for tally in self._tallies(dataset_id):
            tally.add_call(invocation)

    def _tallies(self, dataset_id: str) -> tuple[RunTally, RunTally]:
        return self._all, self._datasets.setdefault(dataset_id, RunTally())

    def _seen(self, at_ms: int | None) -> None:
        if at_ms is not None:
            self._first_ms = at_ms if self._first_ms is None else min(self._first_ms, at_ms)
            self._last_ms = at_ms if self._last_ms is None else max(self._last_ms, at_ms)

    @property
    def last_ms(self) -> int | None:
        """When the last event was recorded."""
        return self._last_ms

    # --- the document --------------------------------------------------------------------

    @property
    def period(self) -> Period:
        return Period(
            since=_text(self._bounds.since_ms),
            until=_text(self._bounds.until_ms),
            first=_text(self._first_ms),
            last=_text(self._last_ms),
        )

    def updater(self) -> UpdaterTelemetry:
        return UpdaterTelemetry(
            release=self._release,
            environment=self._environment,
            period=self.period,
            total=self._all.figures(),
            datasets=tuple(
                DatasetRuns(dataset_id=name, runs=tally.figures()) for name, tally in _sorted(self._datasets)
            ),
        )

    def patterns(self) -> PatternsTelemetry:
        return PatternsTelemetry(
            release=self._release,
            environment=self._environment,
            period=self.period,
            nodes=tuple(tally.document(node) for node, tally in _sorted(self._nodes)),
            datasets=tuple(
                DatasetNodes(
                    dataset_id=name, nodes=tuple(tally.document(node) for node, tally in _sorted(nodes))
                )
                for name, nodes in _sorted(self._dataset_nodes)
            ),
            pipelines=tuple(tally.document(name) for name, tally in _sorted(self._pipelines)),
        )

    def focus(self) -> FocusTelemetry:
        return FocusTelemetry(
            release=self._release,
            environment=self._environment,
            period=self.period,
            sequences=self._sequences.documents(),
            error_classes=self._sequences.error_classes(),
            cost=self._sequences.cost.document(),
        )

    def ingest(self) -> IngestTelemetry:
        """Counters have no times: these are of everything so far, whatever the period is."""
        units = self._units
        return IngestTelemetry(
            release=self._release,
            environment=self._environment,
            period=self.period,
            source=COUNTERS if units.datasets else NO_INGEST,
            wal_records_total=units.records(),
            wal_replays_total=units.replays(),
            replay_mismatch_total=units.mismatches(),
            wal_attempts_histogram=units.attempts(),
            datasets=units.documents(),
            cost=units.cost().document(),
        )

    def energy(self) -> EnergyAccount:
        whole = self._all.cost
        return EnergyAccount(
            release=self._release,
            environment=self._environment,
            period=self.period,
            energy_wh=whole.energy_wh,
            retries_wh=self._all.retry_cost.energy_wh,
            method=whole.method,
            assumptions=tuple(sorted(whole.assumptions)),
            metered=whole.metered,
            unmetered=whole.unmetered,
            package_wh=None if whole.package_uwh is None else amount(whole.package_uwh),
            datasets=tuple(
                EnergyOf(
                    dataset_id=name,
                    energy_wh=tally.cost.energy_wh,
                    retries_wh=tally.retry_cost.energy_wh,
                    nodes_wh={node: cost.energy_wh for node, cost in self._node_costs(name)},
                )
                for name, tally in _sorted(self._datasets)
            ),
        )

    def carbon(self) -> CarbonAccount:
        whole = self._all.cost
        return CarbonAccount(
            release=self._release,
            environment=self._environment,
            period=self.period,
            co2_g=whole.co2_g,
            retries_g=self._all.retry_cost.co2_g,
            method=whole.method,
            assumptions=tuple(sorted(whole.assumptions)),
            metered=whole.metered,
            unmetered=whole.unmetered,
            datasets=tuple(
                CarbonOf(
                    dataset_id=name,
                    co2_g=tally.cost.co2_g,
                    retries_g=tally.retry_cost.co2_g,
                    nodes_g={node: cost.co2_g for node, cost in self._node_costs(name)},
                )
                for name, tally in _sorted(self._datasets)
            ),
        )

    def _node_costs(self, dataset_id: str) -> Iterator[tuple[str, CostTally]]:
        for node, tally in _sorted(self._dataset_nodes.get(dataset_id, {})):
            yield node, tally.cost

    def documents(self) -> dict[str, Record]:
        """File name → document."""
        return {
            "updater-telemetry.json": self.updater(),
            "patterns-telemetry.json": self.patterns(),
            "focus-telemetry.json": self.focus(),
            "nodd-sns-telemetry.json": self.ingest(),
            "energy.json": self.energy(),
            "carbon.json": self.carbon(),
        }


def _sorted(things: dict[str, _T]) -> list[tuple[str, _T]]:
    return sorted(things.items(), key=lambda pair: pair[0])


def _text(at_ms: int | None) -> str | None:
    return None if at_ms is None else rfc3339(at_ms)
