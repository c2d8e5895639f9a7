"""Spans and metrics by OTLP, read back with the published protocol."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kfm.model.errors import BackendUnavailable
from tests.services import free_port

pytest.importorskip("opentelemetry.sdk", reason="the extra `otel` is not installed")

from kfm.telemetry import otel
from kfm.telemetry.exporter import Off, choose
from kfm.telemetry.exposition import Tallies
from kfm.telemetry.otel import OpenTelemetry
from tests.integration.telemetry.otlp_collector import attributes, black_hole, running_collector

TRACE = "0af7651916cd43dd8448eb211c80319c"
GENEROUS_SECONDS = 10.0


def one_run(telemetry: Any, trace_id: str = TRACE) -> None:
    with telemetry.span("kfm.run", trace_id=trace_id, run_id="run-1", attempt=2, dataset="rain") as run:
        fetch = telemetry.span("kfm.node", node="fetch", run_id="run-1")
        with fetch, telemetry.span("kfm.call", node="fetch") as call:
            call.note(tries=3, outcome="success")
        with telemetry.span("kfm.node", node="validate", run_id="run-1"):
            pass
        run.note(outcome="complete", sequence=7)


@pytest.mark.req("UPD-15")
def test_run_node_and_call_are_one_trace() -> None:
    """Run, node and call are nested spans of one trace, whose id follows from the run's."""
    with running_collector() as collector:
        telemetry = OpenTelemetry(
            collector.address + "/", service="kfm-test", environment="lab", headers={"x-key": "secret"}
        )
        one_run(telemetry)
        telemetry.close()
    spans = collector.spans()
    (run,), (call,) = spans["kfm.run"], spans["kfm.call"]
    fetch = next(span for span in spans["kfm.node"] if attributes(span)["kfm.node"] == "fetch")
    validate = next(span for span in spans["kfm.node"] if attributes(span)["kfm.node"] == "validate")
    assert run.parent_span_id == b""
    assert fetch.parent_span_id == validate.parent_span_id == run.span_id
    assert call.parent_span_id == fetch.span_id
    assert {span.trace_id.hex() for span in (run, fetch, validate, call)} == {TRACE}
    assert attributes(run) == {
        "kfm.run.id": "run-1",
        "kfm.run.attempt": 2,
        "kfm.dataset": "rain",
        "kfm.outcome": "complete",
        "kfm.version.sequence": 7,
    }
    assert attributes(call) == {"kfm.node": "fetch", "kfm.call.tries": 3, "kfm.outcome": "success"}
    assert collector.resource()["service.name"] == "kfm-test"
    assert collector.resource()["deployment.environment.name"] == "lab"
    assert all(headers["x-key"] == "secret" for headers in collector.headers)


def test_second_run_is_another_trace() -> None:
    """Each run begins its own trace, also inside another span; without an id it gets a fresh one."""
    with running_collector() as collector:
        telemetry = OpenTelemetry(collector.address)
        one_run(telemetry)
        with telemetry.span("kfm.run"):
            one_run(telemetry, "f" * 32)
        telemetry.close()
    runs = collector.spans()["kfm.run"]
    assert sorted(span.trace_id.hex() for span in runs)[1:] != []
    assert {TRACE, "f" * 32} < {span.trace_id.hex() for span in runs}
    assert all(span.parent_span_id == b"" for span in runs)


@pytest.mark.parametrize("trace_id", ["", "0" * 32, "xyz", "F" * 31])
def test_bad_trace_id_is_no_reason_to_fail(trace_id: str) -> None:
    """A trace id that is none is passed over; the span is sent all the same."""
    with running_collector() as collector:
        telemetry = OpenTelemetry(collector.address)
        one_run(telemetry, trace_id)
        telemetry.close()
    assert collector.spans()["kfm.run"][0].trace_id.hex() != trace_id


