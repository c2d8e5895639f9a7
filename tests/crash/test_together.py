"""Windows that are published together, killed anywhere: readers see none of them or all."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

from tests.crash.project import RIGHTS, Project, finish, table
from tests.crash.removals import command
from tests.published import items_in

DAYS = tuple(f"2026-01-{day:02}" for day in range(5, 9))
STRIKES = {"start": 6, "discover": 1, "fetch": 2, "validate": 2, "promote": 8, "project": 2}
CONFIG = f"""\
version: 1
environment: crash
lease: {{seconds: 1}}
datasets:
  - {{id: levels, rights: {RIGHTS}}}
publish:
  - {{kind: local, path: published}}
sources:
  - id: notes
    dataset: levels
    kind: files
    folder: incoming
    pattern: "{{window.start:date}}/*"
    window: P1D
    expect: {{from: '2026-01-05', within: P1D}}
"""
CHOSEN = ("run", "--missing", "levels", "--from", "2026-01-05", "--to", "2026-01-09", "--together", "--yes")
RUN = (*CHOSEN, "--json")


def shown(project: Project) -> int:
    """How many windows readers see."""
    current = project.published / "levels/current"
    if not current.exists():
        return 0
    items = items_in(current)
    assert all((current / "data" / one.path).exists() for item in items for one in item.files)
    return len(items)


def copied(template: Project, folder: Path) -> Project:
    shutil.copytree(template.folder, folder, symlinks=True)
    return Project(folder)


def counted(template: Project, folder: Path) -> dict[str, int]:
    """How many operations each phase has."""
    project, note = copied(template, folder), folder.with_suffix(".counts")
    ended = finish(project.start(command=command(note, "end", 1, 0, *RUN)))
    assert ended.code == 0, ended
    found: dict[str, int] = json.loads(note.read_text())["counts"]
    return found


@pytest.mark.slow
@pytest.mark.req("UPD-5", "DAT-3")
def test_readers_see_none_or_all(tmp_path: Path) -> None:
    """Wherever it is killed: no window alone, not by a retry either; the same command goes on with the same
    runs, one version has all, the audit log is whole, and nothing is left running."""
    template = Project(tmp_path / "template")
    template.write("kfm.yml", CONFIG)
    for day in DAYS:
        template.write(f"incoming/{day}/a.csv", table(day, 5))
    assert template.kfm("status", "--json").code == 0
    ticks = counted(template, tmp_path / "count")
    for phase, strikes in STRIKES.items():
        for number in range(min(strikes, ticks[phase])):
            project = copied(template, tmp_path / f"{phase}-{number}")
            tick = 1 + number * max(0, ticks[phase] - 1) // strikes
            note = project.folder.with_suffix(".note")
            finish(project.start(command=command(note, phase, tick, signal.SIGKILL, *RUN)))
            assert shown(project) in (0, len(DAYS)), (phase, tick)
            project.kfm("retry", "--due", "--json")
            assert project.rows("SELECT COUNT(*) FROM retry_states WHERE fate = 'retry'") == [(0,)]
            assert shown(project) in (0, len(DAYS)), (phase, tick)
            again = project.kfm(*RUN)
            assert again.code == 0, (phase, tick, again)
            assert project.kfm("project", "--json").code == 0
            assert shown(project) == len(DAYS), (phase, tick)
            assert project.rows("SELECT COUNT(*) FROM promotions") == [(1,)], (phase, tick)
            assert project.rows("SELECT DISTINCT status, outcome FROM runs") == [("success", "published")]
            assert project.rows("SELECT COUNT(*) FROM runs") == [(len(DAYS),)]
            assert project.rows("SELECT COUNT(*) FROM requests WHERE state <> 'done'") == [(0,)]
            assert project.rows("SELECT COUNT(*) FROM invocations WHERE outcome IS NULL") == [(0,)]
            assert project.rows("SELECT COUNT(*) FROM locks WHERE run_id IS NOT NULL") == [(0,)]
            assert project.kfm("audit", "verify", "--json").code == 0
