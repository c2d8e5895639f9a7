"""What many workers on one PostgreSQL take from each other, and what they leave each other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from kfm.db import duties, governance
from kfm.db.ledger import Ledger
from kfm.model.errors import BackendUnavailable
from tests.conformance.db.ledgers import Desk, entry, postgres_store, switch
from tests.conformance.units.scene import Scene, taken
from tests.fleet_load import CAUSES, BusyWorker, FailingWorker, crew, deadlocks, rows_read

pytestmark = pytest.mark.req("FLT-1")

SECONDS_MAX = 30
LANDED_S = 2.0


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.005)


def _waiting(dsn: str) -> Callable[[], int]:
    """How many wait for an advisory lock."""
    looker = psycopg.connect(dsn, autocommit=True)

    def count() -> int:
        row = looker.execute(
            "SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        ).fetchone()
        assert row is not None
        return int(row[0])

    return count


def _thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(work()))
    thread.start()
    return thread, answers


def _held(store: Ledger, meanwhile: Callable[[], object]) -> int:
    """The epoch that a transaction held while that happened."""

    def change(session: Any) -> int:
        epoch = governance.held_epoch(session)
        meanwhile()
        return epoch

    return store._database.write(change)


def test_a_host_that_vanished_inside_a_transaction_holds_up_no_switch(postgres_database: str) -> None:
    """A transaction that has compared the epoch and stands still, as that of a host that is cut off or
    suspended does, is ended by the switch that waits for it; nothing of it is written."""
    gone = postgres_store(postgres_database, idle_max_ms=0)  # the server would wait for it for ever
    stores = [gone, postgres_store(postgres_database)]
    before = stores[0].policy_epoch()
    back, holding, ended = threading.Event(), threading.Event(), []

    def vanish() -> None:
        holding.set()
        assert back.wait(SECONDS_MAX * 2)

    def hold() -> None:
        try:
            _held(stores[0], vanish)
        except BackendUnavailable as error:
            ended.append(error)

    holder, _ = _thread(hold)
    assert holding.wait(SECONDS_MAX)
    assert stores[1].set_switch(switch(), entry("switch")) == before + 1
    assert stores[1].policy_epoch() == before + 1
    back.set()
    holder.join(SECONDS_MAX)
    assert len(ended) == 1
    for store in stores:
        store.close()


def test_who_comes_after_a_switch_waits_behind_it(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A switch waits for the transactions that have compared the epoch before it, and for no other: a later
    one begins when it has landed, and reads the new epoch."""
    monkeypatch.setattr(governance, "STOOD_MS", SECONDS_MAX * 1000)
    stores = [postgres_store(postgres_database) for _ in range(3)]
    before = stores[0].policy_epoch()
    waiting, go_on = _waiting(postgres_database), threading.Event()
    holding = threading.Event()

    def hold() -> None:
        holding.set()
        assert go_on.wait(SECONDS_MAX)

    first, compared = _thread(lambda: _held(stores[0], hold))
    assert holding.wait(SECONDS_MAX)
    second, thrown = _thread(lambda: stores[1].set_switch(switch(), entry("switch")))
    _until(lambda: waiting() == 1)
    third, later = _thread(lambda: _held(stores[2], lambda: None))
    _until(lambda: waiting() == 2)
    assert (thrown, later) == ([], [])
    go_on.set()
    for thread in (first, second, third):
        thread.join(SECONDS_MAX)
    assert (compared, thrown, later) == ([before], [before + 1], [before + 1])
    for store in stores:
        store.close()


def test_ledgers_of_one_database_do_not_wait_for_each_other(postgres_database: str) -> None:
    """The lock of a switch is the ledger's own: another schema of the same database has another."""
    with psycopg.connect(postgres_database, autocommit=True) as admin:
        admin.execute("CREATE SCHEMA beside")
    mine = postgres_store(postgres_database)
    beside = postgres_store(f"{postgres_database}?options=-csearch_path%3Dbeside")
    thrown: list[int] = []
    _held(mine, lambda: thrown.append(beside.set_switch(switch(), entry("switch"))))
    assert thrown == [beside.policy_epoch()]
    mine.close()
    beside.close()


