"""A fleet of workers, a provider that goes down, and units that wait: with the real store and rules.

Time is simulated. A worker tests the circuit, takes the unit that was released first, calls, and tells
how it went, as any claim loop would. What a unit is released by, and when it is tried again, is
decided by the kernel's own functions; units themselves are plain values here.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from kfm.calls.breakers import BreakerAccess, SharedBreakers, SharedCircuit
from kfm.db.ledger import Ledger
from kfm.model.breaker import Breaker, share_of
from kfm.model.errors import CircuitOpen
from kfm.model.retry import Classification, decide_retry, policy_for

PROVIDER = "api.example.org"
DOWN = Classification(retryable=True, error_class="network")
SUCCESS_MS = 2_000
FAILURE_MS = 10_000
LOOK_AGAIN_MS = 10_000  # how long a worker that has nothing to wait for sleeps

Release = Callable[[Breaker, int, float, int], int]


class SimClock:
    """Simulated time."""

    def __init__(self, now_ms: int) -> None:
        self.at_ms = now_ms

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic_ms(self) -> int:
        return self.at_ms

    def sleep_ms(self, delay_ms: int) -> None:
        raise AssertionError("no worker sleeps here")


@dataclass
class Unit:
    name: str
    due_ms: int
    attempts: int = 0
    first_ms: int = 0
    done_ms: int | None = None


@dataclass
class Call:
    began_ms: int
    ended_ms: int
    ok: bool


@dataclass
class Fleet:
    clock: SimClock
    store: Ledger
    units: list[Unit]
    outage: tuple[int, int]
    workers: int = 4
    release: Release | None = None  # instead of the kernel's own
    calls: list[Call] = field(default_factory=list)
    refusals: int = 0

    def __post_init__(self) -> None:
        self._rng = random.Random(7)
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._waiting = list(self.units)
        self._order: tuple[object, list[tuple[int, Unit]]] = (None, [])
        self._circuits = [
            SharedBreakers(BreakerAccess(self.store, self.store, lambda: self.store), self.clock).circuit(
                PROVIDER
            )
            for _ in range(self.workers)
        ]

    def run(self, until_ms: int) -> None:
        for circuit in self._circuits:
            self._at(self.clock.at_ms, lambda circuit=circuit: self._look(circuit))  # type: ignore[misc]
        while self._events and self._events[0][0] <= until_ms:
            if all(unit.done_ms is not None for unit in self.units):
                return
            at_ms, _, act = heapq.heappop(self._events)
            self.clock.at_ms = max(self.clock.at_ms, at_ms)
            act()

    def _at(self, at_ms: int, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (at_ms, self._count, act))

    # --- one worker ------------------------------------------------------------------

    def _look(self, circuit: SharedCircuit) -> None:
        """Test the circuit, then claim: while it is open nothing is."""
        now_ms = self.clock.at_ms
        try:
            circuit.reserve()
        except CircuitOpen as error:
            self.refusals += 1
            self._at(max(error.facts["not_before_ms"], now_ms + 1), lambda: self._look(circuit))
            return
        unit = self._claim(now_ms)
        if unit is None:
            circuit.put_back()
            next_ms = self._order[1][0][0] if self._order[1] else now_ms + LOOK_AGAIN_MS
            self._at(next_ms, lambda: self._look(circuit))
            return
        try:
            fence = circuit.before()
        except CircuitOpen:  # it opened in the same instant: the unit goes back, and nothing is spent
            self._waiting.append(unit)
            self._order = (None, [])
            self._at(now_ms + 1, lambda: self._look(circuit))
            return
        down = self.outage[0] <= now_ms < self.outage[1]
        ended_ms = now_ms + (FAILURE_MS if down else SUCCESS_MS)
        self.calls.append(Call(now_ms, ended_ms, not down))
        unit.attempts += 1
        unit.first_ms = unit.first_ms or now_ms
        self._at(ended_ms, lambda: self._end(circuit, unit, not down, fence))

    def _claim(self, now_ms: int) -> Unit | None:
        breaker = self.store.breaker(PROVIDER)
        epoch = (breaker.state, breaker.tripped_at_ms, breaker.closed_at_ms, len(self._waiting))
        if epoch != self._order[0]:
            released = [(self._released_ms(breaker, unit, now_ms), unit) for unit in self._waiting]
            self._order = (epoch, sorted(released, key=lambda pair: (pair[0], pair[1].due_ms)))
        if not self._order[1] or self._order[1][0][0] > now_ms:
            return None
        _, unit = self._order[1].pop(0)
        self._waiting.remove(unit)
        self._order = ((*epoch[:3], len(self._waiting)), self._order[1])
        return unit

    def _released_ms(self, breaker: Breaker, unit: Unit, now_ms: int) -> int:
        if breaker.state != "closed":
            return unit.due_ms  # the probe is ours: whatever was due first makes it
        if self.release is not None:
            return self.release(breaker, unit.due_ms, share_of(unit.name), now_ms)
        return self._circuits[0].due_ms(unit.due_ms, unit.name)

    def _end(self, circuit: SharedCircuit, unit: Unit, ok: bool, fence: int | None) -> None:
        now_ms = self.clock.at_ms
        circuit.after(ok, fence)
        if ok:
            unit.done_ms = now_ms
        else:
            decision = decide_retry(
                DOWN, policy_for("upstream-event"), unit.attempts, unit.first_ms, now_ms, self._rng.random()
            )
            assert decision.retry, f"{unit} ran out: {decision.reason}"
            assert decision.not_before_ms is not None
            unit.due_ms = decision.not_before_ms
            self._waiting.append(unit)
            self._order = (None, [])
        self._look(circuit)


def peak(calls: list[Call], after_ms: int, span_ms: int) -> int:
    """The most calls that began in any span of that length."""
    times = sorted(call.began_ms for call in calls if call.began_ms >= after_ms)
    most = first = 0
    for last, at_ms in enumerate(times):
        while times[first] <= at_ms - span_ms:
            first += 1
        most = max(most, last - first + 1)
    return most
