"""The write lock: no process starves beside a busy writer, and the dead do not block it."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfm.db.session import Session
from kfm.db.sqlite import WriteLock
from kfm.model.errors import StoreBusy
from kfm.system import SystemClock
from tests.conformance.db.ledgers import sqlite_store
from tests.stand_ins import FakeClock

COMMITS = 30


@pytest.mark.req("UPD-8")
def test_a_busy_writer_lets_others_in(tmp_path: Path, play: Callable[..., Any]) -> None:
    """Beside a process that writes back to back, a commit waits for one or two transactions, not for luck.

    Counted in the busy writer's transactions and not in milliseconds, so that a slow machine can't
    make it fail.
    """
    path = str(tmp_path / "kfm.db")
    store = sqlite_store(path, SystemClock())
    worker = play("busy", path, 5).ready()

    def look(session: Session) -> int:
        row = session.one("policy.epoch")
        assert row is not None
        return int(row[0])

    passed_by = []
    for _ in range(COMMITS):
        before = store.policy_epoch()
        while store.policy_epoch() == before:  # the worker is at it again
            SystemClock().sleep_ms(1)
        before = store.policy_epoch()
        passed_by.append(store._database.write(look) - before)
    worker.finish()
    assert worker.line()["count"] >= COMMITS
    store.close()
    assert statistics.median(passed_by) <= 2, passed_by
    assert max(passed_by) <= 10, passed_by


def test_three_busy_writers_share(tmp_path: Path, play: Callable[..., Any]) -> None:
    """Of three processes that write back to back, none gets less than half of its third."""
    path = str(tmp_path / "kfm.db")
    sqlite_store(path, SystemClock()).close()
    workers = [play("busy", path, 4) for _ in range(3)]
    for worker in workers:
        worker.ready()
    store = sqlite_store(path, SystemClock())
    start = store.policy_epoch()
    while store.policy_epoch() < start + 150:
        SystemClock().sleep_ms(10)
    store.close()
    for worker in workers:
        worker.finish()
    counts = [worker.line()["count"] for worker in workers]
    assert min(counts) >= sum(counts) / 6, counts


@pytest.mark.parametrize("role", ["hold-gate", "hold"])
def test_a_killed_writer_frees_it(tmp_path: Path, play: Callable[..., Any], role: str) -> None:
    """The kernel drops the locks of a killed process, wherever it stood."""
    path = str(tmp_path / "kfm.db")
    store = sqlite_store(path, SystemClock(), wait_max_ms=200)
    holder = play(role, path).ready()
    with pytest.raises(StoreBusy):
        store.raise_projected("d", "t", 1)
    holder.kill()
    store.raise_projected("d", "t", 1)
    assert store.projected() == {("d", "t"): 1}
    store.close()


def test_waiting_has_an_end_and_a_pace(tmp_path: Path) -> None:
    """A writer that can't get in asks at a few milliseconds' distance and gives up at its deadline."""
    path = str(tmp_path / "kfm.db")
    clock = FakeClock()
    first, second = WriteLock(path, clock, 1_000), WriteLock(path, clock, 1_000)
    with first, pytest.raises(StoreBusy, match="other processes have had it for 1000 ms"):
        second.__enter__()
    assert 1_000 <= clock.passed_ms < 1_010
    assert min(clock.slept) >= 1
    assert max(clock.slept) <= 5
    with second:
        pass
    first.close()
    second.close()


def test_gate_and_write_lock_share_one_deadline(tmp_path: Path, play: Callable[..., Any]) -> None:
    """Whatever a writer waits for first, it gives up after its deadline and leaves the gate open."""
    path = str(tmp_path / "kfm.db")
    clock = FakeClock()
    store = sqlite_store(path, clock, wait_max_ms=500)
    play("hold", path).ready()
    began = clock.passed_ms
    with pytest.raises(StoreBusy, match="other processes have had it for 500 ms"):
        store.raise_projected("d", "t", 1)
    assert 500 <= clock.passed_ms - began < 510
    with WriteLock(path, clock, 10):
        pass
    store.close()
