"""What was cancelled is never published, whatever is killed; what a lost runner held is free at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.runs.conftest import Inside
from tests.acceptance.starting import desk
from tests.crash.project import WINDOW

NOT_THIS = ("--rationale", "not this one")
# At work until it is killed: `go` is there for a later attempt.
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


def try_everything(project: Inside) -> None:
    """Whatever could start work by itself."""
    for _ in range(2):
        desk.make_due(project)
        desk.run_due(project)
        desk.make_due(project)
        desk.retry_due(project)


def assert_cancelled(project: Inside, request: str) -> None:
    """The request and its run say so, nothing is published, nothing is ahead."""
    assert desk.shown(project, request)["state"] == "cancelled"
    assert project.rows("SELECT status, error_code FROM runs") == [("failed", "CANCELLED")]
    assert "cancelled" in project.kfm("explain", desk.run_id(project)).out.lower()
    assert not desk.published(project)
    assert project.kfm("retry", "--list", "--json").document["waiting"] == []


@pytest.mark.req("UPD-13", "TRG-3")
@pytest.mark.parametrize("kind", ["webhook", "cron"])
def test_a_runner_that_is_killed_before_it_hears_of_a_cancel(tmp_path: Path, kind: str) -> None:
    """After the restart the request is cancelled, its run says so, and nothing publishes it."""
    project = desk.open_desk(tmp_path)
    project.write("pipeline.py", LONG)
    request = desk.ask(project, "one") if kind == "webhook" else desk.schedule_once(project)
    runner = project.start("schedule", "run-due")
    desk.eventually((project.folder / "began").exists, lambda: "the run is at work")
    told = project.kfm("requests", "cancel", request, *NOT_THIS)
    assert told.code == 0, told
    runner.kill()
    runner.communicate(timeout=30)
    project.write("go", "")
    try_everything(project)
    assert_cancelled(project, request)
    assert desk.runs(project)[0][2] == 1


@pytest.mark.req("UPD-13", "TRG-3")
def test_a_cancel_before_the_killed_run_is_found(tmp_path: Path) -> None:
    """Released by the next dispatcher, and cancelled before the dead run is judged: nothing publishes it."""
    project = desk.open_desk(tmp_path)
    project.write("pipeline.py", LONG)
    request = desk.ask(project, "one")
    runner = project.start("schedule", "run-due")
    desk.eventually((project.folder / "began").exists, lambda: "the run is at work")
    runner.kill()
    runner.communicate(timeout=30)
    desk.change(project, "UPDATE requests SET state = 'open', claimed_by = NULL, claim_until_ms = 0")
    assert project.kfm("requests", "cancel", request, *NOT_THIS).code == 0
    project.write("go", "")
    try_everything(project)
    assert_cancelled(project, request)
    assert desk.runs(project)[0][2] == 1


@pytest.mark.req("UPD-13", "TRG-3")
@pytest.mark.parametrize("kind", ["webhook", "cron"])
def test_a_request_that_waits_for_a_retry_can_be_cancelled(tmp_path: Path, kind: str) -> None:
    """Then no process retries its run."""
    project = desk.open_desk(tmp_path)
    desk.break_down(project)
    request = desk.ask(project, "one") if kind == "webhook" else desk.schedule_once(project)
    desk.run_due(project)
    assert desk.runs(project) == [("rivers", "failed", 1)]
    told = project.kfm("requests", "cancel", request, *NOT_THIS)
    assert told.code == 0, told
    desk.mend(project)
    try_everything(project)
    assert desk.runs(project) == [("rivers", "failed", 1)]
    assert desk.shown(project, request)["state"] == "cancelled"
    assert not desk.published(project)
    assert project.kfm("retry", "--list", "--json").document["waiting"] == []
    assert len(project.governance("request-cancelled")) == 1


@pytest.mark.req("UPD-13", "TRG-3")
def test_a_call_that_waits_for_a_retry_can_be_cancelled(tmp_path: Path) -> None:
    """What a person's call left waiting is a request, too."""
    project = desk.open_desk(tmp_path)
    desk.break_down(project)
    assert project.kfm("run", "--source", "river", "--window", WINDOW).code == 1
    waiting = desk.only_request(project, "manual")
    assert (waiting["state"], waiting["run_id"]) == ("open", desk.run_id(project))
    assert project.kfm("requests", "cancel", waiting["request_id"], *NOT_THIS).code == 0
    desk.mend(project)
    try_everything(project)
    assert desk.runs(project) == [("rivers", "failed", 1)]


# --- a runner that lost its ledger -------------------------------------------------------


@contextmanager
def runners(project: Inside) -> Iterator[None]:
    """A service's runners, in this process."""
    from kfm.app import open_app
    from kfm.config.loader import load
    from kfm.service.runner import ServiceOptions, ServiceThreads

    with project._surroundings():
        loaded = load(None, {})
        options = ServiceOptions(schedules=False, worker=False)
        service = ServiceThreads(loaded, options, partial(open_app, loaded))
        service.start()
        try:
            yield
        finally:
            service.stop()
            service.join()


def lose_first_answer(claim: Callable[..., Any]) -> Callable[..., Any]:
    """A claim that is made, while its answer is lost with the connection; the first time."""
    from kfm.model.errors import BackendUnavailable

    once = threading.Lock()

    def lossy(*given: Any, **named: Any) -> Any:
        claimed = claim(*given, **named)
        if claimed and once.acquire(blocking=False):
            raise BackendUnavailable("The connection was lost.")
        return claimed

    return lossy


@pytest.mark.req("TRG-2", "UPD-12")
def test_a_runner_that_comes_back_gives_its_former_claim_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A runner whose connection broke opens the ledger anew, under another worker id; its dataset does not
    wait for the claim of the former one."""
    from kfm.db.requests import Requests

    project = desk.open_desk(tmp_path)
    request = desk.ask(project, "one")
    monkeypatch.setattr(Requests, "claim", lose_first_answer(Requests.claim))
    with runners(project):
        desk.eventually(
            lambda: project.rows("SELECT state FROM requests") == [("done",)],
            lambda: project.rows("SELECT state, claimed_by, claim_until_ms FROM requests"),
        )
    assert desk.shown(project, request)["outcome"] == "success"
    assert desk.runs(project) == [("rivers", "success", 1)]
