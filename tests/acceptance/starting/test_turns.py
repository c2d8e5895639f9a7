"""Datasets take turns: what waits, fails or is blocked in one of them delays no other."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.runs.conftest import Inside
from tests.acceptance.service.served import SECRET, serving
from tests.acceptance.starting import desk

pytestmark = pytest.mark.req("TRG-1", "TRG-3")

BLOCKED = 100  # as many as one look used to take in
WAITING = 8
# A retry that waits until that of the other dataset is at work, too; alone it gives up after a while.
TOGETHER = """\
import os
import time


def publish(context):
    if os.path.exists("broken"):
        raise TimeoutError("no answer")
    open(f"began-{context.dataset_id}", "w").close()
    ends = time.monotonic() + 6
    while not (os.path.exists("began-rivers") and os.path.exists("began-lakes")):
        if time.monotonic() > ends:
            raise ValueError("the other one has not begun")
        time.sleep(0.01)
    for one in context.inputs:
        context.publisher.write_file(one.path, one.fetched)
"""


@pytest.fixture(scope="module")
def many_failed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in which many runs of one dataset, and then one of another, wait for a retry."""
    project = desk.open_desk(tmp_path_factory.mktemp("many"))
    desk.break_down(project)
    desk.ask_for_days(project, range(BLOCKED))
    desk.run_due(project)
    desk.ask(project, "other", source="lake")
    desk.run_due(project)
    assert len(desk.runs(project)) == BLOCKED + 1
    assert {status for _, status, _ in desk.runs(project)} == {"failed"}
    return project.folder


@pytest.fixture
def blocked(many_failed: Path, tmp_path: Path) -> Iterator[Inside]:
    """All are due, those of the paused dataset first."""
    shutil.copytree(many_failed, tmp_path / "project", symlinks=True)
    project = Inside(tmp_path / "project")
    project.env["RIVER_SECRET"] = SECRET
    desk.mend(project)
    told = project.kfm("switch", "set", "paused", "--dataset", "rivers", "--rationale", "storm")
    assert told.code == 0, told
    desk.make_due(project)
    desk.make_due(project, "lakes", at_ms=2)
    yield project
    assert not desk.published(project, "rivers")


@pytest.mark.slow
def test_blocked_attempts_hide_no_other(blocked: Inside) -> None:
    """However many attempts of a paused dataset are due, `kfm retry --due` makes that of another."""
    desk.retry_due(blocked)
    assert blocked.rows("SELECT status, attempts FROM runs WHERE dataset_id = 'lakes'") == [("success", 2)]


@pytest.mark.slow
def test_blocked_attempts_hide_no_other_from_a_service(blocked: Inside) -> None:
    """Nor do they keep a service from it."""
    with serving(blocked.folder) as served:
        desk.eventually(lambda: desk.published(blocked, "lakes"), lambda: served.said)


def test_retries_run_side_by_side(tmp_path: Path) -> None:
    """Two runners make the retries of two datasets at the same time."""
    project = desk.open_desk(tmp_path)
    project.write("pipeline.py", TOGETHER)
    desk.break_down(project)
    project.run()
    assert desk.runs(project) == [("rivers", "failed", 1), ("lakes", "failed", 1)]
    desk.mend(project)
    desk.make_due(project)
    with serving(project.folder) as served:
        desk.eventually(
            lambda: desk.published(project, "rivers") and desk.published(project, "lakes"),
            lambda: (desk.runs(project), served.said),
        )


def test_a_long_queue_keeps_no_other_dataset_behind_it(tmp_path: Path) -> None:
    """Of many waiting requests of one dataset and a later one of another, the later one is next or second."""
    project = desk.open_desk(tmp_path, runners=1)
    desk.ask_for_days(project, range(WAITING))
    desk.ask(project, "later", source="lake")
    assert desk.run_due(project).code == 0
    began = [row[0] for row in project.rows("SELECT dataset_id FROM invocations ORDER BY number")]
    assert len(began) == WAITING + 1
    assert began.index("lakes") <= 2, began


def test_retries_take_turns_with_what_is_new(tmp_path: Path) -> None:
    """A dataset's many due retries do not keep another's new request behind all of them."""
    project = desk.open_desk(tmp_path, runners=1)
    desk.break_down(project)
    desk.ask_for_days(project, range(WAITING))
    desk.run_due(project)
    desk.mend(project)
    desk.make_due(project)
    desk.ask(project, "new", source="lake")
    desk.run_due(project)
    began = [row[0] for row in project.rows("SELECT dataset_id FROM invocations ORDER BY number")]
    assert len(began) == 2 * WAITING + 1
    assert began[WAITING:].index("lakes") <= 2, began
