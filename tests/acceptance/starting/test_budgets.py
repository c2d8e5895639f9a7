"""A budget is for one content and for trying again; it never punishes what was put right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.runs.conftest import Inside
from tests.acceptance.starting import desk
from tests.crash.project import CONTRACT, WINDOW
from tests.crash.upstream import Upstream, serving

RUN = ("run", "--source", "river", "--window", WINDOW, "--json")
GRANTS_MAX = 40  # in a day: fewer than these, and more than a partner needs to get it right
# Fails with an error that may pass, as long as the file is wrong.
PATIENT = """\
def publish(context):
    with open("incoming/a.csv") as file:
        if "wrong" in file.read():
            raise TimeoutError("no answer")
    for one in context.inputs:
        context.publisher.write_file(one.path, one.fetched)
"""


def deliver(project: Inside, text: str) -> None:
    """A partner's file."""
    project.write("incoming/a.csv", f"station,level_m\na-1,{text}\n")


# --- one budget for one content ----------------------------------------------------------


@pytest.mark.req("TRG-1", "TRG-3")
def test_the_seventh_file_is_published_by_its_webhook(tmp_path: Path) -> None:
    """Six files break the contract, each with a webhook; the seventh is right: it is seen, and goes out."""
    project = desk.open_desk(tmp_path, river="contract: contract.odcs.yaml")
    project.write("contract.odcs.yaml", CONTRACT)
    for number in range(6):
        deliver(project, f"{1000 + number}")
        wrong = desk.ask(project, f"{number}")
        desk.run_due(project)
        assert desk.runs(project) == [("rivers", "failed", number + 1)]
        assert desk.shown(project, wrong)["state"] == "done"
    deliver(project, "1.5")
    right = desk.ask(project, "right")
    desk.run_due(project)
    assert (desk.shown(project, right)["outcome"], desk.published(project)) == ("success", True)


@pytest.mark.req("TRG-1", "UPD-5")
def test_the_seventh_file_is_published_by_a_machines_call(tmp_path: Path) -> None:
    """The same with `kfm run` from a timer."""
    project = desk.open_desk(tmp_path, river="contract: contract.odcs.yaml")
    project.write("contract.odcs.yaml", CONTRACT)
    for number in range(6):
        deliver(project, f"{1000 + number}")
        assert project.kfm(*RUN).code == 3
        assert desk.runs(project) == [("rivers", "failed", number + 1)]
    deliver(project, "1.5")
    ended = project.kfm(*RUN)
    assert (ended.code, desk.published(project)) == (0, True), ended


@pytest.mark.req("TRG-1")
def test_the_seventh_file_is_published_by_an_automatic_attempt(tmp_path: Path) -> None:
    """Each attempt that finds another file has the attempts of a new budget ahead of it."""
    project = desk.open_desk(tmp_path)
    project.write("pipeline.py", PATIENT)
    deliver(project, "wrong0")
    assert project.kfm(*RUN).code == 1
    for number in range(1, 6):
        deliver(project, f"wrong{number}")
        desk.make_due(project)
        desk.retry_due(project)
    assert desk.runs(project) == [("rivers", "failed", 6)]
    assert project.rows("SELECT * FROM held WHERE state = 'held'") == []
    deliver(project, "1.5")
    desk.make_due(project)
    desk.retry_due(project)
    assert desk.runs(project) == [("rivers", "success", 7)]


@pytest.mark.req("TRG-1", "TRG-7")
def test_the_same_file_has_one_budget(tmp_path: Path) -> None:
    """At unchanged inputs six attempts of a call are all; then a machine is refused, and none is promised."""
    project = desk.open_desk(tmp_path)
    desk.break_down(project)
    assert project.kfm(*RUN).code == 1
    for _ in range(8):
        desk.make_due(project)
        desk.retry_due(project)
    assert desk.runs(project) == [("rivers", "failed", 6)]
    assert project.kfm(*RUN).code == 3
    assert desk.runs(project) == [("rivers", "failed", 6)]


