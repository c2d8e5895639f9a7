"""One ledger of units after the other: whatever is promised is promised by each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kfm.store.ledger import SqlStore
from kfm.system import SystemClock
from tests import services
from tests.conformance.store import ledgers
from tests.conformance.units.scene import Scene


@pytest.fixture(scope="session")
def unit_schema(postgres_dsn: str) -> Iterator[Callable[[], str]]:
    """Makes a DSN whose tables are its own."""
    import psycopg

    numbers = itertools.count(1)
    with services.postgres_database(postgres_dsn) as dsn, psycopg.connect(dsn, autocommit=True) as admin:

        def make() -> str:
            name = f"units_{next(numbers)}"
            admin.execute(f"CREATE SCHEMA {name}")
            return f"{dsn}?options=-csearch_path%3D{name}"

        yield make


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def open_store(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], SqlStore]]:
    """Opens the same ledger again and again, as other processes would; one in memory is opened once."""
    opened: list[SqlStore] = []
    dsn = request.getfixturevalue("unit_schema")() if kind == "postgresql" else ""

    def make() -> SqlStore:
        if kind == "memory":
            assert not opened, "nobody else sees it"
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
def scene(open_store: Callable[[], SqlStore]) -> Scene:
    return Scene(open_store())
