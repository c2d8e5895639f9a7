"""Pollers: queue messages become durable intake, then are acknowledged; the exchange with the worker."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from kfm.model.records import Record
from kfm.model.units import IntakeBatch, IntakeReport
from kfm.nodd.intake import Check, IntakeBuilder, read_messages
from kfm.nodd.worker import IngestContext
from kfm.ports import Queue

MESSAGES_MAX = 100  # taken in together
OFFER_MS = 500  # how long an offer waits for the worker; a batch that reads no objects ends long before


class PollReport(Record, frozen=True):
    """What one poll of a queue brought."""

    messages: int = 0
    ignored: int = 0
    intake: IntakeReport = IntakeReport()


class ReceivedMessages(Record, frozen=True):
    """Messages of one poll, read. Nothing of them is durable yet."""

    messages: int
    receipts: tuple[str, ...]  # of those that may be acknowledged once the intake is durable
    intake: IntakeBatch
    ignored: int = 0


class Poller:
    """The intake of one queue. A queue has one poller."""

    def __init__(self, context: IngestContext, queue: Queue, check: Check | None = None) -> None:
        self._context = context
        self._queue = queue
        self.queue_name = queue.name
        self._check = check

    def step(self, wait_ms: int = 0, limit: int = MESSAGES_MAX) -> PollReport:
        """Receive, make durable, acknowledge. What fails on the way is received again."""
        received = self.receive(wait_ms, limit)
        return PollReport() if received is None else self.take_in(received)

    def receive(self, wait_ms: int = 0, limit: int | None = None) -> ReceivedMessages | None:
        """At most a batch. The caller makes its intake durable, and then acknowledges it."""
        context = self._context
        messages = self._queue.receive(limit or min(MESSAGES_MAX, context.settings.batch), wait_ms)
        if not messages:
            return None
        builder = intake_builder(context, self._queue.name)
        unchecked = {message.receipt for message in read_messages(builder, messages, self._check)}
        return ReceivedMessages(
            messages=len(messages),
            receipts=tuple(one.receipt for one in messages if one.receipt not in unchecked),
            intake=builder.batch(),
            ignored=builder.ignored,
        )

    def take_in(self, received: ReceivedMessages) -> PollReport:
        """Make the intake durable in a transaction of its own, and acknowledge."""
        return self.acknowledge(received, self._context.wal.take_in(received.intake))

    def acknowledge(self, received: ReceivedMessages, report: IntakeReport) -> PollReport:
        """The intake is durable: remove its messages from the queue."""
        self._queue.acknowledge(received.receipts)
        return PollReport(messages=received.messages, ignored=received.ignored, intake=report)


def intake_builder(context: IngestContext, queue: str) -> IntakeBuilder:
    """For messages of one queue that are taken in together."""
    settings = context.settings
    return IntakeBuilder(
        context.registry,
        settings.policy_of,
        context.keys,
        queue,
        context.wal.now_ms(),
        settings.provider_of(queue),
    )


@dataclass(eq=False)
class _Offer:
    intake: IntakeBatch
    is_accepted: bool = False
    answer: IntakeReport | Exception | None = None


class IntakeExchange:
    """Hands intake from poller threads to the worker, which commits it together with its own results.

    Offers wait in the order in which they were made; the worker accepts one at a time.
    """

    def __init__(self, offer_ms: int = OFFER_MS) -> None:
        self._offer_s = offer_ms / 1000
        self._changed = threading.Condition()
        self._offers: deque[_Offer] = deque()
        self._is_closed = True  # no offer was accepted in time, so until the worker returns none is made

    def offer(self, intake: IntakeBatch) -> IntakeReport | None:
        """The worker's report, once the intake is durable. None: not accepted, so the poller takes it in.

        Raises the worker's error: as after any failure, it is unknown whether the intake is durable.
        """
        one = _Offer(intake)
        with self._changed:
            if self._is_closed:
                return None
            self._offers.append(one)
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: one.is_accepted, self._offer_s):
                self._offers.remove(one)
                self._is_closed = True
                return None
            self._changed.wait_for(lambda: one.answer is not None)  # an accepted offer is always answered
        if isinstance(one.answer, Exception):
            raise one.answer
        return one.answer

    def serve(self, take_in: Callable[[IntakeBatch], IntakeReport], wait_ms: int = 0) -> bool:
        """The worker's side: take in the first offer, if there is one within this time."""
        with self._changed:
            self._is_closed = False
            if not self._changed.wait_for(lambda: bool(self._offers), wait_ms / 1000):
                return False
            one = self._offers.popleft()
            one.is_accepted = True
            self._changed.notify_all()
        answer: IntakeReport | Exception = RuntimeError("The worker ended while it took in messages.")
        try:
            answer = take_in(one.intake)
        except Exception as error:
            answer = error
            raise
        finally:
            with self._changed:
                one.answer = answer
                self._changed.notify_all()
        return True

    def wait(self, delay_ms: int) -> bool:
        """Wait for an offer, at most this long. Is there one?"""
        with self._changed:
            self._is_closed = False
            return self._changed.wait_for(lambda: bool(self._offers), delay_ms / 1000)

    def close(self) -> None:
        """The worker ends, or starts something long: pollers take in their messages by themselves."""
        with self._changed:
            self._is_closed = True
