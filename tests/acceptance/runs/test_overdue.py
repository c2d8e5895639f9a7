"""Expected data that has not come by its time is an incident, window by window."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from kfm.app import open_app
from kfm.config.loader import load
from kfm.model.incidents import TOPIC
from kfm.service.overdue import mark_overdue
from tests.acceptance.runs.conftest import Inside

pytestmark = pytest.mark.req("DAT-2")


def day(ago: int) -> str:
    return (datetime.now(UTC) - timedelta(days=ago)).strftime("%Y-%m-%d")


def look(project: Inside) -> int:
    with project._surroundings(), open_app(load(None, {})) as app:
        return mark_overdue(app)


def subjects(project: Inside) -> list[str]:
    found = project.rows("SELECT subject FROM incident_subjects ORDER BY subject")
    return [str(subject).removeprefix("notes ")[:10] for (subject,) in found]


def told(project: Inside) -> int:
    """How many changes of incidents hooks get."""
    return int(project.rows(f"SELECT COUNT(*) FROM outbox WHERE topic = '{TOPIC}'")[0][0])


@pytest.fixture
def expecting(project: Inside) -> Inside:
    """Each day since four days ago is expected within one minute; no schedule asks."""
    project.configure(extra=f"expect: {{within: PT1M, from: {day(4)}}}")
    return project


def test_one_incident_window_by_window(expecting: Inside) -> None:
    """All windows past their time are one incident of their dataset, told once; each ends with its own data,
    and the incident with the last."""
    assert look(expecting) == 4
    assert subjects(expecting) == [day(4), day(3), day(2), day(1)]
    assert expecting.rows("SELECT kind, state, affected FROM incidents") == [("overdue", "open", 4)]
    assert look(expecting) == 0
    assert told(expecting) == 1
    assert expecting.kfm("run", "--window", f"{day(2)}/P1D").code == 0
    assert subjects(expecting) == [day(4), day(3), day(1)]
    window = f"{day(3)}/P1D"
    dismissed = expecting.kfm("dismiss", "levels", window, "--rationale", "the gauge was away", "--yes")
    assert dismissed.code == 0, dismissed.err
    assert subjects(expecting) == [day(4), day(1)]
    for ago in (4, 1):
        assert expecting.kfm("run", "--window", f"{day(ago)}/P1D").code == 0
    assert expecting.rows("SELECT state FROM incidents") == [("resolved",)]
    assert told(expecting) == 2
    assert look(expecting) == 0


def test_a_window_that_is_expected_again_is_told_again(expecting: Inside) -> None:
    """Dismissed by mistake: once that is undone, it is overdue as before."""
    look(expecting)
    window = f"{day(3)}/P1D"
    expecting.kfm("dismiss", "levels", window, "--rationale", "the gauge was away", "--yes")
    assert day(3) not in subjects(expecting)
    undone = expecting.kfm("dismiss", "levels", window, "--undo", "--rationale", "it was not", "--yes")
    assert undone.code == 0, undone.err
    look(expecting)
    assert day(3) in subjects(expecting)


@pytest.mark.req("DAT-4", "DAT-5")
def test_a_window_that_loses_its_data_is_told(expecting: Inside) -> None:
    """A rollback takes a window from readers, or a withdrawal is lifted: it is overdue, and told."""
    window, why = f"{day(2)}/P1D", ("--yes", "--rationale", "it was wrong")
    for ago in (4, 3, 2, 1):
        assert expecting.kfm("run", "--window", f"{day(ago)}/P1D").code == 0
    assert look(expecting) == 0
    assert expecting.kfm("rollback", "levels", "--to", "2", *why).code == 0
    assert look(expecting) == 2
    assert subjects(expecting) == [day(2), day(1)]
    assert expecting.kfm("switch", "set", "running", "--dataset", "levels", *why[1:]).code == 0
    for ago in (2, 1):
        assert expecting.kfm("run", "--window", f"{day(ago)}/P1D").code == 0
    assert subjects(expecting) == []
    assert expecting.kfm("withdraw", "levels", "--window", window, *why).code == 0
    assert look(expecting) == 0
    assert expecting.kfm("withdraw", "levels", "--window", window, "--lift", *why).code == 0
    assert look(expecting) == 1
    assert subjects(expecting) == [day(2)]


@pytest.mark.req("DAT-5")
def test_a_withdrawn_window_is_overdue_no_more(expecting: Inside) -> None:
    """What must not come is not waited for: its part of the incident ends with the withdrawal."""
    look(expecting)
    window = f"{day(2)}/P1D"
    for ago in (4, 3, 1):
        assert expecting.kfm("run", "--window", f"{day(ago)}/P1D").code == 0
    assert subjects(expecting) == [day(2)]
    ended = expecting.kfm(
        "withdraw", "levels", "--window", window, "--yes", "--rationale", "must not be shown"
    )
    assert ended.code == 0, ended
    assert expecting.rows("SELECT state FROM incidents WHERE kind = 'overdue'") == [("resolved",)]


def test_without_a_service(expecting: Inside) -> None:
    """`kfm schedule run-due` looks, too."""
    expecting.write("cron.yml", "version: 1\nschedules: []\n")
    assert expecting.kfm("schedule", "run-due").code == 0
    assert len(subjects(expecting)) == 4


def test_hooks_without_a_service(expecting: Inside) -> None:
    """Where nothing but `kfm schedule run-due` is called, hooks get the incident from it, once."""
    expecting.write("cron.yml", "version: 1\nschedules: []\n")
    config = expecting.folder / "kfm.yml"
    config.write_text(config.read_text() + "incidents:\n  - {kind: file, path: log/incidents.jsonl}\n")
    for _ in range(2):
        assert expecting.kfm("schedule", "run-due").code == 0
    sent = (expecting.folder / "log" / "incidents.jsonl").read_text().splitlines()
    assert [json.loads(line)["type"] for line in sent] == ["incident.opened"]


SLOW = """\
import time

