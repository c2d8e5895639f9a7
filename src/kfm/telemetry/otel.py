"""Spans and metrics sent by OTLP over HTTP (the extra `otel`).

Nothing here may fail or hold up the work that it watches: sending happens in threads of the SDK, what
can't be sent is dropped, and closing waits for a bounded time only.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from importlib import import_module
from time import time_ns
from types import TracebackType
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics import export as points
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from kfm import __version__, ports
from kfm.model.errors import KfmError
from kfm.telemetry.exposition import Tallies
from kfm.telemetry.metric_catalogue import Metric, attribute_names, metrics

EXPORT_SECONDS_MAX = 2.0
CLOSE_SECONDS_MAX = 2.0
SPANS_WAITING_MAX = 2048
BATCH_SPANS_MAX = 256
EVERY_MS = 5_000
ATTRIBUTE_CHARS_MAX = 1024
BUILD = "kfm.build.info"
LEDGER = "ledger"

_TRACE_ID = re.compile(r"(?!0{32})[0-9a-f]{32}")
_wanted_trace: ContextVar[int | None] = ContextVar("kfm_wanted_trace", default=None)


class _TraceIds(RandomIdGenerator):
    """The trace id that the run's own id gives, where there is one."""

    def generate_trace_id(self) -> int:
        return _wanted_trace.get() or super().generate_trace_id()


class OpenTelemetry:
    """Sends to `{endpoint}/v1/traces` and `{endpoint}/v1/metrics`."""

    def __init__(
        self,
        endpoint: str,
        *,
        headers: Mapping[str, str] | None = None,
        service: str = "kfm",
        environment: str | None = None,
        instance: str | None = None,
        close_seconds_max: float = CLOSE_SECONDS_MAX,
    ) -> None:
        # A collector that is away is not logged to stderr. An embedding program with handlers still gets it.
        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
        self._close_seconds_max = close_seconds_max
        attributes = {
            "service.name": service,
            "service.version": __version__,
            "service.instance.id": instance,
            "deployment.environment.name": environment,
        }
        resource = Resource({name: value for name, value in attributes.items() if value is not None})
        address, sent = endpoint.rstrip("/"), dict(headers or {})
        self._tracers = TracerProvider(
            sampler=ALWAYS_ON,
            resource=resource,
            shutdown_on_exit=False,
            id_generator=_TraceIds(),
            span_limits=SpanLimits(max_span_attribute_length=ATTRIBUTE_CHARS_MAX),
        )
        self._tracers.add_span_processor(
            BatchSpanProcessor(
                OTLPSpanExporter(
                    f"{address}/v1/traces", headers=sent, timeout=EXPORT_SECONDS_MAX, session=_session()
                ),
                max_queue_size=SPANS_WAITING_MAX,
                max_export_batch_size=BATCH_SPANS_MAX,
                schedule_delay_millis=EVERY_MS,
            )
        )
        self._tracer = self._tracers.get_tracer("kfm", __version__)
        # Every process tells the same of the ledger, so none of them is the one that it comes from.
        whole = Resource({**resource.attributes, "service.instance.id": LEDGER})
        self._exporter = _WithTotals(
            whole, f"{address}/v1/metrics", headers=sent, timeout=EXPORT_SECONDS_MAX, session=_session()
        )
        reader = PeriodicExportingMetricReader(
            self._exporter,
            export_interval_millis=EVERY_MS,
            export_timeout_millis=EXPORT_SECONDS_MAX * 1000,
        )
        self._meters = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        self._meter = self._meters.get_meter("kfm", __version__)
        self._instruments: dict[str, Callable[[float, dict[str, str]], None]] = {}

    def span(
        self, name: str, *, trace_id: str | None = None, lasted_ms: int = 0, **attributes: str | int | bool
    ) -> AbstractContextManager[ports.TelemetrySpan]:
        return _OpenSpan(self._tracer, name, trace_id, attributes, lasted_ms)

    def add(self, metric: str, amount: int = 1, **labels: str) -> None:
        self._tell(metric, amount, labels, ("counter",))

    def observe(self, metric: str, value: float, **labels: str) -> None:
        self._tell(metric, value, labels, ("gauge", "histogram"))

    def totals(self, tallies: Tallies) -> None:
        try:
            self._exporter.totals = _points(tallies, time_ns())
            if BUILD not in self._instruments:  # nothing is sent at all while no instrument has a value
                self.observe(BUILD, 1, version=__version__)
        except Exception:  # noqa: BLE001 - never at the cost of the work
            return

    def _tell(self, name: str, value: float, labels: dict[str, str], kinds: tuple[str, ...]) -> None:
        metric = metrics().get(name)
        if metric is None or metric.kind not in kinds or labels.keys() != set(metric.labels):
            return
        try:
            if name not in self._instruments:
                self._instruments[name] = _instrument(self._meter, metric)
            whole = metric.parts_per_unit == 1
            tidy = {label: _clean(text) for label, text in labels.items()}
            self._instruments[name](value if whole else value / metric.parts_per_unit, tidy)
        except Exception:  # noqa: BLE001 - never at the cost of the work
            return

    def close(self) -> None:
        """Send what is left, for a bounded time; then go on in any case."""
        closing = threading.Thread(target=self._shut_down, name="kfm-telemetry-close", daemon=True)
        closing.start()
        closing.join(self._close_seconds_max)

    def _shut_down(self) -> None:
        both = [
            threading.Thread(target=_quietly, args=(each.shutdown,), daemon=True)
            for each in (self._tracers, self._meters)
        ]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()


