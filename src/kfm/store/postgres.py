"""PostgreSQL through psycopg: for fleets. Leases live by the server's clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from kfm.core.errors import BackendUnavailable, ExtraMissing, StoreUnsafe
from kfm.core.redact import redact
from kfm.store.queries import queries
from kfm.store.session import Row, Session

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

RACES_MAX = 20
_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_LOST_RACE = {"40001", "40P01"}  # serialization failure, deadlock


def _driver() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise ExtraMissing("PostgreSQL: install kfm[postgres].") from error
    return psycopg


class PostgresSession:
    def __init__(self, connection: psycopg.Connection[Row]) -> None:
        self._connection = connection
        self._queries = queries("postgresql")

    def all(self, name: str, /, **parameters: Any) -> list[Row]:
        cursor = self._connection.execute(self._queries[name], parameters)
        return cursor.fetchall() if cursor.description else []

    def one(self, name: str, /, **parameters: Any) -> Row | None:
        rows = self.all(name, **parameters)
        return rows[0] if rows else None

    def now_ms(self) -> int:
        row = self._connection.execute(_NOW).fetchone()
        assert row is not None
        return int(row[0])


class PostgresDatabase:
    """One connection. Not shared between threads."""

    def __init__(self, dsn: str, *, unsafe_for_tests: bool = False) -> None:
        self._psycopg = _driver()
        self._where = redact(dsn)
        try:
            self._connection = self._psycopg.connect(dsn, autocommit=True, connect_timeout=10)
            if not unsafe_for_tests:
                self._check_durability()
            self._connection.execute("SET lock_timeout = '30s'")
        except self._psycopg.Error as error:
            raise self._translated(error) from error
        self._session = PostgresSession(self._connection)

    def _check_durability(self) -> None:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            row = self._connection.execute(f"SHOW {setting}").fetchone()
            if row is not None and row[0] == "off":
                raise StoreUnsafe(
                    f"PostgreSQL runs with {setting}=off, so a commit may be lost.",
                    remedy=f"Set {setting}=on on the server.",
                )

    def _translated(self, error: Exception) -> BackendUnavailable:
        return BackendUnavailable(f"{self._where}: {redact(str(error)).strip()}")

    @property
    def session(self) -> Session:
        return self._session

    def write(self, change: Callable[[Session], T]) -> T:
        for race in range(RACES_MAX):
            try:
                with self._connection.transaction():
                    return change(self._session)
            except self._psycopg.Error as error:
                if getattr(error, "sqlstate", None) in _LOST_RACE and race + 1 < RACES_MAX:
                    continue
                raise self._translated(error) from error
        raise AssertionError("unreachable")

    def script(self, sql: str) -> None:
        """A migration's statements; only inside `write`."""
        self._connection.execute(sql)

    def exclude_others(self) -> None:
        """Two processes that create the same tables at once would both fail."""
        self._connection.execute("SELECT pg_advisory_xact_lock(4900147)")

    def close(self) -> None:
        self._connection.close()
