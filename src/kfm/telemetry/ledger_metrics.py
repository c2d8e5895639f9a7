"""Metrics folded from the ledger. It outlives every process, so its counts never restart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import msgspec

from kfm.db.folds import digest_of
from kfm.model import audit
from kfm.model.completeness import HEALTH_RANK, WINDOW_STATES, DatasetHealth
from kfm.model.dataset_changes import active
from kfm.model.errors import KfmError
from kfm.model.incidents import SEVERITY
from kfm.model.records import UNIT_STATUSES, Invocation, Record
from kfm.model.run_state import PassFigures
from kfm.model.runs import Attempt, CallRetry, ChainLink
from kfm.telemetry.exposition import Distribution, Labels, Tallies
from kfm.telemetry.metric_catalogue import metrics

if TYPE_CHECKING:
    from kfm.db.ledger import Ledger
    from kfm.db.ledger_reader import LedgerReader

TOPICS = ("openlineage", "unit-lineage")
ENDINGS = ("complete", "fail", "abort")
POSITIONS = {"running": 0, "paused": 1, "stopped": 2}
CIRCUITS = {"closed": 0, "half-open": 1, "open": 2}
CHAIN_ROWS = 1000
NEW_ROWS = 1000  # that a fold is worth a commit for
FOLDED_ROWS = 50_000  # of each table, at once: what else has to be done does not wait for long

_OpenAttempt = tuple[str, int, str]  # run, attempt, node
WRITTEN = ("success", "failed", "partial", "skipped")
Figure = tuple[str, str, int, int | None]  # dataset, name, amount, newest time
TOTALS = {
    "mismatches": "nodd_sns.replay_mismatch_total",
    "duplicates": "nodd_sns.duplicates_total",
    "stale": "nodd_sns.stale_total",
    "reissues_ignored": "nodd_sns.reissues_ignored_total",
    "lost": "nodd_sns.units_lost_total",
}
PAGE_ROWS = 1000
LATE_MS = 600_000  # a transaction that is still open after this long is not waited for
Row = TypeVar("Row", bound=tuple[object, ...])


class Counted(Record, frozen=True):
    """What an attempt counts for."""

    dataset_id: str
    trigger_type: str


class MetricFold(Record, frozen=True):
    """Everything that was counted, and how far: from here another process reads on.

    Names are those of the ledger, whatever may be shown of them: what is masked is decided with each reading.
    """

    counters: dict[str, list[tuple[Labels, int]]]
    histograms: dict[str, list[tuple[Labels, list[int], int]]]  # counts by bucket, sum in ms
    positions: dict[str, tuple[int, list[int]]]  # table → floor, numbers ahead of it
    open_attempts: list[tuple[str, int, str, Counted]]
    unanswered: list[str]
    succeeded_ms: dict[str, int]
    chain: tuple[int, str]
    open_passes: list[tuple[str, int]]
    ratios: dict[str, tuple[int, float]]


class Folding:
    """Tallies that are brought up to date with each reading."""

    def __init__(self, fold: MetricFold | None = None) -> None:
        self._counts = Tallies()  # under the names of the ledger
        self._public: Callable[[str], str] = str
        self._providers: Callable[[str], str] = str
        self._attempts, self._retries, self._calls = TablePosition(), TablePosition(), TablePosition()
        self._open: dict[_OpenAttempt, Counted] = {}
        self._unanswered: set[str] = set()  # invocations
        self._succeeded_ms: dict[str, int] = {}
        self._chain = Chain()
        self._passes = PassFolding()
        if fold is not None:
            self._take_up(fold)

    def _take_up(self, fold: MetricFold) -> None:
        for name, counted in fold.counters.items():
            self._counts.counters[name] = dict(counted)
        for name, observed in fold.histograms.items():
            self._counts.histograms[name] = {key: Distribution(counts, ms) for key, counts, ms in observed}
        for name, place in self._places().items():
            place.move_to(*fold.positions[name])
        self._open = {(run_id, attempt, node): of for run_id, attempt, node, of in fold.open_attempts}
        self._unanswered = set(fold.unanswered)
        self._succeeded_ms = dict(fold.succeeded_ms)
        self._chain = Chain(*fold.chain)
        self._passes.take_up(fold.open_passes, fold.ratios)

    def folded(self) -> MetricFold:
        """What was counted so far."""
        return MetricFold(
            counters={name: sorted(series.items()) for name, series in self._counts.counters.items()},
            histograms={
                name: [(key, list(one.counts), one.sum_ms) for key, one in sorted(series.items())]
                for name, series in self._counts.histograms.items()
            },
            positions={name: place.at() for name, place in self._places().items()},
            open_attempts=[(*key, of) for key, of in sorted(self._open.items())],
            unanswered=sorted(self._unanswered),
            succeeded_ms=dict(sorted(self._succeeded_ms.items())),
            chain=self._chain.verified,
            open_passes=self._passes.open(),
            ratios=self._passes.ratios(),
        )

    def _places(self) -> dict[str, TablePosition]:
        return {
            "attempts": self._attempts,
            "retries": self._retries,
            "invocations": self._calls,
            "pass_attempts": self._passes.place,
        }

    def fold(
        self,
        ledger: LedgerReader,
        public: Callable[[str], str],
        datasets: Iterable[str],
        version: str,
        providers: Callable[[str], str] = str,
        pipelines: Callable[[PassFigures], str] = lambda figures: figures.pipeline_id,
        units: Callable[[str], str] = str,
        healths: Iterable[DatasetHealth] = (),
    ) -> Tallies:
        """Everything that has happened since the last time, and how things stand now.

        `public` gives a dataset's public name. It must give the same each time: counts are kept under it.
        `providers` does so for those whom sources call, `pipelines` for those of pipeline runs, `units` for
        the datasets of announced objects.
        """
        self._public, self._providers = public, providers
        datasets = list(datasets)
        self.read(ledger)
        shown_pipeline = lambda name: pipelines(_figures_of(name))  # noqa: E731
        tallies = shown(self._counts, public, shown_pipeline)
        self._passes.levels(tallies, shown_pipeline)
        fold_units(ledger.unit_figures(), tallies, units)
        retired = {one.dataset_id for one in active(ledger.change_reader().withdrawals()) if one.retires}
        present = [one for one in datasets if one not in retired]
        self._levels(tallies, ledger, ledger.now_ms(), present, retired, version)
        declared = set(datasets)
        for each in healths:
            if each.dataset_id not in retired:  # nothing is expected of it any more
                is_feed = each.dataset_id not in declared  # alone: what is announced publicly is no secret
                name = units(each.dataset_id) if is_feed else public(each.dataset_id)
                self._completeness(tallies, each, name)
        return tallies

    def read(self, ledger: LedgerReader, rows_max: int | None = None) -> int:
        """Count what has happened since the last time, at most so many rows of each table; how many rows."""
        now_ms = ledger.now_ms()
        self._finish_open(ledger)
        count = 0
        for _, attempt, run in islice(
            self._attempts.read(ledger.attempts_since, lambda row: row[1].started_at_ms, now_ms), rows_max
        ):
            count += 1
            of = Counted(dataset_id=run.dataset_id, trigger_type=run.trigger_type)
            if attempt.ending is None:
                self._open[attempt.run_id, attempt.attempt, attempt.node] = of
            else:
                self._count(attempt, of)
        for _, retry in islice(
            self._retries.read(ledger.retries_since, lambda row: row[1].at_ms, now_ms), rows_max
        ):
            count += 1
            self._count_retry(retry)
        count += self._passes.fold(ledger, self._counts, _name_of, now_ms, rows_max)
        self._answer_calls(ledger)
        for _, call in islice(
            self._calls.read(ledger.invocations_since, lambda row: row[1].requested_at_ms, now_ms), rows_max
        ):
            count += 1
            if call.outcome is None:
                self._unanswered.add(call.invocation_id)
            else:
                self._count_call(call)
        followed, _ = self._chain.verified
        self._chain.follow(ledger, rows_max)
        return count + self._chain.verified[0] - followed

    # --- what has happened -----------------------------------------------------------

    def _finish_open(self, ledger: LedgerReader) -> None:
        for run_id in sorted({key[0] for key in self._open}):
            for attempt in ledger.attempts(run_id):
                key = (attempt.run_id, attempt.attempt, attempt.node)
                if attempt.ending is not None and key in self._open:
                    self._count(attempt, self._open.pop(key))

    def _answer_calls(self, ledger: LedgerReader) -> None:
        for invocation_id in sorted(self._unanswered):
            call = ledger.invocation(invocation_id)
            if call is not None and call.outcome is not None:
                self._unanswered.discard(invocation_id)
                self._count_call(call)

    def _count(self, attempt: Attempt, run: Counted) -> None:
        if attempt.node:
            self._count_node(attempt, run)
            return
        tallies, dataset = self._counts, run.dataset_id
        assert attempt.ending is not None
        for ending in ENDINGS:  # all at once: a rate needs a zero to rise from
            tallies.add(
                "kfm.updater.runs_total",
                int(ending == attempt.ending),
                dataset=dataset,
                trigger=run.trigger_type,
                outcome=ending,
            )
        tallies.observe_ms(
            "kfm.updater.run_duration_seconds", _duration_ms(attempt), dataset=dataset, outcome=attempt.ending
        )
        is_retry = attempt.attempt > 1
        tallies.add("kfm.updater.retries_total", int(is_retry), dataset=dataset, trigger=run.trigger_type)
        if attempt.energy is not None:
            labels = {"dataset": dataset, "retry": str(is_retry).lower()}
            tallies.add("kfm.updater.cpu_seconds_total", attempt.energy.cpu_us, **labels)
            tallies.add("kfm.updater.energy_wh_total", attempt.energy.energy_uwh, **labels)
            tallies.add("kfm.updater.co2_g_total", attempt.energy.co2_ug, **labels)
        if attempt.ending == "complete" and attempt.ended_at_ms is not None:
            self._succeed(dataset, attempt.ended_at_ms)

    def _count_node(self, attempt: Attempt, run: Counted) -> None:
        tallies, dataset, node = self._counts, run.dataset_id, attempt.node
        outcome = "aborted" if attempt.ending == "abort" else attempt.outcome or "failed"
        tallies.add("kfm.pattern.node_writes_total", dataset=dataset, node=node, outcome=outcome)
        tallies.observe_ms(
            "kfm.pattern.node_duration_seconds", _duration_ms(attempt), node=node, outcome=outcome
        )
        if attempt.energy is not None:
            labels = {"dataset": dataset, "node": node}
            tallies.add("kfm.pattern.node_cpu_seconds_total", attempt.energy.cpu_us, **labels)
            tallies.add("kfm.pattern.node_energy_wh_total", attempt.energy.energy_uwh, **labels)
            tallies.add("kfm.pattern.node_co2_g_total", attempt.energy.co2_ug, **labels)

    def _count_retry(self, retry: CallRetry) -> None:
        metric = "kfm.call.retries_total" if retry.outcome == "retried" else "kfm.call.gave_up_total"
        self._counts.add(metric, node=retry.node, error_class=retry.error_class)
        if retry.outcome == "retried":
            self._counts.add("kfm.call.wait_seconds_total", retry.delay_ms * 1000, node=retry.node)

    def _count_call(self, call: Invocation) -> None:
        self._counts.add(
            "kfm.updater.invocations_total",
            dataset=call.dataset_id,
            trigger=call.trigger_type,
            outcome=str(call.outcome),
        )
        if call.outcome == "noop":  # looked, and all is as it should be
            self._succeed(call.dataset_id, call.requested_at_ms)

    def _succeed(self, dataset_id: str, at_ms: int) -> None:
        self._succeeded_ms[dataset_id] = max(at_ms, self._succeeded_ms.get(dataset_id, 0))

    # --- how things stand ------------------------------------------------------------

    def _levels(
        self,
        tallies: Tallies,
        ledger: LedgerReader,
        now_ms: int,
        datasets: list[str],
        retired: set[str],
        version: str,
    ) -> None:
        put = tallies.put
        put("kfm.build.info", 1, version=version)
        open_runs: dict[str, int] = {}
        changes = ledger.change_reader()
        for dataset_id in datasets:
            put("kfm.dataset.info", 1, dataset=self._public(dataset_id))
            open_runs[self._public(dataset_id)] = 0
        for (_, _, node), run in self._open.items():
            if not node:
                name = self._public(run.dataset_id)
                open_runs[name] = open_runs.get(name, 0) + 1
        for name, count in open_runs.items():
            put("kfm.updater.runs_open", count, dataset=name)
        for head in ledger.heads():
            name = self._public(head.dataset_id)
            if head.dataset_id in retired:
                self._succeeded_ms.pop(head.dataset_id, None)
                continue
            if changes.change(head.run_id) is None:  # a rollback is no fresh data
                self._succeed(head.dataset_id, head.promoted_at_ms)
            put("kfm.dataset.head_sequence", head.sequence, dataset=name)
            put("kfm.dataset.promoted_timestamp_seconds", head.promoted_at_ms / 1000, dataset=name)
        newest: dict[str, int] = {}
        for dataset_id, at_ms in self._succeeded_ms.items():
            name = self._public(dataset_id)
            newest[name] = max(at_ms, newest.get(name, at_ms))
        for name, at_ms in newest.items():
            put("kfm.dataset.last_success_timestamp_seconds", at_ms / 1000, dataset=name)
        for switch in ledger.switches():
            scope = self._scope(switch.scope)
            put("kfm.switch.position", POSITIONS[switch.position], scope=scope)
            put("kfm.switch.set_timestamp_seconds", switch.set_at_ms / 1000, scope=scope)
        for breaker in ledger.breakers():
            put("kfm.breaker.state", CIRCUITS[breaker.state], provider=self._providers(breaker.provider))
        ahead = ledger.ahead()
        held_ms = 0 if ahead.held_since_ms is None else max(0, now_ms - ahead.held_since_ms)
        put("kfm.held.items", ahead.held)
        put("kfm.held.oldest_age_seconds", held_ms / 1000)
        put("kfm.updater.retries_waiting", ahead.waiting)
        open_incidents = ledger.open_incidents()
        for kind, severity in SEVERITY.items():
            put("kfm.incident.open", open_incidents.get(kind, 0), kind=kind, severity=severity)
        for topic in TOPICS:
            backlog = ledger.backlog(topic)
            age_ms = 0 if backlog.oldest_ms is None else max(0, now_ms - backlog.oldest_ms)
            put("kfm.outbox.waiting", backlog.waiting, topic=topic)
            put("kfm.outbox.oldest_age_seconds", age_ms / 1000, topic=topic)
        self._chain.patrol(ledger)
        put("kfm.audit.chain_length", self._chain.length)
        put("kfm.audit.chain_broken", int(self._chain.is_broken))

    def _completeness(self, tallies: Tallies, found: DatasetHealth, name: str) -> None:
        """How a dataset is, by the same verdict as every report."""
        put = tallies.put
        for state in WINDOW_STATES:
            put("kfm.dataset.windows", found.counts.get(state, 0), dataset=name, state=state)
        for word in HEALTH_RANK:
            put("kfm.dataset.health", int(word == found.state), dataset=name, health=word)
        put("kfm.dataset.freshness_lag_seconds", (found.lag_ms or 0) / 1000, dataset=name)

    def _scope(self, scope: str) -> str:
        kind, _, name = scope.partition(":")
        if kind == "domain":
            return f"{kind}:{self._providers(name)}"
        return f"{kind}:{self._public(name)}" if name not in ("", "all") else scope


class Chain:
    """The audit log, followed link by link. What was found broken stays so until the next start.

    What was followed before a fold is gone over again bit by bit, a page with each reading: an entry that is
    changed afterwards is found, too, and no start waits for it.
    """

    def __init__(self, number: int = 0, last_hash: str = audit.ZEROS) -> None:
        self._number, self._hash = number, last_hash
        self._until = number  # what another process has followed
        self._again, self._again_hash = 0, audit.ZEROS
        self.length, self.is_broken = 0, False

    @property
    def verified(self) -> tuple[int, str]:
        """How far it was followed without a break: number and hash."""
        return self._number, self._hash

    def follow(self, ledger: LedgerReader, rows_max: int | None = None) -> tuple[int, bool]:
        """Its length, and whether an entry does not follow from the one before; at most so many are read."""
        self.length, head_hash = ledger.chain_head()  # before the links: a chain may grow meanwhile
        at_head = self._hash if self._number == self.length else None
        began = self._number
        while not self.is_broken and (rows_max is None or self._number - began < rows_max):
            links = ledger.chain(self._number, CHAIN_ROWS)
            for one in links:
                if one.hash == "" and self._number == 0:
                    return self.length, self.is_broken  # from before the chain; the next entry takes it in
                made = _next_link(self._hash, self._number, one)
                if made is None:
                    self.is_broken = True
                    break
                self._number, self._hash = made
                at_head = made[1] if made[0] == self.length else at_head
            if len(links) < CHAIN_ROWS:
                self.is_broken = self.is_broken or at_head != head_hash
                break
        return self.length, self.is_broken

    def patrol(self, ledger: LedgerReader) -> None:
        """Go over the next page of what was followed before this process began."""
        if self._again >= self._until or self.is_broken:
            return
        links = ledger.chain(self._again, CHAIN_ROWS)
        self.is_broken = not links
        for one in links:
            made = _next_link(self._again_hash, self._again, one)
            if made is None:
                self.is_broken = True
                return
            self._again, self._again_hash = made


def _next_link(previous: str, number: int, one: ChainLink) -> tuple[int, str] | None:
    """Number and hash of an entry that follows from the one before; None: it does not."""
    try:
        made = audit.link(previous, number + 1, one.entry)
    except KfmError:  # a value that has no canonical form was never recorded
        return None
    follows = (one.number, one.previous, one.hash) == (made.number, made.previous, made.hash)
    return (made.number, made.hash) if follows else None


def shown(counts: Tallies, dataset: Callable[[str], str], pipeline: Callable[[str], str]) -> Tallies:
    """The same counts under the names that may be shown; two that have the same are one."""
    found, known = Tallies(), metrics()
    naming = {"dataset": dataset, "pipeline": pipeline}

    def names(metric: str, labels: Labels) -> Labels:
        kinds = known[metric].labels
        return tuple(
            naming[kind](value) if kind in naming else value
            for kind, value in zip(kinds, labels, strict=True)
        )

    for metric, series in counts.counters.items():
        totals = found.counters.setdefault(metric, {})
        for labels, parts in series.items():
            key = names(metric, labels)
            totals[key] = totals.get(key, 0) + parts
    for metric, observed in counts.histograms.items():
        sums = found.histograms.setdefault(metric, {})
        for labels, one in observed.items():
            key = names(metric, labels)
            before = sums.get(key, Distribution([0] * len(one.counts)))
            added = [a + b for a, b in zip(before.counts, one.counts, strict=True)]
            sums[key] = Distribution(added, before.sum_ms + one.sum_ms)
    return found


_BETWEEN = "\x1f"  # no name has it


def _name_of(figures: PassFigures) -> str:
    """What the runs of a pipeline are counted under: also whose it is decides whether it may be named."""
    return f"{figures.dataset_id or ''}{_BETWEEN}{figures.pipeline_id}"


def _figures_of(name: str) -> PassFigures:
    owner, _, pipeline_id = name.partition(_BETWEEN)
    return PassFigures(
        run_id="", attempt=1, pipeline_id=pipeline_id, branch="", state="success", started_at_ms=0,
        ended_at_ms=0, success=0, failed=0, partial=0, skipped=0, worked_ms=0, dataset_id=owner or None,
    )  # fmt: skip


FOLD = "metrics"


def _form() -> str:
    """What a fold is made of: one that was counted by another rule is counted anew."""
    rules = [(one.name, one.labels, one.buckets) for one in metrics().values() if "ledger" in one.origins]
    return digest_of(msgspec.json.encode(["kfm.metric-fold/1", rules]).decode())


def take_up(ledger: LedgerReader) -> Folding:
    """Folding that goes on from the fold that is kept; from the beginning where there is none."""
    kept = ledger.fold(FOLD, _form())
    return Folding(None if kept.body is None else _decode(kept.body))


def keep_fold(store: Ledger, rows_min: int = NEW_ROWS, rows_max: int = FOLDED_ROWS) -> int:
    """Fold what is new, a bounded part of it, and keep that for the next process; how many rows were kept.

    Whichever of two processes is first keeps its own: each is whole, and neither is added to the other.
    """
    kept = store.fold(FOLD, _form())
    folding = Folding(None if kept.body is None else _decode(kept.body))
    count = folding.read(store, rows_max)
    if count < rows_min:
        return 0
    landed = store.keep_fold(FOLD, _form(), kept, msgspec.json.encode(folding.folded()).decode())
    return count if landed else 0


def counted_rows(ledger: LedgerReader) -> Callable[[str, int], bool]:
    """Has the fold that is kept counted this row of that table? Only then may the row go."""
    kept = ledger.fold(FOLD, _form())
    positions = {} if kept.body is None else _decode(kept.body).positions
    places = {table: (floor, frozenset(ahead)) for table, (floor, ahead) in positions.items()}

    def is_counted(table: str, number: int) -> bool:
        floor, ahead = places.get(table, (0, frozenset()))
        return number <= floor or number in ahead

    return is_counted


def _decode(body: str) -> MetricFold:
    return msgspec.json.decode(body, type=MetricFold)


def _duration_ms(attempt: Attempt) -> int:
    return max(0, (attempt.ended_at_ms or attempt.started_at_ms) - attempt.started_at_ms)


class PassFolding:
    def __init__(self) -> None:
        self._named: Callable[[PassFigures], str] = lambda figures: figures.pipeline_id
        self.place = TablePosition()
        self._open: set[tuple[str, int]] = set()
        self._ratios: dict[str, tuple[int, float]] = {}  # pipeline → when its newest run began, its ratio

    def take_up(self, still_open: list[tuple[str, int]], ratios: dict[str, tuple[int, float]]) -> None:
        self._open, self._ratios = set(still_open), dict(ratios)

    def open(self) -> list[tuple[str, int]]:
        return sorted(self._open)

    def ratios(self) -> dict[str, tuple[int, float]]:
        return dict(sorted(self._ratios.items()))

    def fold(
        self,
        ledger: LedgerReader,
        tallies: Tallies,
        named: Callable[[PassFigures], str],
        now_ms: int,
        rows_max: int | None = None,
    ) -> int:
        """How many rows were new."""
        self._named = named
        for run_id in sorted({run_id for run_id, _ in self._open}):
            for figures in ledger.pass_attempts(run_id):
                if figures.ended_at_ms is not None and (run_id, figures.attempt) in self._open:
                    self._open.discard((run_id, figures.attempt))
                    self._count(figures, tallies)
        count = 0
        for _, figures in islice(
            self.place.read(ledger.pass_attempts_since, lambda row: row[1].started_at_ms, now_ms), rows_max
        ):
            count += 1
            if figures.ended_at_ms is None:
                self._open.add((figures.run_id, figures.attempt))
            else:
                self._count(figures, tallies)
        return count

    def _count(self, figures: PassFigures, tallies: Tallies) -> None:
        assert figures.ended_at_ms is not None
        pipeline = self._named(figures)
        tallies.add("kfm.pass.passes_total", pipeline=pipeline, outcome=figures.state)
        took_ms = max(0, figures.ended_at_ms - figures.started_at_ms)
        tallies.observe_ms("kfm.pass.duration_seconds", took_ms, pipeline=pipeline, outcome=figures.state)
        for outcome in WRITTEN:  # all at once: a rate needs a zero to rise from
            tallies.add("kfm.pass.nodes_total", getattr(figures, outcome), pipeline=pipeline, outcome=outcome)
        tallies.add("kfm.pass.node_seconds_total", figures.worked_ms, pipeline=pipeline)
        written = sum(getattr(figures, outcome) for outcome in WRITTEN)
        if written and figures.started_at_ms >= self._ratios.get(pipeline, (0, 0.0))[0]:
            self._ratios[pipeline] = (figures.started_at_ms, figures.skipped / written)

    def levels(self, tallies: Tallies, shown: Callable[[str], str] = str) -> None:
        newest: dict[str, tuple[int, float]] = {}
        for pipeline, found in self._ratios.items():
            newest[shown(pipeline)] = max(found, newest.get(shown(pipeline), found))
        for pipeline, (_, ratio) in newest.items():
            tallies.put("kfm.pass.skip_ratio", ratio, pipeline=pipeline)


def fold_units(figures: Iterable[Figure], tallies: Tallies, public: Callable[[str], str]) -> None:
    """`public` gives a dataset's public name; two that have the same are one."""
    amounts: Counter[tuple[str, str]] = Counter()
    newest: dict[str, int] = {}
    for dataset, name, amount, high_ms in figures:
        shown = public(dataset) if dataset else ""
        amounts[shown, name] += int(amount)
        if name == "watermark" and high_ms is not None:
            newest[shown] = max(high_ms, newest.get(shown, high_ms))
    for dataset in sorted({dataset for dataset, _ in amounts if dataset}):
        for status in UNIT_STATUSES:  # also those that nothing has: a level that is missing is none
            count = amounts[dataset, status]
            tallies.put("nodd_sns.wal_records_total", count, dataset=dataset, status=status)
        for name, metric in TOTALS.items():
            tallies.set_total(metric, amounts[dataset, name], dataset=dataset)
        tried = {
            int(name.removeprefix("attempts:")): count
            for (whose, name), count in amounts.items()
            if whose == dataset and name.startswith("attempts:")
        }
        tallies.set_distribution("nodd_sns.wal_attempts_histogram", tried, dataset=dataset)
    for (dataset, name), count in sorted(amounts.items()):
        kind, colon, label = name.partition(":")
        if kind == "replays" and colon:
            tallies.set_total("nodd_sns.wal_replays_total", count, dataset=dataset, replay_reason=label)
        elif kind == "dead" and colon:
            tallies.set_total("nodd_sns.dead_messages_total", count, error_code=label)
    for dataset, at_ms in newest.items():
        tallies.put("nodd_sns.watermark_timestamp_seconds", at_ms / 1000, dataset=dataset)


