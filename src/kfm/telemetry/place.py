"""How far a table was read, so that reading on costs only what is new."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

PAGE_ROWS = 1000
LATE_MS = 600_000  # a transaction that is still open after this long is not waited for

Row = TypeVar("Row", bound=tuple[object, ...])


class Place:
    """Hands out each row once.

    PostgreSQL numbers rows before they commit, so a lower number may appear after a higher one. Numbers
    that were passed over are looked for again, until the rows behind them are old.
    """

    def __init__(self) -> None:
        self._floor = 0  # everything up to here is done with
        self._ahead: set[int] = set()  # handed out although a number before it is missing

    def read(
        self, page: Callable[[int, int], Sequence[Row]], at_ms: Callable[[Row], int], now_ms: int
    ) -> Iterator[Row]:
        """`page(after, limit)` gives rows in the order of their number, which comes first in each."""
        after = self._floor
        while True:
            rows = page(after, PAGE_ROWS)
            for row in rows:
                after = _number(row)
                is_new = after > self._floor and after not in self._ahead
                if after == self._floor + 1 or at_ms(row) < now_ms - LATE_MS:
                    self._floor = after
                    self._ahead.discard(after)
                elif is_new:
                    self._ahead.add(after)
                if is_new:
                    yield row
            if len(rows) < PAGE_ROWS:
                return


def _number(row: tuple[object, ...]) -> int:
    number = row[0]
    assert isinstance(number, int)
    return number
