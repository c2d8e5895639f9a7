"""SQLite through apsw: connections, sessions, a reader, a ledger in memory, and a fair queue of writers.

SQLite gives its write lock to the process that happens to ask at the right moment, so a process that
writes back to back starves the others. Here a writer passes a gate before it asks for the write lock, and
opens the gate again only once it has it: the writer in the gate is next, and the busy writer
has to queue behind it. The gate is an empty database held by BEGIN EXCLUSIVE, because that is a
lock that every language with SQLite can take and that the kernel drops when a process dies.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from kfm.db.connection import check_local_disk, check_sqlite_library, earlier_kfm, file_system_type
from kfm.db.queries import is_usable, migrate, queries, tell_newer, too_new
from kfm.db.session import Row, Session
from kfm.model.errors import (
    LEDGER,
    BackendUnavailable,
    KfmError,
    LedgerMoved,
    SchemaViolation,
    StoreBusy,
    StoreCorrupt,
    StoreUnsafe,
)
from kfm.model.patterns import late
from kfm.system import os_trouble, sync_folder

if TYPE_CHECKING:
    from kfm.ports import Clock

__all__ = ["SqliteDatabase", "SqliteReader"]


WAIT_MAX_MS = 30_000
_FIRST_WAITS_MS = (1, 1, 1, 2, 2, 3)
_LATER_WAIT_MS = 5
CHECKPOINT_PAGES = 4_000  # 16 MB: the pages of the indexes, which every run touches, are copied less often
CHECKPOINT_WAIT_MS = 200
APPLICATION_ID = 0x4B464D31  # "KFM1"
FULL = 2
# A value that no column takes: half a surrogate pair, a number beyond 64 bits, an unknown type.
UNSTORABLE = (UnicodeEncodeError, OverflowError, TypeError)
# Statements that return nothing, which is faster, and what asks for the rows that they have made: there is
# one writer, so these are the newest.
_NEWEST = {"items.insert": "items.inserted", "requests.accept": "requests.accepted"}
_ONE_ROW = late(
    r"VALUES\s*(\((?:\s*(?::[a-z_]+|\d+|NULL|'[a-z]*')\s*,?)+\))(.*?)(?:\s*RETURNING\s.*)?\Z", re.DOTALL
)
_ROWS_AT_ONCE = (128, 32, 8, 2)  # each number is a statement that is prepared once, and kept
FENCED = "kfm-moved:"  # how the triggers of a ledger that moves begin what they say
ROUNDS_MAX = 50  # how often it may be written between two looks
_BUSY_MS = 5_000
_COPY_BYTES = 1024 * 1024
COPIED_MAX_BYTES = 256 * 1024 * 1024  # of a ledger from an earlier kfm, which a reader upgrades in memory


class WriteLock:
    """The gate before SQLite's write lock. `with lock: …` holds it; get that lock in there, then leave."""

    def __init__(self, path: str, clock: Clock, wait_max_ms: int = WAIT_MAX_MS) -> None:
        self._path = path
        self._clock = clock
        self._wait_max_ms = wait_max_ms
        self._deadline_ms = 0
        self._inside = False
        self._gate = apsw.Connection(f"{path}-gate")
        self._gate.set_busy_handler(self._keep_waiting)

    def wait_for_database(self, tries: int) -> bool:
        """The database's busy handler: in the gate the deadline goes on, elsewhere a new one begins."""
        if tries == 0 and not self._inside:
            self._deadline_ms = self._clock.monotonic_ms() + self._wait_max_ms
        return self._keep_waiting(tries)

    def _keep_waiting(self, tries: int) -> bool:
        if self._clock.monotonic_ms() >= self._deadline_ms:
            return False
        self._clock.sleep_ms(_FIRST_WAITS_MS[tries] if tries < len(_FIRST_WAITS_MS) else _LATER_WAIT_MS)
        return True

    def hurry(self, wait_max_ms: int) -> None:
        """Inside: wait no longer than this for the database."""
        self._deadline_ms = self._clock.monotonic_ms() + wait_max_ms

    def __enter__(self) -> None:
        self._deadline_ms = self._clock.monotonic_ms() + self._wait_max_ms
        try:
            self._gate.execute("BEGIN EXCLUSIVE")
        except apsw.BusyError as error:
            raise self.too_late() from error
        self._inside = True

    def __exit__(self, *_: object) -> None:
        self._inside = False
        self._gate.execute("COMMIT")

    def too_late(self) -> StoreBusy:
        return StoreBusy(
            f"{self._path}: other processes have had it for {self._wait_max_ms} ms.", backend=LEDGER
        )

    def close(self) -> None:
        self._gate.close()


