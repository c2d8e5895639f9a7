"""One kind of branches after the other: whatever is promised is promised by each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kfm.store.ledger import SqlStore
from kfm.system import SystemClock
from tests import services
from tests.conformance.branches.scene import Scene
from tests.conformance.store import ledgers


@pytest.fixture(scope="session")
def branch_schema(postgres_dsn: str) -> Iterator[Callable[[], str]]:
    """Makes a DSN whose tables are its own."""
    import psycopg

    numbers = itertools.count(1)
    with services.postgres_database(postgres_dsn) as dsn, psycopg.connect(dsn, autocommit=True) as admin:

        def make() -> str:
            name = f"branches_{next(numbers)}"
            admin.execute(f"CREATE SCHEMA {name}")
            return f"{dsn}?options=-csearch_path%3D{name}"

        yield make


@pytest.fixture(params=["sqlite", "postgresql"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], SqlStore]]:
    """Opens the same ledger again and again, as other processes would."""
    opened: list[SqlStore] = []
    path = str(tmp_path / "kfm.db")
    dsn = request.getfixturevalue("branch_schema")() if request.param == "postgresql" else ""

    def make() -> SqlStore:
        store = ledgers.postgres_store(dsn) if dsn else ledgers.sqlite_store(path, SystemClock())
        opened.append(store)
        return store

    yield make
    for store in opened:
        store.close()


@pytest.fixture
def scene(open_store: Callable[[], SqlStore]) -> Scene:
    store = open_store()
    return Scene(store, store.branch_store())
