"""Named statements on an apsw connection, with driver errors as ours; a ledger in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from kfm.db.queries import queries
from kfm.db.session import Row, Session
from kfm.model.errors import BackendUnavailable, KfmError, SchemaViolation, StoreBusy, StoreCorrupt

if TYPE_CHECKING:
    from kfm.ports import Clock


# A value that no column takes: half a surrogate pair, a number beyond 64 bits, an unknown type.
UNSTORABLE = (UnicodeEncodeError, OverflowError, TypeError)

# Statements that return nothing, which is faster, and what asks for the rows that they have made: there is
# one writer, so these are the newest.
_NEWEST = {"items.insert": "items.inserted"}


class SqliteSession:
    """Named statements on an apsw connection."""

    def __init__(self, connection: apsw.Connection, clock: Clock, path: str = ":memory:") -> None:
        self._execute = connection.execute
        self._executemany = connection.executemany
        self._total_changes = connection.total_changes
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
        before = self._total_changes()
        self._each(name, rows)
        return self._total_changes() - before

    def gather(self, name: str, rows: Sequence[tuple[Any, ...]], /) -> list[Row] | None:
        newest = _NEWEST.get(name)
        if newest is None:
            return self._each(name, rows)  # the statement returns them itself
        count = self.bulk(name, rows)
        return None if count == len(rows) else self.all(newest, row_limit=count)

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


def translated(error: Exception, path: str) -> KfmError:
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StoreBusy(f"{path}: another process holds it.")
    if isinstance(error, apsw.FullError):
        return BackendUnavailable(f"{path}: the disk is full.", remedy="Free some space and run again.")
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return StoreCorrupt(f"{path}: {error}.")
    if isinstance(error, apsw.CantOpenError | apsw.ReadOnlyError | apsw.PermissionsError):
        return BackendUnavailable(
            f"{path}: {error}.", remedy="Let this user read and write the state folder and what is in it."
        )
    if isinstance(error, (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError, *UNSTORABLE)):
        return SchemaViolation(f"{path}: {error}.")
    return BackendUnavailable(f"{path}: {error}.")


T = TypeVar("T")


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

    def close(self) -> None:
        self._connection.close()
