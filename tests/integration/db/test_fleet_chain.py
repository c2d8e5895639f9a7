"""The audit chain of a fleet: refusals and quarantines of many processes wait for no other's work."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest

from kfm.audit.chain import links
from kfm.db import governance
from kfm.db.ledger import Ledger
from kfm.db.postgres import PostgresSession
from kfm.db.session import Session
from kfm.model.audit import verify
from tests.conformance.db.ledgers import entry, postgres_store

pytestmark = pytest.mark.req("FLT-1", "GOV-2")

HELD = "SELECT 1 FROM chain_heads WHERE name = 'governance' FOR UPDATE NOWAIT"


@pytest.fixture
def store(postgres_database: str) -> Ledger:
    made = postgres_store(postgres_database)
    made.append_governance([entry("note", "first")])
    return made


def subjects(store: Ledger) -> list[str]:
    assert verify(links(store), head=store.chain_head()).sound
    return [one.entry.subject for one in links(store)]


def test_the_chain_is_not_held_while_a_process_works(postgres_database: str, store: Ledger) -> None:
    """From its refusal until its commit is sent a transaction holds up none: others append meanwhile."""

    def refuse(session: Session) -> None:
        governance.append(session, [entry("refusal", "slow"), entry("refusal", "slow too")])
        with psycopg.connect(postgres_database) as other:
            other.execute(HELD)
        with closing(postgres_store(postgres_database)) as another:
            another.append_governance([entry("refusal", "quick")])

    store._database.write(refuse)
    assert subjects(store) == ["first", "quick", "slow", "slow too"]


def test_a_flood_is_chained_without_a_gap(postgres_database: str, store: Ledger) -> None:
    """Whatever many connections append at once is in the chain, each transaction's entries together."""

    def flood(number: int) -> None:
        with closing(postgres_store(postgres_database)) as one:
            for at in range(10):
                one.append_governance([entry("refusal", f"{number}-{at}-{part}") for part in range(2)])

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(flood, range(8)))
    found = subjects(store)[1:]
    assert sorted(found) == sorted(f"{n}-{at}-{part}" for n in range(8) for at in range(10) for part in "01")
    for first, second in zip(found[::2], found[1::2], strict=True):
        assert (first[-1], second[-1], first[:-1]) == ("0", "1", second[:-1])


def test_many_entries_cost_what_they_are(store: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction with thousands of entries holds the chain's head no longer for each of them: a statement
    that looks for its links one by one has a hundred at most, and all travel with the commit."""
    sent, send = list[int](), PostgresSession.send

    def counted(session: PostgresSession, name: str, /, **parameters: Any) -> None:
        if name == "governance.chain_on":
            sent.append(len(json.loads(parameters["entries"])))
        send(session, name, **parameters)

    monkeypatch.setattr(PostgresSession, "send", counted)
    store.append_governance(entry("refusal", f"{number}") for number in range(450))
    assert sent == [100, 100, 100, 100, 50]
    assert subjects(store) == ["first", *(f"{number}" for number in range(450))]


def test_what_is_rolled_back_is_not_chained(store: Ledger) -> None:
    """The chain goes on where it was."""

    class Changed(Exception):
        pass

    def refuse(session: Session) -> None:
        governance.append(session, [entry("refusal", "gone")])
        raise Changed

    with pytest.raises(Changed):
        store._database.write(refuse)
    store.append_governance([entry("refusal", "kept")])
    assert subjects(store) == ["first", "kept"]


@pytest.mark.parametrize("text", ["plain", 'quoted " and \\ and \n', "ünïcode 🌍", "nul \x00 inside", ""])
def test_an_entry_is_hashed_as_it_is_stored(store: Ledger, text: str) -> None:
    """The server links what it stores; a reader computes the same."""
    details: dict[str, Any] = {"text": text, "number": 15, "none": None, "list": [1, {"a": text}]}
    store.append_governance([entry("refusal", "odd", rationale=text, details=details)])
    assert subjects(store)[-1] == "odd"
