"""How a command that goes on for long is stopped."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


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