class TablePosition:
    """Hands out each row once.

    PostgreSQL numbers rows before they commit, so a lower number may appear after a higher one. Numbers
    that were passed over are looked for again, until the rows behind them are old.
    """

    def __init__(self) -> None:
        self._floor = 0  # everything up to here is done with
        self._ahead: set[int] = set()  # handed out although a number before it is missing

    def at(self) -> tuple[int, list[int]]:
        """Where it stands."""
        return self._floor, sorted(self._ahead)

    def move_to(self, floor: int, ahead: Iterable[int]) -> None:
        """Go on from where another stood."""
        self._floor, self._ahead = floor, set(ahead)

    def read(
        self, page: Callable[[int, int], Sequence[Row]], at_ms: Callable[[Row], int], now_ms: int
    ) -> Iterator[Row]:
        """`page(after, limit)` gives rows in the order of their number, which comes first in each."""
        after = self._floor
        while True:
            rows = page(after, PAGE_ROWS)
            for row in rows:
                after = _number(row)
                is_new = after > self._floor and after not in self._ahead
                if after == self._floor + 1 or at_ms(row) < now_ms - LATE_MS:
                    self._floor = after
                    self._ahead.discard(after)
                elif is_new:
                    self._ahead.add(after)
                if is_new:
                    yield row
            if len(rows) < PAGE_ROWS:
                return


def _number(row: tuple[object, ...]) -> int:
    number = row[0]
    assert isinstance(number, int)
    return number
