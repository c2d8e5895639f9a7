"""Counts of attempts and units for a release: durations, costs, outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from decimal import Decimal

from kfm.model.energy import Energy
from kfm.model.records import UNIT_STATUSES, Invocation
from kfm.model.run_state import PassFigures
from kfm.model.runs import Attempt, CallRetry
from kfm.telemetry.documents import (
    Calls,
    Cost,
    DatasetUnitsDocument,
    Durations,
    Method,
    NodeWrites,
    PipelineWrites,
    RunsDocument,
    UnitCounts,
    Writes,
    amount,
    share,
)
from kfm.telemetry.ledger_metrics import Figure


class DurationTally:
    """An exact counting histogram: one counter per duration in ms that occurred, so memory is bounded by
    the longest duration, however many attempts there were."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, attempt: Attempt) -> None:
        if attempt.ended_at_ms is not None:
            # A clock that was set back makes no negative durations.
            self._counts[max(0, attempt.ended_at_ms - attempt.started_at_ms)] += 1

    def document(self) -> Durations:
        count = self._counts.total()
        if not count:
            return Durations(count=0)
        ordered = sorted(self._counts)
        return Durations(
            count=count,
            min_ms=ordered[0],
            p50_ms=self._nearest_rank(ordered, 50, count),
            p90_ms=self._nearest_rank(ordered, 90, count),
            p95_ms=self._nearest_rank(ordered, 95, count),
            p99_ms=self._nearest_rank(ordered, 99, count),
            max_ms=ordered[-1],
        )

    def _nearest_rank(self, ordered: list[int], percent: int, count: int) -> int:
        """The smallest value that at least so many per cent of all do not exceed."""
        rank = -(-percent * count // 100)
        seen = 0
        for value in ordered:
            seen += self._counts[value]
            if seen >= rank:
                return value
        raise AssertionError("a rank is at most the count")


class CostTally:
    """Sums of whole small units; decimals are made at the end."""

    def __init__(self) -> None:
        self.energy_uwh = 0
        self.co2_ug = 0
        self.package_uwh: int | None = None
        self.assumptions: set[str] = set()
        self.metered = 0
        self.unmetered = 0

    def add(self, energy: Energy | None) -> None:
        if energy is None:
            self.unmetered += 1
            return
        self.metered += 1
        self.energy_uwh += energy.energy_uwh
        self.co2_ug += energy.co2_ug
        self.assumptions.add(energy.assumption)
        if energy.package_uwh is not None:
            self.package_uwh = (self.package_uwh or 0) + energy.package_uwh

    @property
    def method(self) -> Method:
        """Of work that was not metered no figure is invented; no work at all cost nothing."""
        return "unmetered" if self.unmetered and not self.metered else "modelled"

    @property
    def energy_wh(self) -> Decimal | None:
        return amount(self.energy_uwh) if self.method == "modelled" else None

    @property
    def co2_g(self) -> Decimal | None:
        return amount(self.co2_ug) if self.method == "modelled" else None

    def document(self) -> Cost:
        return Cost(
            energy_wh=self.energy_wh,
            co2_g=self.co2_g,
            method=self.method,
            assumptions=tuple(sorted(self.assumptions)),
            metered=self.metered,
            unmetered=self.unmetered,
        )


class RunTally:
    """The runs of one dataset, or of all."""

    def __init__(self) -> None:
        self._endings: Counter[str] = Counter()
        self._latency = DurationTally()
        self._calls: Counter[str] = Counter()
        self._retries = 0
        self._call_retries = 0
        self.cost = CostTally()
        self.retry_cost = CostTally()

    def add(self, attempt: Attempt) -> None:
        self._endings[attempt.ending or "in_progress"] += 1
        self._latency.add(attempt)
        self._retries += attempt.attempt > 1
        if attempt.ending is not None:
            self.cost.add(attempt.energy)
            if attempt.attempt > 1:
                self.retry_cost.add(attempt.energy)

    def add_call(self, invocation: Invocation) -> None:
        self._calls[invocation.outcome or "in_progress"] += 1

    def add_retry(self, retry: CallRetry) -> None:
        self._call_retries += retry.outcome == "retried"

    def figures(self) -> RunsDocument:
        counts = self._endings
        ended = counts["complete"] + counts["fail"] + counts["abort"]
        return RunsDocument(
            attempts=counts.total(),
            complete=counts["complete"],
            fail=counts["fail"],
            abort=counts["abort"],
            in_progress=counts["in_progress"],
            error_rate=share(counts["fail"], ended),
            retries=self._retries,
            call_retries=self._call_retries,
            latency=self._latency.document(),
            calls=Calls(**self._calls),
            cost=self.cost.document(),
            retry_cost=self.retry_cost.document(),
        )


class PassTally:
    """The runs of one pipeline."""

    def __init__(self) -> None:
        self._states: Counter[str] = Counter()
        self._writes: Counter[str] = Counter()
        self._worked_ms = 0

    def add(self, figures: PassFigures) -> None:
        self._states[figures.state] += 1
        for outcome in ("success", "failed", "partial", "skipped"):
            self._writes[outcome] += getattr(figures, outcome)
        self._worked_ms += figures.worked_ms

    def document(self, pipeline_id: str) -> PipelineWrites:
        writes = Writes(**self._writes)
        return PipelineWrites(
            pipeline_id=pipeline_id,
            passes={state: self._states[state] for state in sorted(self._states)},
            writes=writes,
            executed=writes.success + writes.failed + writes.partial,
            skipped=writes.skipped,
            skip_rate=share(writes.skipped, self._writes.total()),
            worked_ms=self._worked_ms,
        )


class NodeTally:
    """The records of one node."""

    def __init__(self) -> None:
        self._writes: Counter[str] = Counter()
        self._durations = DurationTally()
        self.cost = CostTally()

    def add(self, attempt: Attempt) -> None:
        self._writes["in_progress" if attempt.ending is None else attempt.outcome or "none"] += 1
        self._durations.add(attempt)
        if attempt.ending is not None:
            self.cost.add(attempt.energy)

    def document(self, node: str) -> NodeWrites:
        writes = Writes(**self._writes)
        return NodeWrites(
            node=node,
            writes=writes,
            executed=writes.success + writes.failed + writes.partial,
            skipped=writes.skipped,
            durations=self._durations.document(),
            cost=self.cost.document(),
        )


class UnitTally:
    """The counters of the ledger of units, by dataset."""

    def __init__(self) -> None:
        self.datasets: dict[str, Counter[str]] = {}

    def add(self, figures: Iterable[Figure], public: Callable[[str], str]) -> None:
        for dataset, name, number, _ in figures:
            if dataset:
                self.datasets.setdefault(public(dataset), Counter())[name] += int(number)

    def records(self) -> UnitCounts:
        return _records(sum(self.datasets.values(), Counter()))

    def replays(self) -> int:
        return sum(map(_replays, self.datasets.values()))

    def mismatches(self) -> int:
        return sum(amounts["mismatches"] for amounts in self.datasets.values())

    def attempts(self) -> dict[str, int]:
        found: Counter[int] = Counter()
        for amounts in self.datasets.values():
            for name, count in amounts.items():
                if name.startswith("attempts:"):
                    found[int(name.removeprefix("attempts:"))] += count
        return {str(attempts): found[attempts] for attempts in sorted(found)}

    def cost(self) -> CostTally:
        """Hundreds of units share a process's time, so that of one is not metered: how many ended is."""
        tally = CostTally()
        tally.unmetered = sum(self.attempts().values())
        return tally

    def documents(self) -> tuple[DatasetUnitsDocument, ...]:
        return tuple(
            DatasetUnitsDocument(
                dataset_id=dataset,
                wal_records_total=_records(amounts),
                wal_replays_total=_replays(amounts),
                replay_mismatch_total=amounts["mismatches"],
            )
            for dataset, amounts in sorted(self.datasets.items())
        )


def _records(amounts: Counter[str]) -> UnitCounts:
    return UnitCounts(**{status: max(0, amounts[status]) for status in UNIT_STATUSES})


def _replays(amounts: Counter[str]) -> int:
    return sum(count for name, count in amounts.items() if name.startswith("replays:"))
