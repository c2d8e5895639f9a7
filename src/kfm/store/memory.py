"""A ledger in memory: for projects in which nothing has run yet, and for the simulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import apsw

from kfm.store.session import Session
from kfm.store.sqlite_session import SqliteSession

if TYPE_CHECKING:
    from kfm.ports import Clock

T = TypeVar("T")


class MemoryDatabase:
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
        """Nobody else can see it."""

    def close(self) -> None:
        self._connection.close()
