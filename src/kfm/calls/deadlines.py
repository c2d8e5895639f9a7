"""How much time is left: a deadline that calls hand inward.

It is a context variable, so threads that are started with the context and tasks inherit it. A
call that has no limit of its own and none around it does not touch it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from kfm.calls.surroundings import HERE

DEADLINE_MS: ContextVar[int | None] = ContextVar("kfm_deadline_ms", default=None)  # monotonic


def deadline() -> float | None:
    """Seconds that are left to the code that asks, never below 0; None where nothing limits it."""
    until_ms = DEADLINE_MS.get()
    return None if until_ms is None else max(0, until_ms - HERE.clock.monotonic_ms()) / 1000


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Limit everything inside; a wider limit than the one around has no effect."""
    until_ms = HERE.clock.monotonic_ms() + round(seconds * 1000)
    outer_ms = DEADLINE_MS.get()
    token = DEADLINE_MS.set(until_ms if outer_ms is None else min(until_ms, outer_ms))
    try:
        yield
    finally:
        DEADLINE_MS.reset(token)
