"""Names that were ever masked are remembered by the ledger, on each database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kfm.db.ledger import Ledger
from kfm.system import SystemClock
from tests.conformance.db import ledgers

pytestmark = pytest.mark.req("RS-13")


def test_names_only_ever_become_more(store: Ledger) -> None:
    """Each configuration adds its own, and none takes any away."""
    assert store.remembered_names() == {}
    store.remember_names({"graves": ["graves", "feed"], "sites": ["sites"]})
    store.remember_names({"graves": ["graves", "list"]})
    store.remember_names({})
    assert store.remembered_names() == {"graves": ["feed", "graves", "list"], "sites": ["sites"]}


def test_processes_that_add_names_at_once(tmp_path: Path) -> None:
    """No name of any of them is lost."""
    path = str(tmp_path / "kfm.db")
    ledgers.sqlite_store(path, SystemClock()).close()

    def add(number: int) -> None:
        ledger = ledgers.sqlite_store(path, SystemClock())
        for each in range(5):
            ledger.remember_names({"graves": [f"name-{number}-{each}"]})
        ledger.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(4)))
    found = ledgers.sqlite_store(path, SystemClock())
    assert len(found.remembered_names()["graves"]) == 20
    found.close()
