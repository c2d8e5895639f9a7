"""A worker's loop: poll, work, see to duties, and stop without leaving anything half done."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from kfm.model.errors import BackendUnavailable, KfmError, StoreCorrupt, StoreTooNew, StoreUnsafe
from kfm.model.records import Record
from kfm.model.retry import backoff_ms
from kfm.model.units import IntakeBatch, IntakeReport
from kfm.nodd.poller import IntakeExchange, Polled, Poller
from kfm.nodd.worker import BatchResult, Worker
from kfm.periodic import PeriodicTask, run_due
from kfm.ports import Clock

IDLE_MS_MAX = 1_000  # how long new work of others may go unseen
SHORT_POLL_MS = 200  # where nobody else works meanwhile
TOGETHER_MS = 20  # how long an end waits for something to be heard that goes with it
ALERT_MS = 200  # whoever waits for pollers looks this often whether to stop
TROUBLE_MS = 1_000
TROUBLE_MS_MAX = 30_000
LASTING = (StoreCorrupt, StoreTooNew, StoreUnsafe)  # waiting does not help
logger = logging.getLogger(__name__)


class Tasks(Record, frozen=True):
    """What a worker has done since it began."""

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
    """Adds up what pollers and the worker tell."""

    def __init__(self) -> None:
        self._sums = dict.fromkeys(Tasks.__struct_fields__, 0)
        self._lock = threading.Lock()  # every queue has a thread

    def polled(self, polled: Polled) -> None:
        with self._lock:
            self._sums["messages"] += polled.messages
            self._sums["ignored"] += polled.ignored
            for name in IntakeReport.__struct_fields__:
                self._sums[name] += getattr(polled.report, name)

    def worked(self, worked: BatchResult) -> None:
        with self._lock:
            for name in ("succeeded", "failed", "lost"):
                self._sums[name] += getattr(worked, name)

    @property
    def tasks(self) -> Tasks:
        return Tasks(**self._sums)


class WorkerLoop:
    """One worker, with the pollers that no thread of their own runs."""

    def __init__(
        self,
        worker: Worker,
        clock: Clock,
        *,
        account: WorkerTotals,
        pollers: Sequence[Poller] = (),
        hatch: IntakeExchange | None = None,
        maintenance: Sequence[PeriodicTask] = (),
        stopping: Callable[[], bool] = lambda: False,
        rest: Callable[[int], object],
        rate: float | None = None,
        progress: Callable[[Tasks], None] = lambda _tasks: None,
        next_due_ms: Callable[[], int | None] = lambda: None,
        more: Callable[[], bool] = lambda: False,
    ) -> None:
        self._worker = worker
        self._clock = clock
        self._account = account
        self._pollers = pollers
        self._hatch = hatch  # for what pollers in threads of their own have heard
        self._maintenance = maintenance
        self._stopping = stopping
        self._rest = rest  # waits, unless somebody wants us to stop
        self._rate = rate
        self._progress = progress
        self._next_due_ms = next_due_ms
        self._more = more  # an input that has not ended is not idle, however long it is silent
        self._next_ms = clock.monotonic_ms()  # with a rate: nothing is worked on before

    # --- three ways to work ------------------------------------------------------------

    def once(self) -> Tasks:
        """One look into each queue, and whatever is due then."""
        self._run_maintenance(everything=True)
        self._poll(SHORT_POLL_MS)
        self._work_off()
        self._run_maintenance(everything=True)
        return self._account.tasks

    def until_idle(self) -> Tasks:
        """Until the queues are empty and nothing is due. What is due later is left for then."""
        self._run_maintenance(everything=True)
        while not self._stopping():
            polled, worked = self._poll(SHORT_POLL_MS)
            worked = worked or self._work_off()
            self._run_maintenance()
            if not polled and not worked and not self._is_due() and not self._more():
                break
        self._run_maintenance(everything=True)
        return self._account.tasks

    def until_stopped(self) -> Tasks:
        """A ledger that is away for a while is waited for."""
        failures = 0  # of the ledger, one after the other
        while not self._stopping():
            try:
                polled, worked = self._poll(0)
                worked = worked or self._step()
                self._run_maintenance()
                idle_ms = 0 if polled or worked else self._idle_ms()
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
                self._rest_alert(idle_ms, troubled=failures > 0)
        if self._hatch is not None:
            self._hatch.shut()
        self.drain()
        self._run_maintenance(everything=True)
        return self._account.tasks

    def drain(self) -> None:
        """End what is held. Whatever takes long begins with this, or leases would lapse meanwhile."""
        self._account.worked(self._worker.drain())
        self._progress(self._account.tasks)

    # --- inside ------------------------------------------------------------------------

    def _poll(self, wait_ms: int) -> tuple[int, int]:
        """How many messages there were; and how many units were worked on, or claimed, with them."""
        messages = units = 0
        for poller in self._pollers:
            # With a rate nothing is claimed ahead, and who looks at objects lets no message wait for that.
            if self._rate is not None or self._worker.takes_long:
                polled = poller.step(wait_ms)
            else:
                heard = poller.hear(wait_ms)
                if heard is None:
                    continue
                worked = self._worker.step(heard.intake)
                polled = poller.acknowledge(heard, worked.report)
                units += self._note(worked)
            self._account.polled(polled)
            messages += polled.messages
        if self._hatch is not None and self._takes_offers():
            served, worked_on = self._serve(self._hatch)
            messages, units = messages + served, units + worked_on
        return messages, units

    def _takes_offers(self) -> bool:
        return self._rate is None and not self._worker.takes_long

    def _serve(self, hatch: IntakeExchange) -> tuple[int, int]:
        """What a poller's thread has heard; it acknowledges and accounts for that itself."""
        units = 0

        def take_in(intake: IntakeBatch) -> IntakeReport:
            nonlocal units
            worked = self._worker.step(intake)
            units = self._note(worked)
            return worked.report

        return int(hatch.serve(take_in, TOGETHER_MS if self._worker.may_wait else 0)), units

    def _rest_alert(self, delay_ms: int, *, troubled: bool) -> None:
        """Nothing is due; but what is offered meanwhile is taken at once, unless there is trouble."""
        if self._hatch is None or troubled or not self._takes_offers():
            self._rest(delay_ms)
            return
        for left_ms in range(delay_ms, 0, -ALERT_MS):
            if self._stopping() or self._hatch.wait(min(left_ms, ALERT_MS)):
                return

    def _work_off(self) -> int:
        count = 0
        while not self._stopping():
            worked = self._step()
            if not worked:
                break
            count += worked
        self.drain()
        return count

    def _step(self) -> int:
        if not self._keep_pace():
            return 0
        # With a rate nothing is claimed ahead: its lease would go by while it waits for its turn.
        worked = self._worker.step(ahead=self._rate is None)
        ended = worked.succeeded + worked.failed + worked.lost
        if self._rate is not None and ended:
            self._next_ms = max(self._next_ms, self._clock.monotonic_ms()) + round(ended / self._rate * 1000)
        return self._note(worked)

    def _note(self, worked: BatchResult) -> int:
        self._account.worked(worked)
        self._progress(self._account.tasks)
        return worked.succeeded + worked.failed + worked.lost + worked.claimed

    def _keep_pace(self) -> bool:
        """Not faster than was asked for; time without work is not made up for. Duties go on meanwhile."""
        while self._rate is not None and (ahead_ms := self._next_ms - self._clock.monotonic_ms()) > 0:
            self._rest(min(ahead_ms, IDLE_MS_MAX))
            self._run_maintenance()
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

    def _run_maintenance(self, *, everything: bool = False) -> None:
        for failure in run_due(self._maintenance, self._clock.monotonic_ms(), everything=everything):
            if not isinstance(failure.error, KfmError):
                raise failure.error
            failure.log()


