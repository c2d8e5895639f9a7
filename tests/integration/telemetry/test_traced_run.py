"""A real run, watched from outside by OTLP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.services import free_port

pytest.importorskip("opentelemetry.sdk", reason="the extra `otel` is not installed")

from tests.integration.telemetry.otlp_collector import attributes, black_hole, running_collector


def kfm(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("KFM_", "OTEL_", "GITHUB_"))
    }
    return subprocess.run(
        [sys.executable, "-m", "kfm", *arguments],
        cwd=folder,
        env={**clean, "XDG_CACHE_HOME": str(folder / "cache"), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    assert kfm(tmp_path, "init", "new").returncode == 0
    return tmp_path / "new"


def parents(spans: dict[str, list[Any]]) -> dict[bytes, Any]:
    return {span.span_id: span for kind in spans.values() for span in kind}


@pytest.mark.req("UPD-15", "RS-11")
def test_a_run_is_one_trace(project: Path) -> None:
    """Run, nodes and calls are one trace, whose id the log lines and artifacts carry, too."""
    with running_collector() as collector:
        done = kfm(
            project,
            "run",
            "--verbose",
            "--log-format",
            "json",
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.address,
        )
    assert done.returncode == 0, done.stderr
    spans = collector.spans()
    (run,) = spans["kfm.run"]
    by_id = parents(spans)
    nodes = [
        attributes(span)["kfm.node"]
        for span in sorted(spans["kfm.node"], key=lambda s: s.start_time_unix_nano)
    ]
    assert nodes == ["fetch", "transform", "validate", "publish"]
    assert all(span.parent_span_id == run.span_id for span in spans["kfm.node"])
    assert spans["kfm.call"]
    assert all(by_id[span.parent_span_id].name == "kfm.node" for span in spans["kfm.call"])
    assert {span.trace_id for span in by_id.values()} == {run.trace_id}
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert {line["trace_id"] for line in lines if "trace_id" in line} == {run.trace_id.hex()}
    told = attributes(run)
    assert told["kfm.run.id"] == next(line["run_id"] for line in lines if "run_id" in line)
    assert (told["kfm.dataset"], told["kfm.run.attempt"]) == ("example-readings", 1)
    (runs,) = collector.metric("kfm.updater.runs_total").sum.data_points
    assert attributes(runs) == {"dataset": "example-readings", "trigger": "manual", "outcome": "complete"}
    writes = collector.metric("kfm.pattern.node_writes_total").sum.data_points
    assert {attributes(point)["node"] for point in writes} == set(nodes)


@pytest.mark.req("RS-13")
def test_a_restricted_dataset_is_not_named(project: Path) -> None:
    """Nothing that is sent names a dataset that must not be named, nor its source."""
    text = (project / "kfm.yml").read_text()
    (project / "kfm.yml").write_text(text.replace("level: public", "level: restricted"))
    with running_collector() as collector:
        kfm(project, "run", OTEL_EXPORTER_OTLP_ENDPOINT=collector.address)
    sent = "".join(str(request) for request in (*collector.traces, *collector.metrics))
    assert "masked" in sent
    assert "example-readings" not in sent


@pytest.mark.parametrize("kind", ["dead", "black-holed"])
def test_a_collector_that_is_away_changes_nothing(project: Path, kind: str) -> None:
    """The result, the messages and the exit status are those of a run that no collector watches."""
    with black_hole() as silent:
        address = silent if kind == "black-holed" else f"http://127.0.0.1:{free_port()}"
        done = kfm(project, "run", OTEL_EXPORTER_OTLP_ENDPOINT=address)
    assert done.returncode == 0
    assert done.stdout.startswith("published  example-readings")
    assert "opentelemetry" not in done.stderr.lower()
    assert "Traceback" not in done.stderr
