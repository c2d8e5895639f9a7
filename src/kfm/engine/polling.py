"""Pollers: what queues hand out becomes durable in the ledger of units, and is acknowledged then."""

from __future__ import annotations

from collections.abc import Sequence

from kfm.core.records import Record
from kfm.core.wal import IntakeReport
from kfm.engine.ingesting import Ingesting
from kfm.ingest.hearing import Check, Hearing, hear_all
from kfm.ingest_ports import Message, Queue

MESSAGES_MAX = 100  # taken in together


class Polled(Record, frozen=True):
    """What one look into a queue came to."""

    messages: int = 0
    ignored: int = 0
    report: IntakeReport = IntakeReport()


class Poller:
    """One queue's intake. One poller a queue."""

    def __init__(self, kernel: Ingesting, queue: Queue, check: Check | None = None) -> None:
        self._kernel = kernel
        self._queue = queue
        self._check = check

    def step(self, wait_ms: int = 0, limit: int = MESSAGES_MAX) -> Polled:
        """Receive, make durable, acknowledge. What fails on the way is received again."""
        messages = self._queue.receive(limit, wait_ms)
        return self.take_in(messages) if messages else Polled()

    def take_in(self, messages: Sequence[Message]) -> Polled:
        kernel = self._kernel
        hearing = hearing_of(kernel, self._queue.name)
        waiting = hear_all(hearing, messages, self._check)
        report = kernel.wal.take_in(hearing.intake())
        later = {message.receipt for message in waiting}
        self._queue.acknowledge([one.receipt for one in messages if one.receipt not in later])
        return Polled(messages=len(messages), ignored=hearing.ignored, report=report)


def hearing_of(kernel: Ingesting, queue: str) -> Hearing:
    """For some messages of a queue, heard together."""
    return Hearing(kernel.registry, kernel.settings.policy_of, kernel.memory, queue, kernel.clock.now_ms())
