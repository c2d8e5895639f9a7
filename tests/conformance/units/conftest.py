"""One ledger of units after the other: whatever is promised is promised by each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kfm.db.ledger import Ledger
from kfm.system import SystemClock
from tests import services
from tests.conformance.db import ledgers
from tests.conformance.units.scene import Scene


@pytest.fixture(scope="session")
def unit_schema(postgres_dsn: str) -> Iterator[Callable[[], str]]:
    """Makes a DSN whose tables are as they were new: emptied, since that is much faster than making them."""
    import psycopg

    with services.postgres_database(postgres_dsn) as dsn, psycopg.connect(dsn) as admin:
        ledgers.postgres_store(dsn).close()
        tables = [row[0] for row in admin.execute(_TABLES)]
        seeds = [name for name in tables if admin.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone()]
        admin.execute("CREATE SCHEMA seed")
        for name in seeds:
            admin.execute(f"CREATE TABLE seed.{name} AS SELECT * FROM {name}")
        admin.execute("SET session_replication_role = replica")  # in any order, whatever refers to what
        admin.commit()

        def make() -> str:
            for name in tables:
                admin.execute(f"DELETE FROM {name}")
            for name in seeds:
                admin.execute(f"INSERT INTO {name} OVERRIDING SYSTEM VALUE SELECT * FROM seed.{name}")
            admin.commit()
            return dsn

        yield make


_TABLES = """
SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' AND table_type = 'BASE TABLE'
"""


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def open_store(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Ledger]]:
    """Opens the same ledger again and again, as other processes would; one in memory is opened once."""
    opened: list[Ledger] = []
    dsn = request.getfixturevalue("unit_schema")() if kind == "postgresql" else ""

    def make() -> Ledger:
        if kind == "memory":
            assert not opened, "no other process sees it"
            store = ledgers.memory_store(SystemClock())
        elif dsn:
            store = ledgers.postgres_store(dsn)
        else:
            store = ledgers.sqlite_store(str(tmp_path / "kfm.db"), SystemClock())
        opened.append(store)
        return store

    yield make
    for store in opened:
        store.close()


@pytest.fixture
def scene(open_store: Callable[[], Ledger]) -> Scene:
    return Scene(open_store())