T = TypeVar("T")


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
                for file in (path, f"{path}-gate"):
                    make_private(file)
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
            with contextlib.suppress(OSError):  # another user's folder: then it has long been there
                sync_folder(os.path.dirname(folder))
        # This takes the place of SQLite's own checkpoints, which would happen outside the write lock.
        self._connection.set_wal_hook(self._note_wal_size)
        self._session = SqliteSession(self._connection, clock, path)
        self._place = os.path.abspath(path)
        self._identity = _identity(self._place)
        self._level: int | None = None
        self._level_sql = queries("sqlite")["schema_level.get"]

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
        pragma("fullfsync", True)  # macOS, in commits and in checkpoints; elsewhere it changes nothing
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
                backend=LEDGER,
            )
        execute = self._connection.execute
        try:
            with self._write_lock:
                execute("BEGIN IMMEDIATE")
            try:
                if self._level is not None:
                    self._require_level(self._level)
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

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """A statement that is made from the schema; errors in our words."""
        try:
            return self._connection.execute(sql, tuple(parameters)).fetchall()
        except (apsw.Error, *UNSTORABLE) as error:
            raise translated(error, self.path) from error

    def execute_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        try:
            self._connection.executemany(sql, rows)
        except (apsw.Error, *UNSTORABLE) as error:
            raise translated(error, self.path) from error

    def load_only(self) -> None:
        """This connection takes rows as they are: no triggers, references looked at in the end."""
        self._connection.pragma("foreign_keys", False)
        self._connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)

    def add_function(self, name: str, function: Callable[..., Any]) -> None:
        self._connection.create_scalar_function(name, function, deterministic=True)

    def exclude_others(self) -> None:
        """SQLite has one writer: nothing to do."""

    def keep_to(self, level: int | None) -> None:
        self._level = level

    def _require_level(self, known: int) -> None:
        """Inside the transaction: a migration can't come between."""
        level, floor = self._connection.execute(self._level_sql).get
        if floor > known:
            raise too_new(level, known)
        if level > known:
            tell_newer(level, known)

    def moment(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def close(self) -> None:
        self._connection.close()
        self._write_lock.close()


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def make_private(path: str) -> None:
    """An empty file for the owner alone. SQLite gives its other files the mode of this one.

    Not opened: closing it would drop the locks that another thread of ours has on it by now.
    """
    with contextlib.suppress(OSError):  # it is there, or SQLite will say what is wrong
        os.mknod(path, 0o600 | stat.S_IFREG)


class SqliteSession:
    """Named statements on an apsw connection."""

    def __init__(self, connection: apsw.Connection, clock: Clock, path: str = ":memory:") -> None:
        self._execute = connection.execute
        self._executemany = connection.executemany
        self._changes = connection.changes
        self._clock = clock
        self._path = path
        self._queries = queries("sqlite")

    def all(self, name: str, /, **parameters: Any) -> list[Row]:
        try:
            return self._execute(self._queries[name], parameters).fetchall()
        except (apsw.Error, *UNSTORABLE) as error:
            raise translated(error, self._path) from error

    def one(self, name: str, /, **parameters: Any) -> Row | None:
        try:
            # To the end: a statement that is still under way would block COMMIT.
            rows = self._execute(self._queries[name], parameters).fetchall()
        except (apsw.Error, *UNSTORABLE) as error:
            raise translated(error, self._path) from error
        return rows[0] if rows else None

    def many(self, name: str, rows: Iterable[dict[str, Any]], /) -> None:
        self._each(name, rows)

    def bulk(self, name: str, rows: Sequence[tuple[Any, ...]], /) -> int:
        # Not SQLite's total of changes: that counts what triggers do, too.
        if _can_be_widened(self._queries[name]):
            return self._at_once(name, rows)
        changed = 0

        def counted() -> Iterator[tuple[Any, ...]]:
            nonlocal changed
            for row in rows:
                yield row
                changed += self._changes()

        self._each(name, counted())
        return changed

    def gather(self, name: str, rows: Sequence[tuple[Any, ...]], /) -> list[Row] | None:
        newest = _NEWEST.get(name)
        if newest is None:
            return self._each(name, rows)  # the statement returns them itself
        count = self._at_once(name, rows)
        return None if count == len(rows) else self.all(newest, row_limit=count)

    def _at_once(self, name: str, rows: Sequence[tuple[Any, ...]]) -> int:
        """Many rows a statement: after each, other threads may have the interpreter, and this one waits. How
        many rows were made."""
        done = made = 0
        try:
            for width in (*_ROWS_AT_ONCE, 1):
                while len(rows) - done >= width:
                    values = tuple(chain.from_iterable(rows[done : done + width]))
                    self._execute(_widened(self._queries[name], width), values)
                    done += width
                    made += self._changes()
        except (apsw.Error, *UNSTORABLE) as error:
            raise translated(error, self._path) from error
        return made

    def expect(self, *names: str) -> None:
        """Nothing travels."""

    def send(self, name: str, /, **parameters: Any) -> None:
        self.all(name, **parameters)

    def send_all(self, name: str, rows: Sequence[tuple[Any, ...]], /) -> None:
        self._each(name, rows)

    def _each(self, name: str, rows: Iterable[dict[str, Any] | tuple[Any, ...]]) -> list[Row]:
        try:
            return self._executemany(self._queries[name], rows).fetchall()
        except (apsw.Error, *UNSTORABLE) as error:
            raise translated(error, self._path) from error

    def now_ms(self) -> int:
        return self._clock.now_ms()


@cache
def _can_be_widened(sql: str) -> bool:
    return sql.startswith("INSERT") and _ONE_ROW.search(sql) is not None


@cache
def _widened(insert: str, width: int) -> str:
    """The statement for so many rows, values by place, returning nothing."""
    found = _ONE_ROW.search(insert)
    assert found is not None, "it inserts plain values"
    row = re.sub(r":[a-z_]+", "?", found[1])
    return f"{insert[: found.start(1)]}{','.join([row] * width)}{found[2]}"


def translated(error: Exception, path: str) -> KfmError:
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StoreBusy(f"{path}: another process holds it.", backend=LEDGER)
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return StoreCorrupt(f"{path}: {error}.")
    if FENCED in str(error):
        return LedgerMoved(str(error).partition(FENCED)[2].strip(), backend=LEDGER)
    if isinstance(error, (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError, *UNSTORABLE)):
        return SchemaViolation(f"{path}: {error}.")
    text, remedy = f"{path}: {error}.", None
    if (refused := _refused(error, path)) is not None:
        text, remedy = os_trouble(refused)
    elif isinstance(error, apsw.CantOpenError | apsw.ReadOnlyError | apsw.PermissionsError):
        remedy = "Let this user read and write the state folder and what is in it."
    return BackendUnavailable(text, remedy=remedy, backend=LEDGER)


def _refused(error: Exception, path: str) -> OSError | None:
    """What the disk refused, where it is the disk: SQLite has several names for that."""
    with contextlib.suppress(OSError):
        disk = os.statvfs(os.path.dirname(os.path.abspath(path)))
        if isinstance(error, apsw.FullError | apsw.IOError | apsw.CantOpenError) and disk.f_bavail == 0:
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if isinstance(error, apsw.ReadOnlyError | apsw.CantOpenError) and disk.f_flag & os.ST_RDONLY:
            return OSError(errno.EROFS, os.strerror(errno.EROFS), path)
    return (
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path) if isinstance(error, apsw.FullError) else None
    )


