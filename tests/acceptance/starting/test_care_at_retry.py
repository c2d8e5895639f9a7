"""A promised attempt that meets a CARE rule is ended at once, and persons learn of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.runs.conftest import Inside
from tests.acceptance.starting import desk
from tests.crash.project import WINDOW

pytestmark = pytest.mark.req("RET-9", "TRG-7")
RUN = ("run", "--source", "river", "--window", WINDOW, "--json")


@pytest.fixture
def barred(tmp_path: Path) -> Inside:
    """A run that failed with an error that may pass, and a community that has blocked its data since."""
    project = desk.open_desk(tmp_path)
    desk.break_down(project)
    assert project.kfm(*RUN).code == 1
    desk.mend(project)
    desk.configure(project, rights=desk.BLOCKED)
    desk.make_due(project)
    return project


@pytest.mark.parametrize("command", [("retry", "--due"), ("schedule", "run-due")])
def test_a_rule_that_blocks_the_data_ends_the_attempts(barred: Inside, command: tuple[str, ...]) -> None:
    """Refusal and review are in the audit log, an incident is open, the run is quarantined."""
    barred.kfm(*command)
    run = desk.run_id(barred)
    assert desk.runs(barred) == [("rivers", "failed", 1)]
    for kind in ("gate-refused", "review"):
        (entry,) = barred.governance(kind)
        assert json.loads(entry["details"])["dataset_id"] == "rivers"
    ((state, reason),) = barred.rows("SELECT state, reason FROM held WHERE subject = ?", run)
    assert (state, reason == "budget-spent") == ("held", False)
    incidents = barred.kfm("incident", "list", "--json").document["incidents"]
    assert [(one["about"], one["name"]) for one in incidents] == [("dataset", "rivers")]


def test_no_further_attempt_is_promised(barred: Inside) -> None:
    """It is refused once, not at each look; also if the data is released again, nothing begins by itself."""
    desk.retry_due(barred)
    desk.make_due(barred)
    desk.retry_due(barred)
    desk.run_due(barred)
    assert [len(barred.governance(kind)) for kind in ("gate-refused", "review")] == [1, 1]
    assert barred.kfm("retry", "--list", "--json").document["waiting"] == []
    desk.configure(barred)
    desk.make_due(barred)
    desk.retry_due(barred)
    assert desk.runs(barred) == [("rivers", "failed", 1)]
    assert not desk.published(barred)


def test_its_request_has_its_end(tmp_path: Path) -> None:
    """What a schedule asked for ends without success, with the rule's reason."""
    project = desk.open_desk(tmp_path)
    desk.break_down(project)
    request = desk.schedule_once(project)
    desk.run_due(project)
    desk.mend(project)
    desk.configure(project, rights=desk.BLOCKED)
    desk.make_due(project)
    desk.run_due(project)
    ended = desk.shown(project, request)
    assert (ended["state"], ended["outcome"] in ("refused", "failed")) == ("done", True)
    assert "CARE" in ended["reason"]


@pytest.mark.req("RET-9")
def test_an_attempt_that_the_gate_refuses_is_not_promised(tmp_path: Path) -> None:
    """Data under review needs a person's reasons: a failed run is either tried again with those that it was
    given, or nothing is promised."""
    project = desk.open_desk(tmp_path, rights=desk.REVIEW)
    desk.break_down(project)
    failed = project.kfm(*RUN, *desk.REASONS)
    assert failed.code == 1, failed
    promised = "next automatic attempt" in (failed.result["advice"] or "")
    waiting = project.kfm("retry", "--list", "--json").document["waiting"]
    assert len(waiting) == int(promised)
    desk.mend(project)
    desk.make_due(project)
    desk.retry_due(project)
    assert desk.runs(project) == [("rivers", "success", 2) if promised else ("rivers", "failed", 1)]
