"""The events that were posted are sealed in the audit chain; what is not, is declared."""

from __future__ import annotations

import pytest

from kfm.audit.chain import links, verify_seals
from kfm.db.ledger import Ledger
from kfm.model.audit import verify
from tests.conformance.db.ledgers import Desk

pytestmark = pytest.mark.req("GOV-2")


def history(desk: Desk, count: int) -> None:
    for number in range(count):
        run = desk.admitted(f"run {number}")
        assert desk.promote(run, f"bytes {number}").answer == "promoted"


def test_seals_cover_each_event_once_and_tell_the_tail(store: Ledger, desk: Desk) -> None:
    """Two seals of a limited size, then an unsealed tail that is counted and named."""
    history(desk, 4)  # a start and an end each
    first, second = store.seal("ada", 3), store.seal("ada", 3)
    assert first is not None
    assert second is not None
    assert (first.count, second.count) == (3, 3)
    verdict = verify_seals(store, links(store))
    assert (verdict.seals, verdict.sealed, verdict.unsealed) == (2, 6, 2)
    assert verdict.unsealed_since == second.high + 1
    assert verify(links(store)).sound
    store.seal("ada")
    assert store.seal("ada") is None
    assert verify_seals(store, links(store)).unsealed == 0


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE outbox SET body = 'other' WHERE number = 2",
        "DELETE FROM outbox WHERE number = 3",
        "UPDATE outbox SET recorded_at_ms = recorded_at_ms + 1 WHERE number = 1",
        "UPDATE outbox SET subject = 'someone else' WHERE number = 4",
    ],
)
def test_an_event_that_was_changed_after_its_seal_is_found(store: Ledger, desk: Desk, damage: str) -> None:
    """An edit or a deletion breaks the seal, which is named; a delivery does not."""
    history(desk, 2)
    assert store.seal("ada") is not None
    messages = store.claim_messages("openlineage", 10, 60_000)
    store.messages_delivered([message.number for message in messages])
    assert verify_seals(store, links(store)).sound
    store._database.write(lambda _session: store._database.script(damage))  # type: ignore[attr-defined]
    verdict = verify_seals(store, links(store))
    assert not verdict.sound
    assert verdict.broken_seal == 1
