"""What kfm will not keep records on, and what it says when a database can't be had."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from kfm.db import sqlite
from kfm.db.connection import check_local_disk, check_sqlite_library, file_system_type
from kfm.db.sqlite import SqliteDatabase
from kfm.model.errors import BackendUnavailable, SchemaViolation, StoreBusy, StoreCorrupt, StoreUnsafe
from kfm.system import SystemClock
from tests.conformance.db.ledgers import entry, sqlite_store
from tests.stand_ins import FakeClock

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:21 / /proc rw - proc proc rw
40 22 0:50 / /srv/shared\\040data rw - nfs4 server:/export rw
41 40 0:51 / /srv/shared\\040data/local rw - xfs /dev/vdb rw
42 22 0:52 / /mnt/share rw - cifs //server/share rw
43 22 0:53 / /mnt/s3 rw - fuse.s3fs s3fs rw
"""


@pytest.mark.parametrize("version", ["3.7.0", "3.40.1", "3.44.5", "3.45.0", "3.50.6", "3.51.0", "3.51.2"])
def test_a_library_with_the_wal_reset_bug_is_refused(version: str) -> None:
    """Two processes that write and checkpoint would lose commits."""
    with pytest.raises(StoreUnsafe, match=version):
        check_sqlite_library(version)


@pytest.mark.parametrize("version", ["3.44.6", "3.44.9", "3.50.7", "3.50.8", "3.51.3", "3.54.0", "4.0.0"])
def test_a_patched_library_is_taken(version: str) -> None:
    """Later versions, and the two branches that got the repair."""
    check_sqlite_library(version)


def test_an_old_library_opens_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal comes before a file is made."""
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.40.1")
    with pytest.raises(StoreUnsafe):
        SqliteDatabase(str(tmp_path / "kfm.db"), SystemClock())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "kind", "refused"),
    [
        ("/home/ada/.kfm", "ext4", False),
        ("/srv/shared data/project/.kfm", "nfs4", True),
        ("/srv/shared data", "nfs4", True),
        ("/srv/shared data/local/.kfm", "xfs", False),
        ("/srv/shared database/.kfm", "ext4", False),
        ("/mnt/share/.kfm", "cifs", True),
        ("/mnt/s3/.kfm", "fuse.s3fs", True),
    ],
)
def test_a_network_file_system_is_refused(tmp_path: Path, path: str, kind: str, refused: bool) -> None:
    """The mount that holds the folder decides, the innermost one."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    found = file_system_type(path, str(mounts))
    assert found == kind
    if refused:
        with pytest.raises(StoreUnsafe, match=kind):
            check_local_disk(path, found)
    else:
        check_local_disk(path, found)


def test_where_the_machine_does_not_tell_nothing_is_refused(tmp_path: Path) -> None:
    """No table of mounts is no evidence."""
    assert file_system_type("/x", str(tmp_path / "none")) is None
    check_local_disk("/x", None)


def test_a_state_folder_on_a_network_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a ledger asks, and makes nothing there."""
    monkeypatch.setattr(sqlite, "file_system_type", lambda _path: "nfs4")
    with pytest.raises(StoreUnsafe, match="network"):
        SqliteDatabase(str(tmp_path / "kfm.db"), SystemClock())
    assert list(tmp_path.iterdir()) == []


def test_weaker_than_wal_is_refused(tmp_path: Path) -> None:
    """Where the journal can't be a write-ahead file, there is no ledger."""
    with pytest.raises(StoreUnsafe, match="WAL and FULL are needed"):
        SqliteDatabase(str(tmp_path / "kfm.db"), SystemClock(), connect=lambda _: apsw.Connection(":memory:"))


@pytest.mark.parametrize("weaker", ["OFF", "NORMAL"])
def test_weaker_than_full_is_refused(tmp_path: Path, weaker: str) -> None:
    """A commit that is acknowledged before it is on the disk is none."""
    database = SqliteDatabase(str(tmp_path / "kfm.db"), SystemClock())
    database.check_durability()
    database._connection.pragma("synchronous", weaker)
    with pytest.raises(StoreUnsafe, match="WAL and FULL are needed"):
        database.check_durability()
    database.close()


def test_every_connection_is_durable(tmp_path: Path) -> None:
    """Also the second one, and the one after a foreign tool changed the journal."""
    path = str(tmp_path / "kfm.db")
    sqlite_store(path, SystemClock()).close()
    foreign = apsw.Connection(path)
    assert foreign.pragma("journal_mode", "delete") == "delete"
    foreign.close()
    database = SqliteDatabase(path, SystemClock())
    assert database._connection.pragma("journal_mode") == "wal"
    assert database._connection.pragma("synchronous") == 2
    assert database._connection.pragma("foreign_keys") == 1
    database.close()


def test_what_is_no_database_is_said(tmp_path: Path) -> None:
    """A file of something else is named and not changed."""
    path = tmp_path / "kfm.db"
    path.write_bytes(b"id,value\n" * 1_000)
    with pytest.raises(StoreCorrupt, match="not a database"):
        SqliteDatabase(str(path), SystemClock())
    assert path.read_bytes() == b"id,value\n" * 1_000


