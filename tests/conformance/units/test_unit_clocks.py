"""All times of units are the ledger's: workers' clocks may be wrong, and its own may have been."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kfm.db.ledger import Ledger
from kfm.model.breaker import (
    COOLDOWN_MS,
    Breaker,
    on_failure,
    on_success,
    probe_started,
    release_at_ms,
    wait_ms,
)
from kfm.model.records import GateResult
from kfm.model.settings import Ingest, IngestPolicy
from kfm.model.times import WAIT_MAX_MS, rfc3339
from kfm.model.units import holds_lease
from kfm.nodd.dataset_registry import Generic, IntakePolicy, load_registry
from kfm.nodd.inspect.inspection import make_inspector
from kfm.nodd.intake import KeyCache
from kfm.nodd.poller import intake_builder
from kfm.nodd.worker import IngestContext, Worker
from kfm.nodd.worker_loop import due_in_ms
from kfm.ports import QueueMessage
from tests.conformance.db.ledgers import memory_store
from tests.conformance.units.scene import Scene, done, taken, undone
from tests.stand_ins import START_MS, FakeClock, FixedRng

pytestmark = pytest.mark.req("WAL-5", "WAL-14")
HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS
REGISTRY = load_registry(IntakePolicy(generic=(Generic(dataset="gauges", bucket="levels", provider="aws"),)))


class SetClock(FakeClock):
    """A clock that is set by hand."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


class NoObjects:
    """An upstream where nothing is."""

    def head(self, _uri: str) -> None:
        return None


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def store(clock: SetClock) -> Ledger:
    return memory_store(clock)


def context(store: Ledger, ahead_ms: int) -> IngestContext:
    """Of a worker whose own clock is that far from the ledger's."""
    own = SetClock()
    own.ahead_ms = ahead_ms
    upstream: Any = NoObjects()
    return IngestContext(
        settings=Ingest(policies=(IngestPolicy(integrity="head"),)),
        wal=store.units(),
        registry=REGISTRY,
        clock=own,
        rng=FixedRng(),
        worker_id="w",
        ingest_run_id="w",
        keys=KeyCache(REGISTRY),
        gate=lambda _dataset, _in_flight: GateResult(gate="switch", allowed=True, reason=""),
        policy_epoch=store.policy_epoch,
        inspect=make_inspector(upstream, lambda _dataset: "text/csv"),
        lineage=False,
    )


def announce(work: IngestContext) -> None:
    stored = {"key": "a.csv", "size": 3, "eTag": "e", "sequencer": "01"}
    record = {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "eventTime": rfc3339(START_MS),
        "eventName": "ObjectCreated:Put",
        "s3": {"bucket": {"name": "levels"}, "object": stored},
    }
    body = json.dumps({"Records": [record]})
    builder = intake_builder(work, "q")
    builder.add(QueueMessage(receipt="1", body=body.encode(), message_id="1", receives=1))
    work.wal.take_in(builder.batch())