class MemoryDatabase:
    """A ledger in memory: for tests and simulations."""

    def __init__(self, clock: Clock, copy_of: apsw.Connection | None = None) -> None:
        self._connection = apsw.Connection(":memory:")
        if copy_of is not None:
            with self._connection.backup("main", copy_of, "main") as backup:
                backup.step()
        self._connection.pragma("foreign_keys", True)
        self._session = SqliteSession(self._connection, clock)

    @property
    def session(self) -> Session:
        return self._session

    def write(self, change: Callable[[Session], T]) -> T:
        self._connection.execute("BEGIN")
        try:
            result = change(self._session)
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")
        return result

    def script(self, sql: str) -> None:
        self._connection.execute(sql)

    def exclude_others(self) -> None:
        """A database in memory: no other process can see it."""

    def keep_to(self, level: int | None) -> None:
        """As above: no other process can upgrade it."""

    def moment(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def close(self) -> None:
        self._connection.close()


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
        raise StoreBusy(f"{self.path}: it kept changing while it was read.", backend=LEDGER)

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

    def moment(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

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
        if is_usable(session):
            self._inner = session
            return
        if connection.pragma("page_count") * connection.pragma("page_size") > COPIED_MAX_BYTES:
            connection.close()
            self._close = lambda: None
            raise earlier_kfm(self.path)
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
            _copy_database(self.path, copy)
            shutil.copyfile(f"{self.path}-wal", f"{copy}-wal")
            connection = apsw.Connection(copy)
            connection.pragma("schema_version")  # opens both files; the folder may go then
            connection.pragma("query_only", True)
        return connection


def _copy_database(path: str, copy: str) -> None:
    """Read through SQLite: closing another handle would drop this process's locks on the file."""
    file = apsw.VFSFile("", path, [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
    try:
        size = file.xFileSize()
        with open(copy, "wb") as made:
            places = range(0, size, _COPY_BYTES)
            made.writelines(file.xRead(min(_COPY_BYTES, size - at), at) for at in places)
    finally:
        file.xClose()


def _uri_path(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
