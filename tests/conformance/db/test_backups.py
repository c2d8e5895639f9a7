"""A backup is of one moment, from either database and into either; a restore that is killed goes on."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfm.audit import anchors, chain
from kfm.db.connection import open_side, open_store
from kfm.db.postgres import PostgresDatabase
from kfm.db.queries import applied, migrate, migration_files
from kfm.db.sqlite import SqliteDatabase
from kfm.model.audit import Anchor
from kfm.model.errors import StoreCorrupt, UsageError
from kfm.objects.local import LocalObjects
from kfm.storage.backup import BackupMaker, BackupReport, Restorer, RestoreReport
from kfm.storage.backup_places import BackupFolder
from kfm.storage.objects_copy import Compare
from kfm.system import PosixFiles, SystemClock, SystemIds
from tests import moving

pytestmark = pytest.mark.req("GRO-4")

ROWS = 8


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path, postgres_schema: Callable[[], str]) -> str:
    path = str(tmp_path / "kfm.db")
    moving.fill(path, ROWS)
    if request.param == "sqlite":
        return path
    dsn = postgres_schema()
    moving.copy(path, dsn)
    return dsn


def store_of(address: str) -> str:
    return address if "://" in address else f"sqlite:{address}"


def objects_at(folder: Path) -> LocalObjects:
    return LocalObjects(PosixFiles(), str(folder), SystemIds())


def back_up(
    ledger: str,
    tmp_path: Path,
    steps: moving.Steps | None = None,
    compare: Compare = "bytes",
    environment: str = "test",
) -> BackupReport:
    objects = objects_at(tmp_path / "objects")
    stage(objects)
    side = open_side(store_of(ledger), "/", SystemClock())
    try:
        return BackupMaker(
            side,
            objects,
            BackupFolder(str(tmp_path / "safe"), PosixFiles(), SystemIds()),
            clock=SystemClock(),
            ids=SystemIds(),
            progress=steps or moving.Steps(),
            scratch=str(tmp_path),
            anchors=str(tmp_path / "none.jsonl"),
            environment=environment,
            version="0",
            versions_kept=1,
            compare=compare,
        ).run()
    finally:
        side.close()


def restore(
    address: str, tmp_path: Path, steps: moving.Steps | None = None, *, dry_run: bool = False
) -> RestoreReport:
    return Restorer(
        BackupFolder(str(tmp_path / "safe"), PosixFiles(), SystemIds()),
        objects_at(tmp_path / "restored"),
        ledger_path=None if "://" in address else address,
        open_target=lambda: open_side(store_of(address), "/", SystemClock(), fill=True),
        clock=SystemClock(),
        progress=steps or moving.Steps(),
        scratch=str(tmp_path),
        anchors=str(tmp_path / "none.jsonl"),
        environment="test",
        by=moving.BY,
    ).run(dry_run=dry_run)


def stage(objects: LocalObjects) -> None:
    staging, _ = objects.stage()
    staging.write(b"bytes")
    staging.commit()


@pytest.fixture(autouse=True)
def _no_manifests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifests of a filled ledger are no documents."""
    monkeypatch.setattr("kfm.storage.backup.needed_objects", lambda *_: frozenset())
    monkeypatch.setattr("kfm.db.branches.EmbeddedBranchReader.objects_kept", lambda *_: ())


@pytest.mark.parametrize("into", ["sqlite", "postgresql"])
def test_what_is_restored_is_what_was_backed_up(
    ledger: str, tmp_path: Path, into: str, postgres_schema: Callable[[], str]
) -> None:
    """Row by row, whichever databases; the restore is entered in the audit log; a second one is refused."""
    before = moving.contents(ledger)
    report = back_up(ledger, tmp_path)
    target = postgres_schema() if into == "postgresql" else str(tmp_path / "new.db")
    restore(target, tmp_path)
    after = moving.contents(target)
    chained = ("governance", "chain_heads")
    assert {name: after[name] for name in after if name not in chained} == {
        name: before[name] for name in before if name not in chained
    }
    assert len(after["governance"]) == len(before["governance"]) + 1
    assert report.copied == 1
    opened = open_store(store_of(target), "/", SystemClock())
    moving.enter(opened, "goes on")
    assert chain.verify(opened).sound
    opened.close()
    with pytest.raises(UsageError, match="never replaces"):
        restore(target, tmp_path)