@pytest.mark.parametrize("ahead_ms", [-HOUR_MS, -HOUR_MS // 3, 25 * HOUR_MS])
def test_a_worker_s_own_clock_counts_for_nothing(store: Ledger, clock: SetClock, ahead_ms: int) -> None:
    """A worker that is an hour behind works all the same; one that is a day ahead gives nothing up for it;
    and what either puts off is due for everybody a moment later, by the ledger's clock."""
    work = context(store, ahead_ms)
    announce(work)
    (row,) = Scene(store).sql("SELECT created_at_ms, extra FROM units")
    assert row[0] == clock.now_ms()
    assert "EVENT_TIME_FUTURE" not in row[1]
    worker = Worker(work)
    assert worker.step(ahead=False).failed == 1
    (row,) = Scene(store).sql("SELECT status, not_before_ms, grant_attempts FROM units")
    assert (row[0], row[2]) == ("pending", 1)
    assert 0 < row[1] - clock.now_ms() < 60_000
    assert due_in_ms(work.wal) == row[1] - clock.now_ms()
    clock.passed_ms += 60_000
    assert due_in_ms(work.wal) < 0  # type: ignore[operator]
    assert Worker(work).step(ahead=False).failed == 1


def test_new_units_do_not_wait_for_a_clock_that_was_ahead(store: Ledger, clock: SetClock) -> None:
    """What came while the ledger's clock was a year, or an hour, ahead is due when that was set right."""
    scene = Scene(store)
    scene.take(taken("known"))
    scene.succeeded("known")
    for number, ahead_ms in enumerate((HOUR_MS, YEAR_MS), start=2):
        clock.ahead_ms = ahead_ms
        scene.take(taken(f"new{number}"), taken("known", f"e{number}", f"0{number}"))
        clock.ahead_ms = 0
        claimed = scene.claim()
        assert len(claimed) == 2, "one that is new, and new bytes of one that is known"
        scene.end(*map(done, claimed))


def test_what_was_put_off_by_a_clock_that_was_ahead_is_due(store: Ledger, clock: SetClock) -> None:
    """Later than anything may wait is not waited for; what is put off within reason is."""
    scene = Scene(store)
    scene.end(undone(scene.claimed("a"), not_before_ms=clock.now_ms() + YEAR_MS))
    soon_ms = clock.now_ms() + WAIT_MAX_MS - 1
    scene.end(undone(scene.claimed("b"), not_before_ms=soon_ms))
    assert scene.claim() == []
    scene.units.reap_units(0.5)
    assert (scene.stored("a").not_before_ms, scene.stored("b").not_before_ms) == (0, soon_ms)
    assert len(scene.claim()) == 1


@pytest.mark.req("FLT-1")
def test_a_renewal_by_a_clock_that_was_ahead_lapses(store: Ledger, clock: SetClock) -> None:
    """It adds no more than its length to the lease that there was, so a worker that dies then holds nothing
    until the clock's false time comes."""
    scene, lease_ms = Scene(store), 60_000
    held = scene.claimed("a", lease_ms=lease_ms)
    clock.ahead_ms = YEAR_MS
    assert scene.units.renew_units([held], lease_ms) == {held.wal_id}
    clock.ahead_ms = 0
    assert scene.units.reap_units(0.5) == 0
    clock.passed_ms += 2 * lease_ms
    assert scene.units.reap_units(0.5) == 1


def test_leases_of_a_clock_that_was_ahead_lapse(store: Ledger, clock: SetClock) -> None:
    """A worker that claimed by such a clock and died holds its units no longer than its lease was long."""
    scene = Scene(store)
    clock.ahead_ms = YEAR_MS
    claimed = scene.claimed("a")
    clock.ahead_ms = 0
    assert scene.units.reap_units(0.5) == 1
    assert scene.status("a") == "pending"
    assert scene.end(done(claimed)).lost == (claimed.wal_id,)
    live = scene.claimed("a")
    assert scene.units.reap_units(0.5) == 0
    assert scene.end(done(live)).succeeded == (live.wal_id,)


def test_a_step_back_takes_no_lease_from_the_living() -> None:
    """A clock that is set back by less than a lease is long changes nothing."""
    assert holds_lease(1_000, 0, 0)
    assert holds_lease(1_000, 0, -999)
    assert not holds_lease(1_000, 0, -1_001)
    assert not holds_lease(1_000, 0, 1_000)


@pytest.mark.req("RET-8")
def test_circuits_of_a_clock_that_was_ahead_are_tried() -> None:
    """Neither an open circuit, nor a probe, nor what waits after an outage waits for such a clock's time."""
    later_ms, breaker = START_MS + YEAR_MS, Breaker(provider="p")
    for _ in range(3):
        breaker = on_failure(breaker, later_ms)
    assert wait_ms(breaker, later_ms) == COOLDOWN_MS
    assert wait_ms(breaker, START_MS) == 0
    probing = probe_started(breaker, later_ms + COOLDOWN_MS)
    assert wait_ms(probing, START_MS) == 0
    closed = on_success(probing, probing.fence, later_ms + COOLDOWN_MS)
    assert release_at_ms(closed, START_MS, 0.5, START_MS) == START_MS
