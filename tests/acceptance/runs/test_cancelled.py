"""A run that is told to stop, because the next instant of its schedule overtook it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from kfm.app import open_app
from kfm.config.loader import load
from kfm.runs.kernel import RunReport, RunRequest
from tests.acceptance.runs.conftest import Inside
from tests.acceptance.runs.test_retries import FINE

pytestmark = pytest.mark.req("UPD-13", "TRG-3")
REASON = "Overtaken by the instant of 2026-01-02 01:00:00 UTC of hours."


def run(project: Inside, answers: Iterator[str | None]) -> RunReport:
    """A schedule's run whose every step asks whether it is to stop."""
    with project._surroundings(), open_app(load(None, {})) as app:
        app.__dict__["kernel"] = replace(app.kernel, cancelled=lambda: next(answers))
        made: RunReport = app.run(
            RunRequest(
                source_id="notes", window_spec="2026-01-01/2026-01-02", trigger_type="cron", actor="ada"
            )
        )
        assert app.dispatch_due("retries") == 0
    return made


@pytest.mark.parametrize("steps", [0, 1])
def test_told_to_stop(project: Inside, steps: int) -> None:
    """It stops between two steps, publishes nothing, ends as cancelled in the ledger, the lineage and the
    explanation, and no process tries it again by itself: its successor has the work. A person can."""
    project.write("pipeline.py", FINE)
    project.configure(extra='pipeline: "pipeline.py:publish", output_version: "1"')
    answers = iter([None] * steps + [REASON] * 100)
    report = run(project, answers)
    assert report.outcome == "failed"
    assert REASON in report.reason
    assert project.rows("SELECT status, error_code FROM runs") == [("failed", "CANCELLED")]
    assert project.rows("SELECT fate, reason FROM retry_states") == [("spent", "stopped")]
    assert project.rows("SELECT * FROM held") == []
    assert project.rows("SELECT * FROM promotions") == []
    assert {row[0] for row in project.rows("SELECT ending FROM attempts WHERE node = ''")} == {"abort"}
    assert [row[0] for row in project.rows("SELECT scope FROM locks WHERE run_id IS NOT NULL")] == []
    told = project.kfm("explain", project.rows("SELECT run_id FROM runs")[0][0]).out
    assert "it was stopped by a person" in told
    assert run(project, iter([None] * 100)).word == "published"
