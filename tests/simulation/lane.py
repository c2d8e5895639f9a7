"""Processes that act beside the kernel's, between its steps, and that its history must not depend on.

They have dice of their own, take no time of the world, and leave no mark in its trace. So two worlds that
differ only here must tell the same story, step by step and byte by byte.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from tests.simulation.scheduler import Chances, Crashed, Process, Runaway, Scheduler, closed_gate

STEPS_MAX = 60_000
TURN = 0.3  # how often a process of the lane gets a step


class Lane:
    """A scheduler within the scheduler: at each point of the world one of these may go first."""

    def __init__(self, world: Scheduler, seed: int) -> None:
        self._world = world
        self.rng = random.Random(f"lane {seed}")
        self.baton = closed_gate()
        self.processes: list[Process] = []
        self.counts: Counter[str] = Counter()
        self.steps = 0
        self._inside = False

    @property
    def now_ms(self) -> int:
        return self._world.now_ms

    @property
    def chances(self) -> Chances:
        return self._world.chances

    def spawn(self, name: str, body: Callable[[Process], None]) -> Process:
        process = Process(self, name, body)
        self.processes.append(process)
        return process

    def turn(self) -> None:
        """Maybe one step of one of them."""
        if not self._inside and self.processes and self.rng.random() < TURN:
            ready = self._ready()
            if ready:
                self._resume(ready[self.rng.randrange(len(ready))])

    def drain(self) -> None:
        """Until all are done; who waits is waited for without the world's time passing."""
        while self.processes:
            for process in self.processes:
                process.stalled_until_ms = 0
            self._resume(self.processes[0])

    def die(self) -> None:
        for process in self.processes:
            process.dead = True

    def end(self) -> None:
        """No process is left, and what they leave behind is of no account."""
        self.die()
        for process in self.processes:
            if not process.done:
                process.resume()
        self.processes.clear()

    def _ready(self) -> list[Process]:
        return [p for p in self.processes if p.dead or p.stalled_until_ms <= self.now_ms]

    def _resume(self, process: Process) -> None:
        self._inside = True
        try:
            process.resume()
        finally:
            self._inside = False
        if process.done:
            self.processes.remove(process)
        if process.failure is not None:
            raise process.failure

    # --- called by a process of the lane ---------------------------------------------------

    def point(self, process: Process, label: str) -> None:
        if process.dead:
            raise Crashed
        self.steps += 1
        if self.steps > STEPS_MAX:
            raise Runaway(label)
        throw, chances = self.rng.random(), self.chances
        if throw < chances.crash * 3:
            self.counts["deliverer crash"] += 1
            process.die()
            raise Crashed
        if throw < (chances.crash + chances.stall) * 3:
            self.counts["deliverer stall"] += 1
            process.stalled_until_ms = self.now_ms + self.rng.randrange(1_000, 4 * chances.stall_ms)
        process.give_way()

    def unlucky(self, chance: float) -> bool:
        return chance > 0 and self.rng.random() < chance

    def sleep(self, process: Process, delay_ms: int) -> None:
        if process.dead:
            raise Crashed
        process.stalled_until_ms = self.now_ms + delay_ms
        process.give_way()