@pytest.mark.parametrize("mark", [0, 0x47504B47])
def test_another_programs_database_is_refused(tmp_path: Path, mark: int) -> None:
    """A GeoPackage, or anybody's tables, do not become a ledger by a wrong path."""
    path = tmp_path / "kfm.db"
    other = apsw.Connection(str(path))
    other.execute("CREATE TABLE gpkg_contents (id)")
    other.pragma("application_id", mark)
    other.close()
    before = path.read_bytes()
    with pytest.raises(StoreUnsafe, match="another program"):
        SqliteDatabase(str(path), SystemClock())
    assert path.read_bytes() == before


@pytest.mark.parametrize("place", ["missing/kfm.db", "file/kfm.db", "folder"])
def test_a_place_that_can_not_be_is_said(tmp_path: Path, place: str) -> None:
    """No folder, a file instead of a folder, a folder instead of a file: a clear word for each."""
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(BackendUnavailable, match="unable to open"):
        SqliteDatabase(str(tmp_path / place), SystemClock())


def test_a_folder_that_may_not_be_entered_is_said(tmp_path: Path) -> None:
    """The remedy speaks of permission."""
    folder = tmp_path / "closed"
    folder.mkdir(mode=0)
    me = os.geteuid()
    try:
        if me == 0:
            os.seteuid(65534)  # root may enter everything
        with pytest.raises(BackendUnavailable) as refused:
            SqliteDatabase(str(folder / "kfm.db"), SystemClock())
    finally:
        os.seteuid(me)
        folder.chmod(0o700)
    assert "read and write the state folder" in refused.value.way_out


@pytest.mark.parametrize("role", ["hold", "hold-gate"])
def test_busy_is_said_in_our_words(tmp_path: Path, play: Callable[..., Any], role: str) -> None:
    """If the file is held, by a foreign tool or by kfm: our sentence, and never SQLite's."""
    path = str(tmp_path / "kfm.db")
    store = sqlite_store(path, SystemClock(), wait_max_ms=60)
    play(role, path).ready()
    with pytest.raises(StoreBusy) as busy:
        store.append_governance([entry("x")])
    assert busy.value.message.startswith("The database did not become free in time.")
    assert "database is locked" not in busy.value.message
    assert store.governance() == []  # reading goes on meanwhile
    store.close()


def test_opening_beside_a_holder_is_said_in_our_words(tmp_path: Path, play: Callable[..., Any]) -> None:
    """Also the very first look has a deadline and a sentence."""
    path = str(tmp_path / "kfm.db")
    sqlite_store(path, SystemClock()).close()
    play("hold-gate", path).ready()
    with pytest.raises(StoreBusy, match="did not become free in time"):
        SqliteDatabase(path, SystemClock(), wait_max_ms=60)


# --- a full disk ---------------------------------------------------------------------


class FullDisk(apsw.VFS):
    """A disk that has no room while `full` is set."""

    def __init__(self) -> None:
        self.full = False
        super().__init__("full-disk", "")

    def xOpen(self, name: Any, flags: list[int]) -> Any:  # noqa: N802
        disk = self

        class File(apsw.VFSFile):
            def __init__(self) -> None:
                super().__init__("", name, flags)

            def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
                if disk.full:
                    raise apsw.FullError
                super().xWrite(data, offset)

        return File()


def _exclusive(path: str) -> apsw.Connection:
    connection = apsw.Connection(path, vfs="full-disk")
    connection.pragma("locking_mode", "exclusive")  # such a file has no shared memory
    return connection


def test_a_full_disk_is_said_and_loses_nothing(tmp_path: Path) -> None:
    """The transaction is undone as a whole, and once there is room again work goes on."""
    disk = FullDisk()
    store = sqlite_store(str(tmp_path / "kfm.db"), SystemClock(), connect=_exclusive)
    store.append_governance([entry("before")])
    disk.full = True
    for _ in range(3):
        with pytest.raises(BackendUnavailable) as full:
            store.append_governance([entry("lost"), entry("lost")])
        assert f" is full: {tmp_path / 'kfm.db'} can't be written" in full.value.message
        assert "Free some space on /" in full.value.way_out
    assert [found.kind for found in store.governance()] == ["before"]
    disk.full = False
    store.append_governance([entry("after")])
    assert [found.kind for found in store.governance()] == ["after", "before"]
    store.close()
    disk.unregister()


def test_a_commit_stands_when_the_checkpoint_after_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tidying up is no part of the promise: its failure is not the caller's."""
    disk = FullDisk()
    monkeypatch.setattr(sqlite, "CHECKPOINT_PAGES", 1)
    store = sqlite_store(str(tmp_path / "kfm.db"), SystemClock(), connect=_exclusive)
    database: Any = store._database
    real = database._checkpoint

    def on_a_full_disk() -> None:
        disk.full = True
        try:
            real()
        finally:
            disk.full = False

    monkeypatch.setattr(database, "_checkpoint", on_a_full_disk)
    store.append_governance([entry("kept")])
    assert [found.kind for found in store.governance()] == ["kept"]
    monkeypatch.undo()
    store.close()
    disk.unregister()


