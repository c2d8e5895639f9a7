"""Named statements on PostgreSQL. What nobody waits for travels with whatever is asked next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kfm.store.queries import parameters_of, queries
from kfm.store.session import Row

if TYPE_CHECKING:
    from kfm.store.postgres import PostgresDatabase

NOTHING = "SELECT 1"  # in place of a statement that an index makes needless here
WHOLE = "json_to_recordset(%(lines)s"  # in a statement that takes all of its rows at once
_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"


@dataclass(slots=True)
class Sent:
    """One statement: on its way first, and then answered."""

    sql: str
    parameters: dict[str, Any] | None = None
    rows: list[dict[str, Any]] | None = None  # the statement is for each of them
    lines: tuple[tuple[str, ...], Sequence[tuple[Any, ...]]] | None = (
        None  # names; all rows for one statement
    )
    returning: bool = False
    is_answered: bool = False
    answers: list[Row] = field(default_factory=list)
    changed: int = 0
    said: str | None = None


class PostgresSession:
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._queries = queries("postgresql")
        self._expected: dict[str, deque[Sent]] = {}

    def all(self, name: str, /, **parameters: Any) -> list[Row]:
        if self._expected.get(name):
            sent = self._expected[name].popleft()
            return self._answer(sent)
        return self._database.execute(self._queries[name], parameters)

    def one(self, name: str, /, **parameters: Any) -> Row | None:
        rows = self.all(name, **parameters)
        return rows[0] if rows else None

    def many(self, name: str, rows: Iterable[dict[str, Any]], /) -> None:
        self._now(Sent(self._queries[name], rows=list(rows)))

    def bulk(self, name: str, rows: Sequence[tuple[Any, ...]], /) -> int:
        if self._queries[name] == NOTHING:
            return 0
        return self._now(self._prepared(name, rows)).changed

    def gather(self, name: str, rows: Sequence[tuple[Any, ...]], /) -> list[Row] | None:
        sent = self._prepared(name, rows)
        sent.returning = True
        return self._now(sent).answers

    # --- what travels together ---------------------------------------------------------

    def expect(self, *names: str) -> None:
        for name in names:
            sent = self._database.send(Sent(self._queries[name], {}))
            self._expected.setdefault(name, deque()).append(sent)

    def tell(self, name: str, /, **parameters: Any) -> None:
        self._database.send(Sent(self._queries[name], parameters))

    def tell_all(self, name: str, rows: Sequence[tuple[Any, ...]], /) -> None:
        if self._queries[name] != NOTHING:
            self._database.send(self._prepared(name, rows))

    def forget(self) -> None:
        """What was expected of a transaction that is over."""
        self._expected.clear()

    def _prepared(self, name: str, rows: Sequence[tuple[Any, ...]]) -> Sent:
        sql, names = self._queries[name], parameters_of(name)
        if WHOLE in sql:
            return Sent(sql, lines=(names, rows))
        if len(rows) == 1:
            return Sent(sql, dict(zip(names, rows[0], strict=True)))
        return Sent(sql, rows=[dict(zip(names, row, strict=True)) for row in rows])

    def _now(self, sent: Sent) -> Sent:
        self._database.send(sent)
        self._database.flush()
        return sent

    def _answer(self, sent: Sent) -> list[Row]:
        if not sent.is_answered:
            self._database.flush()
        return sent.answers

    def now_ms(self) -> int:
        return int(self._database.execute(_NOW)[0][0])
