"""Readers of a published tree see whole versions only, and never an older one after a newer."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.acceptance.runs.reader import read_version
from tests.crash.project import RIGHTS, Project, finish
from tests.crash.scenarios import child_command

HERE = Path(__file__).parent
PROMOTIONS = 1000
KILL_EVERY_SECONDS = (0.4, 1.5)
TIMEOUT_SECONDS = 300.0
SOURCES = ("one", "two")

CONFIG = f"""\
version: 1
lease: {{seconds: 5}}
datasets: [{{id: levels, domain: hydrology, rights: {RIGHTS}}}]
publish: [{{kind: local, path: published}}]
sources:
  - {{id: one, dataset: levels, kind: files, folder: incoming-one, path: "one.csv"}}
  - {{id: two, dataset: levels, kind: files, folder: incoming-two, path: "two.csv"}}
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path / "project")
    made.write("kfm.yml", CONFIG)
    for source in SOURCES:
        made.write(f"incoming-{source}/levels.csv", "station,level_m\nfirst,1.5\n")
    return made


def start_promoter(project: Project, source: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(HERE / "promoter.py"), str(project.folder), source, str(PROMOTIONS)]
    return project.start(command=command)


def start_reader(project: Project, stop: Path) -> subprocess.Popen[str]:
    command = [sys.executable, str(HERE / "reader.py"), str(project.published / "levels"), str(stop)]
    return project.start(command=command)


def promote_under_fire(project: Project, rng: random.Random) -> int:
    """Two processes promote; now and then one of them is killed and started again. Returns how many were."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    promoters = {source: start_promoter(project, source) for source in SOURCES}
    killed = 0
    try:
        while any(promoter.poll() is None for promoter in promoters.values()):
            assert time.monotonic() < deadline, "the promoters did not come far enough"
            time.sleep(rng.uniform(*KILL_EVERY_SECONDS))
            source = rng.choice(SOURCES)
            if promoters[source].poll() is None:
                promoters[source].kill()
                promoters[source].communicate()
                killed += 1
                promoters[source] = start_promoter(project, source)
        for promoter in promoters.values():
            ended = finish(promoter)
            assert ended.code == 0, ended
    finally:
        for promoter in promoters.values():
            promoter.kill()
            promoter.communicate()
    return killed


@pytest.mark.slow
@pytest.mark.req("TRG-4", "UPD-8")
def test_readers_see_whole_versions_in_order(project: Project) -> None:
    """A thousand promotions by two processes that get killed: every look is at a whole version."""
    stop = project.folder / "stop"
    reader = start_reader(project, stop)
    try:
        killed = promote_under_fire(project, random.Random(1))
        # By the command, from outside: whatever the last of them left undone is made good.
        assert finish(project.start("project")).code == 0
    finally:
        stop.touch()
    seen = json.loads(finish(reader).out)
    assert seen["problems"] == []
    ((promotions,),) = project.rows("SELECT max(sequence) FROM promotions")
    assert promotions >= PROMOTIONS
    assert seen["newest"] == promotions
    assert seen["reads"] > 200
    assert seen["versions"] > 50, "the reader saw too few different versions to prove anything"
    assert killed >= 3


@pytest.mark.req("TRG-4")
def test_the_reader_notices(project: Project, tmp_path: Path) -> None:
    """The reader of these tests is not blind: changed bytes, a missing file and a step back are told."""
    for source in SOURCES:
        assert finish(project.start("run", "--window", "2026-01-01/P1D", "--source", source)).code == 0
    version = (project.published / "levels/current").resolve()
    assert read_version(version) == []
    stop = tmp_path / "stop"
    reader = start_reader(project, stop)
    time.sleep(0.5)
    older = next(path for path in version.parent.iterdir() if path.name.startswith("00000001"))
    swap = project.published / "levels" / "swap"
    swap.symlink_to(f"versions/{older.name}")
    swap.rename(project.published / "levels" / "current")
    time.sleep(0.2)
    stop.touch()
    assert "1 after 2" in json.loads(finish(reader).out)["problems"]
    (version / "data" / "two.csv").unlink()  # others may be links to the same bytes
    (version / "data" / "two.csv").write_bytes(b"other")
    assert len(read_version(version)) == 1
    (version / "data" / "two.csv").unlink()
    with pytest.raises(FileNotFoundError):
        read_version(version)


@pytest.mark.req("TRG-4")
def test_a_stopped_projector_cannot_step_back(project: Project) -> None:
    """A process that was stopped before it moved the pointer does not move it back when it goes on."""
    note = project.folder.with_name("note")
    project.kfm("run", "--window", "2026-01-01/P1D", "--source", "one")
    project.write("incoming-one/levels.csv", "station,level_m\nsecond,1.5\n")
    ticks = ticks_of_projection(project)
    for tick in range(1, ticks + 1, STRIDE):
        content = f"station,level_m\ntick-{tick},1.5\n"
        project.write("incoming-one/levels.csv", content)
        command = [*child_command(note, "project", tick, signal.SIGSTOP), "--source", "one"]
        stopped = project.start(command=command)
        _, status = os.waitpid(stopped.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), (tick, status)
        if not json.loads(note.read_text())["writing"]:  # else its successor would have to wait
            project.write("incoming-two/levels.csv", content)
            newer = project.kfm("run", "--json", "--window", "2026-01-01/P1D", "--source", "two")
            assert newer.code == 0, newer
        shown = os.readlink(project.published / "levels/current")
        stopped.send_signal(signal.SIGCONT)
        assert finish(stopped).code == 0
        assert sequence(os.readlink(project.published / "levels/current")) >= sequence(shown)
        assert read_version((project.published / "levels/current").resolve()) == []


STRIDE = 12


def sequence(target: str) -> int:
    return int(target.rpartition("/")[2].partition("-")[0])


def ticks_of_projection(project: Project) -> int:
    """How many operations a projection has, counted in a copy."""
    copy = Project(project.folder.with_name("copy"))
    shutil.copytree(project.folder, copy.folder, symlinks=True)
    note = copy.folder.with_name("counts")
    ended = finish(copy.start(command=[*child_command(note, "end", 1, 0), "--source", "one"]))
    assert ended.code == 0, ended
    return int(json.loads(note.read_text())["counts"]["project"])
