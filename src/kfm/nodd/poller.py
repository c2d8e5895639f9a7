"""Pollers: queue messages become durable intake, then are acknowledged; the exchange with the worker."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from kfm.model.records import Record
from kfm.model.units import IntakeBatch, IntakeReport
from kfm.nodd.intake import Check, Hearing, hear_all
from kfm.nodd.worker import WorkerContext
from kfm.ports import Queue

MESSAGES_MAX = 100  # taken in together


class Polled(Record, frozen=True):
    """What one look into a queue came to."""

    messages: int = 0
    ignored: int = 0
    report: IntakeReport = IntakeReport()


class ReadMessages(Record, frozen=True):
    """What some messages said. Nothing of it is durable yet."""

    messages: int
    receipts: tuple[str, ...]  # of those that may be acknowledged then
    intake: IntakeBatch
    ignored: int = 0


class Poller:
    """One queue's intake. One poller a queue."""

    def __init__(self, kernel: WorkerContext, queue: Queue, check: Check | None = None) -> None:
        self._kernel = kernel
        self._queue = queue
        self._check = check

    def step(self, wait_ms: int = 0, limit: int = MESSAGES_MAX) -> Polled:
        """Receive, make durable, acknowledge. What fails on the way is received again."""
        heard = self.hear(wait_ms, limit)
        return Polled() if heard is None else self.take_in(heard)

    def take_in(self, heard: ReadMessages) -> Polled:
        """Make it durable by itself, and acknowledge."""
        return self.acknowledge(heard, self._kernel.wal.take_in(heard.intake))

    def hear(self, wait_ms: int = 0, limit: int | None = None) -> ReadMessages | None:
        """What the queue hands out, at most a batch; whoever asks makes it durable and then acknowledges."""
        kernel = self._kernel
        messages = self._queue.receive(limit or min(MESSAGES_MAX, kernel.settings.batch), wait_ms)
        if not messages:
            return None
        hearing = hearing_of(kernel, self._queue.name)
        later = {message.receipt for message in hear_all(hearing, messages, self._check)}
        return ReadMessages(
            messages=len(messages),
            receipts=tuple(one.receipt for one in messages if one.receipt not in later),
            intake=hearing.intake(),
            ignored=hearing.ignored,
        )

    def acknowledge(self, heard: ReadMessages, report: IntakeReport) -> Polled:
        """It is durable, as the report says."""
        self._queue.acknowledge(heard.receipts)
        return Polled(messages=heard.messages, ignored=heard.ignored, report=report)


def hearing_of(kernel: WorkerContext, queue: str) -> Hearing:
    """For some messages of a queue, heard together."""
    return Hearing(kernel.registry, kernel.settings.policy_of, kernel.memory, queue, kernel.clock.now_ms())


PATIENCE_MS = 500  # a batch that asks nobody upstream is ended long before


@dataclass(eq=False)
class _Offer:
    intake: IntakeBatch
    is_taken: bool = False
    answer: IntakeReport | Exception | None = None


class IntakeExchange:
    """Offers wait in the order in which they came; the worker takes one at a time."""

    def __init__(self, patience_ms: int = PATIENCE_MS) -> None:
        self._patience_s = patience_ms / 1000
        self._moved = threading.Condition()
        self._offers: deque[_Offer] = deque()
        self._is_away = True  # nobody took an offer in time: until the worker looks again, nobody waits

    def offer(self, intake: IntakeBatch) -> IntakeReport | None:
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

    def serve(self, take_in: Callable[[IntakeBatch], IntakeReport], wait_ms: int = 0) -> bool:
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