def test_errors_are_named_and_not_quoted() -> None:
    """A failed span carries `error.type`, the code or the class, and none of the message."""
    with running_collector() as collector:
        telemetry = OpenTelemetry(collector.address)
        with pytest.raises(BackendUnavailable), telemetry.span("kfm.run", trace_id=TRACE):
            with pytest.raises(ValueError, match="private"), telemetry.span("kfm.node", node="fetch"):
                raise ValueError("private-text")
            raise BackendUnavailable("private-text")
        with pytest.raises(KeyboardInterrupt), telemetry.span("kfm.call"):
            raise KeyboardInterrupt
        with telemetry.span("kfm.call") as call:
            call.note(error_type="timeout")
        telemetry.close()
    spans = collector.spans()
    assert attributes(spans["kfm.run"][0])["error.type"] == BackendUnavailable.code
    assert attributes(spans["kfm.node"][0])["error.type"] == "ValueError"
    assert {attributes(span)["error.type"] for span in spans["kfm.call"]} == {"KeyboardInterrupt", "timeout"}
    assert all(span.status.code == 2 for kind in spans.values() for span in kind)
    assert "private" not in "".join(str(request) for request in collector.traces)


@pytest.mark.req("UPD-15", "RS-11")
def test_metrics_arrive_by_their_documented_names() -> None:
    """Counters, histograms and parts of units arrive as the catalogue says."""
    with running_collector() as collector:
        telemetry = OpenTelemetry(collector.address)
        labels = {"dataset": "rain", "trigger": "cron", "outcome": "complete"}
        telemetry.add("kfm.updater.runs_total", **labels)
        telemetry.add("kfm.updater.runs_total", 2, **labels)
        telemetry.add("kfm.updater.energy_wh_total", 1_500_000, dataset="rain", retry="false")
        telemetry.observe("kfm.updater.run_duration_seconds", 0.3, dataset="rain", outcome="complete")
        telemetry.close()
    runs = collector.metric("kfm.updater.runs_total")
    assert runs.sum.is_monotonic
    assert [point.as_int for point in runs.sum.data_points] == [3]
    assert attributes(runs.sum.data_points[0]) == labels
    energy = collector.metric("kfm.updater.energy_wh_total")
    assert (energy.unit, energy.sum.data_points[0].as_double) == ("Wh", 1.5)
    (duration,) = collector.metric("kfm.updater.run_duration_seconds").histogram.data_points
    assert list(duration.explicit_bounds)[:3] == [0.01, 0.05, 0.1]
    assert list(duration.bucket_counts)[:6] == [0, 0, 0, 0, 1, 0]


def test_what_the_catalogue_does_not_know_is_passed_over() -> None:
    """At run time an unknown name costs a metric, never the work; hostile text costs nothing."""
    with running_collector() as collector:
        telemetry = OpenTelemetry(collector.address)
        telemetry.add("kfm.no_such_metric")
        telemetry.add("kfm.updater.runs_total", dataset="rain")
        telemetry.observe("kfm.updater.runs_total", 1, dataset="a", trigger="b", outcome="c")
        telemetry.add("kfm.call.retries_total", node="fetch\ud800", error_class="x" * 10_000)
        with telemetry.span(
            "kfm.run", trace_id=TRACE, nonsense="x", dataset="\ud800\n" + "y" * 10_000
        ) as span:
            span.note(more=True)
        telemetry.close()
    (run,) = collector.spans()["kfm.run"]
    assert list(attributes(run)) == ["kfm.dataset"]
    assert len(attributes(run)["kfm.dataset"]) == otel.ATTRIBUTE_CHARS_MAX
    (point,) = collector.metric("kfm.call.retries_total").sum.data_points
    assert attributes(point)["node"] == "fetch?"


