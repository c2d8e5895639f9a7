"""Power cuts: what was acknowledged is there afterwards, and nothing by halves."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from kfm.db import sqlite
from kfm.db.ledger import Ledger
from kfm.db.queries import migrate
from kfm.db.sqlite import SqliteDatabase
from kfm.model.errors import KfmError
from kfm.system import SystemClock
from tests.conformance.db.ledgers import Desk, entry
from tests.integration.db.brittle_disk import BrittleDisk, Event, after_cut

CUTS = 250
TRANSACTIONS = 40

Fact = tuple[str, int]  # what was acknowledged, and which


def _live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synchronous: str) -> list[Event]:
    """A ledger's life on a brittle disk, with checkpoints and a second process; returns the disk's log."""
    disk = BrittleDisk(f"brittle-{synchronous}")
    monkeypatch.setattr(sqlite, "CHECKPOINT_PAGES", 60)
    number = 0
    for _ in range(2):  # the first process ends tidily, the second goes on
        database = SqliteDatabase(str(tmp_path / "brittle.db"), SystemClock(), connect=disk.connect)
        database._connection.pragma("synchronous", synchronous)
        migrate(database, "sqlite", 1)
        store = Ledger(database)
        desk = Desk(store)
        desk.calls = number * 100
        for _ in range(TRANSACTIONS // 2):
            number += 1
            if number % 4:
                store.append_governance([entry("left", str(number)), entry("right", str(number))])
                disk.mark(("entry", number))
            else:
                run = desk.admitted(f"run {number}", lease_ms=0)
                disk.mark(("run", number))
                assert desk.promote(run, f"text {number}", states=(("number", number),)).answer == "promoted"
                disk.mark(("head", number // 4))
        store.close()
    disk.unregister()
    return disk.log


def _found(folder: Path, files: dict[str, bytes]) -> tuple[set[Fact], str]:
    """What the next process finds, through a disk that is whole."""
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    database = SqliteDatabase(str(folder / "brittle.db"), SystemClock())
    migrate(database, "sqlite", 1)
    health = database._connection.pragma("integrity_check")
    store = Ledger(database)
    entries = store.governance(limit=1_000)
    lefts = {int(found.subject) for found in entries if found.kind == "left"}
    rights = {int(found.subject) for found in entries if found.kind == "right"}
    assert lefts == rights, "half of a transaction"
    heads = store.promotions("ks-streamflow", limit=1_000)
    assert [one.sequence for one in heads] == list(range(len(heads), 0, -1))
    assert store.states("ks-streamflow") == ({"number": 4 * len(heads)} if heads else {})
    runs = store.runs(limit=1_000)
    assert {call.run_id for call in store.invocations(limit=1_000)} == {run.run_id for run in runs}
    facts = {("entry", one) for one in lefts} | {("head", one.sequence) for one in heads}
    facts |= {("run", 4 * (index + 1)) for index in range(len(runs))}
    store.append_governance([entry("after")])  # and work goes on
    store.close()
    return facts, health


def _losses(folder: Path, log: list[Event]) -> list[str]:
    """Each cut at a random moment; what was acknowledged and is not there."""
    lost = []
    rng = random.Random(20_260_101)
    for number in range(CUTS):
        moment = rng.randrange(1, len(log) + 1)
        files, told = after_cut(log, moment, rng)
        try:
            found, health = _found(folder / f"boot-{number}", files)
        except (KfmError, apsw.Error, AssertionError) as error:
            lost.append(f"cut {number} at {moment}: {error}")
            continue
        if health != "ok":
            lost.append(f"cut {number} at {moment}: {health}")
        missing = set(told) - found
        if missing:
            lost.append(f"cut {number} at {moment}: acknowledged and lost: {sorted(missing)}")
    return lost


@pytest.fixture
def losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    def measure(synchronous: str) -> list[str]:
        log = _live(tmp_path, monkeypatch, synchronous)
        assert sum(event[0] == "mark" for event in log) > TRANSACTIONS
        (folder := tmp_path / "left").mkdir(exist_ok=True)
        return _losses(folder, log)

    return measure


@pytest.mark.req("UPD-2")
def test_no_acknowledged_commit_is_lost(losses: Callable[[str], list[str]]) -> None:
    """After a power cut at any moment every acknowledged commit is there, whole, in a sound database."""
    assert losses("FULL") == []


@pytest.mark.parametrize("weaker", ["OFF", "NORMAL"])
def test_this_test_can_fail(losses: Callable[[str], list[str]], weaker: str) -> None:
    """With weaker settings the same cuts lose commits: the disk is brittle enough to prove something."""
    assert len(losses(weaker)) > CUTS / 10
