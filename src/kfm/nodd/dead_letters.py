"""Dead-letter queues: messages are taken in, marked with the reason of their replay, then removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kfm.model.records import Justification, Record, governance_entry
from kfm.model.replays import DLQ_DRAIN
from kfm.model.units import IntakeBatch, IntakeReport
from kfm.nodd.intake import Check, read_messages
from kfm.nodd.poller import intake_builder
from kfm.nodd.worker import IngestContext
from kfm.ports import Queue, QueueMessage

if TYPE_CHECKING:
    from kfm.app import App
    from kfm.model.units import DeadMessage

BATCH = 100
EMPTY_ANSWERS = 2  # one empty answer may only mean that the queue did not ask all its servers


class DrainCounts(Record, frozen=True):
    """Messages of a drain. Those that are left were put back, or could not be acknowledged."""

    received: int = 0
    durable: int = 0
    left: int = 0


def release_dead_message(app: App, record: DeadMessage, by: Justification) -> int:
    """A message that could not be read needs no attention any more; how many records that is."""
    facts = {"queue": record.queue, "code": record.error_code}
    entry = governance_entry("dead-message-release", record.envelope_hash, app.writer.now_ms(), by, **facts)
    return app.writer.units().release_dead(record.envelope_hash, entry)


def drain(
    queue: Queue,
    take_in: Callable[[list[QueueMessage]], Sequence[str]],
    *,
    messages_max: int,
    wait_ms: int = 1_000,
) -> DrainCounts:
    """Take in at most so many messages. `take_in` returns the receipts of those that are durable now.

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
            kept = set(take_in(messages))
        except BaseException:
            queue.put_back([message.receipt for message in messages])
            raise
        done = [message.receipt for message in messages if message.receipt in kept]
        undone = [message.receipt for message in messages if message.receipt not in kept]
        unacknowledged = queue.acknowledge(done)
        queue.put_back(undone)
        received += len(messages)
        durable += len(done)
        left += len(undone) + len(unacknowledged)
        if not done:
            break
    return DrainCounts(received=received, durable=durable, left=left)


class DeadLetters:
    """Takes in the messages of a dead-letter queue, and keeps the ids of the units that they announce."""

    def __init__(self, context: IngestContext, queue: str, check: Check | None = None) -> None:
        self._context = context
        self._queue = queue
        self._check = check
        self.announced: set[str] = set()
        self.report = IntakeReport()

    def take_in(self, messages: list[QueueMessage]) -> list[str]:
        """The receipts of what is durable now: not of messages whose signature can't be checked now."""
        context = self._context
        builder = intake_builder(context, self._queue)
        unchecked = {message.receipt for message in read_messages(builder, messages, self._check)}
        intake = _marked(builder.batch())
        self._add(context.wal.take_in(intake))
        self.announced.update(one.unit.wal_id for one in intake.arrivals)
        return [message.receipt for message in messages if message.receipt not in unchecked]

    def _add(self, report: IntakeReport) -> None:
        names = IntakeReport.__struct_fields__
        self.report = IntakeReport(**{n: getattr(self.report, n) + getattr(report, n) for n in names})


def _marked(intake: IntakeBatch) -> IntakeBatch:
    marked = (replace(one, unit=replace(one.unit, replay_reason=DLQ_DRAIN)) for one in intake.arrivals)
    return replace(intake, arrivals=tuple(marked))
