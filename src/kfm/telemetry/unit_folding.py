"""From the counters of the ledger of units to tallies. They are added up there; here they get their names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from kfm.core.records import UNIT_STATUSES
from kfm.telemetry.tallies import Tallies

Figure = tuple[str, str, int, int | None]  # dataset, name, amount, newest time
TOTALS = {
    "mismatches": "nodd_sns.replay_mismatch_total",
    "duplicates": "nodd_sns.duplicates_total",
    "stale": "nodd_sns.stale_total",
}


def fold_units(figures: Iterable[Figure], tallies: Tallies, public: Callable[[str], str]) -> None:
    """`public` gives a dataset's public name; two that have the same are one."""
    amounts: Counter[tuple[str, str]] = Counter()
    newest: dict[str, int] = {}
    for dataset, name, amount, high_ms in figures:
        told = public(dataset) if dataset else ""
        amounts[told, name] += int(amount)
        if name == "watermark" and high_ms is not None:
            newest[told] = max(high_ms, newest.get(told, high_ms))
    for dataset in sorted({dataset for dataset, _ in amounts if dataset}):
        for status in UNIT_STATUSES:  # also those that nothing has: a level that is missing is none
            count = amounts[dataset, status]
            tallies.put("nodd_sns.wal_records_total", count, dataset=dataset, status=status)
        for name, metric in TOTALS.items():
            tallies.set_total(metric, amounts[dataset, name], dataset=dataset)
        tried = {
            int(name.removeprefix("attempts:")): count
            for (whose, name), count in amounts.items()
            if whose == dataset and name.startswith("attempts:")
        }
        tallies.set_distribution("nodd_sns.wal_attempts_histogram", tried, dataset=dataset)
    for (dataset, name), count in sorted(amounts.items()):
        kind, colon, label = name.partition(":")
        if kind == "replays" and colon:
            tallies.set_total("nodd_sns.wal_replays_total", count, dataset=dataset, replay_reason=label)
        elif kind == "dead" and colon:
            tallies.set_total("nodd_sns.dead_messages_total", count, error_code=label)
    for dataset, at_ms in newest.items():
        tallies.put("nodd_sns.watermark_timestamp_seconds", at_ms / 1000, dataset=dataset)