def test_a_backup_while_it_is_written_is_of_one_moment(ledger: str, tmp_path: Path) -> None:
    """Two rows that are always written together are both in it or neither, and the chain is sound."""
    writer = open_store(store_of(ledger), "/", SystemClock())
    execute: Any = writer.database.execute  # type: ignore[attr-defined]

    def act(at: int, _: str) -> None:
        def change(_session: Any) -> None:
            execute(f"INSERT INTO marks (name, value) VALUES ('a{at}', '')")
            execute(f"INSERT INTO policies (bundle_id, texts) VALUES ('a{at}', '')")

        writer.database.write(change)
        moving.enter(writer, f"meanwhile {at}")

    back_up(ledger, tmp_path, moving.Steps(act))
    writer.close()
    restore(str(tmp_path / "new.db"), tmp_path)
    found = moving.contents(str(tmp_path / "new.db"))
    marks = {row[0] for row in found["marks"] if row[0].startswith("a")}
    assert marks == {row[0] for row in found["policies"] if row[0].startswith("a")}
    assert marks
    opened = open_store(f"sqlite:{tmp_path / 'new.db'}", "/", SystemClock())
    assert chain.verify(opened).sound
    opened.close()


@pytest.mark.parametrize("stage", ["copying units", "comparing"])
def test_a_killed_restore_goes_on(tmp_path: Path, postgres_schema: Callable[[], str], stage: str) -> None:
    """Into PostgreSQL, where nothing can be renamed into its place: until it is whole it is not opened."""
    path, target = str(tmp_path / "kfm.db"), postgres_schema()
    moving.fill(path, ROWS)
    back_up(path, tmp_path)
    child = os.fork()
    if child == 0:
        seen = 0

        def kill(_: int, name: str) -> None:
            nonlocal seen
            # The file is compared first, the tables on arrival afterwards.
            seen += name == stage
            if seen == (2 if stage == "comparing" else 1):
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            restore(target, tmp_path, moving.Steps(kill))
        finally:
            os._exit(1)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    restore(target, tmp_path)
    assert moving.contents(target)["units"] == moving.contents(path)["units"]


def killed(work: Callable[[], object]) -> None:
    """In a process of its own, which kills itself on the way."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(1)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_log_that_a_killed_process_left_is_not_replayed_over_the_restored_ledger(tmp_path: Path) -> None:
    """The damaged file was moved away, its log was not: the restore is refused and names it; without it the
    ledger is the one of the backup."""
    live = str(tmp_path / "kfm.db")
    moving.fill(live, ROWS)
    back_up(live, tmp_path)
    before = moving.contents(live)

    def work() -> None:
        store = open_store(f"sqlite:{live}", "/", SystemClock())
        for number in range(60):
            moving.enter(store, f"after the backup {number}")
        die()

    killed(work)
    os.rename(live, tmp_path / "damaged.db")
    with pytest.raises(UsageError, match=r"kfm\.db-wal") as refused:
        restore(live, tmp_path)
    assert "move it" in refused.value.way_out
    assert not os.path.exists(live)
    for name in ("kfm.db-wal", "kfm.db-shm"):
        os.rename(tmp_path / name, tmp_path / name.replace("kfm", "damaged"))
    restore(live, tmp_path)
    assert len(moving.contents(live)["governance"]) == len(before["governance"]) + 1


@pytest.mark.parametrize("left", ["-wal", "-shm", "-journal"])
def test_a_log_that_appears_during_a_restore_ends_it(tmp_path: Path, left: str) -> None:
    """Also one that comes while objects are copied: nothing is renamed beside it."""
    live, new = str(tmp_path / "kfm.db"), str(tmp_path / "new.db")
    moving.fill(live, ROWS)
    back_up(live, tmp_path)

    def act(_: int, name: str) -> None:
        if name == "objects":
            Path(f"{new}{left}").touch()

    with pytest.raises(UsageError, match=f"new.db{left}"):
        restore(new, tmp_path, moving.Steps(act))
    assert not os.path.exists(new)


@pytest.mark.parametrize("into", ["sqlite", "postgresql"])
def test_a_restored_ledger_tells_that_it_was_restored(
    tmp_path: Path, into: str, postgres_schema: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed as it writes its entry, the ledger is not live yet: the same command goes on, and enters it."""
    live = str(tmp_path / "kfm.db")
    moving.fill(live, ROWS)
    back_up(live, tmp_path)
    target = postgres_schema() if into == "postgresql" else str(tmp_path / "new.db")
    with monkeypatch.context() as patched:
        patched.setattr("kfm.storage.backup.governance.append", die)
        killed(lambda: restore(target, tmp_path))
    restore(target, tmp_path)
    kinds = [row[1] for row in moving.contents(target)["governance"]]
    assert kinds.count("restore") == 1


