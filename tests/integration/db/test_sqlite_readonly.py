"""Reading without a trace, and without being fooled."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfm.db.ledger_reader import LedgerReader
from kfm.db.queries import applied, check, migrate, migration_files
from kfm.db.sqlite import SqliteDatabase, SqliteReader
from kfm.model.errors import BackendUnavailable, StoreCorrupt, StoreTooNew
from kfm.system import SystemClock
from tests.conformance.db.ledgers import Desk, entry, sqlite_store

pytestmark = pytest.mark.req("UPD-7")

LOOKS_MAX = 20_000
Tree = dict[str, tuple[int, int, bytes]]


def _tree(folder: Path) -> Tree:
    """Names, sizes, times and bytes. The index of the write-ahead file is scratch memory: its name only."""
    return {
        str(path.relative_to(folder)): (
            (0, 0, b"")
            if path.name.endswith("-shm")
            else (path.stat().st_size, path.stat().st_mtime_ns, path.read_bytes())
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _kinds(path: Path) -> list[str]:
    reader = SqliteReader(str(path), SystemClock())
    check(applied(reader.session))
    ledger = LedgerReader(reader)
    kinds = [found.kind for found in ledger.governance(limit=1_000)]
    assert ledger.head("x") is None
    assert ledger.policy_epoch() >= 1
    ledger.close()
    return kinds


def _ledger(path: Path, *kinds: str) -> None:
    store = sqlite_store(str(path), SystemClock())
    store.append_governance([entry(kind) for kind in kinds])
    store.close()


def test_a_clean_ledger_is_read_without_a_trace(tmp_path: Path) -> None:
    """Not a name, not a size, not a time changes."""
    _ledger(tmp_path / "kfm.db", "one")
    before = _tree(tmp_path)
    assert set(before) == {"kfm.db", "kfm.db-gate"}
    assert _kinds(tmp_path / "kfm.db") == ["one"]
    assert _tree(tmp_path) == before


def test_a_killed_writers_commits_are_read_without_a_trace(tmp_path: Path, play: Callable[..., Any]) -> None:
    """What was committed before a kill is seen, and the write-ahead file stays as it is."""
    path = tmp_path / "kfm.db"
    play("commit-and-die", path, 3).ready().kill()
    before = _tree(tmp_path)
    assert {"kfm.db-wal", "kfm.db-shm"} <= set(before)
    assert before["kfm.db-wal"][0] > 0
    assert _kinds(path) == ["k2", "k1", "k0"]
    assert _kinds(path) == ["k2", "k1", "k0"]
    assert _tree(tmp_path) == before


def test_a_restored_write_ahead_file_is_read_without_a_trace(
    tmp_path: Path, play: Callable[..., Any]
) -> None:
    """A copy of the file and its write-ahead file, without their index, is complete too."""
    play("commit-and-die", tmp_path / "kfm.db", 2).ready().kill()
    restored = tmp_path / "restored"
    restored.mkdir()
    for name in ("kfm.db", "kfm.db-wal"):
        shutil.copy2(tmp_path / name, restored / name)
    before = _tree(restored)
    assert _kinds(restored / "kfm.db") == ["k1", "k0"]
    assert _tree(restored) == before


def test_a_reader_that_came_first_sees_what_is_written_later(tmp_path: Path) -> None:
    """A ledger that was quiet when it was opened may be written, checkpointed and tidied up meanwhile."""
    path = tmp_path / "kfm.db"
    _ledger(path, "one")
    ledger = LedgerReader(SqliteReader(str(path), SystemClock()))
    assert len(ledger.governance()) == 1
    store = sqlite_store(str(path), SystemClock())
    store.append_governance([entry("two")])
    assert [found.kind for found in ledger.governance()] == ["two", "one"]
    store.close()
    assert len(ledger.governance()) == 2
    _ledger(path, *(["more"] * 500))
    assert len(ledger.governance(limit=1_000)) == 502
    ledger.close()


def test_reads_beside_a_writer_are_whole(tmp_path: Path, play: Callable[..., Any]) -> None:
    """While another process writes, checkpoints and removes its files, every answer is of one moment."""
    path = tmp_path / "kfm.db"
    _ledger(path)
    writer = play("appending", path).ready()
    ledger = LedgerReader(SqliteReader(str(path), SystemClock()))
    newest = 0
    for _ in range(LOOKS_MAX):
        found = ledger.governance(limit=20)
        lefts = [one.subject for one in found if one.kind == "left"]
        rights = [one.subject for one in found if one.kind == "right"]
        assert lefts == rights, "half of a transaction was seen"
        assert lefts == sorted(lefts, key=int, reverse=True)
        seen = int(lefts[0]) if lefts else 0
        assert seen >= newest, "time went back"
        newest = seen
        if newest > 60:
            break
        SystemClock().sleep_ms(1)
    writer.finish()
    assert newest > 60, "the writer wrote nothing"
    count = writer.line()["count"]
    assert int(ledger.governance(limit=1)[0].subject) == count
    ledger.close()


def test_fresh_readers_beside_a_writer_are_whole(tmp_path: Path, play: Callable[..., Any]) -> None:
    """Whichever way in a reader finds, at whatever moment, it sees whole transactions."""
    path = tmp_path / "kfm.db"
    _ledger(path)
    writer = play("appending", path).ready()
    newest = 0
    for _ in range(LOOKS_MAX):
        ledger = LedgerReader(SqliteReader(str(path), SystemClock()))
        found = ledger.governance(limit=4)
        assert [one.subject for one in found if one.kind == "left"] == [
            one.subject for one in found if one.kind == "right"
        ]
        seen = int(found[0].subject) if found else 0
        assert seen >= newest
        newest = seen
        ledger.close()
        if newest > 60:
            break
        SystemClock().sleep_ms(1)
    writer.finish()
    assert newest > 60, "the writer wrote nothing"


def test_a_ledger_that_was_never_finished_is_empty(tmp_path: Path) -> None:
    """Killed between the making of the file and its first migration, it reads like a new one."""
    SqliteDatabase(str(tmp_path / "kfm.db"), SystemClock()).close()
    before = _tree(tmp_path)
    assert _kinds(tmp_path / "kfm.db") == []
    assert _tree(tmp_path) == before


def test_an_older_ledger_is_read_as_if_it_were_migrated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader brings a copy up to date and leaves the file to the next writer."""
    from kfm.db import queries

    _ledger(tmp_path / "kfm.db", "one")
    before = _tree(tmp_path)
    later = (
        *migration_files(),
        (migration_files()[-1][0] + 1, "later", "UPDATE governance SET kind = 'renamed';"),
    )
    monkeypatch.setattr(queries, "migration_files", lambda: later)
    monkeypatch.setattr(queries, "listed", dict)
    assert _kinds(tmp_path / "kfm.db") == ["renamed"]
    assert _tree(tmp_path) == before


