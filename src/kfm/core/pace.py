"""How slowly a body may come."""

from __future__ import annotations

from collections.abc import Callable

SLOWEST_BYTES_PER_SECOND = 1024


class Pace:
    """A body that trickles would hold a run for ever: each span of the timeout must bring something."""

    def __init__(self, monotonic_ms: Callable[[], int], timeout_ms: int) -> None:
        self._monotonic_ms = monotonic_ms
        self._timeout_ms = timeout_ms
        self._since_ms = monotonic_ms()
        self._bytes = 0

    def keeps_up(self, amount: int) -> bool:
        self._bytes += amount
        passed_ms = self._monotonic_ms() - self._since_ms
        if passed_ms < self._timeout_ms:
            return True
        enough = self._bytes * 1000 >= SLOWEST_BYTES_PER_SECOND * passed_ms
        self._since_ms += passed_ms
        self._bytes = 0
        return enough
