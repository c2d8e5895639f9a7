"""A primary dies in the middle of work, and its synchronous standby is promoted."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from kfm.cli.doctor import _server
from kfm.db import governance
from kfm.db.ledger import Ledger
from kfm.db.postgres import PostgresDatabase
from kfm.db.postgres_pool import ConnectionPool
from kfm.db.queries import migrate
from kfm.model.errors import BackendUnavailable
from tests import services
from tests.conformance.db.ledgers import entry
from tests.conformance.units.scene import Scene, done, taken

pytestmark = [pytest.mark.slow, pytest.mark.req("FLT-3")]

WAIT_S = 60
UNITS = 400


class Pair(NamedTuple):
    """A primary and its standby."""

    primary: str
    standby: str
    promote: Callable[[], None]

    @property
    def both(self) -> str:
        """An address that names both of them, in this order."""
        user, _, first = self.primary.removesuffix("/postgres").rpartition("@")
        return f"{user}@{first},{self.standby.removesuffix('/postgres').rpartition('@')[2]}/postgres"

    def told(self) -> list[str]:
        with closing(PostgresDatabase(self.primary)) as database:
            return [f"{finding.state}: {finding.message}" for finding in _server(database)]


@pytest.fixture
def pair(postgres_dsn: str) -> Iterator[Pair]:  # the first says whether servers can be had here
    with services.postgres() as primary, services.standby_of(primary) as (standby, promote):
        yield Pair(primary, standby, promote)


def eventually(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def wait_for_standby(admin: psycopg.Connection[Any], state: str) -> None:
    eventually(
        lambda: admin.execute("SELECT sync_state FROM pg_stat_replication").fetchall() == [(state,)], state
    )


def kill_server(data: str) -> None:
    """As a machine that loses its power: no process of the server says goodbye."""
    postmaster = int(Path(data, "postmaster.pid").read_text().split()[0])
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    for process in (postmaster, *map(int, children)):
        os.kill(process, signal.SIGKILL)


class Load:
    """Threads that write as processes would, and note what was acknowledged to them."""

    def __init__(self, dsn: str) -> None:
        self.pool = ConnectionPool(dsn, 3).opened()
        self.acknowledged: list[str] = []
        self.ended: list[str] = []
        self.failures = 0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._enter, args=(number,)) for number in range(2)]
        self._threads += [threading.Thread(target=self._work, args=(number,)) for number in range(2)]
        for thread in self._threads:
            thread.start()

    def _again(self, act: Callable[[], bool]) -> None:
        while not self._stop.is_set():
            try:
                if not act():
                    return
            except BackendUnavailable:
                self.failures += 1
                self._stop.wait(0.05)

    def _enter(self, number: int) -> None:
        with closing(PostgresDatabase(self.pool.opened())) as database:
            turn = iter(range(1_000_000))

            def enter() -> bool:
                name = f"{number}.{next(turn)}"
                database.write(lambda session: governance.append(session, [entry("note", name)]))
                self.acknowledged.append(name)
                return True

            self._again(enter)

    def _work(self, number: int) -> None:
        with closing(PostgresDatabase(self.pool.opened())) as database:
            scene = Scene(Ledger(database))

            def work() -> bool:
                batch = scene.claim(limit=3, worker=f"w{number}")
                if batch:
                    self.ended += scene.end(*(done(one) for one in batch)).succeeded
                return True

            self._again(work)

    def finish(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()
        self.pool.closed()


def test_a_promoted_standby_has_everything_and_is_used(pair: Pair) -> None:
    """Nothing that was acknowledged is lost, nothing is there twice, and work goes on by itself. Before, a
    server that can only be read is refused by writers."""
    with psycopg.connect(pair.primary, autocommit=True) as admin:
        wait_for_standby(admin, "async")
        assert any("asynchronous: a failover may lose" in line for line in pair.told())
        admin.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        admin.execute("SELECT pg_reload_conf()")
        wait_for_standby(admin, "sync")
        assert any("1 synchronous and 0 asynchronous standbys" in line for line in pair.told())
        with closing(PostgresDatabase(pair.both)) as database:
            migrate(database, "postgresql", 1)
            Scene(Ledger(database)).take(*(taken(f"n{number}") for number in range(UNITS)))
        found = admin.execute("SHOW data_directory").fetchone()
        assert found is not None
        alone, load = PostgresDatabase(pair.standby), Load(pair.both)
        try:
            with pytest.raises(BackendUnavailable, match="recovery"):
                alone.write(lambda session: session.all("policy.advance"))
            eventually(lambda: len(load.acknowledged) > 20 and len(load.ended) > 10, "work goes on")
            kill_server(found[0])
            before = len(load.acknowledged), len(load.ended)
            pair.promote()
            eventually(lambda: len(load.acknowledged) > before[0] + 20, "entries go on")
            eventually(lambda: len(load.ended) > before[1] + 10, "units go on")
            alone.write(lambda session: session.all("policy.advance"))
        finally:
            load.finish()
            alone.close()
    with closing(PostgresDatabase(pair.both)) as database:
        ledger = Ledger(database)
        subjects = [link.entry.subject for link in ledger.chain() if link.entry.kind == "note"]
        assert len(subjects) == len(set(subjects))
        assert set(load.acknowledged) <= set(subjects)
        assert len(subjects) - len(load.acknowledged) <= load.failures  # the answer was lost, not the entry
        assert len(load.ended) == len(set(load.ended))
        scene = Scene(ledger)
        for wal_id in load.ended:
            stored = scene.units.stored(wal_id)
            assert stored is not None
            assert stored.unit.status == "succeeded"
