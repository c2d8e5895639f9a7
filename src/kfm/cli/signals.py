"""SIGINT and SIGTERM: masked while modules are imported; a short command is cancelled, a long one stops.

- A short command is cancelled at once: `cancelled_by_sigterm` makes SIGTERM do what Ctrl-C does.
- `kfm serve` and `kfm worker` finish what has begun: `GracefulStop`.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = frozenset((signal.SIGINT, signal.SIGTERM))
_before_start: list[set[int]] = []  # the mask that the process was started with, until `unmask`


def mask() -> None:
    """From the first line of a command until `unmask`: no signal interrupts an import half-way."""
    if not _before_start:
        _before_start.append(set(signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)))


def unmask() -> None:
    """What was sent meanwhile arrives here."""
    if _before_start:
        signal.pthread_sigmask(signal.SIG_SETMASK, _before_start.pop())


@contextmanager
def masked() -> Iterator[None]:
    """For imports later on."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def cancelled_by_sigterm() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt, as Ctrl-C does, so that every `finally` does its work."""
    try:
        before = signal.signal(signal.SIGTERM, _cancel)
    except ValueError:  # not the main thread: the program that embeds us handles signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _cancel(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


class GracefulStop:
    """A graceful stop: the first signal lets work that has begun end, the second cancels at once."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.by: int | None = None
        self._on_first: Callable[[], None] = lambda: None

    def on_first(self, callback: Callable[[], None]) -> None:
        """Also call this at the first signal."""
        self._on_first = callback

    @contextmanager
    def installed(self) -> Iterator[None]:
        before = {one: signal.signal(one, self._handle) for one in STOP_SIGNALS}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.by is not None:
            raise KeyboardInterrupt
        self.by = number
        self.event.set()
        self._on_first()
