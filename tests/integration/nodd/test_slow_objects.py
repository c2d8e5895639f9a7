"""Objects that take their time: leases are kept, batches are cut, and nothing is read twice."""

from __future__ import annotations

import dataclasses
import io
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kfm.app import App, open_app
from kfm.config import state_folder
from kfm.config.loader import load
from kfm.model.errors import BackendUnavailable
from kfm.model.units import LEASE_EXPIRED, IntakeBatch, UnitFilter
from kfm.nodd import ingest, open_batch
from kfm.nodd.ingest import NoddIngest
from kfm.nodd.inspect.inspection import InspectionResult
from kfm.nodd.worker import NOT_BEGUN, Worker
from kfm.nodd.worker_loop import WorkerOptions, run_worker
from kfm.service.runner import ServiceOptions, ServiceThreads
from kfm.telemetry.exposition import Tallies, exposition
from kfm.telemetry.ledger_metrics import fold_units
from tests.integration.nodd.test_downstream import message
from tests.stand_ins import FakeClock

pytestmark = pytest.mark.req("WAL-5", "FLT-1")
LEASE_MS = 330_000
SOUND = InspectionResult(integrity_status="ok", metadata_status="ok")
Read = Callable[[], None]


class Objects:
    """An upstream whose objects take as long as a function does; keeps which were read."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self.asked: list[str] = []

    def __call__(self, reading: Any, *_: Any) -> InspectionResult:
        self.asked.append(reading.wal_id)
        self._read()
        return SOUND


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The time of the ledger and of the worker, for tests that ask for it first."""
    clock = FakeClock()
    monkeypatch.setattr(state_folder, "SystemClock", lambda: clock)
    return clock


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    (tmp_path / "kfm.yml").write_text(
        "version: 1\ningest:\n  concurrency: 3\n  policies: [{integrity: head}]\n  mirrors: {x: .}\n"
    )
    with open_app(load(str(tmp_path / "kfm.yml"))) as opened:
        yield opened


def announced(app: App, count: int) -> NoddIngest:
    place = NoddIngest(app)
    ((poller, _),) = place.pollers(io.BytesIO(b"".join(map(message, range(count)))))
    poller.step(100)
    return place


def worker_of(place: NoddIngest, objects: Objects, **changes: Any) -> Worker:
    return Worker(dataclasses.replace(place.context(), inspect=objects, **changes))


def counts(app: App) -> Counter[str]:
    return Counter({name: amount for (_, name), amount in app.ledger.unit_reader().unit_counts().items()})


def one_by_one(process: Any, units: Any, _wait: bool) -> Any:
    return map(process, units)


def test_a_batch_that_outlasts_half_its_lease_is_cut(clock: FakeClock, app: App) -> None:
    """What is done then ends, the rest waits for any worker, at no cost; nothing is read twice."""
    place = announced(app, 5)
    others = app.writer.units()

    def slowly() -> None:
        clock.passed_ms += LEASE_MS // 3
        assert others.reap_units(0.5) == 0  # as another machine does all the time

    objects = Objects(slowly)
    worker = worker_of(place, objects, map_units=one_by_one)
    first = worker.step(ahead=False)
    assert (first.succeeded, first.put_back, first.failed, first.lost) == (2, 3, 0, 0)
    waiting = app.ledger.unit_reader().find_units(UnitFilter(status="pending"))
    assert {(one.attempts, one.last_error_code) for one in waiting} == {(1, NOT_BEGUN)}
    for _ in range(4):
        worker.step()
    assert sorted(objects.asked) == sorted(set(objects.asked))
    assert counts(app)["succeeded"] == counts(app)["attempts:1"] == 5
    assert counts(app)["lost"] == 0
    place.close()


class Renewals:
    """The ledger, of which a renewal is noted, or fails."""

    def __init__(self, wal: Any, trouble: Exception | None = None) -> None:
        self._wal = wal
        self._trouble = trouble
        self.done = threading.Semaphore(0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wal, name)

    def renew_units(self, *given: Any) -> Any:
        try:
            if self._trouble is not None:
                raise self._trouble
            return self._wal.renew_units(*given)
        finally:
            self.done.release()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "NOTHING_ENDED_S", 0.01)


@pytest.mark.usefixtures("hurried")
def test_an_object_that_takes_many_leases_is_read_once(clock: FakeClock, app: App) -> None:
    """While it is read its lease is renewed; what else there was has ended long before."""
    place = announced(app, 3)
    wal = Renewals(app.writer.units())
    turns = iter(range(3))

    def read() -> None:
        if next(turns) == 2:  # the last takes four leases
            for _ in range(8):
                clock.passed_ms += LEASE_MS // 2
                assert wal.done.acquire(timeout=20)

    objects = Objects(read)
    worker = worker_of(place, objects, wal=wal)
    first = worker.step()
    assert (first.succeeded, first.claimed) == (2, 1)
    assert app.writer.units().reap_units(0.5) == 0
    last = worker.step()
    assert (last.succeeded, last.claimed, last.lost) == (1, 0, 0)
    assert len(objects.asked) == 3
    assert counts(app)["attempts:1"] == 3
    place.close()


