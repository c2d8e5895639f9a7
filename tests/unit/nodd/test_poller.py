"""The hatch between pollers' threads and the worker. Threads wait for each other here, never for a time."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kfm.model.errors import BackendUnavailable
from kfm.model.units import IntakeBatch, IntakeReport
from kfm.nodd.poller import IntakeExchange, Polled, ReadMessages
from kfm.nodd.worker import BatchResult
from kfm.nodd.worker_loop import WorkerLoop, WorkerTotals, poll_until
from tests.conformance.units.scene import taken
from tests.stand_ins import FakeClock
from tests.unit.nodd.test_worker_loop import FakePoller, FakeWorker

HEARD = IntakeBatch(taken=(taken("a"),))
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


def open_hatch(patience_ms: int = LONG_MS) -> IntakeExchange:
    hatch = IntakeExchange(patience_ms)
    assert not hatch.serve(lambda _intake: IntakeReport())  # the worker is there
    return hatch


def test_an_offer_is_answered_by_what_came_of_it() -> None:
    """The poller knows that it is durable only from whoever made it so."""
    hatch = open_hatch()
    thread, said = in_thread(lambda: hatch.offer(HEARD))
    taken_in: list[IntakeBatch] = []

    def take_in(intake: IntakeBatch) -> IntakeReport:
        assert said == []
        taken_in.append(intake)
        return IntakeReport(created=1)

    assert hatch.serve(take_in, LONG_MS)
    thread.join(10)
    assert (taken_in, said) == ([HEARD], [IntakeReport(created=1)])


def test_nobody_waits_for_a_worker_that_is_away() -> None:
    """One that has not begun, one that took nothing in time, one that ends: the poller does it by itself."""
    assert IntakeExchange(LONG_MS).offer(HEARD) is None
    hatch = open_hatch(patience_ms=0)
    assert hatch.offer(HEARD) is None
    assert not hatch.wait(0)  # what was taken back is nobody else's any more
    hatch = open_hatch()
    hatch.shut()
    assert hatch.offer(HEARD) is None


@pytest.mark.parametrize("trouble", [BackendUnavailable("away"), KeyboardInterrupt()])
def test_trouble_of_the_worker_is_the_poller_s_too(trouble: BaseException) -> None:
    """Whether it is durable is not known, so the poller must not acknowledge it."""
    hatch = open_hatch()
    thread, said = in_thread(lambda: hatch.offer(HEARD))

    def take_in(_intake: IntakeBatch) -> IntakeReport:
        raise trouble

    with pytest.raises(type(trouble)):
        hatch.serve(take_in, LONG_MS)
    thread.join(10)
    assert isinstance(said[0], Exception)


class Poller(FakePoller):
    def __init__(self, *answers: int | Exception) -> None:
        super().__init__(*answers)
        self.taken_in = 0

    def take_in(self, heard: ReadMessages) -> Polled:
        self.taken_in += len(heard.receipts)
        return self.acknowledge(heard, IntakeReport(created=len(heard.intake.taken)))


def poll(poller: Poller, account: WorkerTotals, hatch: IntakeExchange, times: int) -> None:
    poll_until(
        poller,  # type: ignore[arg-type]
        account,
        wait_ms=1,
        stopping=lambda: poller.asked >= times,
        rest=lambda _ms: None,
        say=lambda _line: None,
        hatch=hatch,
    )


def test_what_no_worker_took_is_made_durable_by_its_thread() -> None:
    """Each message once, and before it is acknowledged."""
    poller, account = Poller(2, 0, 3), WorkerTotals()
    poll(poller, account, IntakeExchange(LONG_MS), 3)
    assert poller.taken_in == poller.acknowledged == account.tasks.created == 5


class Worker(FakeWorker):
    may_wait = False


def test_a_worker_takes_in_what_threads_have_heard() -> None:
    """With the worker's own steps, and acknowledged after; messages that met trouble are not."""
    clock, hatch, account = FakeClock(), IntakeExchange(LONG_MS), WorkerTotals()
    worker = Worker(clock)
    steps: list[int] = []
    step = worker.step

    def watched(heard: IntakeBatch | None = None, *, claim: bool = True, ahead: bool = True) -> BatchResult:
        steps.append(len(heard.taken) if heard is not None else 0)
        assert poller.acknowledged <= sum(done)
        if steps[-1] == 3:
            raise BackendUnavailable("away")
        worked = step(heard, claim=claim, ahead=ahead)
        done.append(steps[-1])
        return worked

    done: list[int] = []
    worker.step = watched  # type: ignore[method-assign]
    poller = Poller(2, 3, 4)
    assert not hatch.wait(0)
    thread, _ = in_thread(lambda: poll(poller, account, hatch, 4))
    service = WorkerLoop(
        worker,  # type: ignore[arg-type]
        clock,
        account=account,
        hatch=hatch,
        stopping=lambda: not thread.is_alive(),
        rest=lambda _ms: None,
    )
    service.until_stopped()
    assert [count for count in steps if count] == [2, 3, 4]
    assert poller.acknowledged == account.tasks.messages == account.tasks.created == 6
    assert poller.taken_in == 0
