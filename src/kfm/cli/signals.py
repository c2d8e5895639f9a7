"""Signals: Ctrl-C and SIGTERM, masked during imports, and how a long command stops."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

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


class Stop:
    """The wish to stop: the first is obeyed when what has begun has ended, the second at once."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.by: int | None = None
        self._told: Callable[[], None] = lambda: None

    def tell(self, told: Callable[[], None]) -> None:
        """Who is to hear of the first, beside whoever looks at the event."""
        self._told = told

    def _heard(self, number: int, _frame: FrameType | None) -> None:
        if self.by is not None:
            raise KeyboardInterrupt
        self.by = number
        self.event.set()
        self._told()

    @contextmanager
    def installed(self) -> Iterator[None]:
        before = {one: signal.signal(one, self._heard) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)
