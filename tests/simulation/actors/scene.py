"""What an actor is given: its place in the schedule, its own dice, and the clock of the world."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeVar

from tests.simulation.judging import require
from tests.simulation.scheduler import Process, Scheduler

T = TypeVar("T")


class Scene:
    """One actor's view. Its dice are its own, so that a longer part does not change the others' fate."""

    def __init__(self, scheduler: Scheduler, process: Process, rng: random.Random) -> None:
        self.scheduler = scheduler
        self.process = process
        self.rng = rng

    @property
    def now_ms(self) -> int:
        return self.scheduler.now_ms

    def pause(self, label: str) -> None:
        """Others may go first, and this may be the actor's last step."""
        self.scheduler.point(self.process, label)

    def sleep(self, delay_ms: int) -> None:
        self.scheduler.sleep(self.process, delay_ms)

    def beside(self, name: str, body: Callable[[Scene], None]) -> None:
        """Another process of the same play."""
        dice = random.Random(self.rng.random())
        self.scheduler.spawn(
            f"{self.process.name}.{name}", lambda process: body(Scene(self.scheduler, process, dice))
        )

    def note(self, fact: str) -> None:
        self.scheduler.note(f"{self.process.name}: {fact}\n")


def refused(error: type[BaseException], call: Callable[[], Any], promise: str, **facts: Any) -> Any:
    """The call must raise this error; returns it."""
    try:
        answer = call()
    except error as raised:
        return raised
    require(False, promise, answer=repr(answer)[:200], **facts)
    raise AssertionError