def test_anchors_of_a_killed_restore_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed before the file of anchors has its name: run again, all of them are there, as they were."""
    live, path = str(tmp_path / "kfm.db"), tmp_path / "none.jsonl"
    moving.fill(live, ROWS)
    store = open_store(f"sqlite:{live}", "/", SystemClock())
    for number in range(3):
        moving.enter(store, f"more {number}")
        row, digest = store.chain_head()
        made = Anchor(number=row, hash=digest, environment="test", at="2026-01-01T00:00:00Z")
        anchors.append(str(path), made)
    store.close()
    back_up(live, tmp_path)
    before = path.read_bytes()
    path.unlink()
    with monkeypatch.context() as patched:
        patched.setattr("kfm.audit.anchors.sync", die)
        killed(lambda: restore(str(tmp_path / "new.db"), tmp_path))
    restore(str(tmp_path / "new.db"), tmp_path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("place", ["a folder that is not there", "another file system"])
def test_the_ledger_lies_where_the_settings_say(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder is made, for its owner alone; where it lies on another disk than the state folder, it is
    written there before it gets its name."""
    live, new = str(tmp_path / "kfm.db"), tmp_path / "db" / "kfm.db"
    moving.fill(live, ROWS)
    back_up(live, tmp_path)
    if place == "another file system":
        new.parent.mkdir(mode=0o700)
        real = os.rename

        def rename(old: str, fresh: str, **folders: Any) -> None:
            if str(fresh).startswith(str(new)) and not str(old).startswith(str(new.parent)):
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
            real(old, fresh, **folders)

        monkeypatch.setattr("os.rename", rename)
    restore(str(new), tmp_path)
    assert os.listdir(new.parent) == ["kfm.db"]
    assert new.parent.stat().st_mode & 0o777 == 0o700
    assert moving.contents(str(new))["units"] == moving.contents(live)["units"]


def test_what_a_killed_restore_left_goes_with_the_next(tmp_path: Path) -> None:
    """As large as the ledger, and of no use once its process is gone; that of one at work stays."""
    live, new = str(tmp_path / "kfm.db"), tmp_path / "db" / "kfm.db"
    moving.fill(live, ROWS)
    back_up(live, tmp_path)
    assert not list(tmp_path.glob("kfm-backup-*"))

    def kill(_: int, name: str) -> None:
        if name == "objects":
            die()

    killed(lambda: restore(str(new), tmp_path, moving.Steps(kill)))
    killed(lambda: back_up(live, tmp_path, moving.Steps(lambda _, name: name == "ledger" and die())))
    assert len(list(tmp_path.glob("kfm-backup-*"))) == 1
    (left,) = new.parent.iterdir()
    (new.parent / "kfm-restore-of-last-march").mkdir()

    def look(_: int, name: str) -> None:
        if name == "comparing":
            (mine,) = (one for one in new.parent.glob("kfm-restore-*") if len(one.name) == len(left.name))
            assert mine != left
            with pytest.raises(UsageError, match="stop"):  # another one, at the same time
                restore(str(new), tmp_path, moving.Steps(refuse))
            assert mine.is_dir()

    def refuse(_: int, name: str) -> None:
        if name == "objects":
            raise UsageError("stop")

    restore(str(new), tmp_path, moving.Steps(look))
    assert sorted(os.listdir(new.parent)) == ["kfm-restore-of-last-march", "kfm.db"]
    back_up(live, tmp_path)
    assert not list(tmp_path.glob("kfm-backup-*"))


def damage(objects: Path, how: str) -> Path:
    """The one object there, cut short or with other bytes of the same size."""
    (one,) = (path for path in objects.rglob("*") if path.is_file())
    one.chmod(0o600)
    one.write_bytes(b"" if how == "short" else b"sytes")
    return one


@pytest.mark.parametrize("how", ["short", "changed"])
def test_a_damaged_object_at_the_place_is_replaced_by_the_next_backup(tmp_path: Path, how: str) -> None:
    """It counts as new, and the backup can be restored; before, the restore names a way out that is one."""
    live, new = str(tmp_path / "kfm.db"), str(tmp_path / "new.db")
    moving.fill(live, 3)
    back_up(live, tmp_path)
    damage(tmp_path / "safe" / "objects", how)
    for dry_run in (True, False):
        with pytest.raises(StoreCorrupt, match="1 object of the backup") as refused:
            restore(new, tmp_path, dry_run=dry_run)
        assert "`kfm backup` to the same place" in refused.value.way_out
    report = back_up(live, tmp_path)
    assert (report.copied, report.there, report.manifest.missing) == (1, 0, ())
    restore(new, tmp_path)
    assert back_up(live, tmp_path).copied == 0


