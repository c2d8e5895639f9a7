"""A hundred processes at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfm.db.ledger import Ledger
from kfm.system import SystemClock
from tests.conformance.db.ledgers import new_run, postgres_store, sqlite_store

pytestmark = [pytest.mark.req("UPD-2", "UPD-5", "TRG-2"), pytest.mark.slow]

SIZE = 100


def _judge(said: list[dict[str, Any]], store: Ledger) -> None:
    expected = new_run("same").run_id
    answers = [line["answer"] for line in said]
    assert len(said) == SIZE
    assert set(answers) <= {"admitted", "moved", "locked"}, set(answers)
    assert answers.count("admitted") == 1
    assert {line["run_id"] for line in said} == {expected}, "everyone is shown the one run"
    assert {line["holder"] for line in said if line["answer"] == "locked"} <= {expected}
    (run,) = store.runs()
    assert (run.run_id, run.attempts, run.status) == (expected, 1, "running")
    assert len(store.invocations()) == 1
    assert [lock.holder.run_id for lock in store.locks() if lock.holder] == [expected]
    store.close()


def test_a_hundred_processes_on_sqlite_make_one_run(tmp_path: Path, play: Callable[..., Any]) -> None:
    """They create the ledger and admit the same key: one run is stored, all are shown that one."""
    path = tmp_path / "kfm.db"
    said = play("crowd", path, SIZE).lines()
    _judge(said, sqlite_store(str(path), SystemClock()))


def test_a_hundred_processes_on_postgresql_make_one_run(
    postgres_database: str, play: Callable[..., Any]
) -> None:
    """They migrate the database and admit the same key: one run is stored, all are shown that one."""
    said = play("crowd", postgres_database, SIZE).lines()
    _judge(said, postgres_store(postgres_database))