@pytest.mark.req("UPD-15")
@pytest.mark.parametrize("kind", ["dead", "black-holed"])
def test_collector_that_is_away_delays_nothing(kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    """A dead or silent collector costs a bounded time at the end, and no word on stderr."""
    assert otel.CLOSE_SECONDS_MAX <= 2.0
    with black_hole() as silent:
        address = silent if kind == "black-holed" else f"http://127.0.0.1:{free_port()}"
        telemetry = OpenTelemetry(address, close_seconds_max=0.2)
        begun = time.monotonic()
        for _ in range(1000):
            one_run(telemetry)
            telemetry.add("kfm.updater.fetched_bytes_total", 5, dataset="rain")
        worked = time.monotonic()
        telemetry.close()
        telemetry.close()
        closed = time.monotonic()
    assert worked - begun < GENEROUS_SECONDS
    assert closed - worked < 2.0
    one_run(telemetry)  # after the end: nothing happens, nothing fails
    telemetry.add("kfm.updater.fetched_bytes_total", 5, dataset="rain")
    assert capfd.readouterr().err == ""


def test_dead_collector_is_not_waited_for() -> None:
    """A refused connection is an answer: closing does not wait for it to change."""
    telemetry = OpenTelemetry(f"http://127.0.0.1:{free_port()}", close_seconds_max=GENEROUS_SECONDS * 10)
    one_run(telemetry)
    telemetry.add("kfm.updater.fetched_bytes_total", 5, dataset="rain")
    begun = time.monotonic()
    telemetry.close()
    assert time.monotonic() - begun < otel.EXPORT_SECONDS_MAX


def test_choice() -> None:
    """Without an endpoint there is no telemetry; with one there is."""
    assert isinstance(choose(None), Off)
    chosen = choose(f"http://127.0.0.1:{free_port()}")
    assert isinstance(chosen, OpenTelemetry)
    chosen.close()


def test_missing_extra_is_told_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the extra the work goes on unwatched, and one line says why."""
    monkeypatch.setitem(__import__("sys").modules, "kfm.telemetry.otel", None)
    assert isinstance(choose("http://127.0.0.1:1"), Off)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert caplog.messages == [
        "telemetry: a collector is configured, but the extra is not installed: pip install 'kfm-kernel[otel]'"
    ]


@pytest.mark.req("WAL-16")
def test_totals_of_the_ledger_are_sent() -> None:
    """Counters, levels and distributions of the ledger arrive as they are, under no process's name."""
    tallies = Tallies()
    tallies.put("nodd_sns.wal_records_total", 3, dataset="hrrr", status="succeeded")
    tallies.set_total("nodd_sns.wal_replays_total", 2, dataset="hrrr", replay_reason="incident")
    tallies.set_total("nodd_sns.replay_mismatch_total", 1, dataset="hrrr")
    tallies.set_distribution("nodd_sns.wal_attempts_histogram", {1: 2, 3: 1}, dataset="hrrr")
    with running_collector() as collector:
        telemetry = OpenTelemetry(collector.address, instance="worker-1")
        telemetry.totals(Tallies())
        telemetry.totals(tallies)
        telemetry.close()
    (level,) = collector.metric("nodd_sns.wal_records_total").gauge.data_points
    assert (attributes(level), level.as_double) == ({"dataset": "hrrr", "status": "succeeded"}, 3)
    replays = collector.metric("nodd_sns.wal_replays_total").sum
    assert (replays.is_monotonic, replays.data_points[0].as_double) == (True, 2)
    assert collector.metric("nodd_sns.replay_mismatch_total").sum.data_points[0].as_double == 1
    (tried,) = collector.metric("nodd_sns.wal_attempts_histogram").histogram.data_points
    assert (tried.count, tried.sum, list(tried.bucket_counts)[:3]) == (3, 5, [2, 0, 1])
    senders = {
        attributes(resource.resource)["service.instance.id"]
        for request in collector.metrics
        for resource in request.resource_metrics
        if any(metric.name.startswith("nodd_sns.") for metric in resource.scope_metrics[0].metrics)
    }
    assert senders == {"ledger"}
