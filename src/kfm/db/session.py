"""The database seam: named statements, in a transaction or not; SQLite, PostgreSQL, memory implement it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

Row = tuple[Any, ...]
T = TypeVar("T")


class Session(Protocol):
    """Named statements. Errors of the driver are raised as ours: no caller needs to know the driver."""

    def all(self, name: str, /, **parameters: Any) -> list[Row]: ...
    def one(self, name: str, /, **parameters: Any) -> Row | None: ...
    def many(self, name: str, rows: Iterable[dict[str, Any]], /) -> None:
        """One statement for each of many rows; what it returns is not read."""

    def bulk(self, name: str, rows: Sequence[tuple[Any, ...]], /) -> int:
        """The same for very many: values are in the order in which the statement names them.
        Returns how many rows were changed."""

    def gather(self, name: str, rows: Sequence[tuple[Any, ...]], /) -> list[Row] | None:
        """As `bulk` for rows to be inserted: what the statement returns for those that were, in no promised
        order. None: all were, and reading them back would only cost time."""

    def expect(self, *names: str) -> None:
        """These are asked next, and their parameters do not matter: a server gets them in one round trip."""

    def send(self, name: str, /, **parameters: Any) -> None:
        """As `all`, without waiting for an answer: it is sent with the next statement."""

    def send_all(self, name: str, rows: Sequence[tuple[Any, ...]], /) -> None:
        """As `bulk`, without waiting for an answer."""

    def now_ms(self) -> int:
        """The clock that leases live by: the server's on PostgreSQL, the injected one on SQLite."""


class Database(Protocol):
    """A session outside any transaction, and a way to run a function inside one."""

    @property
    def session(self) -> Session: ...

    def write(self, change: Callable[[Session], T]) -> T:
        """Run `change` in one durable transaction. It may be called again after a lost race,
        so it must do nothing but talk to its session."""

    def moment(self) -> AbstractContextManager[None]:
        """What a reader of a server reads inside is of one moment, and of one transaction: each read by
        itself is one, with a beginning and an end. Elsewhere nothing is gained, and nothing is done."""

    def close(self) -> None: ...
