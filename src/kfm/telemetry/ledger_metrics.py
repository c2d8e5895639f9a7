"""Metrics folded from the ledger. It outlives every process, so its counts never restart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from kfm.model import audit
from kfm.model.completeness import HEALTH_RANK, WINDOW_STATES, DatasetHealth
from kfm.model.dataset_changes import active
from kfm.model.errors import KfmError
from kfm.model.incidents import SEVERITY
from kfm.model.records import UNIT_STATUSES, Invocation, Run
from kfm.model.run_state import PassFigures
from kfm.model.runs import Attempt, CallRetry
from kfm.telemetry.exposition import Tallies

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader

TOPICS = ("openlineage", "unit-lineage")
ENDINGS = ("complete", "fail", "abort")
POSITIONS = {"running": 0, "paused": 1, "stopped": 2}
CIRCUITS = {"closed": 0, "half-open": 1, "open": 2}
CHAIN_ROWS = 1000
CALLS_OF_A_RUN_MAX = 10_000

_OpenAttempt = tuple[str, int, str]
WRITTEN = ("success", "failed", "partial", "skipped")
Figure = tuple[str, str, int, int | None]  # dataset, name, amount, newest time
TOTALS = {
    "mismatches": "nodd_sns.replay_mismatch_total",
    "duplicates": "nodd_sns.duplicates_total",
    "stale": "nodd_sns.stale_total",
    "reissues_ignored": "nodd_sns.reissues_ignored_total",
}
PAGE_ROWS = 1000
LATE_MS = 600_000  # a transaction that is still open after this long is not waited for
Row = TypeVar("Row", bound=tuple[object, ...])


class Folding:
    """Tallies that are brought up to date with each reading."""

    def __init__(self) -> None:
        self.tallies = Tallies()
        self._public: Callable[[str], str] = str
        self._providers: Callable[[str], str] = str
        self._attempts, self._retries, self._calls = TablePosition(), TablePosition(), TablePosition()
        self._open: dict[_OpenAttempt, Run] = {}
        self._unanswered: dict[str, str | None] = {}  # invocation → its run
        self._succeeded_ms: dict[str, int] = {}
        self._chain = Chain()
        self._passes = PassFolding()

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
        now_ms = ledger.now_ms()
        self._finish_open(ledger)
        for _, attempt, run in self._attempts.read(
            ledger.attempts_since, lambda row: row[1].started_at_ms, now_ms
        ):
            if attempt.ending is None:
                self._open[attempt.run_id, attempt.attempt, attempt.node] = run
            else:
                self._count(attempt, run)
        for _, retry in self._retries.read(ledger.retries_since, lambda row: row[1].at_ms, now_ms):
            self._count_retry(retry)
        self._passes.fold(ledger, self.tallies, pipelines, now_ms)
        self._answer_calls(ledger)
        for _, call in self._calls.read(ledger.invocations_since, lambda row: row[1].requested_at_ms, now_ms):
            if call.outcome is None:
                self._unanswered[call.invocation_id] = call.run_id
            else:
                self._count_call(call)
        self.tallies.forget_gauges()
        self._passes.levels(self.tallies)
        fold_units(ledger.unit_figures(), self.tallies, units)
        retired = {one.dataset_id for one in active(ledger.change_reader().withdrawals()) if one.retires}
        self._levels(ledger, now_ms, [one for one in datasets if one not in retired], retired, version)
        for each in healths:
            if each.dataset_id not in retired:  # nothing is expected of it any more
                self._completeness(each)
        return self.tallies

    # --- what has happened -----------------------------------------------------------

    def _finish_open(self, ledger: LedgerReader) -> None:
        for run_id in sorted({key[0] for key in self._open}):
            for attempt in ledger.attempts(run_id):
                key = (attempt.run_id, attempt.attempt, attempt.node)
                if attempt.ending is not None and key in self._open:
                    self._count(attempt, self._open.pop(key))

    def _answer_calls(self, ledger: LedgerReader) -> None:
        for run_id in sorted({run_id for run_id in self._unanswered.values() if run_id is not None}):
            for call in ledger.invocations(run_id=run_id, limit=CALLS_OF_A_RUN_MAX):
                if call.outcome is not None and call.invocation_id in self._unanswered:
                    del self._unanswered[call.invocation_id]
                    self._count_call(call)

    def _count(self, attempt: Attempt, run: Run) -> None:
        if attempt.node:
            self._count_node(attempt, run)
            return
        tallies, dataset = self.tallies, self._public(run.dataset_id)
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

    def _count_node(self, attempt: Attempt, run: Run) -> None:
        tallies, dataset, node = self.tallies, self._public(run.dataset_id), attempt.node
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
        self.tallies.add(metric, node=retry.node, error_class=retry.error_class)
        if retry.outcome == "retried":
            self.tallies.add("kfm.call.wait_seconds_total", retry.delay_ms * 1000, node=retry.node)

    def _count_call(self, call: Invocation) -> None:
        dataset = self._public(call.dataset_id)
        self.tallies.add(
            "kfm.updater.invocations_total",
            dataset=dataset,
            trigger=call.trigger_type,
            outcome=str(call.outcome),
        )
        if call.outcome == "noop":  # looked, and all is as it should be
            self._succeed(dataset, call.requested_at_ms)

    def _succeed(self, dataset: str, at_ms: int) -> None:
        self._succeeded_ms[dataset] = max(at_ms, self._succeeded_ms.get(dataset, 0))

    # --- how things stand ------------------------------------------------------------

    def _levels(
        self, ledger: LedgerReader, now_ms: int, datasets: list[str], retired: set[str], version: str
    ) -> None:
        put = self.tallies.put
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
                self._succeeded_ms.pop(name, None)
                continue
            if changes.change(head.run_id) is None:  # a rollback is no fresh data
                self._succeed(name, head.promoted_at_ms)
            put("kfm.dataset.head_sequence", head.sequence, dataset=name)
            put("kfm.dataset.promoted_timestamp_seconds", head.promoted_at_ms / 1000, dataset=name)
        for name, at_ms in self._succeeded_ms.items():
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
        length, broken = self._chain.follow(ledger)
        put("kfm.audit.chain_length", length)
        put("kfm.audit.chain_broken", int(broken))

    def _completeness(self, found: DatasetHealth) -> None:
        """How a dataset is, by the same verdict as every report."""
        put, name = self.tallies.put, self._public(found.dataset_id)
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
    """The audit log, followed link by link. What was found broken stays so until the next start."""

    def __init__(self) -> None:
        self._number, self._hash, self._broken = 0, audit.ZEROS, False

    def follow(self, ledger: LedgerReader) -> tuple[int, bool]:
        """Its length, and whether an entry does not follow from the one before."""
        length, head_hash = ledger.chain_head()  # before the links: a chain may grow meanwhile
        at_head = self._hash if self._number == length else None
        while not self._broken:
            links = ledger.chain(self._number, CHAIN_ROWS)
            for one in links:
                if one.hash == "" and self._number == 0:
                    return length, self._broken  # from before there was a chain; the next entry takes it in
                try:
                    made = audit.link(self._hash, self._number + 1, one.entry)
                except KfmError:  # a value that has no canonical form was never recorded
                    made = None
                if made is None or (one.number, one.previous, one.hash) != (
                    made.number,
                    made.previous,
                    made.hash,
                ):
                    self._broken = True
                    break
                self._number, self._hash = made.number, made.hash
                at_head = made.hash if made.number == length else at_head
            if len(links) < CHAIN_ROWS:
                break
        self._broken = self._broken or at_head != head_hash
        return length, self._broken


def _duration_ms(attempt: Attempt) -> int:
    return max(0, (attempt.ended_at_ms or attempt.started_at_ms) - attempt.started_at_ms)


class PassFolding:
    def __init__(self) -> None:
        self._named: Callable[[PassFigures], str] = lambda figures: figures.pipeline_id
        self._place = TablePosition()
        self._open: set[tuple[str, int]] = set()
        self._ratios: dict[str, tuple[int, float]] = {}  # pipeline → when its newest run began, its ratio

    def fold(
        self, ledger: LedgerReader, tallies: Tallies, named: Callable[[PassFigures], str], now_ms: int
    ) -> None:
        self._named = named
        for run_id in sorted({run_id for run_id, _ in self._open}):
            for figures in ledger.pass_attempts(run_id):
                if figures.ended_at_ms is not None and (run_id, figures.attempt) in self._open:
                    self._open.discard((run_id, figures.attempt))
                    self._count(figures, tallies)
        for _, figures in self._place.read(
            ledger.pass_attempts_since, lambda row: row[1].started_at_ms, now_ms
        ):
            if figures.ended_at_ms is None:
                self._open.add((figures.run_id, figures.attempt))
            else:
                self._count(figures, tallies)

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

    def levels(self, tallies: Tallies) -> None:
        for pipeline, (_, ratio) in self._ratios.items():
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