def test_a_quick_backup_finds_another_size(tmp_path: Path) -> None:
    """Objects of the right size are not read; one that was cut short is replaced."""
    live = str(tmp_path / "kfm.db")
    moving.fill(live, 3)
    back_up(live, tmp_path)
    damage(tmp_path / "safe" / "objects", "changed")
    assert back_up(live, tmp_path, compare="sizes").copied == 0
    damage(tmp_path / "safe" / "objects", "short")
    assert back_up(live, tmp_path, compare="sizes").copied == 1
    restore(str(tmp_path / "new.db"), tmp_path)


def test_what_is_damaged_here_and_there_is_in_no_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is it read as there: it is missing, by name. What only the place still has is in the backup."""
    live = str(tmp_path / "kfm.db")
    moving.fill(live, 3)
    back_up(live, tmp_path)
    (name,) = objects_at(tmp_path / "objects").all()
    monkeypatch.setattr("kfm.storage.backup.needed_objects", lambda *_: frozenset([name]))
    gone = damage(tmp_path / "objects", "changed")
    monkeypatch.setattr("tests.conformance.db.test_backups.stage", lambda _: None)
    assert back_up(live, tmp_path).manifest.missing == ()
    gone.unlink()
    assert back_up(live, tmp_path).manifest.objects == 1
    damage(tmp_path / "safe" / "objects", "changed")
    report = back_up(live, tmp_path)
    assert (report.manifest.missing, report.manifest.objects) == ((name,), 0)


@pytest.mark.parametrize("how", ["short", "changed"])
def test_a_restore_replaces_damaged_objects_of_its_target(tmp_path: Path, how: str) -> None:
    """What lies in the store already is hashed, too; the dry run says how many would be copied."""
    live = str(tmp_path / "kfm.db")
    moving.fill(live, 3)
    back_up(live, tmp_path)
    planned = restore(str(tmp_path / "first.db"), tmp_path, dry_run=True).objects
    assert (planned.copied, planned.there) == (1, 0)
    restore(str(tmp_path / "first.db"), tmp_path)
    one = damage(tmp_path / "restored", how)
    planned = restore(str(tmp_path / "new.db"), tmp_path, dry_run=True).objects
    assert (planned.copied, planned.there) == (1, 0)
    assert one.read_bytes() != b"bytes"
    restore(str(tmp_path / "new.db"), tmp_path)
    assert one.read_bytes() == b"bytes"
    planned = restore(str(tmp_path / "third.db"), tmp_path, dry_run=True).objects
    assert (planned.copied, planned.there) == (0, 1)


def test_the_newest_backup_is_that_of_this_environment(tmp_path: Path) -> None:
    """Where several share a place; if it has none of this one, those that it has are named."""
    live = str(tmp_path / "kfm.db")
    moving.fill(live, 3)
    back_up(live, tmp_path, environment="staging")
    with pytest.raises(UsageError, match=r"no backup of the environment test .* some of: staging"):
        restore(str(tmp_path / "new.db"), tmp_path)
    first = back_up(live, tmp_path).manifest.backup_id
    back_up(live, tmp_path, environment="staging")
    assert restore(str(tmp_path / "new.db"), tmp_path).manifest.backup_id == first


def older(address: str) -> None:
    """A ledger as an older kfm made it."""
    known = [one for one in migration_files() if one[0] < 39]
    if "://" in address:
        server = PostgresDatabase(address)
        migrate(server, "postgresql", 0, known)
        server.close()
    else:
        file = SqliteDatabase(address, SystemClock())
        migrate(file, "sqlite", 0, known)
        file.close()


def schema_of(address: str) -> int:
    side = open_side(store_of(address), "/", SystemClock())
    try:
        return max(applied(side.database.session))
    finally:
        side.close()


def test_a_backup_leaves_an_older_ledger_as_it_is(tmp_path: Path, postgres_schema: Callable[[], str]) -> None:
    """Of a file the copy is brought up to date, so that there is a backup before an upgrade; a database is
    refused, with the way out."""
    live, dsn = str(tmp_path / "kfm.db"), postgres_schema()
    older(live)
    back_up(live, tmp_path)
    assert schema_of(live) == 38
    restore(str(tmp_path / "new.db"), tmp_path)
    assert schema_of(str(tmp_path / "new.db")) == migration_files()[-1][0]
    older(dsn)
    with pytest.raises(UsageError, match="older kfm") as refused:
        back_up(dsn, tmp_path)
    assert "pg_dump" in refused.value.way_out
    assert schema_of(dsn) == 38
