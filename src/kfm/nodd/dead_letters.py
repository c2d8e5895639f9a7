"""Dead-letter queues: messages are taken in with a note of where they came from, then removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from kfm.model.records import Record
from kfm.model.replays import DLQ_DRAIN
from kfm.model.units import IntakeBatch, IntakeReport, IntakeUnit
from kfm.nodd.intake import Check, hear_all
from kfm.nodd.poller import hearing_of
from kfm.nodd.worker import WorkerContext
from kfm.ports import Queue, QueueMessage

BATCH = 100
EMPTY_ANSWERS = 2  # one empty answer may only mean that the queue did not look everywhere


class Drained(Record, frozen=True):
    """What became of the messages. Those that are left were put back, or could not be acknowledged."""

    received: int = 0
    durable: int = 0
    left: int = 0


def drain(
    queue: Queue,
    hand_on: Callable[[list[QueueMessage]], Sequence[str]],
    *,
    messages_max: int,
    wait_ms: int = 1_000,
) -> Drained:
    """Hand on at most so many messages. `hand_on` answers with the receipts of those that are durable now.

    Ends when the queue is empty, or when a whole batch could not be made durable: it would come again.
    """
    received = durable = left = empty = 0
    while received < messages_max and empty < EMPTY_ANSWERS:
        messages = queue.receive(min(BATCH, messages_max - received), wait_ms)
        if not messages:
            empty += 1
            continue
        empty = 0
        try:
            kept = set(hand_on(messages))
        except BaseException:
            queue.put_back([message.receipt for message in messages])
            raise
        done = [message.receipt for message in messages if message.receipt in kept]
        undone = [message.receipt for message in messages if message.receipt not in kept]
        lingering = queue.acknowledge(done)
        queue.put_back(undone)
        received += len(messages)
        durable += len(done)
        left += len(undone) + len(lingering)
        if not done:
            break
    return Drained(received=received, durable=durable, left=left)


class DeadLetters:
    """Makes messages durable; which of them are, and which units they are about."""

    def __init__(self, kernel: WorkerContext, queue: str, check: Check | None = None) -> None:
        self._kernel = kernel
        self._queue = queue
        self._check = check
        self.announced: set[str] = set()
        self.report = IntakeReport()

    def hand_on(self, messages: list[QueueMessage]) -> list[str]:
        """The receipts of what is durable now. What is signed by an unknown hand for now is not."""
        kernel = self._kernel
        hearing = hearing_of(kernel, self._queue)
        later = {message.receipt for message in hear_all(hearing, messages, self._check)}
        intake = _drained(hearing.intake())
        self._add(kernel.wal.take_in(intake))
        self.announced.update(one.unit.wal_id for one in intake.taken)
        return [message.receipt for message in messages if message.receipt not in later]

    def _add(self, report: IntakeReport) -> None:
        names = IntakeReport.__struct_fields__
        self.report = IntakeReport(**{n: getattr(self.report, n) + getattr(report, n) for n in names})


def _drained(intake: IntakeBatch) -> IntakeBatch:
    return replace(intake, taken=tuple(map(_marked, intake.taken)))


def _marked(taken: IntakeUnit) -> IntakeUnit:
    return replace(taken, unit=replace(taken.unit, replay_reason=DLQ_DRAIN))