class _WithTotals(OTLPMetricExporter):
    """Sends what the ledger has counted with what this process has."""

    def __init__(self, resource: Resource, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._resource = resource
        self.totals: list[points.Metric] = []

    def export(
        self, metrics_data: points.MetricsData, timeout_millis: float | None = 10_000, **options: Any
    ) -> points.MetricExportResult:
        if self.totals:
            scope = points.ScopeMetrics(InstrumentationScope("kfm", __version__), self.totals, "")
            ledger = points.ResourceMetrics(self._resource, [scope], "")
            metrics_data = points.MetricsData([*metrics_data.resource_metrics, ledger])
        return super().export(metrics_data, timeout_millis, **options)


def _points(tallies: Tallies, at_ns: int) -> list[points.Metric]:
    """Totals since the ledger began; when that was is not said, which OTLP writes as 0."""
    found: list[points.Metric] = []
    cumulative = points.AggregationTemporality.CUMULATIVE
    for metric in metrics().values():
        data: Any = None
        if metric.name in tallies.counters:
            numbers = [
                points.NumberDataPoint(labels, 0, at_ns, parts / metric.parts_per_unit)
                for labels, parts in _labelled(metric, tallies.counters[metric.name])
            ]
            data = points.Sum(numbers, cumulative, is_monotonic=True)
        elif metric.name in tallies.gauges:
            levels = _labelled(metric, tallies.gauges[metric.name])
            data = points.Gauge(
                [points.NumberDataPoint(labels, 0, at_ns, float(value)) for labels, value in levels]
            )
        elif metric.name in tallies.histograms:
            shapes = [
                points.HistogramDataPoint(
                    labels,
                    0,
                    at_ns,
                    count=made.count,
                    sum=made.sum_ms / 1000,
                    bucket_counts=made.counts,
                    explicit_bounds=metric.buckets,
                    min=float("nan"),
                    max=float("nan"),
                )
                for labels, made in _labelled(metric, tallies.histograms[metric.name])
            ]
            data = points.Histogram(shapes, cumulative)
        if data is not None:
            found.append(points.Metric(metric.name, metric.help, metric.unit, data))
    return found


def _labelled(metric: Metric, series: Mapping[tuple[str, ...], Any]) -> list[tuple[dict[str, str], Any]]:
    return [
        (dict(zip(metric.labels, map(_clean, labels), strict=True)), value)
        for labels, value in sorted(series.items())
    ]


class _OpenSpan:
    """A span as a context: everything inside it, in this thread, is its child."""

    def __init__(
        self,
        tracer: trace.Tracer,
        name: str,
        trace_id: str | None,
        attributes: Mapping[str, Any],
        lasted_ms: int = 0,
    ) -> None:
        self._lasted_ms = lasted_ms
        self._tracer = tracer
        self._name = name
        self._trace_id = trace_id
        self._attributes = attributes
        self._span: trace.Span | None = None
        self._token: Any = None
        self._error_told = False

    def __enter__(self) -> ports.TelemetrySpan:
        try:
            self._begin()
        except Exception:  # noqa: BLE001 - never at the cost of the work
            self._span = None
        return self

    def _begin(self) -> None:
        known = self._trace_id is not None and _TRACE_ID.fullmatch(self._trace_id)
        # An empty context has no parent: the span begins the trace.
        parent = contexts.Context() if known else contexts.get_current()
        wanted = _wanted_trace.set(int(self._trace_id or "0", 16) if known else None)
        try:
            began_ns = time_ns() - self._lasted_ms * 1_000_000 if self._lasted_ms else None
            span = self._tracer.start_span(self._name, context=parent, start_time=began_ns)
        finally:
            _wanted_trace.reset(wanted)
        self._token = contexts.attach(trace.set_span_in_context(span, parent))
        self._span = span
        self.note(**self._attributes)

    def note(self, **attributes: str | int | bool) -> None:
        if self._span is None:
            return
        names = attribute_names(self._name)
        for key, value in attributes.items():
            if key in names:
                self._span.set_attribute(names[key], _clean(value) if isinstance(value, str) else value)
                self._error_told = self._error_told or key == "error_type"

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, _where: TracebackType | None
    ) -> None:
        if self._span is None:
            return
        try:
            if problem is not None and not self._error_told:
                # The code or class only: a message may quote anything.
                error_type = problem.code if isinstance(problem, KfmError) else type(problem).__qualname__
                self._span.set_attribute("error.type", error_type)
            if problem is not None or self._error_told:
                self._span.set_status(trace.StatusCode.ERROR)
            self._span.end()
            contexts.detach(self._token)
        except Exception:  # noqa: BLE001 - never at the cost of the work
            return