def test_the_write_ahead_file_is_bounded(tmp_path: Path) -> None:
    """It is emptied inside the write lock and never grows much beyond its limit."""
    store = sqlite_store(str(tmp_path / "kfm.db"), SystemClock())
    largest = 0
    for _ in range(150):
        store.append_governance([entry("x", details={"text": "x" * 100_000})] * 2)
        largest = max(largest, os.path.getsize(tmp_path / "kfm.db-wal"))
    assert largest < (sqlite.CHECKPOINT_PAGES + 200) * 4_200
    assert largest < 150 * 200_000, "it was never emptied"
    store.close()


def test_the_write_ahead_file_is_bounded_beside_other_writers(
    tmp_path: Path, play: Callable[..., Any]
) -> None:
    """Also when some process is always writing, everything is copied now and then and it starts anew."""
    path = tmp_path / "kfm.db"
    sqlite_store(str(path), SystemClock()).close()
    writers = [play("bulky", path, 100).ready() for _ in range(3)]
    store = sqlite_store(str(path), SystemClock())
    while len(store.governance(limit=200)) < 200:
        SystemClock().sleep_ms(20)
    written = 200 * 40_000
    assert os.path.getsize(f"{path}-wal") < written / 3
    store.close()
    for writer in writers:
        writer.finish()


def test_a_long_reader_delays_no_writer_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a process reads an old state, commits go on; the write-ahead file is emptied afterwards."""
    clock = FakeClock()
    monkeypatch.setattr(sqlite, "CHECKPOINT_PAGES", 50)
    path = str(tmp_path / "kfm.db")
    store = sqlite_store(path, clock)
    reader = apsw.Connection(path)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM counters").fetchall()
    for _ in range(40):
        store.append_governance([entry("x", details={"text": "x" * 20_000})])
    pages = store._database._wal_pages  # type: ignore[attr-defined]
    assert pages > 200
    assert clock.passed_ms <= (pages / 50 + 1) * (sqlite.CHECKPOINT_WAIT_MS + 5)
    reader.execute("COMMIT")
    for _ in range(12):
        store.append_governance([entry("x", details={"text": "x" * 20_000})])
    assert store._database._wal_pages < 120  # type: ignore[attr-defined]
    reader.close()
    store.close()


def test_a_failure_inside_a_transaction_leaves_the_way_free(tmp_path: Path) -> None:
    """Whatever goes wrong in it, it is rolled back and the write lock opens."""
    store = sqlite_store(str(tmp_path / "kfm.db"), SystemClock(), wait_max_ms=100)
    second = sqlite_store(str(tmp_path / "kfm.db"), SystemClock(), wait_max_ms=100)

    def change(session: Any) -> None:
        session.all("policy.advance")
        raise KeyboardInterrupt

    before = store.policy_epoch()
    with pytest.raises(KeyboardInterrupt):
        store._database.write(change)
    assert store.policy_epoch() == before
    second.append_governance([entry("free")])
    again = {"version": 1, "name": "x", "checksum": "x", "applied_at_ms": 1}
    with pytest.raises(SchemaViolation):
        store._database.write(lambda session: session.all("migrations.insert", **again))
    second.append_governance([entry("free")])
    store.close()
    second.close()


@pytest.mark.parametrize("deed", ["removed", "replaced"])
def test_a_database_that_was_taken_away_is_not_written_to(tmp_path: Path, deed: str) -> None:
    """What is written into a file that no process will find is lost: say so before; go on once it is back."""
    path, away = tmp_path / "kfm.db", tmp_path / "away.db"
    database = SqliteDatabase(str(path), SystemClock())
    path.rename(away)
    if deed == "replaced":
        path.write_bytes(away.read_bytes())
    with pytest.raises(BackendUnavailable, match="removed or replaced"):
        database.write(lambda _session: None)
    away.rename(path)
    database.write(lambda _session: None)
    database.close()


@pytest.mark.req("RS-13")
def test_every_file_of_a_ledger_is_its_owners_alone(tmp_path: Path) -> None:
    """Wherever the ledger is kept, others can't read it: it holds the key that masks hidden names."""
    before = os.umask(0o022)
    try:
        database = SqliteDatabase(str(tmp_path / "ledger.db"), SystemClock())
        try:
            modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
        finally:
            database.close()
    finally:
        os.umask(before)
    assert {"ledger.db", "ledger.db-gate", "ledger.db-wal", "ledger.db-shm"} <= set(modes)
    assert set(modes.values()) == {0o600}


@pytest.mark.req("RS-13")
def test_a_ledger_that_its_owner_has_opened_to_a_group_stays_so(tmp_path: Path) -> None:
    """What a person has set is not set back."""
    path = tmp_path / "ledger.db"
    SqliteDatabase(str(path), SystemClock()).close()
    path.chmod(0o640)
    SqliteDatabase(str(path), SystemClock()).close()
    assert path.stat().st_mode & 0o777 == 0o640