def poll_until(
    poller: Poller,
    account: WorkerTotals,
    *,
    wait_ms: int,
    stopping: Callable[[], bool],
    rest: Callable[[int], object],
    hatch: IntakeExchange | None = None,
) -> None:
    """One queue's thread. A queue in trouble is asked again, at growing distances."""
    failures = 0
    while not stopping():
        try:
            polled = poller.step(wait_ms) if hatch is None else _handed_over(poller, hatch, wait_ms)
        except Exception as error:  # noqa: BLE001 - a thread that ends would end the intake unseen
            failures += 1
            logger.warning("a queue can't be read: %s", _told(error), extra={"queue": poller.queue_name})
            rest(backoff_ms(TROUBLE_MS, TROUBLE_MS_MAX, failures))
            continue
        failures = 0
        account.polled(polled)
        if not polled.messages and wait_ms == 0:
            rest(IDLE_MS_MAX)


def _handed_over(poller: Poller, hatch: IntakeExchange, wait_ms: int) -> Polled:
    """What is heard becomes durable with the worker's next commit, or without it. Acknowledged here: a
    queue far away takes its time."""
    heard = poller.hear(wait_ms)
    if heard is None:
        return Polled()
    report = hatch.offer(heard.intake)
    return poller.take_in(heard) if report is None else poller.acknowledge(heard, report)


def _told(error: Exception) -> str:
    """Our own errors speak for themselves; of others nobody would know the kind."""
    return str(error) if isinstance(error, KfmError) else f"{type(error).__name__}: {error}"