def test_a_newer_ledger_is_refused(tmp_path: Path) -> None:
    """A reader does not guess either."""
    database = SqliteDatabase(str(tmp_path / "kfm.db"), SystemClock())
    migrate(database, "sqlite", 1, (*migration_files(), (99, "future", "CREATE TABLE future (id BIGINT)")))
    database.close()
    with pytest.raises(StoreTooNew):
        SqliteReader(str(tmp_path / "kfm.db"), SystemClock())


def test_a_reader_refuses_to_write(tmp_path: Path) -> None:
    """Whatever is asked of it, no statement changes anything."""
    path = tmp_path / "kfm.db"
    _ledger(path, "one")
    reader = SqliteReader(str(path), SystemClock())
    with pytest.raises(BackendUnavailable):
        reader.session.all("policy.advance")
    with pytest.raises(AssertionError, match="asked to write"):
        reader.write(lambda session: session.all("policy.advance"))
    reader.close()


def test_what_is_no_database_is_said(tmp_path: Path) -> None:
    """A file of something else gets a clear word."""
    path = tmp_path / "kfm.db"
    path.write_bytes(b"not a database at all" * 300)
    with pytest.raises(StoreCorrupt, match="not a database"):
        SqliteReader(str(path), SystemClock())


def test_paths_may_have_odd_names(tmp_path: Path) -> None:
    """Question marks, hashes and percent signs in a folder's name are no parameters."""
    folder = tmp_path / "50% ?mode=memory #1 ü"
    folder.mkdir()
    _ledger(folder / "kfm.db", "one")
    assert _kinds(folder / "kfm.db") == ["one"]


def test_a_whole_life_is_read(tmp_path: Path) -> None:
    """A reader answers as the writer's own ledger does."""
    store = sqlite_store(str(tmp_path / "kfm.db"), SystemClock())
    desk = Desk(store)
    desk.promote(desk.admitted("a"), "one")
    ledger = LedgerReader(SqliteReader(str(tmp_path / "kfm.db"), SystemClock()))
    assert ledger.head("ks-streamflow") == store.head("ks-streamflow")
    assert ledger.runs() == store.runs()
    ledger.close()
    store.close()


def test_a_ledger_that_cannot_be_looked_at_is_not_an_empty_one(tmp_path: Path) -> None:
    """Nothing there means nothing has run; a way that is barred, or leads nowhere, is told."""
    from kfm.db.connection import open_ledger

    open_ledger(None, str(tmp_path / "nothing"), SystemClock()).close()
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(BackendUnavailable, match="can't be looked at"):
        open_ledger(None, str(tmp_path / "round"), SystemClock())


LOCKED = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000002)  # SQLite's shared lock
    except OSError:
        print("held")
"""


@pytest.mark.req("UPD-7")
def test_a_copy_beside_a_live_ledger_leaves_its_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that reads a copy of a ledger that it has open keeps its locks on the file: without them
    another process would remove the write-ahead file under it."""
    path = tmp_path / "kfm.db"
    store = sqlite_store(str(path), SystemClock())
    store.append_governance([entry("one")])

    def is_held() -> bool:
        asked = [sys.executable, "-c", LOCKED, str(path)]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout == "held\n"

    def read_beside(session: Any) -> list[str]:
        session.all("governance.list", row_limit=1)
        assert is_held()
        with monkeypatch.context() as patched:
            real = os.path.exists
            patched.setattr(os.path, "exists", lambda name: not str(name).endswith("-shm") and real(name))
            kinds = _kinds(path)
        assert is_held()
        return kinds

    assert store._database.write(read_beside) == ["one"]
    store.close()


@pytest.mark.req("UPD-7")
def test_commits_are_on_the_disk_also_on_a_mac(tmp_path: Path) -> None:
    """SQLite is told to sync as far as the drive, which is F_FULLFSYNC where there is such a thing."""
    database = SqliteDatabase(str(tmp_path / "kfm.db"), SystemClock())
    assert database._connection.pragma("fullfsync") == 1
    database.close()