def publish(context):
    time.sleep(1.5)
    for entry in context.inputs:
        context.publisher.write_file(entry.path, entry.fetched)
"""


def test_what_is_asked_for_is_not_overdue_meanwhile(project: Inside) -> None:
    """`kfm run --missing` looks at its end: no hook gets what it fills, and each window that it does not is
    overdue."""
    project.write("slow.py", SLOW)
    project.configure(extra=f'pipeline: "slow.py:publish", expect: {{within: PT1M, from: {day(2)}}}')
    assert project.kfm("run", "--missing", "--yes").code == 0
    assert (subjects(project), told(project)) == ([], 0)
    for path in (project.folder / "incoming").iterdir():
        path.unlink()
    project.configure(extra=f"expect: {{within: PT1M, from: {day(4)}}}")
    assert project.kfm("run", "--missing", "--yes").code == 0
    assert (subjects(project), told(project)) == ([day(4), day(3)], 1)


def test_a_scheduled_run_that_finds_nothing_is_not_called_published(project: Inside) -> None:
    """What `kfm schedule run-due` says of a request is the word of its run."""
    for path in (project.folder / "incoming").iterdir():
        path.unlink()
    project.write(
        "cron.yml", 'version: 1\nschedules: [{id: daily, source: notes, cron: "0 6 * * *", time_zone: UTC}]\n'
    )
    span = ("--from", day(3), "--to", day(2), "--yes", "--rationale", "the gauge is back")
    asked = project.kfm("schedule", "backfill", "daily", *span)
    assert asked.code == 0, asked.err
    assert project.kfm("schedule", "run-due").out.startswith("unchanged  notes")


def test_nothing_found_is_not_there(expecting: Inside) -> None:
    """A run that found nothing is no data: its window stays overdue."""
    look(expecting)
    for path in (expecting.folder / "incoming").iterdir():
        path.unlink()
    assert expecting.kfm("run", "--window", f"{day(2)}/P1D").code == 0
    assert subjects(expecting) == [day(4), day(3), day(2), day(1)]


def test_what_failed_has_its_own_incident(expecting: Inside) -> None:
    """A window whose run is quarantined is not told of twice."""
    expecting.write("incoming/a.csv", "wrong,header\n1\n")
    assert expecting.kfm("run", "--window", f"{day(2)}/P1D").code != 0
    assert look(expecting) == 3
    assert day(2) not in subjects(expecting)


def test_a_pass_has_a_limit_and_goes_on(expecting: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    """How far was looked is in the ledger: the next pass, of any process, goes on from there."""
    monkeypatch.setattr("kfm.service.overdue.WINDOWS_MAX", 3)
    assert look(expecting) == 3
    assert look(expecting) == 1
    assert len(subjects(expecting)) == 4


def test_two_services_tell_once(expecting: Inside) -> None:
    """Of two processes that have seen the same, one tells."""
    with expecting._surroundings(), open_app(load(None, {})) as app:
        windows = app.kernel.store.windows()
        assert windows.mark_overdue([], "notes", "r", None, 10)
        assert not windows.mark_overdue([], "notes", "r", None, 10)
        assert windows.mark_overdue([], "notes", "r", 10, 20)
        assert not windows.mark_overdue([], "notes", "r", 10, 20)