@pytest.mark.req("TRG-1", "TRG-3")
def test_grants_for_changed_inputs_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that never comes right is not tried for ever: one piece of work has so many grants in a day, and
    new ones on the next."""
    project = desk.open_desk(tmp_path)
    project.write("pipeline.py", desk.WRONG)
    attempts = 0
    for number in range(GRANTS_MAX):
        deliver(project, f"{number}")
        last = desk.ask(project, f"{number}")
        desk.run_due(project)
        ((now,),) = project.rows("SELECT attempts FROM runs")
        if now == attempts:
            break
        attempts = now
    assert 7 <= attempts < GRANTS_MAX
    ended = desk.shown(project, last)
    assert (ended["state"], ended["outcome"]) == ("done", "refused")
    assert "day" in ended["reason"]
    project.write("pipeline.py", desk.PIPELINE)
    desk.pass_time(monkeypatch, desk.DAY_MS)
    desk.ask(project, "tomorrow")
    desk.run_due(project)
    assert desk.published(project)


# --- time --------------------------------------------------------------------------------


@pytest.mark.req("TRG-1", "UPD-5")
@pytest.mark.parametrize("asks", [RUN, ("retry", "--due", "--json"), ("schedule", "run-due", "--json")])
def test_a_run_that_failed_once_is_tried_hours_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asks: tuple[str, ...]
) -> None:
    """The attempt that was promised is made, also late: the time of a budget bounds what is promised."""
    project = desk.open_desk(tmp_path)
    desk.break_down(project)
    assert project.kfm(*RUN).code == 1
    desk.mend(project)
    desk.pass_time(monkeypatch, 7 * desk.HOUR_MS)
    ended = project.kfm(*asks)
    assert "1 attempts" not in ended.out + ended.err
    assert ended.code == 0, ended
    assert desk.runs(project) == [("rivers", "success", 2)]


@pytest.mark.req("TRG-1", "TRG-7")
def test_a_late_attempt_is_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it fails, no further one is promised, and what is said of it counts right."""
    project = desk.open_desk(tmp_path)
    desk.break_down(project)
    assert project.kfm(*RUN).code == 1
    desk.pass_time(monkeypatch, 7 * desk.HOUR_MS)
    desk.retry_due(project)
    assert desk.runs(project) == [("rivers", "failed", 2)]
    assert project.kfm("retry", "--list", "--json").document["waiting"] == []
    told = [
        project.kfm(*RUN),
        project.kfm("explain", desk.run_id(project)),
        project.kfm("quarantine", "list"),
    ]
    assert "1 attempts" not in "".join(one.out + one.err for one in told)


# --- circuits ----------------------------------------------------------------------------


@pytest.fixture
def tripped(tmp_path: Path) -> tuple[Inside, list[str]]:
    """Requests that wait for the circuit of a provider that was down."""
    with serving() as upstream:
        upstream.status = 503
        project = provided(tmp_path, upstream)
        asked = desk.ask_for_days(project, range(6))
        desk.run_due(project)
    return project, asked[1:]  # the calls of the first opened the circuit


def provided(folder: Path, upstream: Upstream) -> Inside:
    project = desk.open_desk(folder, runners=1)
    text = (project.folder / "kfm.yml").read_text()
    files = "    kind: files\n    folder: incoming\n"
    http = f'    kind: http\n    url: "{upstream.url}/levels.csv"\n    provider: gauges\n'
    project.write("kfm.yml", text.replace(files, http, 1))
    return project


@pytest.mark.req("RET-7")
def test_a_reset_wakes_what_waited_for_the_circuit(tripped: tuple[Inside, list[str]]) -> None:
    """`kfm breaker reset` makes the requests due that the circuit delayed: within seconds, and spread."""
    project, others = tripped
    now_ms = int(project.rows("SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER)")[0][0])
    assert min(times(project, others)) > now_ms + 120_000
    told = project.kfm("breaker", "reset", "gauges", "--rationale", "it is well")
    assert told.code == 0, told
    woken = times(project, others)
    assert max(woken) < now_ms + 60_000
    assert len(set(woken)) > 1


def times(project: Inside, requests: list[str]) -> list[int]:
    """When each of them is due."""
    found = dict(project.rows("SELECT request_id, not_before_ms FROM requests WHERE state = 'open'"))
    return [int(found[one]) for one in requests]
