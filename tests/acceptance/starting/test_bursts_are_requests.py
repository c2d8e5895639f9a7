"""What announced objects ask for is a request as any other: it waits, it has an end, it names its objects."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.acceptance.runs.conftest import Inside
from tests.acceptance.starting import desk
from tests.crash.project import environment

pytestmark = pytest.mark.req("TRG-6")

# Dies when the target's pointer is about to move: the promotion is durable, and nothing has come after it.
DYING = """\
import os
import signal


def publish(context):
    for one in context.inputs:
        context.publisher.write_file(one.path, one.fetched)
    before = os.rename

    def rename(source, target, *more, **options):
        if str(target).endswith("current"):
            os.kill(os.getpid(), signal.SIGKILL)
        return before(source, target, *more, **options)

    os.rename = os.replace = rename
"""
Throw = Callable[[Inside], None]


@pytest.fixture
def project(tmp_path: Path) -> Inside:
    return desk.open_announced(tmp_path)


# --- what can't begin now waits ----------------------------------------------------------


def throw(position: str) -> Throw:
    def set_switch(project: Inside) -> None:
        told = project.kfm("switch", "set", position, "--dataset", "rivers", "--rationale", "storm")
        assert told.code == 0, told

    return set_switch


def freeze(project: Inside) -> None:
    now = datetime.now(UTC)
    start, end = (f"{now + timedelta(hours=hours):%Y-%m-%dT%H:%M:%SZ}" for hours in (-1, 1))
    freezes = f'freezes: [{{start: "{start}", end: "{end}", reason: Audit, datasets: [rivers]}}]\n'
    desk.configure(project, river="follows: [nexrad-l2]", more=desk.ANNOUNCED + freezes)


def thaw(project: Inside) -> None:
    desk.configure(project, river="follows: [nexrad-l2]", more=desk.ANNOUNCED)


@pytest.mark.req("GOV-1", "UPD-9")
@pytest.mark.parametrize(
    ("hold", "lift"),
    [(throw("paused"), throw("running")), (throw("stopped"), throw("running")), (freeze, thaw)],
    ids=["paused", "stopped", "frozen"],
)
def test_an_arrival_while_work_is_held_waits(project: Inside, hold: Throw, lift: Throw) -> None:
    """A thrown switch or a freeze delays what was announced meanwhile, with the reason; it is never lost."""
    hold(project)
    desk.announce(project)
    assert desk.work(project).code == 0
    assert desk.runs(project) == []
    lift(project)
    desk.make_due(project)
    assert desk.work(project).code == 0
    assert desk.runs(project) == [("rivers", "success", 1)]
    assert desk.published(project)
    ended = desk.only_request(project, "upstream-event")
    assert (ended["state"], ended["outcome"]) == ("done", "success")


@pytest.mark.req("GOV-1", "UPD-9")
@pytest.mark.parametrize(
    ("hold", "word"),
    [(throw("paused"), "paused"), (throw("stopped"), "stopped"), (freeze, "Audit")],
    ids=["paused", "stopped", "frozen"],
)
def test_what_an_arrival_waits_for_is_named(project: Inside, hold: Throw, word: str) -> None:
    """While it is held the request is open, and says what blocks it."""
    hold(project)
    desk.announce(project)
    desk.work(project)
    waiting = desk.only_request(project, "upstream-event")
    assert (waiting["state"], waiting["outcome"]) == ("open", None)
    assert word in waiting["reason"]
    assert waiting["not_before"] is not None


@pytest.mark.req("TRG-1")
def test_a_missing_pipeline_file_is_waited_for(project: Inside) -> None:
    """While a deployment replaces the file the worker goes on; the request says which file is missing."""
    # Without a declared version the code is part of what the work is, so it is read before anything begins.
    text = (project.folder / "kfm.yml").read_text()
    project.write("kfm.yml", text.replace('    output_version: "1"\n', "", 1))
    worker = subprocess.Popen(
        project.command("worker", "--stdin", "--until-idle"),
        cwd=project.folder,
        env=environment(**project.env),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    alive = project.state / "workers"
    desk.eventually(lambda: any(alive.glob("*")), lambda: "the worker has read its configuration")
    (project.folder / "pipeline.py").unlink()
    desk.announce(project)
    _, err = worker.communicate((project.folder / "spool" / "1.json").read_text() + "\n", timeout=60)
    assert worker.returncode == 0, err
    (project.folder / "spool" / "1.json").unlink()
    project.write("pipeline.py", desk.PIPELINE)  # without it no command reads the configuration
    waiting = desk.only_request(project, "upstream-event")
    assert (waiting["state"], "pipeline.py" in (waiting["reason"] or "")) == ("open", True), waiting
    desk.make_due(project)
    assert desk.work(project).code == 0
    assert desk.runs(project) == [("rivers", "success", 1)]


# --- its end -----------------------------------------------------------------------------


@pytest.mark.req("TRG-2", "TRG-6")
def test_a_worker_that_is_killed_after_the_promotion_left_it_done(
    project: Inside, caplog: pytest.LogCaptureFixture
) -> None:
    """The promotion ends the request, too: also if upstream has moved on when the next worker comes, nothing
    is busy, and the run is the only one."""
    project.write("pipeline.py", DYING)
    desk.announce(project)
    killed = project.start("worker", "--until-idle")
    killed.communicate(timeout=60)
    assert killed.returncode == -9
    assert desk.runs(project) == [("rivers", "success", 1)]
    project.write("pipeline.py", desk.PIPELINE)
    project.write("incoming/a.csv", "station,level_m\na-1,2.5\n")
    if project.rows("SELECT 1 FROM sqlite_master WHERE name = 'bursts'"):
        desk.change(project, "UPDATE bursts SET not_before_ms = 0")  # as if its claim had lapsed
    desk.make_due(project)
    assert desk.work(project).code == 0
    assert "kept changing" not in caplog.text
    ended = desk.only_request(project, "upstream-event")
    assert (ended["state"], ended["outcome"], ended["run_id"]) == ("done", "success", desk.run_id(project))
    assert desk.runs(project) == [("rivers", "success", 1)]


# --- its members -------------------------------------------------------------------------


def named(project: Inside, text: str, keys: list[str]) -> bool:
    """Is each announced object in a text, by its key or by the id of its unit?"""
    units = dict(project.rows("SELECT object_uri, wal_id FROM units"))
    return all(key in text or units[f"s3://{desk.BUCKET}/{key}"] in text for key in keys)


@pytest.fixture
def arrived(project: Inside) -> list[str]:
    """Two announced objects that led to one published run."""
    keys = [desk.announce(project, second) for second in (1, 2)]
    assert desk.work(project).code == 0
    assert desk.runs(project) == [("rivers", "success", 1)]
    return keys


@pytest.mark.req("RS-12", "TRG-6")
@pytest.mark.parametrize("command", ["explain", "show"])
def test_a_run_names_the_objects_that_asked_for_it(project: Inside, arrived: list[str], command: str) -> None:
    """After the end, too."""
    told = project.kfm(command, desk.run_id(project))
    assert told.code == 0, told
    assert named(project, told.out, arrived), told.out


@pytest.mark.req("RS-12", "TRG-6")
def test_a_request_names_its_objects(project: Inside, arrived: list[str]) -> None:
    """`kfm requests show` has them, for people and for programs; they stay in the ledger."""
    ended = desk.only_request(project, "upstream-event")
    assert named(project, json.dumps(ended), arrived)
    assert named(project, project.kfm("requests", "show", ended["request_id"]).out, arrived)
    kept = project.rows("SELECT * FROM request_members WHERE request_id = ?", ended["request_id"])
    assert len(kept) == 2


@pytest.mark.req("RS-12", "TRG-6")
def test_an_export_names_the_objects(project: Inside, arrived: list[str]) -> None:
    """The evidence of a run has the objects that asked for it."""
    made = project.kfm("export", desk.run_id(project), "--to", "evidence")
    assert made.code == 0, made
    files = [path for path in (project.folder / "evidence").rglob("*") if path.is_file()]
    assert named(project, "\n".join(path.read_text(errors="replace") for path in files), arrived)


@pytest.mark.req("TRG-7", "RS-12")
def test_a_dead_letter_names_the_objects(project: Inside) -> None:
    """What is quarantined says which announced objects it is about."""
    project.write("pipeline.py", desk.WRONG)
    keys = [desk.announce(project, second) for second in (1, 2)]
    desk.work(project)
    shown = project.kfm("quarantine", "show", desk.run_id(project), "--json")
    assert shown.code == 0, shown
    assert named(project, shown.out, keys), shown.out
    assert named(project, project.kfm("quarantine", "show", desk.run_id(project)).out, keys)
