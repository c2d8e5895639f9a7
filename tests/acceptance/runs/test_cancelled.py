"""A run that is told to stop, because the next instant of its schedule overtook it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kfm.app import open_app
from kfm.config.loader import load
from kfm.model.keys import request_id
from kfm.model.requests import UpdateRequest
from kfm.runs.kernel import Kernel, RunReport
from tests.acceptance.runs.conftest import Inside
from tests.acceptance.runs.test_retries import FINE, make_due

pytestmark = pytest.mark.req("UPD-13", "TRG-3")
REASON = "Overtaken by the instant of 2026-01-02 01:00:00 UTC of hours."
DAY_MS = 86_400_000
START_MS = 20_454 * DAY_MS  # 2026-01-01
CANCELS = f"""\
import apsw


def publish(context):
    connection = apsw.Connection(".kfm/kfm.db")
    connection.set_busy_timeout(5000)
    connection.execute("UPDATE requests SET cancel = '{REASON}' WHERE state = 'running'")
    connection.close()
    for one in context.inputs:
        context.publisher.write_file(one.path, one.fetched)
"""


def asked(number: int) -> UpdateRequest:
    """What a schedule asks for."""
    key = f"sha256:{number:064d}"
    return UpdateRequest(
        request_id=request_id(key),
        key=key,
        kind="cron",
        source_id="notes",
        dataset_id="levels",
        window_start_ms=START_MS,
        window_end_ms=START_MS + DAY_MS,
        actor="schedule:hours",
        accepted_at_ms=number,
    )


def dispatched(project: Inside, number: int | None, **changed: Any) -> list[RunReport]:
    """What is due, with one more request of the schedule; the reports of what was made."""
    reports: list[RunReport] = []
    with project._surroundings(), open_app(load(None, {})) as app:
        app.__dict__["kernel"] = replace(app.kernel, **changed)
        if number is not None:
            app.writer.requests().accept([asked(number)])
        app.dispatch_due("all", on_report=lambda _request, report: reports.append(report))
    return reports


@pytest.mark.parametrize("heard", ["between two steps", "at promotion"])
def test_told_to_stop(project: Inside, monkeypatch: pytest.MonkeyPatch, heard: str) -> None:
    """It stops between two steps, or is not promoted; it ends as cancelled in the ledger, the lineage and the
    explanation, and no process tries it again by itself: its successor has the work."""
    project.write("pipeline.py", CANCELS)
    project.configure(extra='pipeline: "pipeline.py:publish", output_version: "1"')
    every_ms = 0 if heard == "between two steps" else 3_600_000
    monkeypatch.setattr(Kernel, "heartbeat_ms", every_ms)
    (report,) = dispatched(project, 1, heartbeat=None)
    assert report.outcome == "failed"
    assert REASON in report.reason
    assert project.rows("SELECT status, error_code FROM runs") == [("failed", "CANCELLED")]
    ((state, outcome, reason),) = project.rows("SELECT state, outcome, reason FROM requests")
    assert (state, outcome, REASON in reason) == ("cancelled", "cancelled", True)
    assert project.rows("SELECT fate, reason FROM retry_states") == [("spent", "stopped")]
    assert project.rows("SELECT * FROM held") == []
    assert project.rows("SELECT * FROM promotions") == []
    nodes = project.rows("SELECT node, ending FROM attempts")
    assert ("", "abort") in nodes
    assert ("publish" in dict(nodes)) == (heard == "at promotion"), nodes
    assert [row[0] for row in project.rows("SELECT scope FROM locks WHERE run_id IS NOT NULL")] == []
    told = project.kfm("explain", project.rows("SELECT run_id FROM runs")[0][0]).out
    assert "it was stopped by a person" in told
    make_due(project)
    assert dispatched(project, None) == []
    project.write("pipeline.py", FINE)
    (successor,) = dispatched(project, 2)
    assert successor.word == "published"
    assert project.rows("SELECT status, attempts FROM runs") == [("success", 2)]
