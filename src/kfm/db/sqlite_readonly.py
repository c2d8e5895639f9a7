"""Read-only access to a SQLite ledger, without a trace on the disk: what a dry run opens.

SQLite itself makes two companion files as soon as it looks into a database in WAL mode, so
there are three ways in:

- nothing was written since the last clean end (no write-ahead file, or an empty one): the file
  alone is the whole truth and is read as immutable. Before and after each statement the file
  must still be the one that was opened; if it was written meanwhile, the answer is thrown away
  and the way in is chosen again;
- there is a write-ahead file and its index: a process is writing, or was killed. SQLite reads
  through both files as any reader does; only the index, which is scratch memory, may change;
- there is a write-ahead file without an index (a restored copy): reading would make one, so
  both files are copied aside and read there.

A database whose schema is not this code's is copied into memory and brought up to date there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from kfm.db.connection import check_sqlite_library
from kfm.db.migrations import is_current, migrate
from kfm.db.session import Row, Session
from kfm.db.sqlite_session import MemoryDatabase, SqliteSession, translated
from kfm.model.errors import KfmError, StoreBusy, StoreCorrupt

if TYPE_CHECKING:
    from kfm.ports import Clock

T = TypeVar("T")

ROUNDS_MAX = 50  # how often it may be written between two looks
_BUSY_MS = 5_000

Stamp = tuple[int, ...] | None


def _stamp(path: str) -> Stamp:
    """Changes whenever the file does; None for no file, or an empty one."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns) if found.st_size else None


class SqliteReader:
    """Implements `Database` for reading, and is its own session."""

    def __init__(self, path: str, clock: Clock) -> None:
        check_sqlite_library(apsw.sqlite_lib_version())
        self.path = path
        self._clock = clock
        self._seen: tuple[Stamp, Stamp] | None = None  # None: SQLite's own locks keep us consistent
        self._close: Callable[[], None] = lambda: None
        self._inner: Session | None = None
        self.one("migrations.exists")

    @property
    def session(self) -> Session:
        return self

    def all(self, name: str, /, **parameters: Any) -> list[Row]:
        for _ in range(ROUNDS_MAX):
            try:
                if self._inner is None or self._has_moved():
                    self._reopen()
                assert self._inner is not None
                found = self._inner.all(name, **parameters)
            except KfmError:
                # Half of an old page and half of a new one look like anything.
                if self._has_moved():
                    continue
                raise
            if not self._has_moved():
                return found
        raise StoreBusy(f"{self.path}: it kept changing while it was read.")

    def one(self, name: str, /, **parameters: Any) -> Row | None:
        rows = self.all(name, **parameters)
        return rows[0] if rows else None

    def many(self, name: str, rows: Iterable[dict[str, Any]], /) -> None:
        raise AssertionError(f"a reader was asked to write: {name}, {rows}")

    def bulk(self, name: str, rows: Sequence[tuple[Any, ...]], /) -> int:
        raise AssertionError(f"a reader was asked to write: {name}, {len(rows)} rows")

    def gather(self, name: str, rows: Sequence[tuple[Any, ...]], /) -> list[Row]:
        raise AssertionError(f"a reader was asked to write: {name}, {len(rows)} rows")

    def expect(self, *names: str) -> None:
        """Nothing travels."""

    def send(self, name: str, /, **parameters: Any) -> None:
        raise AssertionError(f"a reader was asked to write: {name}, {parameters}")

    def send_all(self, name: str, rows: Sequence[tuple[Any, ...]], /) -> None:
        raise AssertionError(f"a reader was asked to write: {name}, {len(rows)} rows")

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def write(self, change: Callable[[Session], T]) -> T:
        raise AssertionError(f"a reader was asked to write: {change}")

    def close(self) -> None:
        self._close()
        self._close = lambda: None
        self._inner = None

    # --- ways in ---------------------------------------------------------------------

    def _has_moved(self) -> bool:
        return self._seen is not None and self._seen != self._look()

    def _look(self) -> tuple[Stamp, Stamp]:
        return _stamp(self.path), _stamp(f"{self.path}-wal")

    def _reopen(self) -> None:
        self.close()
        # Looked at before it is opened: whatever is written from here on is noticed.
        self._seen = self._look()
        try:
            connection = self._connect(self._seen)
        except (apsw.Error, OSError) as error:
            raise translated(error, self.path) from error
        self._close = connection.close
        session = SqliteSession(connection, self._clock, self.path)
        if is_current(session):
            self._inner = session
            return
        copy = MemoryDatabase(self._clock, copy_of=connection)
        connection.close()
        self._close = copy.close
        migrate(copy, "sqlite", self._clock.now_ms())
        self._inner = copy.session

    def _connect(self, seen: tuple[Stamp, Stamp]) -> apsw.Connection:
        file, write_ahead = seen
        if file is None and write_ahead is None:
            raise StoreCorrupt(f"{self.path}: there is nothing in it.")
        if write_ahead is None:
            return self._open(self.path, "immutable=1")
        if os.path.exists(f"{self.path}-shm"):
            self._seen = None
            return self._open(self.path, "mode=ro")
        return self._aside()

    def _open(self, path: str, mode: str) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        connection = apsw.Connection(f"file:{_uri_path(os.path.abspath(path))}?{mode}", flags=flags)
        connection.set_busy_timeout(_BUSY_MS)
        connection.pragma("query_only", True)
        return connection

    def _aside(self) -> apsw.Connection:
        import shutil  # rarely needed, and slow to import
        import tempfile

        with tempfile.TemporaryDirectory(prefix="kfm-read-") as folder:
            copy = os.path.join(folder, "kfm.db")
            shutil.copyfile(self.path, copy)
            shutil.copyfile(f"{self.path}-wal", f"{copy}-wal")
            connection = apsw.Connection(copy)
            connection.pragma("schema_version")  # opens both files; the folder may go then
            connection.pragma("query_only", True)
        return connection


def _uri_path(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
