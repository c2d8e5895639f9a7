"""A store in memory whose outbox can be filled, and collectors that behave as told."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kfm.db.ledger import Ledger
from kfm.db.migrations import migrate
from kfm.db.sqlite_session import MemoryDatabase
from kfm.lineage.delivery import Delivered, deliver_letters
from kfm.lineage.emitter import TOPIC, LineageEmitter
from kfm.model.attempts import Circumstances, Letter
from kfm.model.keys import uuid5
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
    return [letter.body for call_id in ids for letter in store.letters(call_id)]


class Scripted:
    """A collector that asks a function about each letter before it takes it."""

    def __init__(self, before: Callable[[Letter], None] = lambda _letter: None) -> None:
        self.before = before
        self.taken: list[str] = []
        self.closed = 0

    def deliver(self, letters: Sequence[Letter]) -> int:
        for number, letter in enumerate(letters):
            try:
                self.before(letter)
            except Exception:
                if number == 0:
                    raise
                return number
            self.taken.append(letter.body)
        return len(letters)

    def close(self) -> None:
        self.closed += 1


def deliver(
    store: Ledger, collector: Collector, clock: Clock, *, batch: int = 5, deadline_ms: int = 60_000
) -> Delivered:
    return deliver_letters(store, lambda: collector, clock, topic=TOPIC, batch=batch, deadline_ms=deadline_ms)
