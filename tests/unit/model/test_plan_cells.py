"""Cells that a person chose: texts in addresses, each read as what it says or refused by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm.model.errors import UsageError
from kfm.model.plan_cells import (
    CELLS_MAX,
    Cell,
    InstantCell,
    UnitsCell,
    WindowCell,
    cells_text,
    parse_cells,
)

_NAMES = st.from_regex(r"[a-z][a-z0-9._:-]{0,20}", fullmatch=True)
_TIMES = st.integers(0, 4_000_000_000).map(lambda seconds: seconds * 1000)
_KINDS: tuple[st.SearchStrategy[Cell], ...] = (
    st.builds(WindowCell, source_id=_NAMES, start_ms=_TIMES),
    st.builds(InstantCell, schedule_id=_NAMES, instant_ms=_TIMES),
    st.builds(
        lambda dataset, product, start, long: UnitsCell(
            dataset=dataset, product=product, start_ms=start, end_ms=start + long
        ),
        _NAMES,
        st.one_of(st.just(""), _NAMES),
        _TIMES,
        st.integers(1, 1000).map(lambda hours: hours * 3_600_000),
    ),
)


@given(st.one_of(*(st.lists(kind, max_size=20, unique=True) for kind in _KINDS)))
def test_what_is_written_is_read_again(cells: list[Cell]) -> None:
    """In the same order, also where names have colons."""
    assert list(parse_cells(cells_text(cells))) == cells


def test_a_time_is_taken_in_three_forms() -> None:
    """RFC 3339, the same without separators, and milliseconds; twice the same cell is one."""
    ways = ("2026-01-02T03:00:00Z", "20260102T030000Z", "1767322800000")
    assert {parse_cells(f"window:lake@{way}") for way in ways} == {
        (WindowCell(source_id="lake", start_ms=1_767_322_800_000),)
    }
    assert len(parse_cells("window:a@0,window:a@0, ,")) == 1


@pytest.mark.parametrize(
    "text",
    [
        "window:lake",
        "window:@0",
        "lake@0",
        "window:lake@soon",
        "window:lake@99999999999999999",
        "units:hrrr@0",
        "units:hrrr@5/5",
        "units:/sfc@0/5",
        "window:a@0,instant:b@0",
        "window:a@20261301T000000Z",
        ",".join(f"window:a@{number}" for number in range(CELLS_MAX + 1)),
        "x" * 100_001,
    ],
)
def test_nonsense_is_refused(text: str) -> None:
    """With what a cell is, or how many there may be."""
    with pytest.raises(UsageError):
        parse_cells(text)
