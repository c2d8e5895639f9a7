"""Time, chance and ids of the world: nothing of the machine that it is made on gets into it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from unittest.mock import patch

from kfm.system import SystemClock, SystemIds, SystemRng

SEED = 1861


class WorldTime:
    """It moves by hand, by what is waited for, and by a millisecond whenever it is read."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._lock = threading.Lock()

    def now_ms(self) -> int:
        with self._lock:
            self._now_ms += 1
            return self._now_ms

    def sleep_ms(self, delay_ms: int) -> None:
        with self._lock:
            self._now_ms += max(0, delay_ms)

    def move_to(self, at_ms: int) -> None:
        """A late moment of the script stays late: time never goes back."""
        with self._lock:
            self._now_ms = max(self._now_ms, at_ms)


class WorldIds:
    """UUIDv7 text of the world's time and seed."""

    def __init__(self, time: WorldTime, chance: Random) -> None:
        self._time, self._chance = time, chance
        self._lock = threading.Lock()

    def new(self) -> str:
        with self._lock:
            low = self._chance.getrandbits(74)
        at_ms = self._time.now_ms()
        digits = (
            f"{(at_ms << 80) | (0x7 << 76) | (low >> 62 << 64) | (0b10 << 62) | low & (1 << 62) - 1:032x}"
        )
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


@contextmanager
def installed(time: WorldTime, seed: int = SEED) -> Iterator[None]:
    """For everything in this process: the service, commands, pipelines."""
    ids, chance = WorldIds(time, Random(seed)), Random(seed + 1)
    with ExitStack() as stack:
        for owner, name, made in (
            (SystemClock, "now_ms", lambda _self: time.now_ms()),
            (SystemClock, "monotonic_ms", lambda _self: time.now_ms()),
            (SystemClock, "sleep_ms", lambda _self, delay_ms: time.sleep_ms(delay_ms)),
            (SystemIds, "new", lambda _self: ids.new()),
            (SystemRng, "unit", lambda _self: chance.random()),
        ):
            stack.enter_context(patch.object(owner, name, made))
        yield


@contextmanager
def served_from(at_ms: int, *, frozen: bool) -> Iterator[None]:
    """Wall time goes on from the world's last moment, or stays there; durations are those of the machine."""
    real, began_ms = SystemClock.now_ms, SystemClock().now_ms()

    def now_ms(clock: SystemClock) -> int:
        return at_ms if frozen else at_ms + real(clock) - began_ms

    with patch.object(SystemClock, "now_ms", now_ms):
        yield