@pytest.mark.usefixtures("hurried")
def test_what_is_lost_is_logged_and_counted(
    clock: FakeClock, app: App, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that can't renew loses what others take over: it says so, counts it, and has no effect."""
    place = announced(app, 2)
    wal = Renewals(app.writer.units(), BackendUnavailable("The connection broke."))
    worker = worker_of(place, Objects(lambda: None), wal=wal)
    assert worker.step(IntakeBatch()).claimed
    clock.passed_ms += LEASE_MS + 1
    assert app.writer.units().reap_units(0.5) == 2
    with caplog.at_level(logging.WARNING):
        ended = worker.step(claim=False)
    assert (ended.succeeded, ended.lost, ended.put_back) == (0, 2, 0)
    (line,) = [one for one in caplog.records if "lost" in one.message]
    assert len(vars(line)["units"]) == 2
    assert vars(line)["dataset"] == "nexrad-l2"
    assert any("can't be renewed" in one for one in caplog.messages)
    tallies = Tallies()
    fold_units(app.ledger.unit_figures(), tallies, str)
    assert 'nodd_sns_units_lost_total{dataset="nexrad-l2"} 2' in exposition(tallies)
    waiting = app.ledger.unit_reader().find_units(UnitFilter(status="pending"))
    assert {one.last_error_code for one in waiting} == {LEASE_EXPIRED}
    place.close()


@pytest.mark.usefixtures("hurried")
def test_what_another_worker_has_is_not_begun(clock: FakeClock, app: App) -> None:
    """A renewal tells which units are others' by now: those are not read, and count as lost once."""
    place = announced(app, 4)
    objects = Objects(lambda: None)
    worker = worker_of(place, objects, map_units=one_by_one)
    assert worker.step(IntakeBatch()).claimed
    clock.passed_ms += LEASE_MS + 1
    assert app.writer.units().reap_units(0.5) == 4
    ended = worker.step(claim=False)
    assert (ended.lost, ended.succeeded, ended.failed, ended.put_back) == (4, 0, 0, 0)
    assert objects.asked == []
    assert counts(app)["lost"] == 4
    place.close()


@pytest.mark.usefixtures("hurried")
def test_a_worker_that_was_suspended_past_its_leases_holds_on_to_what_it_claims_next(
    clock: FakeClock, app: App
) -> None:
    """While what others have by now is still being read, it claims again, and ends what it claims."""
    place = announced(app, 5)
    resumed = threading.Event()

    def suspended() -> None:
        clock.passed_ms += LEASE_MS + 1

    begun = threading.Barrier(3, suspended)

    def read() -> None:
        if not resumed.is_set():
            begun.wait(timeout=20)
            assert resumed.wait(timeout=20)

    class Suspended(Renewals):
        """The first renewal comes after another worker's look at lapsed leases."""

        def renew_units(self, *given: Any) -> Any:
            assert app.writer.units().reap_units(0.5) == 5
            clock.passed_ms += 10 * LEASE_MS  # they are due again
            return super().renew_units(*given)

    worker = worker_of(place, Objects(read), wal=Suspended(app.writer.units()))
    assert worker.step(IntakeBatch()).claimed == 5
    after = worker.step()
    assert (after.lost, after.succeeded, after.claimed) == (5, 0, 1)  # each comes back alone
    resumed.set()
    assert worker.step(ahead=False).succeeded == 1
    assert counts(app)["in_progress"] == 0
    place.close()


@pytest.mark.usefixtures("hurried")
def test_a_stop_ends_what_is_read_and_puts_back_the_rest(app: App) -> None:
    """A worker that is stopped begins no object any more, charges none, and holds none when it is gone."""
    stop = threading.Event()
    objects = Objects(stop.set)
    announced(app, 50).close()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ingest, "make_inspector", lambda *_: objects)
        report = run_worker(app, WorkerOptions(intake=False), stop)
    assert 1 <= report.tasks.succeeded == len(objects.asked) <= 3
    assert report.tasks.put_back == report.waiting == 50 - report.tasks.succeeded
    assert (report.tasks.failed, report.tasks.lost, counts(app)["in_progress"]) == (0, 0, 0)


def test_a_service_reads_as_many_objects_at_once_as_a_worker(app: App) -> None:
    """Both take the number from the configuration."""
    together = threading.Barrier(3)
    announced(app, 3).close()
    open_again: Any = lambda **_: app  # noqa: E731
    service = ServiceThreads(app.loaded, ServiceOptions(), open_again)

    def read() -> None:
        try:
            together.wait(timeout=20)
        finally:
            service.stop()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ingest, "make_inspector", lambda *_: Objects(read))
        patched.setattr(service, "_well", lambda: None)
        patched.setattr(service, "_has_old_secrets", lambda _name: False)
        service._worker(app)
    assert counts(app)["succeeded"] == 3


@pytest.mark.usefixtures("hurried")
def test_an_object_that_is_read_for_ever_is_given_up(
    clock: FakeClock, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Renewals have an end: then the lease lapses, and others have the unit."""
    monkeypatch.setattr(open_batch, "RENEWALS_MAX", 3)
    place = announced(app, 1)
    reaped: list[int] = []

    def read() -> None:
        for _ in range(10):
            clock.passed_ms += LEASE_MS // 2
            worker._open._keep()  # type: ignore[union-attr]
            reaped.append(app.writer.units().reap_units(0.5))

    worker = worker_of(place, Objects(read), map_units=one_by_one)
    assert worker.step(ahead=False).lost == 1
    assert reaped == [0, 0, 0, 0, 1, 0, 0, 0, 0, 0]
    place.close()
