"""The outbox of every store, beyond claiming and marking."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kfm.db import outbox, unit_history
from kfm.db.ledger import Ledger
from kfm.db.queries import migrate, queries
from kfm.db.session import Session
from kfm.db.sqlite import MemoryDatabase
from kfm.model.errors import StoreBusy
from kfm.model.runs import OutboxMessage
from kfm.system import SystemClock
from tests.conformance.db import ledgers
from tests.conformance.db.ledgers import Desk


def test_messages_at_rest_can_be_made_due_at_once(store: Ledger, desk: Desk) -> None:
    """A caller of a delivery need not wait for a rest or a lapsed claim; delivered messages stay so."""
    run = desk.admitted("one")
    assert desk.promote(run).answer == "promoted"
    (first,) = store.claim_messages("openlineage", 1, 60_000)
    store.messages_delivered([first.number])
    (second,) = store.claim_messages("openlineage", 10, 60_000)
    store.messages_put_back([second.number], store.now_ms() + 3_600_000)
    store.hasten_messages("another topic")
    assert store.claim_messages("openlineage", 10, 60_000) == []
    store.hasten_messages("openlineage")
    assert [message.number for message in store.claim_messages("openlineage", 10, 60_000)] == [second.number]


@pytest.mark.req("TRG-8")
def test_two_who_claim_at_once_do_not_part_the_messages_of_a_subject(
    postgres_schema: Callable[[], str],
) -> None:
    """While one process claims, another gets nothing: it could not see which messages come before its own."""
    dsn = postgres_schema()
    first, second = ledgers.postgres_store(dsn), ledgers.postgres_store(dsn, wait_max_ms=100)
    desk = Desk(first)
    desk.promote(desk.admitted("one"))

    def claimed(session: Session) -> list[OutboxMessage]:
        mine = outbox.claim(session, "openlineage", 1, 60_000)
        with pytest.raises(StoreBusy):
            second.claim_messages("openlineage", 10, 60_000)
        return mine

    assert [message.body for message in first._database.write(claimed)] == ["START"]
    assert second.claim_messages("openlineage", 10, 60_000) == []
    first.close()
    second.close()


def test_a_claim_does_not_read_all_that_waits_for_each_message() -> None:
    """Whether something comes before a message is looked up by its subject: the backlog may be long."""
    database = MemoryDatabase(SystemClock())
    migrate(database, "sqlite", 0)
    statement = "EXPLAIN QUERY PLAN " + queries("sqlite")["outbox.claim"]
    known = {"topic": "openlineage", "now_ms": 1, "until_ms": 2, "last_ms": 3, "row_limit": 100}
    plan = [row[3] for row in database._connection.execute(statement, known)]
    assert "SEARCH e USING INDEX outbox_claimed (subject=? AND number<?)" in plan


@pytest.mark.req("GOV-2")
def test_a_number_is_given_once_also_after_the_outbox_was_emptied(store: Ledger, desk: Desk) -> None:
    """Seals and hooks know events by their numbers: those that come after a removal by hand are new."""
    desk.promote(desk.admitted("one"))
    before = [message.number for message in store.events_between(1, 2**62, 100)]
    assert store.seal("ann") is not None
    _remove(store, "outbox")
    assert store.events_between(1, 2**62, 100) == []
    desk.promote(desk.admitted("two"))
    after = [message.number for message in store.events_between(1, 2**62, 100)]
    assert len(after) == len(before)
    assert min(after) > max(before)
    assert after == list(range(after[0], after[0] + len(after)))
    sealed = store.seal("ann")
    assert sealed is not None
    assert sealed.count == len(after)


@pytest.mark.req("GOV-2")
def test_a_page_of_the_history_of_units_has_a_number_of_its_own(store: Ledger) -> None:
    """A page that comes after others were removed by hand does not take their place."""

    def written(session: Session) -> int:
        number = unit_history.begin(session)
        unit_history.write(session, number, "created", "pending", [], at_ms=1)
        return number

    first = [store._database.write(written) for _ in range(2)]
    unit_history._given.clear()  # as in another process
    _remove(store, "unit_pages")
    assert store._database.write(written) > max(first)


def _remove(store: Ledger, table: str) -> None:
    database: Any = store._database
    database.write(lambda _session: database.script(f"DELETE FROM {table}"))