def _session() -> Any:
    """Tries a connection twice, for it may have gone stale; the exporter itself would wait and try again."""
    requests: Any = import_module("requests")

    class Session(requests.Session):  # type: ignore[misc]
        def request(self, *arguments: Any, **options: Any) -> Any:
            for _ in range(2):
                try:
                    return super().request(*arguments, **options)
                # kfm: allow KFM102 a stale connection is replaced at once, and only once
                except requests.ConnectionError as error:
                    away = error
            raise OSError("the collector is away") from away

    return Session()


def _instrument(meter: Any, metric: Metric) -> Callable[[float, dict[str, str]], None]:
    facts = {"unit": metric.unit, "description": metric.help}
    record: Any
    if metric.kind == "counter":
        record = meter.create_counter(metric.name, **facts).add
    elif metric.kind == "gauge":
        record = meter.create_gauge(metric.name, **facts).set
    else:
        buckets = list(metric.buckets)
        record = meter.create_histogram(
            metric.name, **facts, explicit_bucket_boundaries_advisory=buckets
        ).record
    return record  # type: ignore[no-any-return]


def _clean(text: str) -> str:
    """Protocol buffers hold UTF-8 only; a lone surrogate would cost the whole batch."""
    return str(text).encode("utf-8", "replace").decode()[:ATTRIBUTE_CHARS_MAX]


def _quietly(call: Callable[[], object]) -> None:
    try:
        call()
    except Exception:  # noqa: BLE001 - what was not sent is lost; nothing else is
        return
