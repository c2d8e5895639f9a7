"""The catalogue of metrics and spans, and the telemetry that needs no library."""

from __future__ import annotations

import re

import pytest

from kfm.telemetry.exporter import Off
from kfm.telemetry.metric_catalogue import UnknownMetric, metrics, require_attributes, require_metric, spans
from tests.recording import Recording


@pytest.mark.req("WAL-16")
def test_documented_names() -> None:
    """The ledger of units is counted under the names and labels that its documents give."""
    known = metrics()
    assert known["nodd_sns.wal_records_total"].labels == ("dataset", "status")
    assert known["nodd_sns.wal_replays_total"].labels == ("dataset", "replay_reason")
    assert known["nodd_sns.wal_attempts_histogram"].labels == ("dataset",)
    assert known["nodd_sns.replay_mismatch_total"].labels == ("dataset",)
    assert {known[name].origins for name in known if name.startswith("nodd_sns.")} == {("ledger", "otlp")}


@pytest.mark.parametrize("metric", metrics().values(), ids=lambda metric: metric.name)
def test_metrics_are_well_formed(metric: object) -> None:
    """Names, labels, units and buckets are such that Prometheus and OpenTelemetry take them."""
    from kfm.telemetry.metric_catalogue import Metric

    assert isinstance(metric, Metric)
    assert re.fullmatch(r"[a-z_]+(\.[a-z0-9_]+)+", metric.name)
    assert re.fullmatch(r"[a-z_][a-z0-9_]*", metric.exposed)
    assert all(re.fullmatch(r"[a-z_]+", label) and label != "le" for label in metric.labels)
    if metric.name != "nodd_sns.wal_records_total":  # so called by its document, and a level
        assert (metric.kind == "counter") == metric.name.endswith("_total")
    assert bool(metric.buckets) == (metric.kind == "histogram")
    assert list(metric.buckets) == sorted(set(metric.buckets))
    assert metric.unit in ("1", "s", "By", "Wh", "g")
    assert metric.help.endswith(".")
    assert metric.origins


def test_exposed_names_are_unique() -> None:
    """Two names that differ in a dot only would be one in Prometheus."""
    exposed = [metric.exposed for metric in metrics().values()]
    assert len(set(exposed)) == len(exposed)


@pytest.mark.req("WAL-16")
def test_spans_are_nested_kinds() -> None:
    """Run, pass, node, call and units are described; a span of one unit names it, and its replay."""
    assert list(spans()) == ["kfm.run", "kfm.pass", "kfm.node", "kfm.call", "kfm.units", "kfm.unit"]
    named = {each.name for each in spans()["kfm.unit"].attributes}
    assert {"wal_id", "replay_reason", "error.type"} <= named
    for kind in spans().values():
        keys = [each.key for each in kind.attributes]
        assert len(set(keys)) == len(keys)


def test_what_is_unknown_is_named() -> None:
    """A metric, label, span or attribute that was misspelt is told with its name."""
    with pytest.raises(UnknownMetric, match=r"There is no metric `kfm\.nope`"):
        require_metric("kfm.nope", (), ("counter",))
    with pytest.raises(UnknownMetric, match=r"is a gauge, not one of: counter"):
        require_metric("kfm.build.info", ("version",), ("counter",))
    with pytest.raises(UnknownMetric, match=r"has the labels \['topic'\], not \['topics'\]"):
        require_metric("kfm.outbox.waiting", ("topics",), ("gauge",))
    with pytest.raises(UnknownMetric, match=r"There is no span `kfm\.nope`"):
        require_attributes("kfm.nope", ())
    with pytest.raises(UnknownMetric, match=r"`kfm\.run` has no attribute nope"):
        require_attributes("kfm.run", ("run_id", "nope"))


def test_off_does_nothing() -> None:
    """Without telemetry everything may be said, also nonsense, and nothing is made for it."""
    off = Off()
    first, second = off.span("a", trace_id="b", c=1), off.span("d")
    assert first is second
    with first as span:
        span.note(e=2)
    with pytest.raises(ValueError, match="through"), off.span("kfm.run"):
        raise ValueError("passes through")
    off.add("f", 3, g="h")
    off.observe("i", 4.0)
    off.close()


def test_recording_is_strict_and_remembers() -> None:
    """What tests watch with refuses what the catalogue does not know, and keeps the nesting."""
    told = Recording()
    with pytest.raises(KeyError), told.span("kfm.run", trace_id="1" * 32, run_id="r") as run:
        with told.span("kfm.node", node="fetch"):
            told.add("kfm.call.retries_total", node="fetch", error_class="timeout")
            told.add("kfm.call.retries_total", 2, node="fetch", error_class="timeout")
        run.note(outcome="fail")
        raise KeyError
    outer, inner = told.spans
    assert (inner.parent, inner.trace_id, inner.error) == (outer, "1" * 32, None)
    assert (outer.error, outer.ended, outer.attributes["outcome"]) == ("KeyError", True, "fail")
    assert list(told.amounts.values()) == [3]
    told.observe("kfm.call.duration_seconds", 0.1, node="fetch", outcome="success")
    assert len(told.observed) == 1
    with pytest.raises(UnknownMetric):
        told.add("kfm.call.retries_total", node="fetch")
    with pytest.raises(UnknownMetric), told.span("kfm.run", nope=1):
        pass
    told.close()
    assert told.closed
