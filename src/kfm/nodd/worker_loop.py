"""The worker loop: poll, process units, run maintenance, and stop without leaving claimed units behind."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from kfm.model.errors import BackendUnavailable, KfmError, StoreCorrupt, StoreTooNew, StoreUnsafe
from kfm.model.records import Record
from kfm.model.retry import backoff_ms
from kfm.model.units import IntakeBatch, IntakeReport
from kfm.nodd.poller import IntakeExchange, Poller, PollReport
from kfm.nodd.worker import StepReport, Worker
from kfm.periodic import PeriodicTask, run_due
from kfm.ports import Clock

IDLE_MS_MAX = 1_000  # how long new work of other processes may go unseen
SHORT_POLL_MS = 200  # where no other thread works meanwhile
TOGETHER_MS = 20  # how long results wait for intake to share a transaction with
STOP_CHECK_MS = 200  # how often a wait for pollers checks whether to stop
TROUBLE_MS = 1_000
TROUBLE_MS_MAX = 30_000
LASTING = (StoreCorrupt, StoreTooNew, StoreUnsafe)  # waiting does not help
logger = logging.getLogger(__name__)


class WorkerCounts(Record, frozen=True):
    """What a worker has done since it started."""

    messages: int = 0
    ignored: int = 0
    created: int = 0
    duplicate: int = 0
    reissued: int = 0
    stale: int = 0
    removed: int = 0
    dead: int = 0
    succeeded: int = 0
    failed: int = 0
    lost: int = 0


class WorkerTotals:
    """Adds up the reports of pollers and the worker."""

    def __init__(self) -> None:
        self._sums = dict.fromkeys(WorkerCounts.__struct_fields__, 0)
        self._lock = threading.Lock()  # every queue has a thread

    def add_poll(self, report: PollReport) -> None:
        with self._lock:
            self._sums["messages"] += report.messages
            self._sums["ignored"] += report.ignored
            for name in IntakeReport.__struct_fields__:
                self._sums[name] += getattr(report.intake, name)

    def add_step(self, report: StepReport) -> None:
        with self._lock:
            for name in ("succeeded", "failed", "lost"):
                self._sums[name] += getattr(report, name)

    @property
    def counts(self) -> WorkerCounts:
        return WorkerCounts(**self._sums)


class WorkerLoop:
    """Runs one worker, and the pollers that have no thread of their own."""

    def __init__(
        self,
        worker: Worker,
        clock: Clock,
        *,
        totals: WorkerTotals,
        pollers: Sequence[Poller] = (),
        exchange: IntakeExchange | None = None,
        maintenance: Sequence[PeriodicTask] = (),
        stopping: Callable[[], bool] = lambda: False,
        rest: Callable[[int], object],
        rate: float | None = None,
        progress: Callable[[WorkerCounts], None] = lambda _counts: None,
        next_due_ms: Callable[[], int | None] = lambda: None,
        has_input: Callable[[], bool] = lambda: False,
    ) -> None:
        self._worker = worker
        self._clock = clock
        self._totals = totals
        self._pollers = pollers
        self._exchange = exchange  # with pollers in threads of their own
        self._maintenance = maintenance
        self._stopping = stopping
        self._rest = rest  # waits, unless the process is to stop
        self._rate = rate
        self._progress = progress
        self._next_due_ms = next_due_ms
        self._has_input = has_input  # a stream that has not ended is not idle, however long it is silent
        self._next_ms = clock.monotonic_ms()  # with a rate: nothing is processed before

    # --- three modes ---------------------------------------------------------------------

    def run_once(self) -> WorkerCounts:
        """Poll each queue once, and process what is due then."""
        self._maintain(everything=True)
        self._poll_and_process(SHORT_POLL_MS)
        self._process_due()
        self._maintain(everything=True)
        return self._totals.counts

    def run_until_idle(self) -> WorkerCounts:
        """Until the queues are empty and nothing is due. What is due later is not waited for."""
        self._maintain(everything=True)
        while not self._stopping():
            messages, units = self._poll_and_process(SHORT_POLL_MS)
            units = units or self._process_due()
            self._maintain()
            if not messages and not units and not self._is_due() and not self._has_input():
                break
        self._maintain(everything=True)
        return self._totals.counts

    def run_until_stopped(self) -> WorkerCounts:
        """A ledger that is unavailable is waited for."""
        failures = 0  # of the ledger, in a row
        while not self._stopping():
            try:
                messages, units = self._poll_and_process(0)
                units = units or self._process_batch()
                self._maintain()
                idle_ms = 0 if messages or units else self._idle_ms()
                failures = 0
            except BackendUnavailable as error:
                if isinstance(error, LASTING):
                    raise
                failures += 1
                idle_ms = backoff_ms(TROUBLE_MS, TROUBLE_MS_MAX, failures)
                logger.warning(
                    "%s The worker goes on in %d s", error, idle_ms // 1000, extra={"code": error.code}
                )
            if idle_ms:
                self._wait_for_work(idle_ms, in_trouble=failures > 0)
        if self._exchange is not None:
            self._exchange.close()
        self.drain()
        self._maintain(everything=True)
        return self._totals.counts

    def drain(self) -> None:
        """Finish the claimed units. Anything long starts with this, or their leases would lapse meanwhile."""
        self._record(self._worker.drain())

    # --- polling -------------------------------------------------------------------------

    def _poll_and_process(self, wait_ms: int) -> tuple[int, int]:
        """How many messages there were; and how many units were processed, or claimed, with them."""
        messages = units = 0
        for poller in self._pollers:
            if not self._shares_transactions():
                polled = poller.step(wait_ms)
            else:
                received = poller.receive(wait_ms)
                if received is None:
                    continue
                step = self._worker.step(received.intake)
                polled = poller.acknowledge(received, step.intake)
                units += self._record(step)
            self._totals.add_poll(polled)
            messages += polled.messages
        if self._exchange is not None and self._shares_transactions():
            offers, processed = self._serve_offer(self._exchange)
            messages, units = messages + offers, units + processed
        return messages, units

    def _shares_transactions(self) -> bool:
        """Does intake wait for the worker's next commit? Not with a rate, where nothing is claimed ahead,
        nor behind requests upstream, which take longer than a message should wait."""
        return self._rate is None and not self._worker.reads_objects

    def _serve_offer(self, exchange: IntakeExchange) -> tuple[int, int]:
        """Take in what a poller's thread offers; that thread acknowledges it and counts it."""
        units = 0

        def take_in(intake: IntakeBatch) -> IntakeReport:
            nonlocal units
            step = self._worker.step(intake)
            units = self._record(step)
            return step.intake

        return int(exchange.serve(take_in, TOGETHER_MS if self._worker.may_wait else 0)), units

    def _wait_for_work(self, delay_ms: int, *, in_trouble: bool) -> None:
        """Nothing is due: rest, but end the rest for an offer, unless the ledger is unavailable."""
        if self._exchange is None or in_trouble or not self._shares_transactions():
            self._rest(delay_ms)
            return
        for left_ms in range(delay_ms, 0, -STOP_CHECK_MS):
            if self._stopping() or self._exchange.wait(min(left_ms, STOP_CHECK_MS)):
                return

    # --- processing ----------------------------------------------------------------------

    def _process_due(self) -> int:
        count = 0
        while not self._stopping():
            units = self._process_batch()
            if not units:
                break
            count += units
        self.drain()
        return count

    def _process_batch(self) -> int:
        if not self._keep_rate():
            return 0
        # With a rate nothing is claimed ahead: its lease would go by while it waits for its turn.
        step = self._worker.step(ahead=self._rate is None)
        ended = step.succeeded + step.failed + step.lost
        if self._rate is not None and ended:
            self._next_ms = max(self._next_ms, self._clock.monotonic_ms()) + round(ended / self._rate * 1000)
        return self._record(step)

    def _record(self, step: StepReport) -> int:
        self._totals.add_step(step)
        self._progress(self._totals.counts)
        return step.succeeded + step.failed + step.lost + step.claimed

    def _keep_rate(self) -> bool:
        """Wait for the rate, with maintenance meanwhile; False: stop. Idle time earns no burst later."""
        while self._rate is not None and (ahead_ms := self._next_ms - self._clock.monotonic_ms()) > 0:
            self._rest(min(ahead_ms, IDLE_MS_MAX))
            self._maintain()
            if self._stopping():
                return False
        return True

    def _idle_ms(self) -> int:
        due_ms = self._next_due_ms()
        if due_ms is None or self._worker.blocked:  # what is blocked stays due
            return IDLE_MS_MAX
        return min(IDLE_MS_MAX, max(10, due_ms - self._clock.now_ms()))

    def _is_due(self) -> bool:
        due_ms = self._next_due_ms()
        return due_ms is not None and due_ms <= self._clock.now_ms() and not self._worker.blocked

    def _maintain(self, *, everything: bool = False) -> None:
        for failure in run_due(self._maintenance, self._clock.monotonic_ms(), everything=everything):
            if not isinstance(failure.error, KfmError):
                raise failure.error
            failure.log()


