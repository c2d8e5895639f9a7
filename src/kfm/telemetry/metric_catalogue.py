"""Every metric and span there is, as data: `contracts/metrics.json` and `contracts/spans.json`."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Literal

import msgspec

from kfm.model.contracts import contract

Origin = Literal["ledger", "otlp", "ingest"]


class Metric(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename={"origins": "from"}
):
    """One metric: its name, what it counts, and where it comes from."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: str  # UCUM: 1, s, By, Wh, g
    labels: tuple[str, ...]
    help: str
    origins: tuple[Origin, ...]  # ledger: `kfm metrics`; otlp: the process itself; ingest: the ingest worker
    buckets: tuple[float, ...] = ()
    parts_per_unit: int = 1  # amounts are added as whole numbers of these parts

    @property
    def exposed(self) -> str:
        """Its name where Prometheus reads it."""
        return self.name.replace(".", "_")


class Attribute(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    key: str  # as the code gives it
    name: str  # as it is sent
    help: str


class SpanKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: str
    help: str
    attributes: tuple[Attribute, ...]


class UnknownMetric(LookupError):
    """A metric, label, span or attribute that the catalogue does not have. A defect, seen in tests."""


class _Metrics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    metrics: tuple[Metric, ...]


class _Spans(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    spans: tuple[SpanKind, ...]


@cache
def metrics() -> dict[str, Metric]:
    """Name → metric, in the order of the catalogue."""
    data = contract("metrics.json")
    return {each.name: each for each in msgspec.json.decode(data, type=_Metrics).metrics}


@cache
def spans() -> dict[str, SpanKind]:
    data = contract("spans.json")
    return {each.name: each for each in msgspec.json.decode(data, type=_Spans).spans}


@cache
def attribute_names(span: str) -> dict[str, str]:
    """Key → the name under which it is sent."""
    kind = spans().get(span)
    return {} if kind is None else {each.key: each.name for each in kind.attributes}


def require_metric(name: str, labels: Collection[str], kinds: Collection[str]) -> Metric:
    """The metric, if it is used as the catalogue declares; else an error that names the way out."""
    metric = metrics().get(name)
    if metric is None:
        raise UnknownMetric(f"There is no metric `{name}` in contracts/metrics.json.")
    if metric.kind not in kinds:
        raise UnknownMetric(f"`{name}` is a {metric.kind}, not one of: {', '.join(kinds)}.")
    if set(labels) != set(metric.labels):
        raise UnknownMetric(f"`{name}` has the labels {sorted(metric.labels)}, not {sorted(labels)}.")
    return metric


def require_attributes(span: str, keys: Collection[str]) -> None:
    if span not in spans():
        raise UnknownMetric(f"There is no span `{span}` in contracts/spans.json.")
    unknown = sorted(set(keys) - set(attribute_names(span)))
    if unknown:
        raise UnknownMetric(f"The span `{span}` has no attribute {', '.join(unknown)}.")
