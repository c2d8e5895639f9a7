"""Correlation: a context variable with the ids of the run under way, for whatever is logged meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class Correlation(NamedTuple):
    run_id: str | None = None
    attempt: int | None = None
    trace_id: str | None = None
    dataset: str | None = None
    source: str | None = None
    phase: str | None = None


NOTHING = Correlation()
_current: ContextVar[Correlation] = ContextVar("kfm_correlation", default=NOTHING)


def current() -> Correlation:
    return _current.get()


def begin(about: Correlation) -> None:
    """From here on, until `end`."""
    _current.set(about)


def end() -> None:
    _current.set(NOTHING)


@contextmanager
def correlated(**more: str | int | None) -> Iterator[None]:
    """These ids beside those that are known, for what is logged inside."""
    token = _current.set(_current.get()._replace(**more))  # type: ignore[arg-type]
    try:
        yield
    finally:
        _current.reset(token)
