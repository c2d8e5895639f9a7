"""One store of run-state after the other: whatever is promised is promised by each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from kfm.db.ledger import Ledger
from kfm.system import SystemClock
from tests.conformance.db import ledgers
from tests.conformance.run_state.backends import KINDS, Pipeline, Place
from tests.lakefs_server import serving


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    opened: list[Ledger] = []
    path = str(tmp_path / "kfm.db")
    dsn = request.getfixturevalue("postgres_ledger")() if "postgresql" in request.param else ""

    def open_store() -> Ledger:
        store = ledgers.postgres_store(dsn) if dsn else ledgers.sqlite_store(path, SystemClock())
        opened.append(store)
        return store

    with serving(page=50) if request.param == "lakefs" else nullcontext() as server:
        yield Place(request.param, tmp_path, open_store, server)
    for store in opened:
        store.close()


@pytest.fixture
def soil(place: Place) -> Pipeline:
    return Pipeline(place.open())
