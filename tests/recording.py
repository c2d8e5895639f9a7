"""Telemetry that is kept in memory and checked against the catalogue: for tests of whatever is watched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kfm.ports import TelemetrySpan
from kfm.telemetry.metric_catalogue import require_attributes, require_metric


@dataclass
class RecordedSpan:
    name: str
    parent: RecordedSpan | None
    trace_id: str | None
    attributes: dict[str, str | int | bool]
    error: str | None = None
    ended: bool = False

    def note(self, **attributes: str | int | bool) -> None:
        require_attributes(self.name, attributes)
        self.attributes |= attributes


@dataclass
class Recording:
    """Every span and every amount, in order. What the catalogue does not know is an error."""

    spans: list[RecordedSpan] = field(default_factory=list)
    amounts: dict[tuple[str, tuple[tuple[str, str], ...]], int] = field(default_factory=dict)
    observed: list[tuple[str, float, dict[str, str]]] = field(default_factory=list)
    ledger: Any = None  # what was told of it last
    closed: bool = False
    _open: list[RecordedSpan] = field(default_factory=list)

    @contextmanager
    def span(
        self,
        name: str,
        *,
        trace_id: str | None = None,
        lasted_ms: int = 0,
        **attributes: Any,
    ) -> Iterator[TelemetrySpan]:
        require_attributes(name, attributes)
        parent = None if trace_id or not self._open else self._open[-1]
        made = RecordedSpan(name, parent, trace_id or (parent.trace_id if parent else None), attributes)
        self.spans.append(made)
        self._open.append(made)
        try:
            yield made
        except BaseException as problem:
            made.error = type(problem).__name__
            raise
        finally:
            made.ended = True
            self._open.remove(made)

    def add(self, metric: str, amount: int = 1, **labels: str) -> None:
        require_metric(metric, labels, ("counter",))
        key = (metric, tuple(sorted(labels.items())))
        self.amounts[key] = self.amounts.get(key, 0) + amount

    def observe(self, metric: str, value: float, **labels: str) -> None:
        require_metric(metric, labels, ("gauge", "histogram"))
        self.observed.append((metric, value, labels))

    def totals(self, tallies: Any) -> None:
        self.ledger = tallies

    def close(self) -> None:
        self.closed = True
