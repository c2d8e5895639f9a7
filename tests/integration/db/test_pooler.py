"""Behind pgbouncer in transaction mode: each transaction may be on another connection, and nothing of a
session outlives it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest

from kfm.cli.doctor import _server
from kfm.db.postgres import PostgresDatabase
from kfm.db.postgres_pool import ConnectionPool
from kfm.db.postgres_side import PostgresSide
from kfm.model.errors import BackendUnavailable, LockHeld, StoreBusy, StoreUnsafe
from tests.conformance.db.ledgers import MINUTE_MS, Desk, entry, postgres_store, switch
from tests.conformance.units.scene import Scene, done, taken
from tests.integration.db.test_postgres import _together

pytestmark = pytest.mark.req("FLT-1")


@pytest.fixture
def pooled(postgres_database: str, pooled_dsn: str) -> str:
    """The DSN of an empty database through the pooler. The role's own defaults there are the worst."""
    name = postgres_database.rsplit("/", 1)[1]
    with psycopg.connect(postgres_database, autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
        admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        admin.execute(f"ALTER DATABASE {name} SET lock_timeout = 0")
    return f"{pooled_dsn.rsplit('/', 1)[0]}/{name}"


def _shown(database: PostgresDatabase, name: str) -> Any:
    return database.execute(f"SHOW {name}")[0][0]


def test_a_pooler_is_noticed(pooled: str, postgres_database: str) -> None:
    """By itself: a setting for it would be forgotten. Nothing is prepared then for the next transaction."""
    for dsn, is_pooled in ((pooled, True), (postgres_database, False)):
        pool = ConnectionPool(dsn).opened()
        lent = pool.lend()
        assert lent.pooled is is_pooled
        assert (lent.driver.prepare_threshold is None) is is_pooled
        pool.take_back(lent)
        pool.closed()


def test_a_pooler_is_told_by_the_doctor(pooled: str) -> None:
    """Beside the server's version and its connections."""
    with closing(PostgresDatabase(pooled, read_only=True)) as database:
        assert "behind a pooler: " in list(_server(database))[-1].message


def test_our_rules_hold_in_every_transaction(pooled: str) -> None:
    """Whatever the role's defaults are, and whichever connection the pooler gives: waits are bounded, guards
    see what was committed, readers can't write."""
    stop, backends = threading.Event(), set[int]()

    def noise() -> None:
        with closing(PostgresDatabase(pooled, read_only=True)) as other:
            while not stop.is_set():
                other.execute("SELECT 1")

    others = [threading.Thread(target=noise) for _ in range(2)]
    for other in others:
        other.start()
    with (
        closing(PostgresDatabase(pooled, wait_max_ms=1_234)) as writer,
        closing(PostgresDatabase(pooled, read_only=True)) as reader,
    ):
        for _ in range(40):
            backends.add(writer.execute("SELECT pg_backend_pid()")[0][0])
            assert _shown(writer, "lock_timeout") == "1234ms"
            assert _shown(writer, "idle_in_transaction_session_timeout") == "1234ms"
            assert _shown(writer, "transaction_isolation") == "read committed"
            assert _shown(writer, "transaction_read_only") == "off"
            assert _shown(reader, "transaction_read_only") == "on"
            assert _shown(reader, "lock_timeout") == "30s"
    stop.set()
    for other in others:
        other.join()
    assert len(backends) == 2, "the pooler has changed connections"


def test_a_schema_of_the_address_is_used(pooled: str, postgres_database: str) -> None:
    """Poolers take no options: the schema is said in each transaction."""
    with psycopg.connect(postgres_database) as admin:
        admin.execute("SET default_transaction_read_only = off")
        admin.rollback()
        admin.execute("SET TRANSACTION READ WRITE")
        admin.execute("CREATE SCHEMA apart")
    store = postgres_store(f"{pooled}?options=-csearch_path%3Dapart")
    Desk(store).admitted("a")
    assert len(store.runs()) == 1
    store.close()
    with closing(PostgresDatabase(pooled)) as beside:
        assert beside.is_empty()


def test_a_server_that_may_lose_commits_is_refused_behind_it(pooled: str, postgres_database: str) -> None:
    """The pooler hides nothing of it."""
    name = postgres_database.rsplit("/", 1)[1]
    with psycopg.connect(postgres_database.rsplit("/", 1)[0] + "/postgres", autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
        with pytest.raises(StoreUnsafe, match="synchronous_commit=off"):
            PostgresDatabase(pooled)


def test_a_reader_can_not_write_there(pooled: str) -> None:
    """The server refuses, and the connection serves writers as before."""
    postgres_store(pooled).close()
    with closing(PostgresDatabase(pooled, read_only=True)) as reader:
        with pytest.raises(BackendUnavailable, match="read-only"):
            reader.session.all("policy.advance")
        assert reader.session.now_ms() > 0
    with closing(postgres_store(pooled)) as store:
        assert store.set_switch(switch(), entry("switch")) == store.policy_epoch()


def test_runs_there(pooled: str) -> None:
    """Admissions, promotions and failures of several processes: each run ends once, heads grow by one."""
    desks = [Desk(postgres_store(pooled)) for _ in range(4)]

    def work(number: int) -> int:
        desk, promoted = desks[number], 0
        desk.calls = number * 1_000
        for turn in range(8):
            scope = f"dataset:{number}"
            run = desk.admitted(f"{number} {turn}", scope=scope)
            assert desk.store.renew(scope, run.fence, MINUTE_MS) is not None
            for _ in range(50):
                answer = desk.promote(run, f"{number} {turn}", scope=scope).answer
                if answer == "promoted":
                    break
                assert answer == "head-moved"
            promoted += answer == "promoted"
        return promoted

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(work, range(4))) == 32
    head = desks[0].store.head("ks-streamflow")
    assert head is not None
    assert head[0].sequence == 32
    assert desks[0].store.runs(status="running") == []
    for desk in desks:
        desk.store.close()


def test_units_there(pooled: str) -> None:
    """Four workers on one queue: every unit is had once and ends once."""
    scene = Scene(postgres_store(pooled))
    scene.take(*(taken(f"n{number}") for number in range(120)))

    def work(number: int) -> list[str]:
        mine, had = Scene(postgres_store(pooled)), list[str]()
        while batch := mine.claim(limit=7, worker=f"w{number}"):
            had += mine.end(*(done(one) for one in batch)).succeeded
        mine.store.close()
        return had

    with ThreadPoolExecutor(4) as threads:
        ended = [one for had in threads.map(work, range(4)) for one in had]
    assert len(ended) == len(set(ended)) == 120
    scene.check()
    scene.store.close()


def test_waits_end_there(pooled: str, postgres_database: str) -> None:
    """A row that is held, and a process that stops in the middle of a transaction."""
    store, stalled = (postgres_store(pooled, wait_max_ms=wait_ms) for wait_ms in (30_000, 250))
    run = Desk(store).admitted("a")
    with psycopg.connect(postgres_database) as other:
        other.execute("SET TRANSACTION READ WRITE")
        other.execute("SELECT * FROM locks FOR UPDATE")
        with pytest.raises(StoreBusy, match="did not become free in time"):
            stalled.renew("dataset:ks-streamflow", run.fence, MINUTE_MS)

    def stop(session: Any) -> None:
        session.one("locks.get_for_update", scope="dataset:ks-streamflow")
        time.sleep(0.6)
        session.all("policy.advance")

    before = store.policy_epoch()
    with pytest.raises(BackendUnavailable):
        stalled._database.write(stop)
    assert store.renew("dataset:ks-streamflow", run.fence, MINUTE_MS) == (before, None)
    assert stalled.policy_epoch() == before
    stalled.close()
    store.close()


def test_a_switch_and_a_promotion_never_pass_each_other_there(pooled: str) -> None:
    """The guards hold on connections that change under them."""
    first, second = Desk(postgres_store(pooled)), postgres_store(pooled)
    for number in range(10):
        run = first.admitted(f"r{number}")
        before = first.store.policy_epoch()
        tasks: list[Callable[[], Any]] = [
            lambda run=run, before=before: first.promote(run, policy_epoch=before),  # type: ignore[misc]
            lambda: second.set_switch(switch(), entry("switch")),
        ]
        promoted, epoch = _together(*tasks)
        assert epoch == before + 1
        if promoted.answer == "epoch-moved":
            assert first.fail(run)
        else:
            assert promoted.answer == "promoted"
    first.store.close()
    second.close()


def test_one_copy_at_a_time_there(pooled: str) -> None:
    """A copy holds its end by a transaction, reads of one moment, and lets go when it is closed."""
    with closing(postgres_store(pooled)) as store:
        Desk(store).admitted("a")
    with closing(PostgresSide(pooled)) as side:
        side.hold()
        side.hold()  # it has it
        with closing(PostgresSide(pooled)) as other, pytest.raises(LockHeld):
            other.hold()
    with closing(PostgresSide(pooled)) as side:
        side.hold()
