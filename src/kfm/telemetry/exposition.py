"""Tallies of metrics, and their text in the format of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from kfm.telemetry.metric_catalogue import Metric, metrics, require_metric

Labels = tuple[str, ...]  # values, in the catalogue's order
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


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
        """A count that was added up elsewhere."""
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


def _key(metric: Metric, labels: dict[str, str]) -> Labels:
    return tuple(labels[name] for name in metric.labels)


def told_by_ledger() -> list[Metric]:
    """What `kfm metrics` prints, in the catalogue's order."""
    return [metric for metric in metrics().values() if "ledger" in metric.origins]


def exposition(tallies: Tallies) -> str:
    """Every metric of the ledger with its help and type, also where nothing was counted yet."""
    lines: list[str] = []
    for metric in told_by_ledger():
        lines.append(f"# HELP {metric.exposed} {_escaped(metric.help)}")
        lines.append(f"# TYPE {metric.exposed} {metric.kind}")
        lines += _samples(metric, tallies)
    return "\n".join(lines) + "\n"


def documents(tallies: Tallies) -> list[dict[str, Any]]:
    """The same as plain values, for programs that read JSON."""
    found = []
    for metric in told_by_ledger():
        series: list[dict[str, Any]] = []
        for labels, parts in sorted(tallies.counters.get(metric.name, {}).items()):
            series.append({"labels": _pairs(metric, labels), "value": _whole(parts, metric.parts_per_unit)})
        for labels, value in sorted(tallies.gauges.get(metric.name, {}).items()):
            series.append({"labels": _pairs(metric, labels), "value": value})
        for labels, histogram in sorted(tallies.histograms.get(metric.name, {}).items()):
            buckets = [
                {"le": bound, "count": count}
                for bound, count in zip((*metric.buckets, None), accumulate(histogram.counts), strict=True)
            ]
            whole = {"buckets": buckets, "sum": _whole(histogram.sum_ms, 1000), "count": histogram.count}
            series.append({"labels": _pairs(metric, labels), **whole})
        found.append(
            {
                "name": metric.name,
                "kind": metric.kind,
                "unit": metric.unit,
                "help": metric.help,
                "series": series,
            }
        )
    return found


def _pairs(metric: Metric, values: Labels) -> dict[str, str]:
    return dict(zip(metric.labels, values, strict=True))


def _samples(metric: Metric, tallies: Tallies) -> Iterator[str]:
    name = metric.exposed
    for labels, parts in sorted(tallies.counters.get(metric.name, {}).items()):
        yield f"{name}{_named(metric, labels)} {_number(_whole(parts, metric.parts_per_unit))}"
    for labels, value in sorted(tallies.gauges.get(metric.name, {}).items()):
        yield f"{name}{_named(metric, labels)} {_number(value)}"
    for labels, found in sorted(tallies.histograms.get(metric.name, {}).items()):
        bounds = [*(_number(bound) for bound in metric.buckets), "+Inf"]
        for bound, count in zip(bounds, accumulate(found.counts), strict=True):
            yield f"{name}_bucket{_named(metric, labels, le=bound)} {count}"
        yield f"{name}_sum{_named(metric, labels)} {_number(_whole(found.sum_ms, 1000))}"
        yield f"{name}_count{_named(metric, labels)} {found.count}"


def _named(metric: Metric, values: Labels, **more: str) -> str:
    pairs = [*zip(metric.labels, values, strict=True), *more.items()]
    inside = ",".join(f'{name}="{_quoted(value)}"' for name, value in pairs)
    return f"{{{inside}}}" if inside else ""


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', r"\"")


def _escaped(text: str) -> str:
    """Prometheus reads UTF-8, one sample a line."""
    text = text.encode("utf-8", "replace").decode()
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _whole(parts: int, per_unit: int) -> float:
    return parts // per_unit if parts % per_unit == 0 else parts / per_unit


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
