"""Reading a numbered table from its beginning to its end, a page at a time: it may be longer than memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

Row = TypeVar("Row", bound=tuple[Any, ...])

Key = TypeVar("Key")
Value = TypeVar("Value")

PAGE_ROWS = 1000


def every(read: Callable[[int, int], Sequence[Row]]) -> Iterator[Row]:
    """All rows of a reader that takes a number and a limit; each row begins with its own number."""
    after = 0
    while page := read(after, PAGE_ROWS):
        yield from page
        after = page[-1][0]


def every_from(
    start: Key, read: Callable[[Key, int], Sequence[Value]], key: Callable[[Value], Key]
) -> Iterator[Value]:
    """As `every`, for rows that have a place in an order instead of a number."""
    after = start
    while page := read(after, PAGE_ROWS):
        yield from page
        after = key(page[-1])
