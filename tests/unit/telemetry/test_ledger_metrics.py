"""Reading a growing table, each row once."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from kfm.telemetry import ledger_metrics
from kfm.telemetry.ledger_metrics import LATE_MS, TablePosition

Row = tuple[int, int]  # number, when


class Table:
    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.pages = 0

    def page(self, after: int, limit: int) -> Sequence[Row]:
        self.pages += 1
        return sorted(row for row in self.rows if row[0] > after)[:limit]


def read(reader: TablePosition, table: Table, now_ms: int) -> list[int]:
    return [number for number, _ in reader.read(table.page, lambda row: row[1], now_ms)]


@given(
    st.lists(st.lists(st.integers(1, 60), max_size=8), max_size=20),
    st.integers(1, 5),
)
def test_each_row_is_handed_out_once(batches: list[list[int]], page_rows: int) -> None:
    """In whatever order young rows become visible, each is seen exactly once."""
    before, ledger_metrics.PAGE_ROWS = ledger_metrics.PAGE_ROWS, page_rows
    try:
        reader, table, seen = TablePosition(), Table(), []
        for now_ms, batch in enumerate(batches):
            known = {number for number, _ in table.rows}
            table.rows += [(number, now_ms) for number in sorted(set(batch) - known)]
            seen += read(reader, table, now_ms)
        assert sorted(seen) == sorted(number for number, _ in table.rows)
    finally:
        ledger_metrics.PAGE_ROWS = before


def test_reading_on_costs_only_what_is_new() -> None:
    """Once a long table was read, another look asks for one page that is empty."""
    reader, table = TablePosition(), Table()
    table.rows = [(number, 0) for number in range(1, 5001)]
    assert len(read(reader, table, 0)) == 5000
    table.pages = 0
    asked: list[int] = []
    list(reader.read(lambda after, _limit: asked.append(after) or (), lambda row: row[1], 0))  # type: ignore[func-returns-value]
    assert asked == [5000]


def test_a_gap_is_waited_for_and_then_given_up() -> None:
    """A number that a transaction took and rolled back is not looked for for ever."""
    reader, table = TablePosition(), Table()
    table.rows = [(1, 0), (3, 0)]
    assert read(reader, table, 0) == [1, 3]
    table.rows.append((2, 0))
    assert read(reader, table, LATE_MS) == [2]
    table.rows += [(5, LATE_MS), (6, LATE_MS)]
    assert read(reader, table, LATE_MS) == [5, 6]
    assert read(reader, table, 3 * LATE_MS) == []
    table.rows.append((4, LATE_MS))  # far too late
    assert read(reader, table, 3 * LATE_MS) == []
