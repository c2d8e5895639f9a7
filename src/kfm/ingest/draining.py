"""Emptying a dead-letter queue: its messages are handed on, and leave it once they are durable elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kfm.core.records import Record
from kfm.ingest_ports import Message, Queue

BATCH = 100
EMPTY_ANSWERS = 2  # one empty answer may only mean that the queue did not look everywhere


class Drained(Record, frozen=True):
    """What became of the messages. Those that are left were put back, or could not be acknowledged."""

    received: int = 0
    durable: int = 0
    left: int = 0


def drain(
    queue: Queue,
    hand_on: Callable[[list[Message]], Sequence[str]],
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
