"""A request and a scheduled time say what became of their run in the end, not after its first attempt."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.runs.conftest import Inside
from tests.acceptance.service.served import body, serving
from tests.acceptance.starting import desk
from tests.crash.project import WINDOW

# Runs until it is told to stop; `began` is there once it is at work.
LONG = """\
import os
import time


def publish(context):
    open("began", "w").close()
    while not os.path.exists("go"):
        time.sleep(0.01)
    for one in context.inputs:
        context.publisher.write_file(one.path, one.fetched)
"""


@pytest.fixture
def waiting(tmp_path: Path) -> tuple[Inside, str]:
    """A schedule's request whose run has failed once, and has an attempt ahead."""
    project = desk.open_desk(tmp_path)
    desk.break_down(project)
    request = desk.schedule_once(project)
    desk.run_due(project)
    assert desk.runs(project) == [("rivers", "failed", 1)]
    return project, request


def history(project: Inside) -> dict[str, Any]:
    """The scheduled time, for programs."""
    told = project.kfm("schedule", "history", "yearly", "--since", "2026-01-01", "--json").document
    (only,) = [one for one in told["instants"] if one["request_id"] is not None]
    return dict(only)


@pytest.mark.req("TRG-1", "UPD-13")
def test_between_two_attempts_a_request_waits(waiting: tuple[Inside, str]) -> None:
    """It is open, with its run and the time of the next attempt; people read: waiting for a retry."""
    project, request = waiting
    shown = desk.shown(project, request)
    assert (shown["state"], shown["outcome"], shown["ended_at"]) == ("open", None, None)
    assert (shown["run_id"], shown["not_before"] is not None) == (desk.run_id(project), True)
    for command in (("requests", "show", request), ("requests", "list")):
        assert "waiting for a retry" in project.kfm(*command).out, command


@pytest.mark.req("TRG-1", "UPD-13")
def test_between_two_attempts_a_scheduled_time_waits(waiting: tuple[Inside, str]) -> None:
    """Its history does not say that it failed."""
    project, _ = waiting
    found = history(project)
    assert (found["state"], found["outcome"]) == ("open", None)
    told = project.kfm("schedule", "history", "yearly", "--since", "2026-01-01").out
    assert ("waiting for a retry" in told, "failed" in told) == (True, False), told


@pytest.mark.req("TRG-1", "UPD-13")
def test_after_a_retry_succeeded_both_say_so(waiting: tuple[Inside, str]) -> None:
    """Whatever made the retry: the request has succeeded, and so has the scheduled time."""
    project, request = waiting
    desk.mend(project)
    desk.make_due(project)
    desk.retry_due(project)
    assert desk.runs(project) == [("rivers", "success", 2)]
    shown, found = desk.shown(project, request), history(project)
    assert (shown["state"], shown["outcome"]) == ("done", "success")
    assert (found["state"], found["outcome"], found["run_id"]) == ("done", "success", desk.run_id(project))
    assert "published" in project.kfm("requests", "list").out


@pytest.mark.req("TRG-1", "TRG-7")
def test_after_the_last_attempt_it_has_failed(waiting: tuple[Inside, str]) -> None:
    """Once the run is given up, the request has failed, and not before."""
    project, request = waiting
    states = []
    for _ in range(5):
        states.append(desk.shown(project, request)["state"])
        desk.make_due(project)
        desk.retry_due(project)
    assert states == ["open"] * 5
    assert desk.runs(project) == [("rivers", "failed", 6)]
    ended = desk.shown(project, request)
    assert (ended["state"], ended["outcome"]) == ("done", "failed")


@pytest.mark.req("TRG-2", "UPD-12")
def test_a_senders_status_url_follows_the_run(tmp_path: Path) -> None:
    """A sender that polls reads `open` between two attempts, and `success` in the end."""
    project = desk.open_desk(tmp_path)
    desk.break_down(project)
    with serving(project.folder) as served:
        accepted = served.hook(body("one")).json()
        url = accepted["status_url"]

        def status() -> dict[str, Any]:
            return dict(served.get(url[url.index("/api/") :]).json()["request"])

        desk.eventually(lambda: status()["run_id"] is not None, status)
        desk.eventually(lambda: desk.runs(project) == [("rivers", "failed", 1)], lambda: served.said)
        desk.eventually(lambda: status()["state"] != "running", status)
        between = status()
        assert (between["state"], between["outcome"]) == ("open", None)
        desk.mend(project)
        desk.make_due(project)
        desk.eventually(lambda: status()["outcome"] == "success", status)
        assert status()["state"] == "done"


# --- cancelled ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.req("RET-2", "CLI-1")
def test_a_run_whose_request_is_cancelled_is_cancelled(tmp_path: Path) -> None:
    """Its code is CANCELLED wherever it is shown, nothing is published, and nothing is quarantined."""
    project = desk.open_desk(tmp_path)
    project.write("pipeline.py", LONG)
    request = desk.ask(project, "one")
    with serving(project.folder) as served:
        desk.eventually((project.folder / "began").exists, lambda: served.said)
        before = claimed_until(project)
        told = project.kfm("requests", "cancel", request, "--rationale", "not this one")
        assert told.code == 0, told
        # The runner has heard of it once its claim is renewed, or over.
        desk.eventually(lambda: claimed_until(project) != before, lambda: served.said)
        project.write("go", "")
        assert served.settled(request)["state"] == "cancelled"
    assert_cancelled(project)


@pytest.mark.req("RET-2", "CLI-1")
def test_a_run_that_a_person_interrupts_is_cancelled(tmp_path: Path) -> None:
    """Ctrl-C ends it with the same code."""
    project = desk.open_desk(tmp_path)
    project.write("pipeline.py", LONG)
    running = project.start("run", "--source", "river", "--window", WINDOW)
    desk.eventually((project.folder / "began").exists, lambda: "it is at work")
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=30)
    assert running.returncode == 130
    assert_cancelled(project)


@pytest.mark.req("RET-2", "GOV-1")
def test_a_run_that_an_emergency_stop_ends_is_cancelled(tmp_path: Path) -> None:
    """Whatever cancels work in flight, its code is the same; what stopped it is the reason."""
    project = desk.open_desk(tmp_path)
    project.write("pipeline.py", LONG)
    running = project.start("run", "--source", "river", "--window", WINDOW)
    desk.eventually((project.folder / "began").exists, lambda: "it is at work")
    told = project.kfm("switch", "set", "stopped", "--dataset", "rivers", "--rationale", "storm")
    assert told.code == 0, told
    project.write("go", "")
    running.communicate(timeout=30)
    assert_cancelled(project)
    assert "switch" in str(project.rows("SELECT error_message FROM runs")).lower()


def claimed_until(project: Inside) -> object:
    return project.rows("SELECT state, claim_until_ms FROM requests")


def assert_cancelled(project: Inside) -> None:
    """It is cancelled wherever a code is kept, nothing is published, held or promised."""
    assert project.rows("SELECT status, error_code FROM runs") == [("failed", "CANCELLED")]
    ends = project.rows("SELECT ending, error_code FROM attempts WHERE node = ''")
    assert ends == [("abort", "CANCELLED")]
    shown = project.kfm("show", desk.run_id(project), "--json")
    assert shown.document["run"]["error_code"] == "CANCELLED"
    assert project.rows("SELECT * FROM held") == []
    assert not desk.published(project)
