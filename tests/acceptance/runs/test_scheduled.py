"""Retries of a schedule's runs, where a schedule says when the next run begins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from kfm.app import open_app
from kfm.config.loader import load
from kfm.model.records import Run
from kfm.runs.kernel import RunReport, RunRequest
from tests.acceptance.runs.conftest import Inside
from tests.acceptance.runs.test_retries import FINE, SLOW, change, make_due

pytestmark = pytest.mark.req("TRG-3")

FAR_MS = 3_600_000


@pytest.fixture
def hourly(project: Inside) -> Inside:
    project.write("pipeline.py", SLOW)
    project.configure(extra='pipeline: "pipeline.py:publish", output_version: "1"')
    return project


@contextmanager
def scheduled(project: Inside, next_in_ms: int) -> Iterator[Any]:
    """The application, with a schedule that begins its next run so soon."""
    with project._surroundings(), open_app(load(None, {})) as app:

        def next_ms(run: Run) -> int:
            assert run.trigger_type == "cron", "it is asked for no other trigger"
            return app.clock.now_ms() + next_in_ms

        app.__dict__["kernel"] = replace(app.kernel, next_scheduled_ms=next_ms)
        yield app


def run(app: Any, trigger: Any = "cron", window: str = "2026-01-01/2026-01-02") -> RunReport:
    made: RunReport = app.run(
        RunRequest(source_id="notes", window_spec=window, trigger_type=trigger, actor="ada")
    )
    return made


def retried(app: Any) -> list[RunReport]:
    """The promised attempts that are due, as they were made or put off."""
    reports: list[RunReport] = []
    app.dispatch_due("retries", on_report=lambda _request, report: reports.append(report))
    return reports


def test_what_would_overlap_is_left_to_the_next_run(hourly: Inside) -> None:
    """No retry before, no dead letter, and the reason says when; then it is tried beside that run."""
    with scheduled(hourly, 10_000) as app:
        report = run(app)
    assert hourly.rows("SELECT fate, reason FROM retry_states") == [("retry", "next-run")]
    assert hourly.rows("SELECT * FROM held") == []
    assert "with the next run of its schedule" in (report.advice or "")
    told = hourly.kfm("explain", hourly.rows("SELECT run_id FROM runs")[0][0]).out
    assert "together with the next run of its schedule" in told
    hourly.write("pipeline.py", FINE)
    with scheduled(hourly, FAR_MS) as app:
        assert retried(app) == []
        assert run(app, window="2026-01-02/2026-01-03").word == "published"
    make_due(hourly)
    with scheduled(hourly, 0) as app:  # what was left to a run is not left to the one after it unasked
        (made,) = retried(app)
    assert made.word == "published"


def test_a_retry_that_came_due_too_late_is_left_to_the_next_run(hourly: Inside) -> None:
    """It was to be made before the next run; no process made it, and now that run is about to begin. It is
    tried with that one, and is not left to the one after it."""
    with scheduled(hourly, FAR_MS) as app:
        run(app)
    assert hourly.rows("SELECT fate FROM retry_states") == [("retry",)]
    change(hourly, "UPDATE attempts SET started_at_ms = ended_at_ms - 60000")
    make_due(hourly)
    with scheduled(hourly, 10_000) as app:
        (passed,) = retried(app)
    assert passed.word == "waiting"
    assert "the next run of its schedule" in passed.reason
    assert hourly.rows("SELECT state, blocked_by FROM requests") == [("open", "next-run")]
    assert hourly.rows("SELECT fate, reason FROM retry_states") == [("retry", "next-run")]
    assert hourly.rows("SELECT attempts FROM runs") == [(1,)]
    assert hourly.rows("SELECT * FROM held") == []
    hourly.write("pipeline.py", FINE)
    make_due(hourly)
    with scheduled(hourly, 10_000) as app:
        (made,) = retried(app)
    assert made.word == "published"


def test_a_retry_with_time_enough_is_made(hourly: Inside) -> None:
    """The schedule's next run is far away, so the failed one is tried again."""
    with scheduled(hourly, FAR_MS) as app:
        run(app)
    hourly.write("pipeline.py", FINE)
    make_due(hourly)
    with scheduled(hourly, FAR_MS) as app:
        (made,) = retried(app)
    assert made.word == "published"


def test_a_person_s_run_knows_no_schedule(hourly: Inside) -> None:
    """Only a schedule's own runs are limited by it."""
    with scheduled(hourly, 0) as app:
        run(app, "manual")
    assert hourly.rows("SELECT fate FROM retry_states") == [("retry",)]


# --- as cron.yml says ----------------------------------------------------------------------

SECONDS = "version: 1\nschedules: [{id: seconds, source: notes, every: PT1S}]\n"
YEARS = "version: 1\nschedules: [{id: years, source: notes, cron: '0 0 29 2 *'}]\n"


def run_by(project: Inside, cron: str | None, window: str = "2026-01-01/2026-01-02") -> list[Any]:
    """A failed run of a schedule, beside this file; what was decided about it."""
    if cron is not None:
        project.write("cron.yml", cron)
    with project._surroundings(), open_app(load(None, {})) as app:
        run(app, window=window)
    return project.rows("SELECT reason, not_before_ms FROM retry_states")


def test_the_file_of_schedules_says_when(hourly: Inside) -> None:
    """Retries of a schedule's run are made with its next run where they would overlap it; never sooner than
    their backoff says."""
    ((reason, at_ms),) = run_by(hourly, SECONDS)
    assert reason == "next-run"
    ((ended_ms,),) = hourly.rows("SELECT end_time_ms FROM runs")
    assert at_ms - ended_ms > 10_000
    hourly.write("pipeline.py", FINE)
    make_due(hourly)
    with hourly._surroundings(), open_app(load(None, {})) as app:
        (made,) = retried(app)
    assert made.word == "published"


@pytest.mark.parametrize(
    ("cron", "window"),
    [
        (None, "2026-01-01/2026-01-02"),
        (YEARS, "2026-01-01/2026-01-02"),
        (SECONDS, "2026-01-01/2026-01-03"),
        (SECONDS.replace("PT1S", "PT1S, enabled: false"), "2026-01-01/2026-01-02"),
        ("version: 1\nschedules: [{id: oh dear}]\n", "2026-01-01/2026-01-02"),
    ],
    ids=["no-file", "far-away", "other-windows", "off", "broken"],
)
def test_where_no_next_run_is_near(hourly: Inside, cron: str | None, window: str) -> None:
    """Whatever else is scheduled, and whatever is wrong with the file, a run that failed is tried again."""
    ((reason, _),) = run_by(hourly, cron, window)
    assert reason == "retry"


def test_a_paused_schedule_begins_nothing(hourly: Inside) -> None:
    """So nothing is left to it."""
    hourly.write("cron.yml", SECONDS)
    assert hourly.kfm("schedule", "pause", "seconds", "--rationale", "flood").code == 0
    ((reason, _),) = run_by(hourly, None)
    assert reason == "retry"
