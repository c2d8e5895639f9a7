"""The worker loop, with a scripted worker and a clock that does not wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kfm.model.errors import BackendUnavailable, StoreBusy, StoreCorrupt, UpstreamUnavailable
from kfm.model.units import IntakeBatch, IntakeReport
from kfm.nodd.ingest import NoddIngest
from kfm.nodd.poller import PollReport, ReceivedMessages
from kfm.nodd.worker import StepReport
from kfm.nodd.worker_loop import TROUBLE_MS_MAX, WorkerLoop, WorkerThreads, WorkerTotals, poll_until_stopped
from kfm.periodic import PeriodicTask, repeat
from kfm.telemetry import log_records
from tests.conformance.units.scene import taken
from tests.stand_ins import FakeClock

TAKEN = taken("a")


class FakeWorker:
    """Has so many units; holds a batch as the real one does."""

    def __init__(self, clock: FakeClock, units: int = 0, batch: int = 1, cost_ms: int = 0) -> None:
        self.clock = clock
        self.units = units
        self.batch = batch
        self.cost_ms = cost_ms
        self.held = 0
        self.blocked: dict[str, str] = {}
        self.ended_at: list[int] = []
        self.troubles: list[Exception | None] = []

    reads_objects = False
    is_busy = False

    def step(
        self, received: IntakeBatch | None = None, *, claim: bool = True, ahead: bool = True
    ) -> StepReport:
        if self.troubles and (trouble := self.troubles.pop(0)) is not None:
            raise trouble
        if not self.held and claim:
            self._claim()
        ended, self.held = self.held, 0
        self.clock.sleep_ms(self.cost_ms)
        self.ended_at += [self.clock.monotonic_ms()] * ended
        if claim and ahead:
            self._claim()
        report = IntakeReport(created=0 if received is None else len(received.arrivals))
        return StepReport(succeeded=ended, claimed=self.held, intake=report)

    def drain(self) -> StepReport:
        return self.step(claim=False)

    def _claim(self) -> None:
        self.held = min(self.batch, self.units)
        self.units -= self.held


class FakePoller:
    queue_name = "q"

    def __init__(self, *answers: int | Exception) -> None:
        self.answers = list(answers)
        self.asked = 0
        self.acknowledged = 0

    def receive(self, _wait_ms: int) -> ReceivedMessages | None:
        self.asked += 1
        answer = self.answers.pop(0) if self.answers else 0
        if isinstance(answer, Exception):
            raise answer
        return (
            ReceivedMessages(answer, ("r",) * answer, IntakeBatch(arrivals=(TAKEN,) * answer))
            if answer
            else None
        )

    def acknowledge(self, received: ReceivedMessages, report: IntakeReport) -> PollReport:
        self.acknowledged += len(received.receipts)
        return PollReport(messages=received.messages, intake=report)

    def step(self, wait_ms: int) -> PollReport:
        received = self.receive(wait_ms)
        if received is None:
            return PollReport()
        return self.acknowledge(received, IntakeReport(created=len(received.intake.arrivals)))


class Scene:
    def __init__(self, *, lasts_ms: int = 10_000, units: int = 0, batch: int = 1, **options: Any) -> None:
        self.clock = FakeClock()
        cost_ms = options.pop("cost_ms", 0)
        self.worker = FakeWorker(self.clock, units, batch, cost_ms)
        self.totals = WorkerTotals()
        self.service = WorkerLoop(
            self.worker,  # type: ignore[arg-type]
            self.clock,
            totals=self.totals,
            stopping=lambda: self.clock.monotonic_ms() >= lasts_ms,
            rest=self.clock.sleep_ms,
            **options,
        )


@pytest.mark.parametrize("mode", ["run_until_stopped", "run_until_idle", "run_once"])
def test_a_rate_is_held(mode: str) -> None:
    """In no span of a second are there more than were asked for, in any way of working."""
    scene = Scene(units=30, rate=5.0, cost_ms=20)
    getattr(scene.service, mode)()
    ended = scene.worker.ended_at
    assert len(ended) == 30
    assert all(later - first >= 1_000 for first, later in zip(ended, ended[5:], strict=False))
    assert ended[-1] <= 30 / 5 * 1_000 + 30 * 20


def test_idle_time_is_not_caught_up() -> None:
    """A rate is a limit, not an average over the day."""
    scene = Scene(lasts_ms=3_700_000, rate=1.0)
    scene.clock.sleep_ms(3_600_000)
    scene.worker.units = 10
    scene.service.run_until_idle()
    ended = scene.worker.ended_at
    assert ended[-1] - ended[0] == 9_000


def test_a_slow_rate_holds_no_lease_and_runs_its_maintenance() -> None:
    """While it waits for its turn a worker has claimed nothing, and runs the periodic tasks that are due."""
    seen: list[int] = []
    held: list[int] = []
    scene = Scene(lasts_ms=200_000, units=3, rate=0.01)
    task = PeriodicTask("look", 1_000, lambda: (seen.append(1), held.append(scene.worker.held)))
    scene.service._maintenance = [task]
    scene.service.run_until_stopped()
    assert len(scene.worker.ended_at) == 2
    assert len(seen) >= 150
    assert set(held) == {0}


def test_a_stop_leaves_nothing_half_done() -> None:
    """What is held is ended, and nothing more is claimed."""
    scene = Scene(lasts_ms=50, units=1_000, batch=10, cost_ms=10)
    tasks = scene.service.run_until_stopped()
    assert scene.worker.held == 0
    assert tasks.succeeded == len(scene.worker.ended_at) == 1_000 - scene.worker.units
    assert tasks.succeeded < 100


def test_a_ledger_that_is_away_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """At growing distances; then work goes on as if nothing had been."""
    scene = Scene(lasts_ms=60_000, units=3)
    away: list[Exception | None] = [BackendUnavailable("gone"), StoreBusy("held"), BackendUnavailable("gone")]
    scene.worker.troubles = [None, *away]
    tasks = scene.service.run_until_stopped()
    assert tasks.succeeded == 3
    assert [one for one in scene.clock.slept if one][:3] == [1_000, 2_000, 4_000]
    assert len(caplog.messages) == 3
    assert caplog.messages[0].endswith("The worker goes on in 1 s")


def test_a_broken_ledger_is_not_waited_for() -> None:
    """Waiting does not mend it."""
    scene = Scene(units=3)
    scene.worker.troubles = [StoreCorrupt("bytes")]
    with pytest.raises(StoreCorrupt):
        scene.service.run_until_stopped()


@pytest.mark.parametrize("mode", ["run_until_idle", "run_once"])
def test_one_shot_modes_raise_when_the_ledger_is_unavailable(mode: str) -> None:
    """The error reaches the caller, which tries again later."""
    scene = Scene(units=3)
    scene.worker.troubles = [StoreBusy("held")]
    with pytest.raises(StoreBusy):
        getattr(scene.service, mode)()


def test_a_failing_periodic_task_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Neither the others nor the work."""
    seen: list[str] = []

    def fails() -> None:
        seen.append("tried")
        raise UpstreamUnavailable("no collector")

    tasks = [
        PeriodicTask("lineage", 1_000, fails),
        PeriodicTask("figures", 1_000, lambda: seen.append("done")),
    ]
    scene = Scene(units=3, maintenance=tasks)
    assert scene.service.run_until_idle().succeeded == 3
    assert seen[:2] == ["tried", "done"]
    assert "lineage: " in caplog.messages[0]


