"""Pollers: what queues hand out becomes durable in the ledger of units, and is acknowledged then."""

from __future__ import annotations

from kfm.core.records import Record
from kfm.core.wal import Intake, IntakeReport
from kfm.engine.ingesting import Ingesting
from kfm.ingest.hearing import Check, Hearing, hear_all
from kfm.ingest_ports import Queue

MESSAGES_MAX = 100  # taken in together


class Polled(Record, frozen=True):
    """What one look into a queue came to."""

    messages: int = 0
    ignored: int = 0
    report: IntakeReport = IntakeReport()


class Heard(Record, frozen=True):
    """What some messages said. Nothing of it is durable yet."""

    messages: int
    receipts: tuple[str, ...]  # of those that may be acknowledged then
    intake: Intake
    ignored: int = 0


class Poller:
    """One queue's intake. One poller a queue."""

    def __init__(self, kernel: Ingesting, queue: Queue, check: Check | None = None) -> None:
        self._kernel = kernel
        self._queue = queue
        self._check = check

    def step(self, wait_ms: int = 0, limit: int = MESSAGES_MAX) -> Polled:
        """Receive, make durable, acknowledge. What fails on the way is received again."""
        heard = self.hear(wait_ms, limit)
        return Polled() if heard is None else self.take_in(heard)

    def take_in(self, heard: Heard) -> Polled:
        """Make it durable by itself, and acknowledge."""
        return self.acknowledge(heard, self._kernel.wal.take_in(heard.intake))

    def hear(self, wait_ms: int = 0, limit: int | None = None) -> Heard | None:
        """What the queue hands out, at most a batch; whoever asks makes it durable and then acknowledges."""
        kernel = self._kernel
        messages = self._queue.receive(limit or min(MESSAGES_MAX, kernel.settings.batch), wait_ms)
        if not messages:
            return None
        hearing = hearing_of(kernel, self._queue.name)
        later = {message.receipt for message in hear_all(hearing, messages, self._check)}
        return Heard(
            messages=len(messages),
            receipts=tuple(one.receipt for one in messages if one.receipt not in later),
            intake=hearing.intake(),
            ignored=hearing.ignored,
        )

    def acknowledge(self, heard: Heard, report: IntakeReport) -> Polled:
        """It is durable, as the report says."""
        self._queue.acknowledge(heard.receipts)
        return Polled(messages=heard.messages, ignored=heard.ignored, report=report)


def hearing_of(kernel: Ingesting, queue: str) -> Hearing:
    """For some messages of a queue, heard together."""
    return Hearing(kernel.registry, kernel.settings.policy_of, kernel.memory, queue, kernel.clock.now_ms())
