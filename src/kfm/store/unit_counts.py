"""Figures about units: appended as changes, so that nobody waits for a row that all want; added up later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kfm.store.collection_figures import PREFIX, Line
from kfm.store.session import Session

WATERMARK = "watermark"  # amount: units that succeeded; high: the newest time that they cover


class Tally:
    """What one transaction changes."""

    def __init__(self) -> None:
        self._amounts: Counter[tuple[str, str]] = Counter()
        self._highs: dict[tuple[str, str], int] = {}

    def add(self, dataset: str, name: str, amount: int = 1) -> None:
        self._amounts[dataset, name] += amount

    def moved(self, dataset: str, old: str | None, new: str, amount: int = 1) -> None:
        if old is not None:
            self._amounts[dataset, old] -= amount
        self._amounts[dataset, new] += amount

    def reached(self, dataset: str, name: str, high_ms: int | None, amount: int = 1) -> None:
        self._amounts[dataset, name] += amount
        if high_ms is not None and high_ms > self._highs.get((dataset, name), high_ms - 1):
            self._highs[dataset, name] = high_ms

    def write(self, session: Session, beside: Iterable[Line] = ()) -> None:
        rows: list[Line] = [
            (dataset, name, amount, self._highs.get((dataset, name)))
            for (dataset, name), amount in self._amounts.items()
            if amount or (dataset, name) in self._highs
        ]
        rows += beside
        if rows:
            session.tell_all("unit_deltas.add", rows)


def fold(session: Session, limit: int) -> int:
    """Add up the oldest changes; how many there were."""
    taken = session.all("unit_deltas.take", row_limit=limit)
    sums: Counter[tuple[str, str]] = Counter()
    highs: dict[tuple[str, str], int] = {}
    for dataset, name, amount, high_ms in taken:
        sums[dataset, name] += amount
        if high_ms is not None:
            highs[dataset, name] = max(high_ms, highs.get((dataset, name), high_ms))
    # In one order, so that two who add up at once never wait for each other in a circle.
    for dataset, name in sorted(sums):
        session.all(
            "unit_totals.add",
            dataset=dataset,
            name=name,
            amount=sums[dataset, name],
            high_ms=highs.get((dataset, name)),
        )
    return len(taken)


def totals(session: Session) -> dict[tuple[str, str], tuple[int, int | None]]:
    """(dataset, name) → amount and high, changes that are not added up yet included."""
    found: Iterable[tuple[str, str, int, int | None]] = session.all("unit_totals.list")
    return {
        (dataset, name): (int(amount), high_ms)
        for dataset, name, amount, high_ms in found
        if not name.startswith(PREFIX)  # of the catalogue
    }