def test_what_is_blocked_is_not_asked_for_all_the_time() -> None:
    """A dataset that is switched off has units that are due; that is no reason not to rest."""
    scene = Scene(lasts_ms=10_000, due_in_ms=lambda: 0)
    scene.worker.blocked = {"hrrr": "switched off"}
    scene.service.run_until_stopped()
    assert 9 <= len(scene.clock.slept) <= 30
    assert scene.service.run_until_idle().succeeded == 0


def test_an_input_that_is_silent_has_not_ended() -> None:
    """Until-idle waits for the end of a stream, and then ends."""
    left = [True] * 5
    scene = Scene(has_input=lambda: bool(left) and left.pop(), pollers=[FakePoller(2, 0, 0, 3)])
    tasks = scene.service.run_until_idle()
    assert (tasks.messages, tasks.created) == (5, 5)
    assert not left


def test_messages_are_acknowledged_once_the_worker_has_taken_them_in() -> None:
    """A ledger that is away leaves them to be received again."""
    poller = FakePoller(2, 3)
    scene = Scene(pollers=[poller])
    scene.worker.troubles = [StoreBusy("held"), None]
    with pytest.raises(StoreBusy):
        scene.service.run_until_idle()
    assert poller.acknowledged == 0
    assert scene.service.run_until_idle().created == poller.acknowledged == 3


