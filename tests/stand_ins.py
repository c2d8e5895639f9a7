"""Clock, chance and ids for tests: nothing waits, nothing surprises."""

from __future__ import annotations

START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


class FakeClock:
    """Time passes only where the code sleeps, or by hand."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self._start_ms = now_ms
        self.passed_ms = 0
        self.slept: list[int] = []

    def now_ms(self) -> int:
        return self._start_ms + self.passed_ms

    def monotonic_ms(self) -> int:
        return self.passed_ms

    def sleep_ms(self, delay_ms: int) -> None:
        self.slept.append(delay_ms)
        self.passed_ms += delay_ms


class FixedRng:
    def __init__(self, unit: float = 0.5) -> None:
        self._unit = unit

    def unit(self) -> float:
        return self._unit


class CountedIds:
    """Ids in order, with the shape of real ones."""

    def __init__(self) -> None:
        self.count = 0

    def new(self) -> str:
        self.count += 1
        return f"{self.count:08x}-0000-7000-8000-000000000000"
