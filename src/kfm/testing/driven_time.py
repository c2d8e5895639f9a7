"""Simulated time for tests of calls: it advances where a call waits, or by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kfm.calls.breakers import LocalBreakers
from kfm.calls.runtime import HERE, FailedTry

START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


class DrivenTime:
    """Clock, chance and waiting of every `kfm.call`, while the fixture lasts."""

    def __init__(self) -> None:
        self.jitter = 0.5  # of the longest possible wait, 0 to 1: each wait is this part of it
        self.tried: list[FailedTry] = []  # every failed try and every recovery, in order
        self._delays_ms: list[int] = []
        self._passed_ms = 0

    @property
    def delays(self) -> list[float]:
        """Every wait so far, in seconds."""
        return [delay_ms / 1000 for delay_ms in self._delays_ms]

    @property
    def passed(self) -> float:
        """Seconds since the test began."""
        return self._passed_ms / 1000

    def advance(self, seconds: float) -> None:
        """Let time pass, as a slow function would."""
        if seconds < 0:
            raise ValueError("Time does not run backwards.")
        self._passed_ms += round(seconds * 1000)

    # What the calls see.

    def now_ms(self) -> int:
        return START_MS + self._passed_ms

    def monotonic_ms(self) -> int:
        return self._passed_ms

    def sleep_ms(self, delay_ms: int) -> None:
        self._delays_ms.append(delay_ms)
        self._passed_ms += delay_ms

    async def pause(self, delay_ms: int) -> None:
        from asyncio import sleep

        self.sleep_ms(delay_ms)
        await sleep(0)  # others get their turn, as in a real wait

    def unit(self) -> float:
        return self.jitter


@contextmanager
def driven_time() -> Iterator[DrivenTime]:
    """What the fixture `kfm_time` does, for other test frameworks."""
    import kfm

    _ = kfm.call  # brings the real clock, which is put back afterwards
    time = DrivenTime()
    with HERE.replaced(
        clock=time, rng=time, pause=time.pause, breakers=LocalBreakers(time), observer=time.tried.append
    ):
        yield time
