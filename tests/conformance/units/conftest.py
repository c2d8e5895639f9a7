"""One ledger of units after the other: whatever is promised is promised by each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kfm.db.ledger import Ledger
from kfm.system import SystemClock
from tests.conformance.db import ledgers
from tests.conformance.units.scene import Scene


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def open_store(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Ledger]]:
    """Opens the same ledger again and again, as other processes would; one in memory is opened once."""
    opened: list[Ledger] = []
    dsn = request.getfixturevalue("postgres_ledger")() if kind == "postgresql" else ""

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
