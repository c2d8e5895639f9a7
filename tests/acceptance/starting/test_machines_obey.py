"""Machines that meet a failed run: they wait for its time, and do not repeat what can't get better."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from hashlib import sha256
from typing import Any

import pytest

from tests.acceptance.starting.conftest import (
    BY_A_PERSON,
    SECONDS_MAX,
    Starter,
    Starting,
    Throttling,
    make_due,
)
from tests.crash.project import WINDOW, environment, table

TIME = re.compile(r"waits until \d{4}-\d\d-\d\d[ T]\d\d:\d\d")
ANN = "a token of ann that is long enough"
NOTES = ("--source", "notes")


def fail_first(starter: Starter, *mode: str) -> None:
    """The first request's attempt fails; from now on the pipeline would do."""
    starter.project.mode(*mode)
    starter.ask(1)
    starter.work_off()
    assert starter.project.attempts() == [("failed", 1)]
    starter.project.mode()


# --- not before --------------------------------------------------------------------------


@pytest.mark.req("TRG-1", "TRG-3")
def test_the_next_request_waits_for_the_runs_time(project: Starting, starter: Starter) -> None:
    """A webhook, a scheduled time or arrivals for a run that failed: nothing is tried before its time, the
    second request waits, and both end with the run."""
    fail_first(starter, "slow")
    starter.ask(2)
    starter.work_off()
    assert project.attempts() == [("failed", 1)]
    assert not starter.request(2).is_settled
    make_due(project)
    starter.work_off()
    assert project.attempts() == [("success", 2)]
    ((run_id,),) = project.rows("SELECT run_id FROM runs")
    for number in (1, 2):
        assert starter.request(number).outcome in ("success", "noop")
        assert (starter.request(number).state, starter.request(number).run_id) == ("done", run_id)


@pytest.mark.req("RET-5")
def test_the_next_request_waits_as_long_as_upstream_asked(
    project: Starting, starter: Starter, throttling: Throttling
) -> None:
    """`Retry-After` of the failed attempt holds for whatever asks next: upstream is left in peace."""
    project.set_up(kind=throttling.kind)
    throttling.wants(seconds=600)
    starter.ask(1)
    starter.work_off()
    ((not_before_ms, failed_ms),) = project.rows("SELECT not_before_ms, updated_at_ms FROM retry_states")
    assert not_before_ms - failed_ms > 590_000
    asked = throttling.asked
    starter.ask(2)
    starter.work_off()
    assert (throttling.asked, project.attempts()) == (asked, [("failed", 1)])
    assert not starter.request(2).is_settled
    assert starter.request(2).not_before_ms >= not_before_ms


# --- quarantine --------------------------------------------------------------------------


@pytest.mark.req("RET-2")
def test_what_is_quarantined_is_not_repeated(project: Starting, starter: Starter) -> None:
    """A schema error is executed once, whatever asks again with the same inputs; the request is refused."""
    fail_first(starter, "wrong")
    assert project.rows("SELECT kind FROM held") == [("quarantine",)]
    starter.ask(2)
    starter.work_off()
    assert (project.attempts(), len(project.executions)) == ([("failed", 1)], 1)
    assert starter.request(2).ended == ("done", "refused")
    assert project.rows("SELECT state FROM held") == [("held",)]


@pytest.mark.req("RET-2")
def test_a_machines_run_does_not_repeat_what_is_quarantined(project: Starting) -> None:
    """`kfm run` of a cron job is refused, too."""
    project.mode("wrong")
    assert project.run(*NOTES).code == 1
    again = project.run(*NOTES)
    assert (again.code, len(project.executions)) == (3, 1), again


# --- budgets -----------------------------------------------------------------------------


@pytest.mark.req("TRG-1")
@pytest.mark.parametrize("trouble", ["slow", "riddles"])
def test_good_news_is_not_refused(project: Starting, trouble: str) -> None:
    """Three webhooks in a second spend one attempt; the fourth, sent because upstream is mended, is run and
    published, without a person."""
    project.write("incoming/a.csv", f"station,level_m\n{trouble},1\n")
    for number in range(3):
        project.hook(f"message-{number}")
        project.work_off()
    assert (project.attempts(), len(project.executions)) == ([("failed", 1)], 1)
    project.write("incoming/a.csv", table("mended", 4))
    request = project.hook("mended")
    project.work_off()
    if trouble == "slow":  # an attempt was promised: it is made then
        make_due(project)
        project.work_off()
    assert project.request(request).ended == ("done", "success")
    assert len(project.promoted) == 1
    assert project.rows("SELECT count(*) FROM governance WHERE kind = 'governed-retry'") == [(0,)]


