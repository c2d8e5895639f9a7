"""Where pollers with threads of their own hand what they heard to the worker.

One transaction of the worker then ends a batch, takes in what was heard and claims it. A poller waits for
that with bounded patience: a worker that is busy otherwise, or gone, keeps no message from becoming durable.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from kfm.core.wal import Intake, IntakeReport

PATIENCE_MS = 500  # a batch that asks nobody upstream is ended long before


@dataclass(eq=False)
class _Offer:
    intake: Intake
    is_taken: bool = False
    answer: IntakeReport | Exception | None = None


class Hatch:
    """Offers wait in the order in which they came; the worker takes one at a time."""

    def __init__(self, patience_ms: int = PATIENCE_MS) -> None:
        self._patience_s = patience_ms / 1000
        self._moved = threading.Condition()
        self._offers: deque[_Offer] = deque()
        self._is_away = True  # nobody took an offer in time: until the worker looks again, nobody waits

    def offer(self, intake: Intake) -> IntakeReport | None:
        """What came of it, which is durable then. None: nobody took it, so whoever heard it takes it in.

        Raises what the worker met: as after any failure, whether it is durable is not known.
        """
        one = _Offer(intake)
        with self._moved:
            if self._is_away:
                return None
            self._offers.append(one)
            self._moved.notify_all()
            if not self._moved.wait_for(lambda: one.is_taken, self._patience_s):
                self._offers.remove(one)
                self._is_away = True
                return None
            self._moved.wait_for(lambda: one.answer is not None)  # whoever takes one answers
        if isinstance(one.answer, Exception):
            raise one.answer
        return one.answer

    def serve(self, take_in: Callable[[Intake], IntakeReport], wait_ms: int = 0) -> bool:
        """The worker's side: take in what is offered first, if anything is within this time."""
        with self._moved:
            self._is_away = False
            if not self._moved.wait_for(lambda: bool(self._offers), wait_ms / 1000):
                return False
            one = self._offers.popleft()
            one.is_taken = True
            self._moved.notify_all()
        answer: IntakeReport | Exception = RuntimeError("The worker ended while it took in what was heard.")
        try:
            answer = take_in(one.intake)
        except Exception as error:
            answer = error
            raise
        finally:
            with self._moved:
                one.answer = answer
                self._moved.notify_all()
        return True

    def wait(self, delay_ms: int) -> bool:
        """For an offer, and no longer than this. Is there one?"""
        with self._moved:
            self._is_away = False
            return self._moved.wait_for(lambda: bool(self._offers), delay_ms / 1000)

    def shut(self) -> None:
        """The worker does something that may take long, or ends: nobody is to wait for it."""
        with self._moved:
            self._is_away = True