@pytest.mark.req("GOV-1")
def test_a_switch_and_a_halt_land_among_busy_workers(postgres_database: str) -> None:
    """With sixteen workers that never rest a switch lands within two seconds, again and again; so does the
    halt that comes with a run's failure; and each worker learns of them."""
    store = postgres_store(postgres_database)
    desk = Desk(store)
    workers = [BusyWorker(postgres_database, number) for number in range(16)]
    took: list[float] = []
    with crew(workers) as steps:
        _until(lambda: steps() >= 1)
        for number in range(5):
            run = desk.admitted(f"r{number}")
            for throw in (
                lambda: store.set_switch(switch(), entry("switch")),
                lambda run=run: desk.fail(run, pause=switch()),
            ):
                began, known = time.monotonic(), steps()
                assert throw()
                took.append(time.monotonic() - began)
                _until(lambda known=known: steps() > known)
    assert max(took) < LANDED_S, took
    assert min(one.refused for one in workers) >= 1
    store.close()


def test_mixed_failures_do_not_wait_in_circles(postgres_database: str) -> None:
    """Six workers whose units fail for the same causes in opposite orders: no deadlock, and each cause has
    one incident that counts all of its units."""
    store = postgres_store(postgres_database)
    workers = [FailingWorker(postgres_database, number) for number in range(6)]
    with crew(workers) as steps:
        _until(lambda: steps() >= 5)
    assert deadlocks(postgres_database) == 0
    found = {one.error_code: one.affected for one in store.incidents()}
    assert set(found) == set(CAUSES)
    failed = Scene(store).sql("SELECT COUNT(*) FROM units WHERE status = 'failed'")[0][0]
    assert sum(found.values()) == failed >= 6 * 5 * len(CAUSES)
    store.close()


def test_a_reaper_reads_what_has_lapsed(postgres_database: str) -> None:
    """However many units are being worked on, a reaper that finds nothing reads a handful of rows; what has
    lapsed, and what a dead worker had, is found among them."""
    scene = Scene(postgres_store(postgres_database))
    for at in range(0, 2_000, 500):
        scene.take(*(taken(f"n{number}") for number in range(at, at + 500)))
        assert len(scene.claim(limit=500, worker=f"w{at}")) == 500
    scene.sql("ANALYZE")
    before = rows_read(postgres_database, "units")
    for _ in range(10):
        reaper = postgres_store(postgres_database)
        assert reaper.units().reap_units(0.5, {"never-claimed-any"}) == 0
        reaper.close()
    read = rows_read(postgres_database, "units") - before
    assert read <= 10 * 5, read
    scene.sql("UPDATE units SET lease_until_ms = 1 WHERE worker_id = '#1' AND wal_id LIKE '%0'")
    (lapsed,) = scene.sql("SELECT COUNT(*) FROM units WHERE lease_until_ms = 1")[0]
    assert scene.units.reap_units(0.5) == lapsed > 0
    assert scene.units.reap_units(0.5, {"w500"}) == 500
    scene.store.close()


def test_a_duty_is_done_by_one_at_a_time(postgres_database: str) -> None:
    """While one process reaps, folds or seals, others leave it to that one instead of waiting; a person who
    seals waits for it."""
    scene, beside = Scene(postgres_store(postgres_database)), Scene(postgres_store(postgres_database))
    scene.take(taken("a"), taken("b"))
    assert len(scene.claim(lease_ms=0)) == 2

    def busy(duty: duties.Duty, meanwhile: Callable[[], object]) -> object:
        def change(session: Any) -> object:
            assert duties.take(session, duty)
            return meanwhile()

        return scene.store._database.write(change)

    assert busy("lapsed leases", lambda: beside.units.reap_units(0.5)) == 0
    assert busy("figures", beside.units.fold_counts) == 0
    assert busy("seals of units", lambda: beside.store.seal("ada", stream="units", waits=False)) is None
    assert busy("seals of outbox", lambda: beside.units.fold_counts()) != 0
    assert beside.store.seal("ada", stream="units", waits=False) is not None
    assert beside.units.reap_units(0.5) == 2
    scene.store.close()
    beside.store.close()
