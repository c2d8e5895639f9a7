"""Processes as threads of which one runs at a time; one seed decides who, when, and who dies.

A process passes a `point` before each effect. There the scheduler may let another go first, stall
the process past its lease, kill it, or hand it an error. A dead process raises `Crashed` at every
later point, so no clean-up code of the program has an effect after its death.
"""

from __future__ import annotations

import hashlib
import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

STEPS_MAX = 60_000
# Where a stall hurts most: what was read before may be stale by the time of the write.
CRITICAL = frozenset({"begin", "show", "bucket.put", "replica"})


class Crashed(BaseException):
    """This process is dead. Not an Exception: the program must not catch it."""


class Runaway(Exception):
    """The simulation did not come to an end."""


@dataclass(frozen=True)
class Chances:
    """How often things go wrong, for each point that is passed."""

    switch: float = 0.25
    crash: float = 0.003
    stall: float = 0.003
    jump: float = 0.002
    fail_before: float = 0.004
    fail_after: float = 0.004
    power_cut: float = 0.0
    stall_ms: int = 15_000  # how long at most
    trouble: float = 0.3  # of the worlds have providers with circuits, outages, and those who retry


def closed_gate() -> threading.Lock:
    """A thread that acquires it waits until another thread releases it. Cheaper than a semaphore."""
    gate = threading.Lock()
    gate.acquire()
    return gate


CALM = Chances(switch=0.0, crash=0.0, stall=0.0, jump=0.0, fail_before=0.0, fail_after=0.0)


class Baton(Protocol):
    """As much of a scheduler as a process needs."""

    baton: threading.Lock


class Process:
    def __init__(self, scheduler: Baton, name: str, body: Callable[[Process], None]) -> None:
        self.scheduler = scheduler
        self.name = name
        self.dead = False
        self.done = False
        self.stalled_until_ms = 0
        self.wall_offset_ms = 0
        self.jumps = 0  # how often its clock was set
        self.failure: BaseException | None = None
        self.kin: list[Process] = [self]  # the threads of one program live and die together
        self.facts: dict[str, Any] = {}  # what the rules remember about it
        self._body = body
        self._go = closed_gate()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self.dead:
                self._body(self)
        except Crashed:
            pass
        except BaseException as error:
            self.failure = error
        self.done = True
        self.scheduler.baton.release()

    def die(self) -> None:
        for thread in self.kin:
            thread.dead = True

    def resume(self) -> None:
        self._go.release()
        self.scheduler.baton.acquire()

    def give_way(self) -> None:
        self.scheduler.baton.release()
        self._go.acquire()
        if self.dead:
            raise Crashed


class Scheduler:
    def __init__(self, seed: int, chances: Chances) -> None:
        self.rng = random.Random(seed)
        self.chances = chances
        self.now_ms = 1_790_000_000_000
        self.baton = closed_gate()
        self.processes: list[Process] = []
        self.steps = 0
        self.counts: Counter[str] = Counter()
        self.on_power_cut: Callable[[], None] = lambda: None
        self.beside: Callable[[], None] = lambda: None  # others, who take no time and have their own dice
        self._trace = hashlib.sha256()

    @property
    def trace(self) -> str:
        return self._trace.hexdigest()

    def note(self, text: str) -> None:
        self._trace.update(text.encode())

    def spawn(self, name: str, body: Callable[[Process], None]) -> Process:
        process = Process(self, name, body)
        self.processes.append(process)
        return process

    def run(self) -> None:
        """Until every process is done or dead."""
        while alive := [p for p in self.processes if not p.done]:
            ready = [p for p in alive if p.dead or p.stalled_until_ms <= self.now_ms]
            if not ready:
                self.now_ms = min(p.stalled_until_ms for p in alive)
                continue
            ready[self.rng.randrange(len(ready))].resume()
        failures = [p.failure for p in self.processes if p.failure is not None]
        self.processes.clear()
        if failures:
            raise failures[0]

    # --- called by a process ---------------------------------------------------------

    def point(self, process: Process, label: str) -> None:
        """Before an effect."""
        if process.dead:
            raise Crashed
        self.steps += 1
        if self.steps > STEPS_MAX:
            raise Runaway(label)
        self.note(f"{process.name} {label} {self.now_ms}\n")
        self.beside()
        rng, chances = self.rng, self.chances
        self.now_ms += rng.randrange(1, 20)
        throw = rng.random()
        if throw < chances.crash:
            self.counts["crash"] += 1
            process.die()
            raise Crashed
        throw -= chances.crash
        stall = chances.stall * (8 if label in CRITICAL else 1)
        if throw < stall:
            self.counts["stall"] += 1
            until_ms = self.now_ms + rng.randrange(1_000, chances.stall_ms)
            for thread in process.kin if rng.random() < 0.5 else [process]:
                thread.stalled_until_ms = max(thread.stalled_until_ms, until_ms)
            process.give_way()
            return
        throw -= stall
        if throw < chances.jump:
            self.counts["jump"] += 1
            offset_ms = rng.randrange(-30_000, 30_000)
            for thread in process.kin:
                thread.wall_offset_ms += offset_ms
                thread.jumps += 1
            return
        throw -= chances.jump
        if throw < chances.power_cut:
            self.counts["power cut"] += 1
            self.on_power_cut()
            raise Crashed
        throw -= chances.power_cut
        if throw < chances.switch and any(not (p.done or p is process) for p in self.processes):
            process.give_way()

    def unlucky(self, chance: float) -> bool:
        return chance > 0 and self.rng.random() < chance

    def sleep(self, process: Process, delay_ms: int) -> None:
        if process.dead:
            raise Crashed
        process.stalled_until_ms = self.now_ms + delay_ms
        process.give_way()
