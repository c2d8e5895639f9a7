"""A store in memory whose outbox can be filled, and collectors that behave as told."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kfm.db.ledger import Ledger
from kfm.db.queries import migrate
from kfm.db.sqlite import MemoryDatabase
from kfm.lineage.delivery import Delivered, deliver_messages
from kfm.lineage.emitter import TOPIC, LineageEmitter
from kfm.model.keys import uuid5
from kfm.model.runs import Circumstances, OutboxMessage
from kfm.ports import Clock, Collector
from tests.stand_ins import FakeClock
from tests.unit.lineage.samples import INVOCATION_ID, invocation


def make_store(clock: Clock | None = None) -> Ledger:
    clock = clock or FakeClock()
    database = MemoryDatabase(clock)
    migrate(database, "sqlite", clock.now_ms())
    return Ledger(database, LineageEmitter(namespace="kfm.test", producer_version="0.1.0"))


def post(store: Ledger, count: int = 1, first: int = 0) -> list[str]:
    """So many refused calls, each with a start and an end; returns their ids."""
    ids = [uuid5(INVOCATION_ID, f"call {first + number}") for number in range(count)]
    for call_id in ids:
        call = invocation(invocation_id=call_id, run_id=None, outcome="refused", reason="No.")
        store.record_invocation(call, known=Circumstances())
    return ids


def bodies(store: Ledger, ids: Sequence[str]) -> list[str]:
    return [message.body for call_id in ids for message in store.outbox_messages(call_id)]


class Scripted:
    """A collector that asks a function about each message before it takes it."""

    def __init__(self, before: Callable[[OutboxMessage], None] = lambda _message: None) -> None:
        self.before = before
        self.taken: list[str] = []
        self.closed = 0

    def deliver(self, messages: Sequence[OutboxMessage]) -> int:
        for number, message in enumerate(messages):
            try:
                self.before(message)
            except Exception:
                if number == 0:
                    raise
                return number
            self.taken.append(message.body)
        return len(messages)

    def close(self) -> None:
        self.closed += 1


def deliver(
    store: Ledger, collector: Collector, clock: Clock, *, batch: int = 5, deadline_ms: int = 60_000
) -> Delivered:
    return deliver_messages(
        store, lambda: collector, clock, topic=TOPIC, batch=batch, deadline_ms=deadline_ms
    )
