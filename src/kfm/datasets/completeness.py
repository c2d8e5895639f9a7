"""Completeness of datasets: expected windows, what became of each, and how each dataset is. Reads only.

Every report asks here, so that there is one verdict: commands, API, console, metrics and alerts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from kfm.model.completeness import (
    NOTHING,
    DatasetHealth,
    Expectation,
    ExpectedWindow,
    Pause,
    WindowFacts,
    WindowVerdict,
    asked_window,
    expected_windows,
    health,
    rule_of,
    since_ms,
    verdict,
)
from kfm.model.dataset_changes import active
from kfm.model.records import Record

if TYPE_CHECKING:
    from kfm.config.loader import Loaded
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.schedules import Schedule
    from kfm.model.settings import Settings, SourceSettings

Schedules = Callable[[], Sequence["Schedule"]]
Span = tuple[int, int]


class DatasetCoverage(Record, frozen=True):
    """How a dataset is, with every window that this follows from, in order."""

    health: DatasetHealth
    windows: tuple[WindowVerdict, ...]
    objectives: Mapping[str, str]  # by source: when its windows are due, in words of the configuration


class CompletenessReader:
    """Reads the completeness of the datasets of one configuration, as of one moment."""

    def __init__(
        self,
        settings: Settings,
        ledger: LedgerReader,
        now_ms: int,
        *,
        schedules: Schedules,
        is_dead: Callable[[str], bool],
        latency_ms: Callable[[SourceSettings], int | None],
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._windows = ledger.window_reader()
        self._now_ms = now_ms
        self._load_schedules = schedules
        self._is_dead = is_dead
        self._latency_ms = latency_ms

    # --- one dataset -----------------------------------------------------------------

    def health(self, dataset_id: str) -> DatasetHealth:
        """How a dataset is, of all its windows."""
        return self._judged(dataset_id, self._verdicts(dataset_id))

    def coverage(self, dataset_id: str) -> DatasetCoverage:
        """How a dataset is, and the windows that this follows from."""
        found = tuple(
            sorted(self._verdicts(dataset_id), key=lambda one: (one.start_ms, one.end_ms, one.source_id))
        )
        return DatasetCoverage(
            health=self._judged(dataset_id, found),
            windows=found,
            objectives={
                source.id: _objective(self._expectation(source)) for source in self.sources(dataset_id)
            },
        )

    def sources(self, dataset_id: str) -> list[SourceSettings]:
        """The sources whose windows are looked at: members of a sync are looked at through it."""
        return [
            source
            for source in self._settings.sources
            if source.dataset == dataset_id and source.id not in self._members
        ]

    def verdicts(self, source: SourceSettings) -> Iterator[WindowVerdict]:
        """The state of each window of a source: those that are expected, and those that were asked for."""
        facts, seen = self._facts(source), self._changed(source)
        for expected in self._expected(source):
            span = (expected.start_ms, expected.end_ms)
            known = facts.pop(span, None)
            yield verdict(expected, seen(span, NOTHING) if known is None else known, self._now_ms)
        for (start_ms, end_ms), known in facts.items():
            yield verdict(_asked(source.id, start_ms, end_ms, known), known, self._now_ms)

    def _facts(self, source: SourceSettings) -> dict[Span, WindowFacts]:
        """What is on record of each window, after what persons changed of the dataset since."""
        seen = self._changed(source)
        return {
            span: seen(span, known) for span, known in self._windows.facts(source.id, self._is_live).items()
        }

    def _changed(self, source: SourceSettings) -> Callable[[Span, WindowFacts], WindowFacts]:
        """A window that is withdrawn is settled; one that a rollback has taken from the head has no data."""
        changes = self._ledger.change_reader()
        newest = changes.newest(source.dataset)
        if newest is None:
            return lambda _span, known: known
        withdrawn = active(changes.withdrawals(source.dataset))
        head = self._ledger.head(source.dataset)
        items = head[1].items if head is not None else ()
        kept = {(one.window_start_ms, one.window_end_ms) for one in items if one.source_id == source.id}

        def seen(span: Span, known: WindowFacts) -> WindowFacts:
            settled = next((one for one in withdrawn if one.covers(source.id, *span)), None)
            if settled is not None:
                return replace(known, settled="withdrawn", settled_ms=settled.withdrawn_at_ms)
            published = known.run_status == "success" and known.outcome in ("published", "unchanged")
            before = (known.run_ended_ms or 0) <= newest[1]
            if published and before and source.mode == "merge" and span not in kept:
                return replace(known, run_id=None, run_status=None, run_ended_ms=None, outcome=None)
            return known

        return seen

    def watched(self) -> list[SourceSettings]:
        """The sources of which something is expected."""
        return [
            source
            for source in self._settings.sources
            if source.id not in self._members and self._expectation(source) is not None
        ]

    def due(self, source: SourceSettings, after_ms: int | None, limit: int) -> list[WindowVerdict]:
        """The first expected windows after a moment that are due by now, at most so many, in order."""
        expectation = None if source.dataset in self._retired else self._expectation(source)
        if expectation is None:
            return []
        due = takewhile(
            lambda one: one.due_ms <= self._now_ms,
            expected_windows(expectation, self._now_ms, start_ms=after_ms),
        )
        found = list(islice(due, limit))
        if not found:
            return []
        facts = self._windows.facts(source.id, self._is_live, found[0].start_ms, found[-1].end_ms)
        seen = self._changed(source)
        known = (
            seen((one.start_ms, one.end_ms), facts.get((one.start_ms, one.end_ms), NOTHING)) for one in found
        )
        return [verdict(one, of, self._now_ms) for one, of in zip(found, known, strict=True)]

    def failed_runs(self) -> list[str]:
        """The runs that failed last in a window that has no data and no end, of all sources."""
        found: list[str] = []
        for source in self._settings.sources:
            if source.id in self._members:
                continue
            facts = self._facts(source)
            found += [
                one.run_id
                for one in facts.values()
                if one.run_status == "failed" and one.run_id is not None and one.settled is None
            ]
        return found

    def _judged(self, dataset_id: str, verdicts: Iterable[WindowVerdict]) -> DatasetHealth:
        return health(
            dataset_id,
            verdicts,
            self._now_ms,
            is_published=dataset_id in self._published,
            pauses=list(self._pauses(dataset_id)),
        )

    def _verdicts(self, dataset_id: str) -> Iterator[WindowVerdict]:
        for source in self.sources(dataset_id):
            yield from self.verdicts(source)

    # --- expectations ----------------------------------------------------------------

    def _expected(self, source: SourceSettings) -> Iterator[ExpectedWindow]:
        expectation = None if source.dataset in self._retired else self._expectation(source)
        return expected_windows(expectation, self._now_ms) if expectation is not None else iter(())

    def _expectation(self, source: SourceSettings) -> Expectation | None:
        """None: nothing is expected by itself. What is not remembered yet is expected from now on."""
        schedules = tuple(one for one in self._schedules if one.enabled and one.source == source.id)
        if not schedules and source.expect is None:
            return None
        configured_ms = self._since.get((source.id, rule_of(source)), self._now_ms)
        return Expectation(
            source=source,
            since_ms=since_ms(source, configured_ms),
            schedules=schedules,
            latency_ms=self._latency_ms(source),
        )

    @cached_property
    def _retired(self) -> frozenset[str]:
        """Of these nothing is expected any more."""
        known = active(self._ledger.change_reader().withdrawals())
        return frozenset(one.dataset_id for one in known if one.retires)

    @cached_property
    def _since(self) -> dict[tuple[str, str], int]:
        return self._windows.expectations()

    @cached_property
    def _schedules(self) -> tuple[Schedule, ...]:
        return tuple(self._load_schedules())

    @cached_property
    def _members(self) -> frozenset[str]:
        return frozenset(member for source in self._settings.sources for member in source.members)

    # --- facts of all datasets -------------------------------------------------------

    def _is_live(self, run_id: str) -> bool:
        return run_id in self._alive

    @cached_property
    def _alive(self) -> frozenset[str]:
        """The runs whose lease holds, by a process that is not known to be dead."""
        return frozenset(
            lock.holder.run_id
            for lock in self._ledger.locks()
            if lock.holder is not None
            and lock.lease_until_ms > self._now_ms
            and not self._is_dead(lock.holder.worker_id)
        )

    @cached_property
    def _published(self) -> frozenset[str]:
        return frozenset(head.dataset_id for head in self._ledger.heads())

    def _pauses(self, dataset_id: str) -> Iterator[Pause]:
        """Why nothing begins, on purpose: switches, freezes, paused schedules."""
        settings, domain = self._settings, self._settings.domain_of(dataset_id)
        scopes = {"all", f"dataset:{dataset_id}", f"domain:{domain}"}
        for switch in self._ledger.switches():
            if switch.position != "running" and switch.scope in scopes:
                yield Pause(code=f"{switch.scope.partition(':')[0]} switch", since_ms=switch.set_at_ms)
        if settings.freezes:
            from kfm.model.gates import freeze_gate

            if not freeze_gate(settings.freezes, dataset_id, domain, self._now_ms).allowed:
                yield Pause(code="freeze", since_ms=None)
        mine = {source.id for source in self.sources(dataset_id)}
        timed = [one for one in self._schedules if one.enabled and one.source in mine]
        states = self._ledger.schedule_reader().states() if timed else {}
        for schedule in timed:
            state = states.get(schedule.id)
            if state is not None and state.paused_at_ms is not None:
                yield Pause(code="schedule", since_ms=state.paused_at_ms)


def _asked(source_id: str, start_ms: int, end_ms: int, facts: WindowFacts) -> ExpectedWindow:
    """A window that is expected because it was asked for; a settled one since it was settled."""
    asked_ms = facts.asked_ms if facts.asked_ms is not None else facts.settled_ms
    return asked_window(source_id, start_ms, end_ms, asked_ms or 0)


def _objective(expectation: Expectation | None) -> str:
    """When windows are due, as it is declared."""
    if expectation is None:
        return "when asked for"
    rule = expectation.rule
    if rule.by is not None:
        return f"by {rule.by}"
    if rule.within is not None:
        return f"within {rule.within}"
    if expectation.latency_ms is not None:
        from kfm.model.quantities import duration

        return f"within {duration(expectation.latency_ms)}, by contract"
    return "before it is asked for again"


# --- from an application -------------------------------------------------------------


def completeness_of(
    app: Any, now_ms: int | None = None, schedules: Schedules | None = None
) -> CompletenessReader:
    """For the configuration of an application, by its schedules as they are written now."""
    return completeness_in(app.loaded, app.ledger, app.liveness.is_dead, schedules=schedules, now_ms=now_ms)


def completeness_in(
    loaded: Loaded,
    ledger: LedgerReader,
    is_dead: Callable[[str], bool],
    *,
    schedules: Schedules | None = None,
    now_ms: int | None = None,
) -> CompletenessReader:
    """For a configuration and its ledger."""
    return CompletenessReader(
        loaded.settings,
        ledger,
        ledger.now_ms() if now_ms is None else now_ms,
        schedules=schedules or (lambda: written_schedules(loaded)),
        is_dead=is_dead,
        latency_ms=lambda source: contract_latency_ms(loaded, source),
    )


def written_schedules(loaded: Loaded) -> tuple[Schedule, ...]:
    """The schedules of a configuration; a project that has none reads no YAML."""
    if loaded.settings.schedules is None and not os.path.exists(loaded.resolve("cron.yml")):
        return ()
    from kfm.config.schedules import load_schedules

    return load_schedules(loaded)


def contract_latency_ms(loaded: Loaded, source: SourceSettings) -> int | None:
    """How old the newest value of a window may be, by the contract: data has to be there by then."""
    rule = source.expect
    if source.contract is None or (rule is not None and (rule.by is not None or rule.within is not None)):
        return None
    from kfm.publish.contract import load_contract

    with open(loaded.resolve(source.contract), "rb") as file:
        contract = load_contract(file.read(), source.contract)
    return min((rule.age_ms_max for rule in contract.freshness), default=None)
