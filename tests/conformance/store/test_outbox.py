"""The outbox of every store, beyond claiming and marking."""

from __future__ import annotations

from kfm.store.ledger import SqlStore
from tests.conformance.store.ledgers import Desk


def test_letters_at_rest_can_be_made_due_at_once(store: SqlStore, desk: Desk) -> None:
    """Whoever asks for a delivery need not wait for a rest or a lapsed claim; delivered letters stay so."""
    run = desk.admitted("one")
    assert desk.promote(run).answer == "promoted"
    (first,) = store.claim_letters("openlineage", 1, 60_000)
    store.letters_delivered([first.number])
    (second,) = store.claim_letters("openlineage", 10, 60_000)
    store.letters_put_back([second.number], store.now_ms() + 3_600_000)
    store.hasten_letters("another topic")
    assert store.claim_letters("openlineage", 10, 60_000) == []
    store.hasten_letters("openlineage")
    assert [letter.number for letter in store.claim_letters("openlineage", 10, 60_000)] == [second.number]
