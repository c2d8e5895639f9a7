"""`kfm schedule run-due` is all that a machine without a service needs: it makes retries, too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.runs.conftest import Inside
from tests.acceptance.starting import desk
from tests.crash.project import WINDOW


def by_person(project: Inside) -> None:
    project.kfm("run", "--source", "river", "--window", WINDOW)


def by_schedule(project: Inside) -> None:
    desk.schedule_once(project)
    desk.run_due(project)


def by_webhook(project: Inside) -> None:
    desk.ask(project, "one")
    desk.run_due(project)


def by_announcement(project: Inside) -> None:
    desk.announce(project)
    assert desk.work(project).code == 0


@pytest.mark.req("TRG-1", "TRG-7")
@pytest.mark.parametrize("begin", [by_person, by_schedule, by_webhook, by_announcement])
def test_a_due_retry_is_made(begin: Callable[[Inside], None], tmp_path: Path) -> None:
    """Whatever asked for a failed run: before its time nothing is due; then the attempt is made, and told."""
    project = desk.open_announced(tmp_path)
    desk.break_down(project)
    begin(project)
    assert desk.runs(project) == [("rivers", "failed", 1)]
    early = project.kfm("schedule", "run-due")
    assert (early.code, "nothing is due" in early.err) == (0, True), early
    desk.mend(project)
    desk.make_due(project)
    ended = project.kfm("schedule", "run-due")
    assert "nothing is due" not in ended.out + ended.err
    assert ended.code == 0, ended
    assert "published" in ended.out
    assert desk.runs(project) == [("rivers", "success", 2)]
    assert desk.published(project)


@pytest.mark.req("TRG-1")
def test_an_attempt_that_fails_again_is_told(tmp_path: Path) -> None:
    """A due retry that fails ends the command with 1, and has its next time."""
    project = desk.open_desk(tmp_path)
    desk.break_down(project)
    by_webhook(project)
    desk.make_due(project)
    ended = desk.run_due(project)
    assert desk.runs(project) == [("rivers", "failed", 2)]
    assert ended.code == 1, ended
    assert desk.run_due(project).document["requests"] == []
