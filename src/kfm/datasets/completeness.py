"""Completeness of datasets: expected windows, what became of each, and how each dataset is. Reads only.

Every report asks here, so that there is one verdict: commands, API, console, metrics and alerts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any

from kfm import __version__
from kfm.config.loader import CachedFile, recall, remember
from kfm.datasets.changed_windows import ChangedWindows
from kfm.db.window_facts import LAST_MS, FactRows, facts_of
from kfm.model.completeness import (
    NOTHING,
    DatasetHealth,
    Expectation,
    ExpectedWindow,
    HealthCause,
    Pause,
    WindowFacts,
    WindowVerdict,
    asked_window,
    expected_windows,
    health,
    rule_of,
    since_ms,
    until_ms,
    verdict,
)
from kfm.model.dataset_changes import active
from kfm.model.feeds import (
    HOUR_MS,
    NO_OBJECTS,
    NOTHING_SHIPPED,
    ExpectedHour,
    FeedProduct,
    HourCounts,
    SettledHours,
    ShippedFeed,
    expected_hour,
    expected_hours,
    feed_names,
    feed_products,
    judged_hour,
    settled_hours,
    together,
)
from kfm.model.records import Record, Window
from kfm.model.remembered import remembered
from kfm.model.times import rfc3339

if TYPE_CHECKING:
    from kfm.config.loader import Loaded
    from kfm.datasets.verdict_memory import VerdictMemory
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.schedules import Schedule
    from kfm.model.settings import Settings, SourceSettings

Schedules = Callable[[], Sequence["Schedule"]]
Shipped = Callable[[str], ShippedFeed]  # what is known of an announced dataset, by its name
Span = tuple[int, int]
HOURS_SHOWN = 48  # of a feed, unless a span is asked for
LAG_MS_MAX = 24 * HOUR_MS  # how far back the newest object of a product is looked for


class ProductLag(Record, frozen=True):
    """How far a product of a feed has come: its newest data, and how long objects took to get here."""

    product: str
    platform: str | None
    source_id: str
    is_expected: bool  # it has a cadence
    newest_ms: int | None  # data time; None: nothing within a day
    lag_ms: int | None
    latency_ms: int | None  # from data time to intake, the mean of the hours that were looked at


class Reconcile(Record, frozen=True):
    """A bucket whose listing shows whether the objects of open hours are there, though nothing announced
    them."""

    bucket: str
    dataset: str
    start_ms: int
    end_ms: int

    @property
    def command(self) -> str:
        span = f"--from {rfc3339(self.start_ms)} --to {rfc3339(self.end_ms)}"
        return f"kfm nodd reconcile {self.bucket} --dataset {self.dataset} {span}"


class DatasetCoverage(Record, frozen=True):
    """How a dataset is, with every window that this follows from, in order."""

    health: DatasetHealth
    windows: tuple[WindowVerdict, ...]
    objectives: Mapping[str, str]  # by source: when its windows are due, in words of the configuration
    products: tuple[ProductLag, ...] = ()  # of a feed
    reconcile: tuple[Reconcile, ...] = ()  # where what is missing of a feed may be found


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
        shipped: Shipped = lambda _name: NOTHING_SHIPPED,
        memory: VerdictMemory | None = None,
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._windows = ledger.window_reader()
        self._now_ms = now_ms
        self._load_schedules = schedules
        self._is_dead = is_dead
        self._latency_ms = latency_ms
        self._shipped = shipped
        self._memory = memory

    # --- one dataset -----------------------------------------------------------------

    def names(self) -> list[str]:
        """The datasets that are declared, and the feeds that are looked at."""
        return list(dict.fromkeys((*(one.id for one in self._settings.datasets), *self.feeds())))

    def health(self, dataset_id: str) -> DatasetHealth:
        """How a dataset is, of all its windows; how a feed is, of all hours of its products."""
        hours, before = self._feed(dataset_id)
        return self._judged(dataset_id, [*self._verdicts(dataset_id), *hours], before)

    def coverage(
        self, dataset_id: str, start_ms: int | None = None, end_ms: int | None = None
    ) -> DatasetCoverage:
        """How a dataset is, and the windows that this follows from. Of a feed the hours that touch a span, by
        default the last two days, and those of any age that are open or dismissed."""
        windows = list(self._verdicts(dataset_id))
        judged, before = self._feed(dataset_id)
        hours, lags = self._hours_shown(dataset_id, judged, start_ms, end_ms)
        found = sorted([*windows, *hours], key=lambda one: (one.start_ms, one.end_ms, one.source_id))
        objectives = {
            source.id: _objective(self._expectation(source))
            for source in self.sources(dataset_id)
            if dataset_id not in self._retired
        }
        return DatasetCoverage(
            health=self._judged(dataset_id, [*windows, *judged], before),
            windows=tuple(found),
            objectives=objectives | {one.id: _cadence_text(one) for one in self.products(dataset_id)},
            products=tuple(lags),
            reconcile=tuple(self._reconcile(dataset_id, hours)),
        )

    def windows_at(self, dataset_id: str, at_ms: int) -> list[WindowVerdict]:
        """The window of each source that was the last complete one at a time: what a run at that time would
        cover. One that is neither expected nor asked for waits for that run. Of a feed, the hour of each
        product."""
        from kfm.model.windows import resolve_window  # late: most readers do not need it

        hour_ms = at_ms // HOUR_MS * HOUR_MS
        hours, _ = self._hours_shown(dataset_id, (), hour_ms - HOUR_MS, hour_ms)
        found = [one for one in hours if one.end_ms == hour_ms]
        for source in self.sources(dataset_id):
            window = resolve_window(source.window, source.time_zone, at_ms)
            span = (window.start_ms, window.end_ms)
            known = (one for one in self.verdicts(source) if (one.start_ms, one.end_ms) == span)
            found.append(next(known, None) or _not_asked(source.id, window, at_ms))
        return found

    def sources(self, dataset_id: str) -> list[SourceSettings]:
        """The sources whose windows are looked at: members of a sync are looked at through it."""
        return [
            source
            for source in self._settings.sources
            if source.dataset == dataset_id and source.id not in self._members
        ]

    def verdicts(self, source: SourceSettings) -> Iterable[WindowVerdict]:
        """The state of each window of a source: those that are expected, and those that were asked for."""
        if self._memory is None or self._is_rewindowed(source):
            return self._judge(source, [])
        if ChangedWindows(self._ledger, source).is_changed:
            return self._judge(source, [])
        rows, expectation = self._rows(source), self._expectation(source)
        live = tuple(map(self._is_live, rows.under_way()))
        of = (source, expectation, source.dataset in self._retired, live, rows)
        known = self._memory.recall(source.id, of, self._now_ms)
        if known is None:
            moments = [LAST_MS if expectation is None else until_ms(expectation, self._now_ms)]
            known = tuple(self._judge(source, moments))
            self._memory.keep(source.id, of, self._now_ms, min(moments), known)
        return known

    def _judge(self, source: SourceSettings, moments: list[int]) -> Iterator[WindowVerdict]:
        """`moments` get the times at which the clock alone may change a verdict."""
        now_ms = self._now_ms

        def judged(expected: ExpectedWindow, known: WindowFacts) -> WindowVerdict:
            moments.extend(at_ms for at_ms in (expected.due_ms, expected.until_ms) if at_ms > now_ms)
            return verdict(expected, known, now_ms)

        facts, seen = dict(self._facts(source)), self._changed(source)
        is_over = source.dataset in self._retired
        for expected in self._expected(source):
            span = (expected.start_ms, expected.end_ms)
            known = facts.pop(span, None)
            if known is None and is_over:
                continue  # nothing is expected any more; what is on record was due when it was
            yield judged(expected, seen(span, NOTHING) if known is None else known)
        expectation = None if is_over else self._expectation(source)
        for (start_ms, end_ms), known in facts.items():
            # Of a window without a question on record: since it was settled.
            asked_ms = known.asked_ms
            if asked_ms is None:
                asked_ms = known.settled_ms or 0
            asked = asked_window(source.id, start_ms, end_ms, asked_ms, expectation)
            yield judged(asked, known)

    def _on_record(self, source: SourceSettings) -> Mapping[Span, WindowFacts]:
        if self._memory is None:
            return self._windows.facts(source.id, source.dataset, self._is_live)
        return facts_of(self._rows(source), self._is_live)

    def _rows(self, source: SourceSettings) -> FactRows:
        if source.id not in self._read:
            self._read[source.id] = self._windows.read(source.id, source.dataset)
        return self._read[source.id]

    @remembered
    def _read(self) -> dict[str, FactRows]:
        return {}

    def _facts(self, source: SourceSettings) -> Mapping[Span, WindowFacts]:
        """What is on record of each window, after what persons changed of the dataset since. Read once: a
        report asks for health and for failures, and a source may have years of windows."""
        if source.id not in self._known:
            seen, counts = self._changed(source), self._counted(source)
            self._known[source.id] = {
                span: seen(span, known) for span, known in self._on_record(source).items() if counts(span)
            }
        return self._known[source.id]

    @remembered
    def _known(self) -> dict[str, dict[Span, WindowFacts]]:
        return {}

    def _counted(self, source: SourceSettings) -> Callable[[Span], bool]:
        """Of a source that got another window length, windows of that length alone count."""
        if not self._is_rewindowed(source):
            return lambda _span: True
        from kfm.model.window_rules import WindowSpan, is_window

        return lambda span: is_window(
            WindowSpan(start_ms=span[0], end_ms=span[1]), source.window, source.time_zone
        )

    def _is_rewindowed(self, source: SourceSettings) -> bool:
        length, changed_by = self._lengths.get(source.id, (None, None))
        return source.mode == "merge" and changed_by is not None and length == source.window

    @remembered
    def _lengths(self) -> dict[str, tuple[str, str | None]]:
        return self._ledger.change_reader().window_rules()

    def _changed(self, source: SourceSettings) -> Callable[[Span, WindowFacts], WindowFacts]:
        """What is on record of a window, after what persons changed since: one that is withdrawn is settled,
        one that a change has taken from the head has no data."""
        seen = ChangedWindows(self._ledger, source).seen
        if not self._is_rewindowed(source):
            return seen
        covered = self._covered(source)

        def counted(span: Span, known: WindowFacts) -> WindowFacts:
            found = seen(span, known)
            is_there = found.run_status == "success" and found.outcome in ("published", "unchanged")
            under_way = found.run_status == "running" or found.request_state is not None
            if found.settled is not None or is_there or under_way or not covered(span):
                return found
            return WindowFacts(run_status="success", outcome="published")

        return counted

    def _covered(self, source: SourceSettings) -> Callable[[Span], bool]:
        """Is all of a window published by windows of other lengths, or settled?"""
        from kfm.model.window_rules import WindowSpan, is_covered, never_expected, spans_of

        head = self._ledger.head(source.dataset)
        published = spans_of(head[1].items(), source) if head is not None else []
        settled = [
            WindowSpan(start_ms=one.start_ms, end_ms=one.end_ms)
            for one in self._windows.settled(source.id)
            if one.dataset_id == source.dataset
        ]
        settled += never_expected(source)

        def covered(span: Span) -> bool:
            asked = WindowSpan(start_ms=span[0], end_ms=span[1])
            there = [one for one in published if one.overlaps(asked)]
            return bool(there) and is_covered(asked, (*there, *settled))

        return covered

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
        facts = self._windows.facts(
            source.id, source.dataset, self._is_live, found[0].start_ms, found[-1].end_ms
        )
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

    def _judged(
        self, dataset_id: str, verdicts: Iterable[WindowVerdict], before: Sequence[SettledHours] = ()
    ) -> DatasetHealth:
        return health(
            dataset_id,
            verdicts,
            self._now_ms,
            is_published=dataset_id in self._published
            or (dataset_id in self.feeds() and dataset_id in self._taken_in),
            pauses=list(self._pauses(dataset_id)),
            before=before,
            gone=self._gone.get(dataset_id),
        )

    # --- feeds -----------------------------------------------------------------------

    def feeds(self) -> list[str]:
        """The announced datasets that are looked at."""
        return feed_names(self._settings)

    def products(self, dataset_id: str) -> list[FeedProduct]:
        """The rows of a feed. None where it is none, or of a dataset that was retired."""
        if dataset_id not in self._products:
            known = dataset_id in self.feeds() and dataset_id not in self._retired
            shipped = self._shipped(dataset_id) if known else NOTHING_SHIPPED
            self._products[dataset_id] = (
                feed_products(self._settings, dataset_id, shipped, self._since, self._now_ms) if known else []
            )
        return self._products[dataset_id]

    def due_hours(self, dataset_id: str, limit: int) -> list[tuple[FeedProduct, list[WindowVerdict]]]:
        """For each row of a feed the first hours after its mark that are due by now, at most so many."""
        wanted = []
        for product in self.products(dataset_id):
            after_ms = self.marked_ms(product)
            due = takewhile(
                lambda one: one.window.due_ms <= self._now_ms,
                expected_hours(product, self._now_ms, start_ms=after_ms),
            )
            if hours := list(islice(due, limit)):
                wanted.append((product, hours))
        judged = self._judged_hours(dataset_id, wanted)
        return [(product, judged[product.id]) for product, _ in wanted]

    def marked_ms(self, product: FeedProduct) -> int | None:
        """How far its hours were looked at."""
        return self._marks.get((product.id, product.rule))

    def open_hours(self, dataset_id: str) -> list[tuple[WindowVerdict, bool]]:
        """The hours of a feed that were found open, as they are now, and whether an incident was opened for
        each. Those that are expected no more are left out."""
        known = self._windows.open_hours(dataset_id)
        wanted = [
            (one, [made for hour_ms in known[one.id] if (made := expected_hour(one, hour_ms))])
            for one in self.products(dataset_id)
            if one.id in known
        ]
        judged = self._judged_hours(dataset_id, wanted)
        return [(hour, known[name][hour.start_ms]) for name in judged for hour in judged[name]]

    def _feed(self, dataset_id: str) -> tuple[list[WindowVerdict], list[SettledHours]]:
        """The hours of a feed that need a look: those after the mark of their row, and before it those that
        were open or settled by a person. Beside them all others, which are there."""
        products = self.products(dataset_id)
        if not products:
            return [], []
        known, wanted, before = self._windows.open_hours(dataset_id), [], []
        for product in products:
            mark_ms = self.marked_ms(product)
            single = {*known.get(product.id, ()), *self._settled_hours(product)}
            earlier = settled_hours(product, mark_ms, single)
            before.append(earlier)
            hours = [made for hour_ms in sorted(earlier.but) if (made := expected_hour(product, hour_ms))]
            hours += expected_hours(product, self._now_ms, start_ms=earlier.until_ms)
            wanted.append((product, hours))
        judged = self._judged_hours(dataset_id, wanted)
        return [hour for found in judged.values() for hour in found], before

    def _hours_shown(
        self, dataset_id: str, judged: Sequence[WindowVerdict], start_ms: int | None, end_ms: int | None
    ) -> tuple[list[WindowVerdict], list[ProductLag]]:
        if dataset_id not in self.feeds():
            return [], []
        last_ms = self._now_ms if end_ms is None else end_ms
        first_ms = last_ms - HOURS_SHOWN * HOUR_MS if start_ms is None else start_ms
        wanted = [
            (product, list(expected_hours(product, self._now_ms, first_ms, last_ms)))
            for product in self.products(dataset_id)
        ]
        found = {
            (hour.source_id, hour.start_ms): hour
            for hours in self._judged_hours(dataset_id, wanted).values()
            for hour in hours
        }
        found |= {
            (one.source_id, one.start_ms): one
            for one in judged
            if not one.is_settled or one.state == "dismissed"
        }
        return list(found.values()), list(self._lags(dataset_id))

    def _reconcile(self, dataset_id: str, hours: Sequence[WindowVerdict]) -> Iterator[Reconcile]:
        """One for each bucket: from the first hour that is open to the end of the last, forecasts
        included."""
        rows = {one.id: one for one in self.products(dataset_id)}
        shipped = self._shipped(dataset_id) if rows else NOTHING_SHIPPED
        spans: dict[str, Span] = {}
        for hour in hours:
            row = rows.get(hour.source_id)
            bucket = shipped.bucket_of(row.platform) if row is not None else None
            if row is None or bucket is None or hour.state not in ("overdue", "missing"):
                continue
            cadence = row.cadence_at(hour.start_ms)
            end_ms = hour.end_ms + (cadence.ahead_ms if cadence is not None else 0)
            first_ms, last_ms = spans.get(bucket, (hour.start_ms, end_ms))
            spans[bucket] = (min(first_ms, hour.start_ms), max(last_ms, end_ms))
        for bucket, (first_ms, last_ms) in spans.items():
            yield Reconcile(bucket=bucket, dataset=dataset_id, start_ms=first_ms, end_ms=last_ms)

    def _lags(self, dataset_id: str) -> Iterator[ProductLag]:
        """Of each row; where no product is named, of all that came lately."""
        units, now_ms = self._ledger.unit_reader(), self._now_ms
        last_ms = now_ms // HOUR_MS * HOUR_MS
        lately = units.hours(dataset_id, [last_ms - back * HOUR_MS for back in range(LAG_MS_MAX // HOUR_MS)])
        rows = [(one.product, one.platform, bool(one.cadences)) for one in self.products(dataset_id)]
        if not rows:
            rows = sorted({(product or "", platform, False) for _, product, platform in lately}, key=str)
        for product, platform, is_expected in rows:
            counts = together(
                found
                for (_, of, on), found in lately.items()
                if (of or "") == product and platform in (None, on)
            )
            newest_ms = counts.newest_ms
            yield ProductLag(
                product=product,
                platform=platform,
                source_id=" ".join(part for part in (dataset_id, product, platform) if part),
                is_expected=is_expected,
                newest_ms=newest_ms,
                lag_ms=None if newest_ms is None else max(now_ms - newest_ms, 0),
                latency_ms=round(counts.delay_ms / counts.announced) if counts.announced else None,
            )

    def _judged_hours(
        self, dataset_id: str, wanted: Sequence[tuple[FeedProduct, Sequence[ExpectedHour]]]
    ) -> dict[str, list[WindowVerdict]]:
        """The state of these hours, by row. All of them are counted by one look at the index for each
        hour."""
        hours = {one.window.start_ms for _, expected in wanted for one in expected}
        counted = self._ledger.unit_reader().hours(dataset_id, hours) if hours else {}
        by_product: dict[tuple[int, str | None], list[HourCounts]] = {}
        for (hour_ms, product, _), counts in counted.items():
            by_product.setdefault((hour_ms, product), []).append(counts)
        judged: dict[str, list[WindowVerdict]] = {}
        for row, expected in wanted:
            settled = self._settled_hours(row)
            judged[row.id] = []
            for one in expected:
                hour_ms = one.window.start_ms
                if row.platform is not None:
                    counts = counted.get((hour_ms, row.product, row.platform), NO_OBJECTS)
                else:
                    counts = together(by_product.get((hour_ms, row.product), ()))
                facts = settled.get(hour_ms, NOTHING)
                judged[row.id].append(judged_hour(one, counts, facts, self._now_ms))
        return judged

    def _settled_hours(self, product: FeedProduct) -> dict[int, WindowFacts]:
        if product.id not in self._settled:
            self._settled[product.id] = {
                one.start_ms: WindowFacts(
                    settled=one.kind, settled_ms=one.settled_at_ms, settled_why=one.rationale
                )
                for one in self._windows.settled(product.id)
            }
        return self._settled[product.id]

    @remembered
    def _products(self) -> dict[str, list[FeedProduct]]:
        return {}

    @remembered
    def _settled(self) -> dict[str, dict[int, WindowFacts]]:
        return {}

    @remembered
    def _marks(self) -> dict[tuple[str, str], int]:
        return self._windows.overdue_marks()

    @remembered
    def _taken_in(self) -> frozenset[str]:
        """The announced datasets of which objects have come."""
        figures = self._ledger.unit_figures()
        return frozenset(
            dataset for dataset, name, amount, _ in figures if name == "succeeded" and amount > 0
        )

    def _verdicts(self, dataset_id: str) -> Iterator[WindowVerdict]:
        for source in self.sources(dataset_id):
            yield from self.verdicts(source)

    # --- expectations ----------------------------------------------------------------

    def _expected(self, source: SourceSettings) -> Iterator[ExpectedWindow]:
        expectation = self._expectation(source)
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

    @remembered
    def _gone(self) -> dict[str, HealthCause]:
        """The datasets that are withdrawn as a whole; of a retired one nothing is expected any more."""
        whole = [one for one in active(self._ledger.change_reader().withdrawals()) if one.is_whole]
        return {
            one.dataset_id: HealthCause(
                health="retired" if one.retires else "withdrawn",
                state=None,
                code=None,
                windows=0,
                since_ms=one.withdrawn_at_ms,
            )
            for one in sorted(whole, key=lambda one: one.retires)
        }

    @remembered
    def _retired(self) -> frozenset[str]:
        return frozenset(name for name, cause in self._gone.items() if cause.health == "retired")

    @remembered
    def _since(self) -> dict[tuple[str, str], int]:
        return self._windows.expectations()

    @remembered
    def _schedules(self) -> tuple[Schedule, ...]:
        return tuple(self._load_schedules())

    @remembered
    def _members(self) -> frozenset[str]:
        return frozenset(member for source in self._settings.sources for member in source.members)

    # --- facts of all datasets -------------------------------------------------------

    def _is_live(self, run_id: str) -> bool:
        return run_id in self._alive

    @remembered
    def _alive(self) -> frozenset[str]:
        """The runs whose lease holds, by a process that is not known to be dead."""
        return frozenset(
            lock.holder.run_id
            for lock in self._ledger.locks()
            if lock.holder is not None
            and lock.lease_until_ms > self._now_ms
            and not self._is_dead(lock.holder.worker_id)
        )

    @remembered
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


def _not_asked(source_id: str, window: Window, at_ms: int) -> WindowVerdict:
    return WindowVerdict(
        source_id=source_id,
        start_ms=window.start_ms,
        end_ms=window.end_ms,
        state="waiting",
        due_ms=at_ms,
        waiting_for="next-run",
    )


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


def _cadence_text(product: FeedProduct) -> str:
    """What is expected of a row of a feed."""
    if not product.cadences:
        return "no cadence is known: shown by its lag"
    from kfm.model.quantities import duration

    parts = []
    for one in product.cadences:
        at = f" of {', '.join(f'{hour:02d}' for hour in one.hours)} UTC" if len(one.hours) < 24 else ""
        parts.append(f"{one.per_hour} an hour{at}, {duration(one.latency_ms)} after its end")
    return "; ".join(parts)


# --- from an application -------------------------------------------------------------


def completeness_of(
    app: Any, now_ms: int | None = None, schedules: Schedules | None = None
) -> CompletenessReader:
    """For the configuration of an application, by its schedules as they are written now."""
    return completeness_in(
        app.loaded,
        app.ledger,
        app.liveness.is_dead,
        schedules=schedules,
        now_ms=now_ms,
        shipped=app.shipped_feed,
    )


def completeness_in(
    loaded: Loaded,
    ledger: LedgerReader,
    is_dead: Callable[[str], bool],
    *,
    schedules: Schedules | None = None,
    now_ms: int | None = None,
    shipped: Shipped,
    memory: VerdictMemory | None = None,
) -> CompletenessReader:
    """For a configuration and its ledger. `shipped`: what comes with announced datasets. `memory`: what this
    process found before."""
    return CompletenessReader(
        loaded.settings,
        ledger,
        ledger.now_ms() if now_ms is None else now_ms,
        schedules=schedules or (lambda: written_schedules(loaded)),
        is_dead=is_dead,
        latency_ms=lambda source: contract_latency_ms(loaded, source),
        shipped=shipped,
        memory=memory,
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
    path = loaded.resolve(source.contract)
    with open(path, "rb") as file:
        data = file.read()
    known = recall(loaded.cache, CachedLatency, path, data)
    if known is not None:
        return known.latency_ms
    from kfm.publish.contract import load_contract

    contract = load_contract(data, source.contract)
    latency_ms = min((rule.age_ms_max for rule in contract.freshness), default=None)
    remember(loaded.cache, CachedLatency(__version__, path, data, latency_ms))
    return latency_ms


class CachedLatency(CachedFile, frozen=True):
    latency_ms: int | None
