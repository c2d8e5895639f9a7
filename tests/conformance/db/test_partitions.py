"""Partitions of the outbox on PostgreSQL: retention is a drop, and nothing that is needed goes with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from kfm.audit.chain import links, verify_seals
from kfm.db import moves
from kfm.db.ledger import Ledger
from kfm.db.moves import ledger_tables
from kfm.db.postgres import PostgresDatabase
from kfm.db.postgres_side import PostgresSide
from kfm.db.queries import migrate, migration_files
from kfm.db.retention import CUT_LOCK
from kfm.model.retention import SEALED_KINDS
from kfm.storage.retention import carry_out, preview
from tests.conformance.db.ledgers import Desk, postgres_store
from tests.conformance.units.test_retention import KEEP, STRICTEST, a_pass, deliver, problems

pytestmark = pytest.mark.req("GRO-2")


def partitions(store: Ledger) -> dict[str, int]:
    """Partition of the outbox → rows."""
    database: Any = store._database
    names = database.execute(
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
        "WHERE i.inhparent = to_regclass('outbox') ORDER BY 1"
    )
    return {name: database.execute(f"SELECT COUNT(*) FROM {name}")[0][0] for (name,) in names}


def give_numbers_from(store: Ledger, number: int) -> None:
    database: Any = store._database
    database.write(lambda _: database.script(f"SELECT setval('outbox_numbers', {number}, false)"))


@pytest.fixture
def store(postgres_schema: Callable[[], str]) -> Iterator[Ledger]:
    """A ledger whose second partition has begun: nine messages in the first, three in the second."""
    store = postgres_store(postgres_schema())
    desk = Desk(store)
    for number in range(4):
        assert desk.promote(desk.admitted(f"first {number}"), f"{number}").answer == "promoted"
    assert carry_out(a_pass(store, replace(KEEP, outbox_days=5))) == {}
    assert partitions(store) == {"outbox_0": 8, "outbox_100000": 0, "outbox_rest": 0}, "made ahead"
    give_numbers_from(store, 99_999)
    for number in range(2):
        assert desk.promote(desk.admitted(f"second {number}"), f"2 {number}").answer == "promoted"
    assert partitions(store) == {"outbox_0": 9, "outbox_100000": 3, "outbox_rest": 0}
    yield store
    store.close()


@pytest.mark.req("FLT-1")
def test_busy_tables_have_room_and_are_vacuumed_early(store: Ledger) -> None:
    """Rows that all transactions change have room on their pages; queues, and partitions of the outbox, are
    vacuumed by the thousand changes, however long they are."""
    database: Any = store._database
    found = {
        name: set(options or ())
        for name, options in database.execute(
            "SELECT relname, reloptions FROM pg_class WHERE relnamespace = current_schema()::regnamespace"
        )
    }
    for name in ("locks", "counters", "chain_heads", "incidents", "breakers", "unit_totals"):
        assert found[name] == {"fillfactor=50"}, name
    early = {"autovacuum_vacuum_scale_factor=0.02", "autovacuum_vacuum_threshold=1000"}
    queues = ("units", "requests", "replica_items", "hook_deliveries")
    for name in (*queues, "outbox_0", "outbox_rest", "outbox_100000"):
        assert found[name] == early, name
    assert found["unit_deltas"] == {"autovacuum_vacuum_scale_factor=0", "autovacuum_vacuum_threshold=2000"}


def test_on_postgresql_retention_of_messages_is_a_drop(store: Ledger) -> None:
    """A partition that is old goes as a whole, what waits in it stays, and goes once it is delivered; the log
    is sound all the while, and the preview says what goes."""
    waiting = store.claim_messages("openlineage", 1, 60_000)[0].number
    deliver(store)
    store.seal("ada", 3)
    plan = {one.kind: one for one in preview(store, STRICTEST).kinds}["outbox"]
    assert carry_out(a_pass(store))["outbox"].rows == plan.rows
    assert partitions(store) == {"outbox_100000": 0, "outbox_200000": 0, "outbox_rest": 3}, (
        "the seal of one that waits"
    )
    assert waiting in [one.number for one in store.events_between(1, 2**62)]
    assert problems(store) == []
    store.messages_delivered([waiting])
    deliver(store)  # and the one after it about the same
    assert carry_out(a_pass(store))["outbox"].rows == 3
    assert partitions(store) == {"outbox_100000": 0, "outbox_200000": 0, "outbox_rest": 0}
    assert problems(store) == []
    assert verify_seals(store, links(store)).retired == 12
    assert store.retention_reader().table_sizes()["outbox"] > 0


def test_rows_of_a_partition_wait_for_the_last_of_them(store: Ledger) -> None:
    """A partition that gets no more rows goes at once or not yet: none of its rows is deleted before."""
    deliver(store)
    aged = "UPDATE outbox SET recorded_at_ms = recorded_at_ms - 864000000 WHERE number < 5"
    store._database.write(lambda _: store._database.script(aged))  # type: ignore[attr-defined]
    only = replace(KEEP, outbox_days=5)
    assert preview(store, only).rows == 0
    assert carry_out(a_pass(store, only)) == {}
    rest = aged.replace("WHERE number < 5", "WHERE number >= 5 AND number < 100000")
    store._database.write(lambda _: store._database.script(rest))  # type: ignore[attr-defined]
    assert preview(store, only).rows == 9
    assert carry_out(a_pass(store, only))["outbox"].rows == 9
    assert partitions(store) == {"outbox_100000": 3, "outbox_200000": 0, "outbox_rest": 0}
    assert problems(store) == []


def test_a_message_whose_number_was_given_before_the_drop_is_not_lost(store: Ledger) -> None:
    """A row that arrives for a partition that has gone is in the default one, and is delivered."""
    deliver(store)
    assert carry_out(a_pass(store))
    give_numbers_from(store, 50)
    desk = Desk(store)
    assert desk.promote(desk.admitted("late"), "late").answer == "promoted"
    assert partitions(store) == {"outbox_100000": 0, "outbox_200000": 0, "outbox_rest": 2}
    assert len(store.claim_messages("openlineage", 10, 60_000)) == 2
    assert problems(store) == []


def test_the_messages_of_an_older_ledger_become_the_first_partition(
    postgres_schema: Callable[[], str],
) -> None:
    """No row is written anew: the table that was there is the first partition; numbers go on."""
    dsn = postgres_schema()
    database, known = PostgresDatabase(dsn), migration_files()
    migrate(database, "postgresql", 0, [one for one in known if one[0] < 43])
    database.write(
        lambda _: database.script(
            "INSERT INTO outbox (event_id, topic, subject, body, recorded_at_ms, tries, not_before_ms) "
            "SELECT 'e', 'openlineage', 's' || i, '{}', i, 0, 0 FROM generate_series(1, 250) AS i"
        )
    )
    file = database.execute("SELECT pg_relation_filenode('outbox')")
    migrate(database, "postgresql", 0)
    assert database.execute("SELECT pg_relation_filenode('outbox_0')") == file
    store = postgres_store(dsn)
    assert partitions(store) == {"outbox_0": 250, "outbox_rest": 0}
    desk = Desk(store)
    assert desk.promote(desk.admitted("next"), "next").answer == "promoted"
    assert max(one.number for one in store.events_between(1, 2**62)) == 252
    deliver(store)
    assert carry_out(a_pass(store))["outbox"].rows == 252
    assert problems(store) == []
    store.close()
    database.close()


def test_a_partition_that_comes_late_begins_above_the_messages_that_are_there(store: Ledger) -> None:
    """Where numbers ran ahead of the partitions, messages are in the default one, and the next partition
    begins above what may be given meanwhile."""
    deliver(store)
    give_numbers_from(store, 450_000)
    desk = Desk(store)
    assert desk.promote(desk.admitted("far"), "far").answer == "promoted"
    assert partitions(store)["outbox_rest"] == 2
    carry_out(a_pass(store, replace(KEEP, outbox_days=5)))
    assert "outbox_550001" in partitions(store)
    assert problems(store) == []


def test_what_reads_the_messages_keeps_no_one_waiting(store: Ledger) -> None:
    """A backup has the table for as long as it reads: no partition is made or dropped meanwhile, deliveries
    and retention of other kinds go on, and the next pass does what was left."""
    desk, before = Desk(store), partitions(store)
    deliver(store)
    side = PostgresSide(store._database._pool.dsn)  # type: ignore[attr-defined]
    outbox = next(one for one in ledger_tables() if one.name == "outbox")
    with side.snapshot():
        assert len(side.page(outbox, None, 20)) == 12
        gone = carry_out(a_pass(store))
        assert "attempts" in gone
        assert "outbox" not in gone
        assert partitions(store) == before
        assert desk.promote(desk.admitted("meanwhile"), "meanwhile").answer == "promoted"
        deliver(store)
    side.close()
    assert problems(store) == []
    assert carry_out(a_pass(store))["outbox"].rows == 14
    assert partitions(store) == {"outbox_100000": 0, "outbox_200000": 0, "outbox_rest": 0}
    assert problems(store) == []


def test_deliveries_do_not_wait_for_who_makes_a_partition(store: Ledger) -> None:
    """Two processes do not make the same partition, and messages are claimed meanwhile."""
    with psycopg.connect(store._database._pool.dsn) as beside:  # type: ignore[attr-defined]
        beside.execute(f"SELECT pg_advisory_xact_lock({CUT_LOCK}, current_schema()::regnamespace::oid::int)")
        assert not store.retention().cut(SEALED_KINDS[0])
        assert store.claim_messages("openlineage", 1, 60_000)
        beside.rollback()
    assert store.retention().cut(SEALED_KINDS[0])
    assert "outbox_200000" in partitions(store)


def test_a_partition_goes_whose_rows_went_one_by_one(store: Ledger) -> None:
    """While a ledger is copied nothing is dropped and rows go by themselves; an empty partition goes
    afterwards."""
    deliver(store)
    database: Any = store._database
    database.write(lambda session: moves.begin(session, "m1", "source", "elsewhere"))
    assert carry_out(a_pass(store))["outbox"].rows == 12
    assert partitions(store) == {"outbox_0": 0, "outbox_100000": 0, "outbox_rest": 0}
    database.write(lambda session: moves.set_state(session, "m1", "abandoned"))
    carry_out(a_pass(store))
    assert partitions(store) == {"outbox_100000": 0, "outbox_200000": 0, "outbox_rest": 0}
    assert problems(store) == []