@pytest.mark.parametrize("why", ["objects are looked at", "a rate is kept"])
def test_no_message_waits_for_work_that_reads_objects(why: str) -> None:
    """Then it is durable, and acknowledged, before anything is worked on."""
    poller = FakePoller(2)
    scene = Scene(pollers=[poller], units=1, rate=5.0 if why == "a rate is kept" else None)
    scene.worker.reads_objects = why == "objects are looked at"
    acknowledged: list[int] = []
    step = scene.worker.step

    def watched(*given: Any, **named: Any) -> StepReport:
        acknowledged.append(poller.acknowledged)
        return step(*given, **named)

    scene.worker.step = watched  # type: ignore[method-assign]
    assert scene.service.run_once().succeeded == 1
    assert set(acknowledged) == {2}


def stop_after(calls: int) -> Callable[[], bool]:
    left = [calls]

    def stopping() -> bool:
        left[0] -= 1
        return left[0] < 0

    return stopping


@pytest.mark.req("FLT-1")
def test_many_in_the_same_trouble_do_not_come_back_together() -> None:
    """The waits of each are spread by half to either side."""
    rested: list[int] = []
    for chance in (0.0, 0.25, 0.999):
        poll_until_stopped(
            FakePoller(BackendUnavailable("away")),  # type: ignore[arg-type]
            WorkerTotals(),
            wait_ms=10,
            stopping=stop_after(1),
            rest=rested.append,
            unit_random=lambda chance=chance: chance,  # type: ignore[misc]
        )
    assert rested == [500, 750, 1_499]


def test_a_queue_in_trouble_is_asked_ever_less(caplog: pytest.LogCaptureFixture) -> None:
    """Also if the trouble is nothing that anybody thought of; its thread goes on, and begins anew after."""
    troubles = [*(BackendUnavailable("away") for _ in range(8)), 1, ValueError("odd"), 2]
    poller, totals = FakePoller(*troubles), WorkerTotals()
    rested: list[int] = []
    poll_until_stopped(
        poller,  # type: ignore[arg-type]
        totals,
        wait_ms=10,
        stopping=stop_after(11),
        rest=rested.append,
    )
    assert rested == [1_000, 2_000, 4_000, 8_000, 16_000, *[TROUBLE_MS_MAX] * 3, 1_000]
    assert caplog.messages[-1] == "a queue can't be read: ValueError: odd"
    assert {vars(record)["queue"] for record in caplog.records} == {"q"}
    assert totals.counts.messages == 3


def test_a_periodic_task_in_its_own_thread_is_repeated_after_a_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A replica that is unreachable is tried again at the next interval, and the failure is logged."""
    answers: list[Exception | None] = [UpstreamUnavailable("away"), ValueError("odd"), None]
    rested: list[int] = []

    def do() -> None:
        if (answer := answers.pop(0)) is not None:
            raise answer

    repeat(PeriodicTask("replicas", 5_000, do), stopping=stop_after(3), rest=rested.append)
    assert rested == [5_000] * 3
    assert caplog.messages[1] == "replicas: ValueError: odd"


def test_threads_of_a_worker_keep_the_ids_of_who_started_them() -> None:
    """Log records of units, pollers and deliveries have the correlation ids of the worker's caller."""
    app: Any = SimpleNamespace(settings=SimpleNamespace(ingest=None), worker_id="w")
    ingest, seen = NoddIngest(app, concurrency=2), list[str | None]()
    threads = WorkerThreads(app, ingest, threading.Event())
    units: Any = ("a", "b", "c")

    def process(unit: Any) -> Any:
        return unit, log_records.current().run_id

    with log_records.correlated(run_id="r-1"):
        threads._add("poll", lambda: seen.append(log_records.current().run_id), (), {})
        found: set[Any] = {one for one in ingest._map_units(process, units, True) if one is not None}
    (thread,) = threads._threads
    thread.start()
    assert threads.join()
    ingest.close()
    assert found == {("a", "r-1"), ("b", "r-1"), ("c", "r-1")}
    assert seen == ["r-1"]
