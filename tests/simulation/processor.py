"""The threads of a world run in turn: handing over to one on another processor costs more than work."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager


def settle_down() -> None:
    """A process of a pool stays on one processor."""
    number = multiprocessing.current_process()._identity[0]  # type: ignore[attr-defined]
    _stay(number)


@contextmanager
def settled(number: int) -> Iterator[None]:
    """The caller stays on one processor for a while; its number among others says on which."""
    before = _stay(number)
    try:
        yield
    finally:
        if before:
            os.sched_setaffinity(0, before)


def _stay(number: int) -> set[int]:
    if not hasattr(os, "sched_setaffinity"):
        return set()
    places = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(places)[number % len(places)]})
    return places
