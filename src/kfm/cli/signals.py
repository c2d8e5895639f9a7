"""Ctrl-C and SIGTERM wait while code is imported: an import that is cut in half can't be mended."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

_STOP = frozenset((signal.SIGINT, signal.SIGTERM))
_before_start: list[set[int]] = []  # the mask that we were started with, while `hold` is in force


def hold() -> None:
    """From the first line of a command until `release`."""
    if not _before_start:
        _before_start.append(set(signal.pthread_sigmask(signal.SIG_BLOCK, _STOP)))


def release() -> None:
    """What was sent meanwhile arrives here."""
    if _before_start:
        signal.pthread_sigmask(signal.SIG_SETMASK, _before_start.pop())


@contextmanager
def held() -> Iterator[None]:
    """For imports later on."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
