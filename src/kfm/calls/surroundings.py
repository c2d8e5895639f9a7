"""Time, chance, breakers and hearers of every `kfm.call` in this process: the one place to replace them.

`kfm.call` is used without any set-up, so they can't be handed in at each call. Nobody else keeps
any of them: tests and wiring replace them here, and calls that were declared long before obey.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kfm.calls.breakers import Breakers, Circuit, LocalBreakers, NoCircuit
from kfm.calls.tried import FailedTry
from kfm.ports import Clock, Rng


async def _pause(delay_ms: int) -> None:
    import asyncio

    await asyncio.sleep(delay_ms / 1000)


class Line:
    """Where a declared call finds its provider's present circuit."""

    __slots__ = ("circuit", "provider")

    def __init__(self, provider: str | None, circuit: Circuit) -> None:
        self.provider = provider
        self.circuit = circuit


class Surroundings:
    """What calls are made with; `HERE` is the only one."""

    clock: Clock
    rng: Rng
    breakers: Breakers
    pause: Callable[[int], Awaitable[None]]
    hearer: Callable[[FailedTry], None] | None  # of every failed try and every recovery
    acting: Callable[[str], None] | None  # told before each try of a call that says idempotent=False

    def __init__(self) -> None:
        self._lines: dict[str | None, Line] = {}

    def equip(self, clock: Clock, rng: Rng) -> None:
        """Real time and chance, unless somebody has been here before."""
        if not hasattr(self, "clock"):
            self.clock, self.rng = clock, rng
            self.breakers = LocalBreakers(clock)
            self.pause = _pause
            self.hearer = self.acting = None

    def line(self, provider: str | None) -> Line:
        if not hasattr(self, "clock"):
            raise RuntimeError("Calls have no clock yet: use `kfm.call`, which brings one.")
        found = self._lines.get(provider)
        if found is None:
            circuit = NoCircuit() if provider is None else self.breakers.circuit(provider)
            found = self._lines.setdefault(provider, Line(provider, circuit))
        return found

    def replace(self, **changes: Any) -> dict[str, Any]:
        """Set some of them for good; what they were is returned."""
        former = {name: getattr(self, name) for name in changes}
        for name, value in changes.items():
            setattr(self, name, value)
        if "breakers" in changes:
            for provider, line in list(self._lines.items()):
                if provider is not None:
                    line.circuit = self.breakers.circuit(provider)
        return former

    @contextmanager
    def replaced(self, **changes: Any) -> Iterator[None]:
        former = self.replace(**changes)
        try:
            yield
        finally:
            self.replace(**former)


HERE = Surroundings()
