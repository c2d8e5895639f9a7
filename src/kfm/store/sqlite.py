"""SQLite through apsw: WAL, synchronous=FULL, one writer at a time through the turnstile."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import apsw

from kfm.core.errors import BackendUnavailable, StoreBusy, StoreCorrupt, StoreUnsafe
from kfm.ports import Clock
from kfm.store.queries import queries
from kfm.store.safety import check_local_disk, check_sqlite_library, file_system_type
from kfm.store.session import Row, Session
from kfm.store.turnstile import Turnstile

T = TypeVar("T")

CHECKPOINT_PAGES = 1_000
APPLICATION_ID = 0x4B464D31  # "KFM1"
FULL = 2


class SqliteSession:
    def __init__(self, connection: apsw.Connection, clock: Clock) -> None:
        self._execute = connection.execute
        self._clock = clock
        self._queries = queries("sqlite")

    def all(self, name: str, /, **parameters: Any) -> list[Row]:
        return self._execute(self._queries[name], parameters).fetchall()

    def one(self, name: str, /, **parameters: Any) -> Row | None:
        rows = self._execute(self._queries[name], parameters).fetchall()
        return rows[0] if rows else None

    def now_ms(self) -> int:
        return self._clock.now_ms()


def _translated(error: apsw.Error, path: str) -> Exception:
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StoreBusy(f"{path}: another process holds it.")
    if isinstance(error, apsw.FullError):
        return BackendUnavailable(f"{path}: the disk is full.", remedy="Free some space and run again.")
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return StoreCorrupt(f"{path}: {error}.")
    return BackendUnavailable(f"{path}: {error}.")


class SqliteDatabase:
    """One connection for reading and writing. Not shared between threads."""

    def __init__(self, path: str, clock: Clock, *, wait_max_ms: int = 30_000) -> None:
        check_sqlite_library(apsw.sqlite_lib_version())
        folder = os.path.dirname(os.path.abspath(path))
        check_local_disk(folder, file_system_type(folder))
        self.path = path
        self._wal_pages = 0
        try:
            self._turnstile = Turnstile(path, clock, wait_max_ms)
            self._connection = apsw.Connection(path)
            self._connection.set_busy_timeout(wait_max_ms)
            with self._turnstile.inside():
                self._prepare()
        except apsw.Error as error:
            raise _translated(error, path) from error
        self._connection.set_wal_hook(self._note_wal_size)
        self._session = SqliteSession(self._connection, clock)

    def _prepare(self) -> None:
        pragma = self._connection.pragma
        mode = pragma("journal_mode")
        if mode != "wal":
            mode = pragma("journal_mode", "wal")
        pragma("synchronous", "FULL")
        pragma("foreign_keys", True)
        if mode != "wal" or pragma("synchronous") != FULL:
            raise StoreUnsafe(
                f"{self.path}: journal mode {mode}, synchronous {pragma('synchronous')}; WAL and FULL are needed."
            )
        if pragma("application_id") != APPLICATION_ID:
            pragma("application_id", APPLICATION_ID)

    def _note_wal_size(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    @property
    def session(self) -> Session:
        return self._session

    def write(self, change: Callable[[Session], T]) -> T:
        try:
            with self._turnstile.inside():
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    result = change(self._session)
                    self._connection.execute("COMMIT")
                except BaseException:
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                    raise
                if self._wal_pages >= CHECKPOINT_PAGES:
                    # Inside the turnstile no other writer can be hurt by a slow checkpoint.
                    self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
                return result
        except apsw.Error as error:
            raise _translated(error, self.path) from error

    def script(self, sql: str) -> None:
        """A migration's statements; only inside `write`."""
        self._connection.execute(sql)

    def exclude_others(self) -> None:
        """SQLite has one writer: nothing to do."""

    def close(self) -> None:
        self._connection.close()
        self._turnstile.close()


class SqliteReader:
    """Reads without leaving a trace on the disk: what a dry-run opens."""

    def __init__(self, path: str, clock: Clock) -> None:
        check_sqlite_library(apsw.sqlite_lib_version())
        self.path = path
        quiet = not os.path.exists(f"{path}-wal") or os.path.getsize(f"{path}-wal") == 0
        # With no write-ahead file nobody is writing, and `immutable` keeps SQLite from making one.
        # Otherwise its companions are already there and mode=ro reads through them.
        mode = "immutable=1" if quiet else "mode=ro"
        uri = f"file:{_uri_path(os.path.abspath(path))}?{mode}"
        try:
            self._connection = apsw.Connection(
                uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
            )
            self._connection.set_busy_timeout(5_000)
            self._connection.pragma("query_only", True)
        except apsw.Error as error:
            raise _translated(error, path) from error
        self._session = SqliteSession(self._connection, clock)

    @property
    def session(self) -> Session:
        return self._session

    def write(self, change: Callable[[Session], T]) -> T:
        raise AssertionError("a reader was asked to write")

    def close(self) -> None:
        self._connection.close()


def _uri_path(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
