"""Tallies in Prometheus' text format, in the same order each time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from kfm.telemetry.catalogue import Metric
from kfm.telemetry.tallies import Labels, Tallies, told_by_ledger

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


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
        for labels, told in sorted(tallies.histograms.get(metric.name, {}).items()):
            buckets = [
                {"le": bound, "count": count}
                for bound, count in zip((*metric.buckets, None), accumulate(told.counts), strict=True)
            ]
            whole = {"buckets": buckets, "sum": _whole(told.sum_ms, 1000), "count": told.count}
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
