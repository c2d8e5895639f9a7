"""Circuit breakers of one process: checked before a call, updated after it.

The port is small, so that a circuit that a whole fleet shares can stand where the one of this
process stands by default.
"""

from __future__ import annotations

from threading import Lock
from typing import Protocol

from kfm.model.breaker import Breaker, may_call, on_failure, on_success, probe_started, wait_ms
from kfm.model.errors import CircuitOpen
from kfm.ports import Clock


class Circuit(Protocol):
    """One provider's circuit."""

    @property
    def quiet(self) -> bool:
        """Closed, and no failure counted: a call need not ask, and a success need not be told."""

    def before(self) -> int | None:
        """Permission for one try; a probe gets its fence. Raises CircuitOpen instead of waiting."""

    def after(self, ok: bool, fence: int | None = None) -> None:
        """How the try went, as far as the provider is to be thanked or blamed for it."""

    def wait_ms(self) -> int:
        """How long until the next trial call; 0 if now."""


class Breakers(Protocol):
    """The circuits of all providers."""

    def circuit(self, provider: str) -> Circuit: ...


class LocalCircuit:
    """A circuit that this process alone knows of."""

    __slots__ = ("_clock", "_guard", "_state", "quiet")

    def __init__(self, provider: str, clock: Clock) -> None:
        self._clock = clock
        self._guard = Lock()
        self._state = Breaker(provider=provider)
        self.quiet = True

    def before(self) -> int | None:
        with self._guard:
            now_ms = self._clock.now_ms()
            permission = may_call(self._state, now_ms)
            if permission == "refuse":
                raise circuit_open(self._state.provider, now_ms, wait_ms(self._state, now_ms))
            if permission == "call":
                return None
            self._state = probe_started(self._state, now_ms)
            return self._state.fence

    def after(self, ok: bool, fence: int | None = None) -> None:
        with self._guard:
            if ok:
                self._state = on_success(self._state, fence)
            else:
                self._state = on_failure(self._state, self._clock.now_ms(), fence)
            self.quiet = self._state.state == "closed" and not self._state.failures

    def wait_ms(self) -> int:
        return wait_ms(self._state, self._clock.now_ms())


class LocalBreakers:
    """The default: circuits of this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._circuits: dict[str, LocalCircuit] = {}

    def circuit(self, provider: str) -> LocalCircuit:
        return self._circuits.setdefault(provider, LocalCircuit(provider, self._clock))


class NoCircuit:
    """No circuit: for calls that name no provider."""

    __slots__ = ("quiet",)  # in the instance, where it is read fastest

    def __init__(self) -> None:
        self.quiet = True

    def before(self) -> int | None:
        return None

    def after(self, ok: bool, fence: int | None = None) -> None:
        pass

    def wait_ms(self) -> int:
        return 0


def circuit_open(provider: str, now_ms: int, left_ms: int) -> CircuitOpen:
    return CircuitOpen(
        f"{provider} is tried again in {-(-left_ms // 1000)} s; this call was not made.",
        provider=provider,
        not_before_ms=now_ms + left_ms,
    )
