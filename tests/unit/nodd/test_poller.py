"""The intake exchange of poller threads and worker. Threads wait for each other here, never for a time."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kfm.model.errors import BackendUnavailable
from kfm.model.units import IntakeBatch, IntakeReport
from kfm.nodd.poller import IntakeExchange, PollReport, ReceivedMessages
from kfm.nodd.worker import StepReport
from kfm.nodd.worker_loop import WorkerLoop, WorkerTotals, poll_until_stopped
from tests.conformance.units.scene import taken
from tests.stand_ins import FakeClock
from tests.unit.nodd.test_worker_loop import FakePoller, FakeWorker

INTAKE = IntakeBatch(arrivals=(taken("a"),))
LONG_MS = 60_000


def in_thread(do: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    said: list[object] = []

    def run() -> None:
        try:
            said.append(do())
        except Exception as error:
            said.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, said


def open_exchange(offer_ms: int = LONG_MS) -> IntakeExchange:
    exchange = IntakeExchange(offer_ms)
    assert not exchange.serve(lambda _intake: IntakeReport())  # the worker is there
    return exchange


def test_an_offer_is_answered_by_what_came_of_it() -> None:
    """The poller gets the report only after the worker made the intake durable."""
    exchange = open_exchange()
    thread, said = in_thread(lambda: exchange.offer(INTAKE))
    taken_in: list[IntakeBatch] = []

    def take_in(intake: IntakeBatch) -> IntakeReport:
        assert said == []
        taken_in.append(intake)
        return IntakeReport(created=1)

    assert exchange.serve(take_in, LONG_MS)
    thread.join(10)
    assert (taken_in, said) == ([INTAKE], [IntakeReport(created=1)])


def test_the_poller_does_not_wait_for_a_worker_that_is_away() -> None:
    """One that has not begun, one that took nothing in time, one that ends: the poller does it by itself."""
    assert IntakeExchange(LONG_MS).offer(INTAKE) is None
    exchange = open_exchange(offer_ms=0)
    assert exchange.offer(INTAKE) is None
    assert not exchange.wait(0)  # a withdrawn offer is not served
    exchange = open_exchange()
    exchange.close()
    assert exchange.offer(INTAKE) is None


@pytest.mark.parametrize("trouble", [BackendUnavailable("away"), KeyboardInterrupt()])
def test_trouble_of_the_worker_is_the_poller_s_too(trouble: BaseException) -> None:
    """Whether it is durable is not known, so the poller must not acknowledge it."""
    exchange = open_exchange()
    thread, said = in_thread(lambda: exchange.offer(INTAKE))

    def take_in(_intake: IntakeBatch) -> IntakeReport:
        raise trouble

    with pytest.raises(type(trouble)):
        exchange.serve(take_in, LONG_MS)
    thread.join(10)
    assert isinstance(said[0], Exception)


class Poller(FakePoller):
    def __init__(self, *answers: int | Exception) -> None:
        super().__init__(*answers)
        self.taken_in = 0

    def take_in(self, received: ReceivedMessages) -> PollReport:
        self.taken_in += len(received.receipts)
        return self.acknowledge(received, IntakeReport(created=len(received.intake.arrivals)))


def poll(poller: Poller, totals: WorkerTotals, exchange: IntakeExchange, times: int) -> None:
    poll_until_stopped(
        poller,  # type: ignore[arg-type]
        totals,
        wait_ms=1,
        stopping=lambda: poller.asked >= times,
        rest=lambda _ms: None,
        exchange=exchange,
    )


def test_what_no_worker_took_is_made_durable_by_its_thread() -> None:
    """Each message once, and before it is acknowledged."""
    poller, totals = Poller(2, 0, 3), WorkerTotals()
    poll(poller, totals, IntakeExchange(LONG_MS), 3)
    assert poller.taken_in == poller.acknowledged == totals.counts.created == 5


class Worker(FakeWorker):
    may_wait = False


def test_a_worker_takes_in_what_threads_have_heard() -> None:
    """With the worker's own steps, and acknowledged after; messages that met trouble are not."""
    clock, exchange, totals = FakeClock(), IntakeExchange(LONG_MS), WorkerTotals()
    worker = Worker(clock)
    steps: list[int] = []
    step = worker.step

    def watched(received: IntakeBatch | None = None, *, claim: bool = True, ahead: bool = True) -> StepReport:
        steps.append(len(received.arrivals) if received is not None else 0)
        assert poller.acknowledged <= sum(done)
        if steps[-1] == 3:
            raise BackendUnavailable("away")
        worked = step(received, claim=claim, ahead=ahead)
        done.append(steps[-1])
        return worked

    done: list[int] = []
    worker.step = watched  # type: ignore[method-assign]
    poller = Poller(2, 3, 4)
    assert not exchange.wait(0)
    thread, _ = in_thread(lambda: poll(poller, totals, exchange, 4))
    service = WorkerLoop(
        worker,  # type: ignore[arg-type]
        clock,
        totals=totals,
        exchange=exchange,
        stopping=lambda: not thread.is_alive(),
        rest=lambda _ms: None,
    )
    service.run_until_stopped()
    assert [count for count in steps if count] == [2, 3, 4]
    assert poller.acknowledged == totals.counts.messages == totals.counts.created == 6
    assert poller.taken_in == 0
