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


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(0, 7)), max_size=60), st.integers(1, 9))
def test_every_row_is_sealed_once_whatever_order_rows_arrive_in(
    steps: list[tuple[int, int]], limit: int
) -> None:
    """Rows that are committed late, below numbers sealed before, are in exactly one later seal; what was
    rolled back is not looked for for ever."""
    drawn: dict[str, list[int]] = {}  # by transactions that have not ended
    present: set[int] = set()
    seals: list[Seal] = []
    last = 0

    def seal() -> bool:
        before = seals[-1] if seals else None
        high = before.high if before else 0
        holes = {n for first, one in (before.holes if before else ()) for n in range(first, one + 1)}
        due = sorted(number for number in present if number > high or number in holes)[:limit]
        if due:
            seals.append(sealed("outbox", before, [message(number) for number in due], drawn))
        return bool(due)

    for name, (kind, whose) in enumerate(steps):
        if kind <= 4:
            drawn[str(name)] = list(range(last + 1, last + kind + 1))
            last += kind
        elif drawn and kind <= 7:
            numbers = drawn.pop(list(drawn)[whose % len(drawn)])
            present |= set(numbers) if kind <= 6 else set()
        else:
            seal()
    drawn.clear()
    present.add(last + 1)
    while seal():
        pass
    found = covered(seals)
    assert len(found) == len(set(found))
    assert set(found) == present
    assert seals[-1].holes == () or limit < len(steps)


def test_a_number_that_is_skipped_is_looked_for_again() -> None:
    """A hole is filled by the next seal, and then is none any more; without a transaction that could fill it,
    it never was one."""
    first = sealed("outbox", None, [message(1), message(3), message(4)], ["3/7"])
    assert (first.members, first.high, first.holes) == (((1, 1), (3, 4)), 4, ((2, 2),))
    second = sealed("outbox", first, [message(2), message(5)], ["3/7"])
    assert (second.members, second.high, second.holes) == (((2, 2), (5, 5)), 5, ())
    assert sealed("outbox", first, [message(5)], ["3/7"]).holes == ((2, 2),)
    assert sealed("outbox", first, [message(5), message(7)], ["3/8"]).holes == ((6, 6),)
    assert sealed("outbox", None, [message(1), message(3)]).holes == ()


def test_a_sequence_that_jumps_far_costs_no_memory() -> None:
    """A gap of billions is two numbers."""
    seal = sealed("outbox", None, [message(1), message(10**12)], ["3/7"])
    assert seal.holes == ((2, 10**12 - 1),)
    assert sealed("outbox", seal, [message(9), message(10**12 + 1)], ["3/7"]).holes == (
        (2, 8),
        (10, 10**12 - 1),
    )


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
    seal = sealed("outbox", None, [message(1), message(3)], ["3/7"])
    assert audit.from_details("outbox", audit.details(seal)) == seal
    earlier = {name: value for name, value in audit.details(seal).items() if name != "in_flight"}
    assert audit.from_details("outbox", earlier).in_flight is None