# --- kfm run -----------------------------------------------------------------------------


@pytest.fixture
def failed(project: Starting) -> Starting:
    """A run by hand that failed, and waits for its next attempt."""
    project.mode("slow")
    assert project.run(*NOTES).code == 1
    project.mode()
    return project


@pytest.mark.req("TRG-1", "CLI-1")
def test_without_a_terminal_it_waits(failed: Starting) -> None:
    """`kfm run` of a timer or a build is told until when, with the code for busy, and tries nothing."""
    told = failed.kfm("run", *NOTES, "--window", WINDOW)
    assert told.code == 5, told
    assert TIME.search(told.out + told.err), told
    assert failed.attempts() == [("failed", 1)]


@pytest.mark.req("RET-5")
def test_without_a_terminal_it_waits_as_long_as_upstream_asked(
    project: Starting, throttling: Throttling
) -> None:
    """A cron job does not ask an upstream again that wants to be left in peace."""
    project.set_up(kind=throttling.kind)
    throttling.wants(seconds=100)
    assert project.run(*NOTES).code == 4
    asked = throttling.asked
    told = project.run(*NOTES)
    assert (told.code, throttling.asked) == (5, asked), told


def test_what_is_due_needs_no_person(failed: Starting) -> None:
    """Once the time has come, a machine's `kfm run` makes the attempt."""
    make_due(failed)
    ended = failed.run(*NOTES)
    assert (ended.code, failed.attempts()) == (0, [("success", 2)]), ended


@pytest.mark.req("GOV-3")
def test_now_passes_for_a_person(failed: Starting) -> None:
    """`--now --rationale` runs at once, and the reason is on record."""
    ended = failed.run(*NOTES, *BY_A_PERSON)
    assert ended.code == 0, ended
    assert failed.attempts() == [("success", 2)]
    assert (BY_A_PERSON[-1],) in failed.rows("SELECT rationale FROM invocations")


@pytest.mark.req("GOV-3", "CLI-1")
def test_now_takes_a_reason(failed: Starting) -> None:
    """`--now` alone is a mistake of usage; nothing is tried."""
    told = failed.kfm("run", *NOTES, "--window", WINDOW, "--now")
    assert told.code in (2, 3), told
    assert "--rationale" in told.err
    assert failed.attempts() == [("failed", 1)]


@pytest.mark.usefixtures("terminal")
def test_at_a_terminal_it_runs_at_once(failed: Starting) -> None:
    """A person is not held back by a time."""
    ended = failed.run(*NOTES)
    assert ended.code == 0, ended
    assert failed.attempts() == [("success", 2)]


def test_a_real_terminal_is_a_person(failed: Starting) -> None:
    """The same, with a terminal of the operating system as standard input."""
    ours, theirs = pty.openpty()
    try:
        ended = subprocess.run(
            failed.command("run", *NOTES, "--window", WINDOW, "--json"),
            cwd=failed.folder,
            env=environment(**failed.env),
            stdin=theirs,
            capture_output=True,
            timeout=SECONDS_MAX,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert ended.returncode == 0, ended
    assert failed.attempts() == [("success", 2)]


@pytest.mark.req("GOV-3")
def test_a_declared_persons_token_is_a_person(project: Starting) -> None:
    """A call of the API with the token of a declared person runs at once."""
    project.mode("slow")
    assert project.run(*NOTES).code == 1
    project.mode()
    digest = sha256(ANN.encode()).hexdigest()
    settings = (project.folder / "kfm.yml").read_text()
    project.write(
        "kfm.yml", f'{settings}people:\n  - {{subject: ann, roles: [operate], tokens: ["sha256:{digest}"]}}\n'
    )
    request = post(project, {"source": "notes", "window": WINDOW, "rationale": "the flood is now"})
    project.env["KFM_TOKEN"] = ANN  # who runs it has to be declared, too
    project.work_off()
    assert project.request(request).ended == ("done", "success")
    assert project.attempts() == [("success", 2)]


def post(project: Starting, document: dict[str, Any]) -> str:
    """An update that ann asks for over HTTP; the id of her request."""
    from starlette.testclient import TestClient

    from kfm.config.loader import load
    from kfm.web.request_context import WebContext
    from kfm.web.web_app import WebApplication

    with project._surroundings():
        web = WebApplication(WebContext(load(None, {}))).asgi(())
        with TestClient(web, base_url="http://127.0.0.1") as client:
            answer = client.post(
                "/api/v1/requests", json=document, headers={"Authorization": f"Bearer {ANN}"}
            )
    assert answer.status_code == 202, answer.text
    return str(answer.json()["request"]["request_id"])
