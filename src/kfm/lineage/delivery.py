"""Outbox messages to their collector, each at least once, in the order of their subject.

A message is claimed, handed over, marked. A process that dies in between leaves a claim that lapses: the
message is sent again with the same bytes. A collector that fails delays nothing but this delivery.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from kfm.model.errors import BackendUnavailable, CollectorRefused, KfmError
from kfm.model.records import Record
from kfm.model.retry import backoff_ms
from kfm.model.runs import Backlog, OutboxMessage

if TYPE_CHECKING:
    from kfm.ports import Clock, Collector

BACKOFF_BASE_MS = 1_000
BACKOFF_MAX_MS = 5 * 60_000
PARKED_MS = 24 * 3_600_000  # for what a collector refuses: until a person has looked at it
CLAIM_MARGIN_MS = 60_000  # beyond the pass itself; a claim that lapses early makes duplicates
ROUNDS_MAX = 100_000


class Mail(Protocol):
    """As much of a store as a delivery needs."""

    def now_ms(self) -> int: ...
    def backlog(self, topic: str) -> Backlog: ...
    def claim_messages(self, topic: str, limit: int, claim_ms: int) -> list[OutboxMessage]: ...
    def messages_delivered(self, numbers: Sequence[int]) -> None: ...
    def messages_put_back(self, numbers: Sequence[int], not_before_ms: int) -> None: ...


class Delivered(Record, frozen=True):
    """How a pass went."""

    sent: int = 0
    waiting: int = 0  # in the outbox, after it
    refused: int = 0  # messages that the collector will not have as they are
    trouble: str | None = None
    error: KfmError | None = None  # what to raise, for those who asked for a delivery


def deliver_messages(
    store: Mail,
    collector: Callable[[], Collector | None],
    clock: Clock,
    *,
    topic: str,
    batch: int,
    deadline_ms: int,
    progress: Callable[[int], None] = lambda _sent: None,
) -> Delivered:
    """Deliver what is due until nothing is, the deadline has passed or there is trouble. Never raises.

    The collector is made only if something waits: opening one may be slow.
    """
    walk = _Pass(store, clock, topic, batch, deadline_ms, progress)
    opened: Collector | None = None
    try:
        if store.backlog(topic).waiting:
            opened = collector()
            if opened is not None:
                walk.deliver(opened)
    except Exception as error:  # noqa: BLE001 - evidence must not break the work that it is about
        walk.note(error)
    finally:
        if opened is not None:
            _close(opened)
    return walk.result()


class _Pass:
    def __init__(
        self,
        store: Mail,
        clock: Clock,
        topic: str,
        batch: int,
        deadline_ms: int,
        progress: Callable[[int], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._topic = topic
        self._batch = batch
        self._end_ms = clock.monotonic_ms() + deadline_ms
        self._claim_ms = deadline_ms + CLAIM_MARGIN_MS
        self._progress = progress
        self._sent = 0
        self._refused = 0
        self._error: Exception | None = None

    def deliver(self, collector: Collector) -> None:
        for _ in range(ROUNDS_MAX):
            if self._clock.monotonic_ms() >= self._end_ms:
                return
            messages = self._store.claim_messages(self._topic, self._batch, self._claim_ms)
            if not messages or not self._hand_over(collector, messages):
                return

    def note(self, error: Exception) -> None:
        self._error = self._error or error

    def result(self) -> Delivered:
        waiting = 0
        try:
            waiting = self._store.backlog(self._topic).waiting
        except Exception as problem:  # noqa: BLE001
            self.note(problem)
        error = self._error
        return Delivered(
            sent=self._sent,
            waiting=waiting,
            refused=self._refused,
            trouble=None if error is None else _words(error),
            error=error if isinstance(error, KfmError) else None,
        )

    def _hand_over(self, collector: Collector, messages: Sequence[OutboxMessage]) -> bool:
        """False if there was trouble, or no time is left. What was not delivered is put back."""
        left = list(messages)
        try:
            while left and self._clock.monotonic_ms() < self._end_ms:
                try:
                    arrived = collector.deliver(left)
                except CollectorRefused as refusal:
                    self.note(refusal)
                    left = self._park(left)
                    continue
                if arrived <= 0:
                    raise BackendUnavailable("The collector took nothing.")
                self._store.messages_delivered([message.number for message in left[:arrived]])
                self._sent += arrived
                self._progress(self._sent)
                left = left[arrived:]
        except Exception as error:  # noqa: BLE001 - it is part of the result
            self.note(error)
            tries = max(message.tries for message in left)
            self._put_back(left, backoff_ms(BACKOFF_BASE_MS, BACKOFF_MAX_MS, tries))
            return False
        if left:
            self._put_back(left, 0)
        return not left

    def _park(self, messages: list[OutboxMessage]) -> list[OutboxMessage]:
        """The first is refused: it and what follows it on its subject wait; the others go on."""
        subject = messages[0].subject
        self._refused += 1
        self._put_back([message for message in messages if message.subject == subject], PARKED_MS)
        return [message for message in messages if message.subject != subject]

    def _put_back(self, messages: Sequence[OutboxMessage], delay_ms: int) -> None:
        try:
            self._store.messages_put_back(
                [message.number for message in messages], self._store.now_ms() + delay_ms
            )
        except Exception as error:  # noqa: BLE001 - their claim lapses
            self.note(error)


def _words(error: Exception) -> str:
    text = error.detail if isinstance(error, KfmError) else str(error)
    from kfm.model.redaction import redact  # late: only failures need it

    return redact(text or str(error) or type(error).__name__).rstrip(".")


def _close(collector: Collector) -> None:
    with suppress(Exception):  # everything that counts has arrived before
        collector.close()
