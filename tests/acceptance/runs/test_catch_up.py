"""Catch-up as a whole: what a gate refused while rights were missing is asked for once they are there."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from tests.acceptance.runs.conftest import Inside
from tests.crash.project import RIGHTS

pytestmark = pytest.mark.req("DAT-2")

DAY_MS = 86_400_000
DAILY = (
    'version: 1\nschedules: [{id: daily, source: notes, cron: "0 0 * * *", missed: {run: last, cap: 3}}]\n'
)


def away(project: Inside, days: int) -> None:
    """No service has looked for so many days."""
    with closing(sqlite3.connect(project.folder / ".kfm" / "kfm.db", isolation_level=None)) as database:
        database.execute(f"UPDATE schedules SET cursor_ms = cursor_ms - {days * DAY_MS}")
        database.execute(f"UPDATE instants SET last_ms = last_ms - {days * DAY_MS}")
        database.execute(f"UPDATE schedules SET left_ms = left_ms - {days * DAY_MS}")


def ended(project: Inside) -> list[object]:
    return [
        row[0] for row in project.rows("SELECT outcome FROM requests ORDER BY accepted_at_ms, request_id")
    ]


def test_refused_windows_are_asked_for_when_rights_are_there(project: Inside) -> None:
    """Three days were missed while the dataset had no right to be published: all are refused, none is lost.
    With the rights declared the next call asks for them again, and each is published."""
    project.write("cron.yml", DAILY)
    project.configure(rights="null")
    called = project.kfm("schedule", "run-due")
    assert called.code == 0, called.err
    away(project, 3)
    project.kfm("schedule", "run-due")
    assert ended(project) == ["refused"] * 3
    shown = project.kfm("schedule", "backfill", "daily", "--from", "2026-01-01", "--missed")
    assert "nothing to catch up" not in shown.out
    assert "refused" in shown.out
    project.kfm("schedule", "run-due")
    assert ended(project) == ["refused"] * 3, "nothing has changed"
    project.configure(rights=RIGHTS)
    project.kfm("schedule", "run-due")
    assert ended(project).count("success") == 3
    assert project.rows("SELECT COUNT(DISTINCT window_start_ms) FROM runs WHERE status = 'success'") == [(3,)]
    shown = project.kfm("schedule", "backfill", "daily", "--from", "2026-01-01", "--missed")
    assert "refused" not in shown.out


def test_a_dataset_with_an_extent_is_scheduled(project: Inside) -> None:
    """What gates decide by is compared as a digest; an extent is no part of it, and stops no schedule."""
    project.write("cron.yml", DAILY)
    config = (project.folder / "kfm.yml").read_text()
    extent = "bbox: [-102.05, 36.99, -94.59, 40.0]"
    project.write("kfm.yml", config.replace("datasets:\n  - {", f"datasets:\n  - {{{extent}, ", 1))
    assert extent in (project.folder / "kfm.yml").read_text()
    assert project.kfm("schedule", "run-due").code == 0
    away(project, 1)
    assert project.kfm("schedule", "run-due").code == 0
    assert ended(project) == ["success"]
