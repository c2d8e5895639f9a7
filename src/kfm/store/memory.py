"""A ledger in memory: for projects in which nothing has run yet, and for the simulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import apsw

from kfm.ports import Clock
from kfm.store.session import Session
from kfm.store.sqlite import SqliteSession

T = TypeVar("T")


class MemoryDatabase:
    def __init__(self, clock: Clock) -> None:
        self._connection = apsw.Connection(":memory:")
        self._connection.pragma("foreign_keys", True)
        self._session = SqliteSession(self._connection, clock)

    @property
    def session(self) -> Session:
        return self._session

    def write(self, change: Callable[[Session], T]) -> T:
        with self._connection:
            return change(self._session)

    def script(self, sql: str) -> None:
        self._connection.execute(sql)

    def exclude_others(self) -> None:
        """Nobody else can see it."""

    def close(self) -> None:
        self._connection.close()
