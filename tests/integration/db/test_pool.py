"""Connections of one process: bounded, shared in turn, and none that keeps a lease from being renewed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kfm.app import App
from kfm.config.loader import load
from kfm.db import postgres_pool
from kfm.db.connection import kept_connections, open_ledger, open_store
from kfm.db.postgres import PostgresDatabase
from kfm.db.postgres_pool import CONNECTIONS, SERVICE_CONNECTIONS, ConnectionPool, shared_pool
from kfm.db.queries import newest
from kfm.model.errors import BackendUnavailable, StoreBusy
from kfm.system import SystemClock

pytestmark = pytest.mark.req("FLT-1")

OURS = (
    "SELECT COUNT(*) FROM pg_stat_activity "
    "WHERE application_name LIKE 'kfm %' AND datname = current_database()"
)
CUT = OURS.replace("COUNT(*)", "pg_terminate_backend(pid, 10000)")
WAIT_S = 20


@pytest.fixture
def admin(postgres_database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        yield connection


@pytest.fixture
def pool(postgres_database: str) -> Iterator[ConnectionPool]:
    found = shared_pool(postgres_database, 3)
    yield found
    found.closed()
    assert postgres_database not in postgres_pool._pools


def eventually(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def opened(pool: ConnectionPool, **options: Any) -> PostgresDatabase:
    return PostgresDatabase(pool.opened(), **options)


def count(admin: psycopg.Connection[Any]) -> int:
    row = admin.execute(OURS).fetchone()
    assert row is not None
    return int(row[0])


def test_a_crowd_of_threads_shares_a_few_connections(pool: ConnectionPool) -> None:
    """However many threads read and write at once, the server sees no more than the pool may have."""
    seen: list[int] = []

    def work(number: int) -> None:
        with closing(opened(pool, read_only=number % 2 == 0)) as database:
            for _ in range(20):
                seen.append(database.execute(OURS)[0][0])
                database.write(lambda session: session.now_ms())

    with ThreadPoolExecutor(24) as threads:
        list(threads.map(work, range(24)))
    assert len(seen) == 24 * 20
    assert max(seen) <= 3


def test_connections_are_lent_in_the_order_of_asking(postgres_database: str) -> None:
    """A thread that asked first is served first; none starves."""
    pool, served = ConnectionPool(postgres_database).opened(), list[int]()

    def ask(number: int) -> None:
        lent = pool.lend()
        served.append(number)
        pool.take_back(lent)

    held, threads = pool.lend(), list[threading.Thread]()
    for number in range(6):
        threads.append(threading.Thread(target=ask, args=(number,)))
        threads[-1].start()
        eventually(lambda waiting=number + 1: len(pool._waiting) == waiting)  # type: ignore[misc]
    pool.take_back(held)
    for thread in threads:
        thread.join(WAIT_S)
    assert served == list(range(6))
    pool.closed()


def _holding(pool: ConnectionPool, release: threading.Event) -> threading.Thread:
    held = threading.Event()

    def hold() -> None:
        lent = pool.lend()
        held.set()
        release.wait(WAIT_S)
        pool.take_back(lent)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(WAIT_S)
    return thread


def test_a_crowd_of_readers_makes_no_lease_lapse(pool: ConnectionPool) -> None:
    """One connection is for renewals: whatever else goes on, it does not wait."""
    release = threading.Event()
    others = [_holding(pool, release) for _ in range(2)]
    with pytest.raises(StoreBusy, match="3 connections of this process") as busy:
        pool.lend(20)
    assert "limits.store_connections" in busy.value.way_out
    with closing(opened(pool, urgent=True, wait_max_ms=20)) as renewals:
        assert renewals.session.now_ms() > 0
    release.set()
    for other in others:
        other.join(WAIT_S)
    with closing(opened(pool, wait_max_ms=20)) as database:  # the one that gave up waits for nothing
        assert database.session.now_ms() > 0


def test_renewals_are_served_before_others(postgres_database: str) -> None:
    """Also where there is one connection for everything."""
    pool, served = ConnectionPool(postgres_database).opened(), list[str]()

    def ask(name: str, urgent: bool) -> None:
        lent = pool.lend(urgent=urgent)
        served.append(name)
        pool.take_back(lent)

    held, threads = pool.lend(), list[threading.Thread]()
    for name in ("reader", "writer", "renewal"):
        threads.append(threading.Thread(target=ask, args=(name, name == "renewal")))
        threads[-1].start()
        eventually(lambda: len(pool._waiting) == len(threads))
    pool.take_back(held)
    for thread in threads:
        thread.join(WAIT_S)
    assert served == ["renewal", "reader", "writer"]
    pool.closed()


def test_an_interrupt_at_the_turn_gives_it_back(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the moment in which a connection was given to who waits: the next one has it."""
    pool, release = ConnectionPool(postgres_database).opened(), threading.Event()
    holder = _holding(pool, release)

    class Interrupting(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            release.set()
            holder.join(WAIT_S)
            assert self.is_set()
            raise KeyboardInterrupt

    turn = postgres_pool._Turn
    with monkeypatch.context() as patched:
        patched.setattr(postgres_pool, "_Turn", lambda *named: turn(*named, Interrupting()))
        with pytest.raises(KeyboardInterrupt):
            pool.lend()
    pool.take_back(pool.lend())
    pool.closed()


def test_a_thread_never_asks_for_a_second_one(pool: ConnectionPool) -> None:
    """Threads that wait for each other's connections would wait for ever: a defect, and found at once."""
    with closing(opened(pool)) as one, closing(opened(pool)) as other:
        with pytest.raises(AssertionError, match="asked for another"):
            one.write(lambda _: other.session.now_ms())
        assert one.session.now_ms() > 0


def test_nothing_of_a_transaction_stays_on_its_connection(pool: ConnectionPool) -> None:
    """Readers and writers have the same connections, and each its own rules."""
    with closing(opened(pool, wait_max_ms=1_234)) as writer, closing(opened(pool, read_only=True)) as reader:
        for _ in range(3):
            assert writer.execute("SHOW lock_timeout") == [("1234ms",)]
            assert writer.execute("SHOW transaction_read_only") == [("off",)]
            assert reader.execute("SHOW lock_timeout") == [("30s",)]
            assert reader.execute("SHOW transaction_read_only") == [("on",)]
        lent = pool.lend()
        assert lent.driver.execute("SHOW lock_timeout").fetchone() == ("0",)
        assert lent.driver.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        pool.take_back(lent)


def test_a_restarted_server_costs_one_call_at_most(
    pool: ConnectionPool, admin: psycopg.Connection[Any]
) -> None:
    """What was idle is closed with what broke: it does not fail one call after the other."""
    release = threading.Event()
    others = [_holding(pool, release) for _ in range(2)]
    with closing(opened(pool, urgent=True)) as database:
        release.set()
        for other in others:
            other.join(WAIT_S)
        assert count(admin) == 3

        def cut(_: Any) -> None:
            database.execute("SELECT 1")
            admin.execute(CUT)

        with pytest.raises(BackendUnavailable):
            database.write(cut)
        assert pool._idle == []
        for _ in range(5):
            assert database.session.now_ms() > 0
        assert count(admin) == 1


def test_a_writer_leaves_a_server_that_can_only_be_read(pool: ConnectionPool) -> None:
    """It has become a standby: the next call connects again, to the primary if the address names it."""
    with closing(opened(pool)) as database:
        [(before,)] = database.execute("SELECT pg_backend_pid()")

        def change(_: Any) -> None:
            database.execute("SET TRANSACTION READ ONLY")
            database.execute("CREATE TABLE refused ()")

        with pytest.raises(BackendUnavailable, match="read-only"):
            database.write(change)
        assert database.execute("SELECT pg_backend_pid()") != [(before,)]


def test_a_child_has_connections_of_its_own(pool: ConnectionPool, admin: psycopg.Connection[Any]) -> None:
    """After a fork the child opens its own, and what it does to them leaves the parent's as they were."""
    with closing(opened(pool)) as database:
        [(mine,)] = database.execute("SELECT pg_backend_pid()")
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                [(own,)] = database.execute("SELECT pg_backend_pid()")
                os.write(write, str(own).encode())
                database.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert int(os.read(read, 99)) != mine
        assert database.execute("SELECT pg_backend_pid()") == [(mine,)]
        os.close(read)
        os.close(write)


def test_the_last_one_closes_the_door(
    postgres_database: str, admin: psycopg.Connection[Any], tmp_path: Path
) -> None:
    """Stores and readers of one process share connections; none is left when all are closed."""
    clock, state = SystemClock(), str(tmp_path)
    stores = [open_store(postgres_database, state, clock) for _ in range(5)]
    readers = [open_ledger(postgres_database, state, clock) for _ in range(5)]
    assert postgres_pool._pools[postgres_database].size == CONNECTIONS
    assert count(admin) == 1
    for one in (*stores, *readers):
        one.close()
    eventually(lambda: count(admin) == 0)
    with pytest.raises(BackendUnavailable, match="closed"):
        stores[0].policy_epoch()


def test_what_can_not_be_opened_leaves_no_connection(
    postgres_database: str, admin: psycopg.Connection[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger of a newer kfm, one that fails while it is opened: the next try begins anew."""
    state = str(tmp_path)
    with closing(open_store(postgres_database, state, SystemClock())):
        pass
    admin.execute("UPDATE schema_level SET level = 9999, floor = 9999")
    admin.execute(f"UPDATE migrations SET version = 9999 WHERE version = {newest()}")
    for opens in (open_store, open_ledger):
        with pytest.raises(BackendUnavailable, match="newer"):
            opens(postgres_database, state, SystemClock())
        assert postgres_database not in postgres_pool._pools
    admin.execute(f"UPDATE schema_level SET level = {newest()}, floor = {newest()}")
    admin.execute(f"UPDATE migrations SET version = {newest()} WHERE version = 9999")
    admin.execute("DROP TABLE expectations")
    (tmp_path / "kfm.yml").write_text("version: 1\nstore: env:POOLED\n")
    monkeypatch.setenv("POOLED", postgres_database)
    loaded = load(str(tmp_path / "kfm.yml"))
    with pytest.raises(BackendUnavailable, match="does not exist"):
        App(loaded, read_only=False, progress=None)
    assert postgres_database not in postgres_pool._pools
    eventually(lambda: count(admin) == 0)


def test_a_service_keeps_its_connections_between_requests(
    postgres_database: str, admin: psycopg.Connection[Any], tmp_path: Path
) -> None:
    """A request opens none; the number is a setting, and has a default."""
    clock, state = SystemClock(), str(tmp_path)
    with kept_connections(postgres_database, None):
        with closing(open_store(postgres_database, state, clock)) as store:
            [(first,)] = store.database.execute("SELECT pg_backend_pid()")  # type: ignore[attr-defined]
        assert postgres_pool._pools[postgres_database].size == SERVICE_CONNECTIONS
        with closing(open_ledger(postgres_database, state, clock)) as reader:
            assert reader.database.execute("SELECT pg_backend_pid()") == [(first,)]  # type: ignore[attr-defined]
    eventually(lambda: count(admin) == 0)
    with kept_connections(postgres_database, 2):
        assert postgres_pool._pools[postgres_database].size == 2
    with kept_connections(None, None):
        assert postgres_database not in postgres_pool._pools