def poll_until_stopped(
    poller: Poller,
    totals: WorkerTotals,
    *,
    wait_ms: int,
    stopping: Callable[[], bool],
    rest: Callable[[int], object],
    exchange: IntakeExchange | None = None,
) -> None:
    """The body of a queue's thread. A queue that fails is polled again, after growing delays."""
    failures = 0
    while not stopping():
        try:
            report = poller.step(wait_ms) if exchange is None else _poll_and_offer(poller, exchange, wait_ms)
        except Exception as error:  # noqa: BLE001 - the end of this thread would end the intake unnoticed
            failures += 1
            text = str(error) if isinstance(error, KfmError) else f"{type(error).__name__}: {error}"
            logger.warning("a queue can't be read: %s", text, extra={"queue": poller.queue_name})
            rest(backoff_ms(TROUBLE_MS, TROUBLE_MS_MAX, failures))
            continue
        failures = 0
        totals.add_poll(report)
        if not report.messages and wait_ms == 0:
            rest(IDLE_MS_MAX)


def _poll_and_offer(poller: Poller, exchange: IntakeExchange, wait_ms: int) -> PollReport:
    """The intake becomes durable with the worker's next commit, or without it. Acknowledged here, since a
    remote queue takes its time."""
    received = poller.receive(wait_ms)
    if received is None:
        return PollReport()
    report = exchange.offer(received.intake)
    return poller.take_in(received) if report is None else poller.acknowledge(received, report)
