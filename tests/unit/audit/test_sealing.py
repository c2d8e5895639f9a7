"""Seals: many rows, one root, and honesty about the rest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm.model import audit
from kfm.model.audit import Seal, sealed, spans
from kfm.model.runs import OutboxMessage

pytestmark = pytest.mark.req("GOV-2")


def message(number: int, body: str = "{}") -> OutboxMessage:
    return OutboxMessage(
        number=number,
        event_id=f"e{number}",
        topic="openlineage",
        subject="run",
        body=body,
        recorded_at_ms=number,
    )


def covered(seals: list[Seal]) -> list[int]:
    return [number for seal in seals for first, last in seal.members for number in range(first, last + 1)]


@given(st.lists(st.sets(st.integers(1, audit.HOLES_MAX), max_size=40), max_size=12))
def test_every_row_is_sealed_once_whatever_order_rows_arrive_in(batches: list[set[int]]) -> None:
    """Rows that are committed late, below numbers sealed before, are in exactly one later seal."""
    present: set[int] = set()
    seals: list[Seal] = []
    for batch in batches:
        present |= batch
        before = seals[-1] if seals else None
        high = before.high if before else 0
        holes = {n for first, last in (before.holes if before else ()) for n in range(first, last + 1)}
        due = sorted(number for number in present if number > high or number in holes)
        if due:
            seals.append(sealed("outbox", before, [message(number) for number in due]))
    found = covered(seals)
    assert len(found) == len(set(found))
    assert set(found) == present


def test_a_number_that_is_skipped_is_looked_for_again() -> None:
    """A hole is filled by the next seal, and then is none any more."""
    first = sealed("outbox", None, [message(1), message(3), message(4)])
    assert (first.members, first.high, first.holes) == (((1, 1), (3, 4)), 4, ((2, 2),))
    second = sealed("outbox", first, [message(2), message(5)])
    assert (second.members, second.high, second.holes) == (((2, 2), (5, 5)), 5, ())


def test_a_sequence_that_jumps_far_costs_no_memory() -> None:
    """Of a gap of billions only the last numbers are looked for again."""
    seal = sealed("outbox", None, [message(1), message(10**12)])
    assert seal.holes == ((10**12 - audit.HOLES_MAX, 10**12 - 1),)


@pytest.mark.parametrize("change", ["number", "event_id", "topic", "subject", "body", "recorded_at_ms"])
def test_every_field_that_was_sealed_counts(change: str) -> None:
    """The root changes with any field of a row; delivery changes nothing of it."""
    from msgspec.structs import replace

    row = message(7)
    other = replace(row, **{change: 8 if change in ("number", "recorded_at_ms") else "other"})
    assert audit.root_of([row]) != audit.root_of([other])
    assert audit.root_of([row]) == audit.root_of([replace(row, tries=3, delivered_at_ms=9)])


@given(st.sets(st.integers(1, 100)))
def test_spans_name_the_same_numbers(numbers: set[int]) -> None:
    """Numbers and their spans say the same."""
    found = [n for first, last in spans(sorted(numbers)) for n in range(first, last + 1)]
    assert found == sorted(numbers)


def test_details_round_trip() -> None:
    """What the chain keeps of a seal is all of it."""
    seal = sealed("outbox", None, [message(1), message(3)])
    assert audit.from_details("outbox", audit.details(seal)) == seal
