"""Counting duplicates in bounded memory."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kfm.publish.contract.columns import Distinct
from kfm.publish.contract.model import ContractLimits
from kfm.publish.contract.values import key_of


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 60), max_size=150), st.integers(1, 200))
def test_spilling_changes_no_count(values: list[int], in_memory_max: int) -> None:
    """Whether the hashes fit into memory or not, as many duplicates are found as there are."""
    distinct = Distinct(ContractLimits(unique_in_memory_max=in_memory_max))
    for row, value in enumerate(values, 1):
        distinct.add(b"%d" % value, f"row {row}")
    tally = distinct.duplicates()
    assert tally.count == len(values) - len(set(values))
    assert len(tally.places) == min(5, tally.count)


def test_places_survive_spilling() -> None:
    """The rows that repeat are named even when their hashes went to disk."""
    distinct = Distinct(ContractLimits(unique_in_memory_max=2))
    for row, value in enumerate([1, 2, 3, 4, 2, 5, 1], 1):
        distinct.add(b"%d" % value, f"row {row}")
    assert distinct.duplicates().places == ["row 5", "row 7"]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=5,
    ),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=5,
    ),
)
def test_keys_are_equal_only_for_equal_values(one: object, other: object) -> None:
    """Two values of different meaning never share a key."""
    if key_of(one) == key_of(other):
        assert one == other
