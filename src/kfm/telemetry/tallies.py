"""Counts, levels and distributions by label. Whole numbers only, so that sums never drift."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

from kfm.telemetry.catalogue import Metric, metrics, require_metric

Labels = tuple[str, ...]  # values, in the catalogue's order


@dataclass
class Distribution:
    """How many values fell into each bucket; the last one has no upper bound."""

    counts: list[int]
    sum_ms: int = 0

    @property
    def count(self) -> int:
        return sum(self.counts)


@dataclass
class Tallies:
    """Metric → labels → value: parts of the unit for counters, the value itself for gauges."""

    counters: dict[str, dict[Labels, int]] = field(default_factory=dict)
    gauges: dict[str, dict[Labels, float]] = field(default_factory=dict)
    histograms: dict[str, dict[Labels, Distribution]] = field(default_factory=dict)

    def add(self, name: str, parts: int = 1, **labels: str) -> None:
        metric = require_metric(name, labels, ("counter",))
        series = self.counters.setdefault(name, {})
        key = _key(metric, labels)
        series[key] = series.get(key, 0) + parts

    def put(self, name: str, value: float, **labels: str) -> None:
        metric = require_metric(name, labels, ("gauge",))
        self.gauges.setdefault(name, {})[_key(metric, labels)] = value

    def observe_ms(self, name: str, value_ms: int, **labels: str) -> None:
        """A duration; its metric counts in seconds."""
        metric = require_metric(name, labels, ("histogram",))
        series = self.histograms.setdefault(name, {})
        key = _key(metric, labels)
        if key not in series:
            series[key] = Distribution([0] * (len(metric.buckets) + 1))
        series[key].counts[bisect_left(metric.buckets, value_ms / 1000)] += 1
        series[key].sum_ms += value_ms

    def set_total(self, name: str, parts: int, **labels: str) -> None:
        """A count that somebody else has added up."""
        metric = require_metric(name, labels, ("counter",))
        self.counters.setdefault(name, {})[_key(metric, labels)] = parts

    def set_distribution(self, name: str, found: Mapping[int, int], **labels: str) -> None:
        """Value → how often, likewise."""
        metric = require_metric(name, labels, ("histogram",))
        made = Distribution([0] * (len(metric.buckets) + 1))
        for value, count in found.items():
            made.counts[bisect_left(metric.buckets, value)] += count
            made.sum_ms += value * count * 1000
        self.histograms.setdefault(name, {})[_key(metric, labels)] = made

    def forget_gauges(self) -> None:
        """Levels are read anew each time; what is not read again is gone."""
        self.gauges.clear()


def _key(metric: Metric, labels: dict[str, str]) -> Labels:
    return tuple(labels[name] for name in metric.labels)


def told_by_ledger() -> list[Metric]:
    """What `kfm metrics` prints, in the catalogue's order."""
    return [metric for metric in metrics().values() if "ledger" in metric.origins]
