"""Statements that travel together: what becomes of them when one fails, or no caller wants them any more."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from kfm.model.errors import BackendUnavailable, SchemaViolation
from tests.conformance.db.ledgers import postgres_store

_PAGE = {
    "packed": None,
    "event": "created",
    "status": "pending",
    "at_ms": 1,
    "worker_id": None,
    "members": "[]",
}


def _pages(store: Any) -> list[int]:
    found = store._database.session.all("unit_pages.between", first_number=0, last_number=99, row_limit=99)
    return [row[0] for row in found]


def test_a_statement_without_an_answer_still_decides(postgres_database: str) -> None:
    """A statement that travels with others and fails takes its transaction with it; the next one lands."""
    store = postgres_store(postgres_database)

    def twice(session: Any) -> None:
        for _ in range(2):
            session.send("unit_pages.insert", number=1, **_PAGE)
        session.send("unit_pages.insert", number=2, **_PAGE)

    with pytest.raises(SchemaViolation):
        store._database.write(twice)
    assert _pages(store) == []
    store._database.write(lambda session: session.send("unit_pages.insert", number=3, **_PAGE))
    assert _pages(store) == [3]
    store.close()


def test_what_is_on_its_way_ends_with_its_transaction(postgres_database: str) -> None:
    """A caller that gives a transaction up takes everything back that was said in it, sent or not."""
    store = postgres_store(postgres_database)

    def given_up(session: Any) -> None:
        session.expect("unit_pages.next")
        session.send("unit_pages.insert", number=1, **_PAGE)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store._database.write(given_up)
    store._database.write(lambda session: session.send("unit_pages.insert", number=2, **_PAGE))
    assert _pages(store) == [2]
    store.close()


def test_a_failure_that_was_overlooked_is_no_success(postgres_database: str) -> None:
    """PostgreSQL answers the commit of a failed transaction with a rollback, which is not taken for one."""
    store = postgres_store(postgres_database)

    def careless(session: Any) -> None:
        session.all("unit_pages.insert", number=1, **_PAGE)
        with contextlib.suppress(SchemaViolation):
            session.all("unit_pages.insert", number=1, **_PAGE)

    with pytest.raises(BackendUnavailable, match="not committed"):
        store._database.write(careless)
    assert _pages(store) == []
    store.close()
