"""A worker sends what the ledger has counted of its units."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra `otel` is not installed")

from tests.integration.telemetry.otlp_collector import attributes, running_collector
from tests.unit.nodd.test_other_providers import s3_event

CONFIG = "version: 1\nenvironment: test\ningest:\n  queues: [{name: q, kind: folder, path: queue}]\n"


@pytest.mark.req("WAL-16")
def test_a_worker_sends_the_metrics_of_its_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Units by status and their attempts arrive by OTLP, as `kfm metrics` prints them."""
    from kfm.cli import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "kfm.yml").write_text(CONFIG)
    (tmp_path / "queue").mkdir()
    (tmp_path / "queue" / "one.json").write_bytes(s3_event())
    with running_collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address)
        with pytest.raises(SystemExit) as ended:
            main(["worker", "--until-idle", "--json"])
        assert ended.value.code in (None, 0)
        assert json.loads(capsys.readouterr().out)["tasks"]["succeeded"] == 1
    levels = {
        attributes(point)["status"]: point.as_double
        for point in collector.metric("nodd_sns.wal_records_total").gauge.data_points
    }
    assert levels["succeeded"] == 1
    (tried,) = collector.metric("nodd_sns.wal_attempts_histogram").histogram.data_points
    assert (attributes(tried), tried.count) == ({"dataset": "hrrr"}, 1)
