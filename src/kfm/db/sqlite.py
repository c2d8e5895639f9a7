"""SQLite through apsw: WAL, synchronous=FULL, one writer at a time through the write lock."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import apsw

from kfm.db.connection import check_local_disk, check_sqlite_library, file_system_type
from kfm.db.session import Session
from kfm.db.sqlite_readonly import SqliteReader
from kfm.db.sqlite_session import SqliteSession, translated
from kfm.db.write_lock import WAIT_MAX_MS, WriteLock
from kfm.model.errors import BackendUnavailable, StoreBusy, StoreUnsafe

if TYPE_CHECKING:
    from kfm.ports import Clock

__all__ = ["SqliteDatabase", "SqliteReader"]

T = TypeVar("T")

CHECKPOINT_PAGES = 4_000  # 16 MB: the pages of the indexes, which every run touches, are copied less often
CHECKPOINT_WAIT_MS = 200
APPLICATION_ID = 0x4B464D31  # "KFM1"
FULL = 2


class SqliteDatabase:
    """One connection for reading and writing. Not shared between threads."""

    def __init__(
        self,
        path: str,
        clock: Clock,
        *,
        wait_max_ms: int = WAIT_MAX_MS,
        connect: Callable[[str], apsw.Connection] = apsw.Connection,
    ) -> None:
        check_sqlite_library(apsw.sqlite_lib_version())
        folder = os.path.dirname(os.path.abspath(path))
        check_local_disk(folder, file_system_type(folder))
        self.path = path
        self._wal_pages = 0
        self._checkpoint_at = CHECKPOINT_PAGES
        is_new = not os.path.exists(path)
        with contextlib.ExitStack() as undo:
            try:
                self._write_lock = WriteLock(path, clock, wait_max_ms)
                undo.callback(self._write_lock.close)
                self._connection = connect(path)
                undo.callback(self._connection.close)
                self._connection.set_busy_handler(self._write_lock.wait_for_database)
                with self._write_lock:
                    self._prepare()
            except apsw.Error as error:
                raise translated(error, path) from error
            undo.pop_all()
        if is_new:
            # SQLite syncs the folder that holds its files, not the entry of that folder in its parent.
            _sync_folder(os.path.dirname(folder))
        # This takes the place of SQLite's own checkpoints, which would happen outside the write lock.
        self._connection.set_wal_hook(self._note_wal_size)
        self._session = SqliteSession(self._connection, clock, path)
        self._place = os.path.abspath(path)
        self._identity = _identity(self._place)

    def _prepare(self) -> None:
        pragma = self._connection.pragma
        mark = pragma("application_id")
        if mark != APPLICATION_ID and (mark != 0 or pragma("schema_version") != 0):
            raise StoreUnsafe(
                f"{self.path} belongs to another program.",
                remedy="Name another file or folder for the state.",
            )
        mode = pragma("journal_mode")
        if mode != "wal":
            mode = pragma("journal_mode", "wal")
        pragma("synchronous", "FULL")
        pragma("foreign_keys", True)
        # Plans do not depend on values: otherwise SQLite plans a claim anew for each time that it is given.
        self._connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        self.check_durability()
        if mark != APPLICATION_ID:
            pragma("application_id", APPLICATION_ID)

    def check_durability(self) -> None:
        """Refuse anything weaker than a commit that is on the disk when it returns."""
        mode, sync = self._connection.pragma("journal_mode"), self._connection.pragma("synchronous")
        if mode != "wal" or sync != FULL:
            raise StoreUnsafe(
                f"{self.path}: journal mode {mode}, synchronous {sync}; WAL and FULL are needed."
            )

    def _note_wal_size(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    @property
    def session(self) -> Session:
        return self._session

    def write(self, change: Callable[[Session], T]) -> T:
        if _identity(self._place) != self._identity:  # SQLite would go on in an unlinked file
            raise BackendUnavailable(
                f"{self.path} was removed or replaced while it was in use.",
                remedy="Put it back, or end all processes that use it and start them again.",
            )
        execute = self._connection.execute
        try:
            with self._write_lock:
                execute("BEGIN IMMEDIATE")
            try:
                result = change(self._session)
                execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    execute("ROLLBACK")
                raise
        except apsw.BusyError as error:
            raise self._write_lock.too_late() from error
        except apsw.Error as error:
            raise translated(error, self.path) from error
        if self._wal_pages >= self._checkpoint_at:
            self._checkpoint()
        return result

    def _checkpoint(self) -> None:
        """Copy the write-ahead file into the database while there are no writers, so that it starts anew."""
        # If a long reader blocks it, try again only when there is as much again to copy.
        self._checkpoint_at = self._wal_pages + CHECKPOINT_PAGES
        # The commit stands whatever happens here.
        with contextlib.suppress(apsw.Error, StoreBusy), self._write_lock:
            self._write_lock.hurry(CHECKPOINT_WAIT_MS)
            ((busy, _frames, _copied),) = self._connection.execute("PRAGMA wal_checkpoint(FULL)").fetchall()
            if not busy:
                self._checkpoint_at = CHECKPOINT_PAGES

    def script(self, sql: str) -> None:
        """A migration's statements; only inside `write`."""
        self._connection.execute(sql)

    def exclude_others(self) -> None:
        """SQLite has one writer: nothing to do."""

    def close(self) -> None:
        self._connection.close()
        self._write_lock.close()


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _sync_folder(path: str) -> None:
    with contextlib.suppress(OSError):  # another user's folder: then it has long been there
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
