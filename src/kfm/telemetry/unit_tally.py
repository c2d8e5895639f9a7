"""Counting units for a release."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from kfm.core.records import UNIT_STATUSES
from kfm.telemetry.documents import DatasetUnits, UnitCounts
from kfm.telemetry.unit_folding import Figure


class UnitTally:
    """The counters of the ledger of units, by dataset."""

    def __init__(self) -> None:
        self.datasets: dict[str, Counter[str]] = {}

    def add(self, figures: Iterable[Figure], public: Callable[[str], str]) -> None:
        for dataset, name, amount, _ in figures:
            if dataset:
                self.datasets.setdefault(public(dataset), Counter())[name] += int(amount)

    def records(self) -> UnitCounts:
        return _records(sum(self.datasets.values(), Counter()))

    def replays(self) -> int:
        return sum(map(_replays, self.datasets.values()))

    def mismatches(self) -> int:
        return sum(amounts["mismatches"] for amounts in self.datasets.values())

    def attempts(self) -> dict[str, int]:
        found: Counter[int] = Counter()
        for amounts in self.datasets.values():
            for name, count in amounts.items():
                if name.startswith("attempts:"):
                    found[int(name.removeprefix("attempts:"))] += count
        return {str(attempts): found[attempts] for attempts in sorted(found)}

    def documents(self) -> tuple[DatasetUnits, ...]:
        return tuple(
            DatasetUnits(
                dataset_id=dataset,
                wal_records_total=_records(amounts),
                wal_replays_total=_replays(amounts),
                replay_mismatch_total=amounts["mismatches"],
            )
            for dataset, amounts in sorted(self.datasets.items())
        )


def _records(amounts: Counter[str]) -> UnitCounts:
    return UnitCounts(**{status: max(0, amounts[status]) for status in UNIT_STATUSES})


def _replays(amounts: Counter[str]) -> int:
    return sum(count for name, count in amounts.items() if name.startswith("replays:"))
