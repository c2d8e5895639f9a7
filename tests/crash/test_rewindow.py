"""Another window length, killed anywhere: the length is the old one or the new one, and readers see days or
the week."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

from tests.crash.project import RIGHTS, Project, finish, table
from tests.crash.removals import command
from tests.published import items_in

DAYS = tuple(f"2026-01-{day:02}" for day in range(5, 11))
WEEK = "2026-01-05/P1W"
STRIKES = 5  # at each command
CONFIG = """\
version: 1
environment: crash
lease: {{seconds: 1}}
datasets:
  - {{id: levels, rights: {rights}}}
publish:
  - {{kind: local, path: published}}
sources:
  - {{id: notes, dataset: levels, kind: files, folder: incoming, window: {window}}}
"""
REWINDOW = ("source", "rewindow", "notes", "--window", "P1W", "--yes", "--json", "--rationale", "campaign")
RUN = ("run", "--json", "--window", WEEK)


def configure(project: Project, window: str) -> None:
    project.write("kfm.yml", CONFIG.format(rights=RIGHTS, window=window))


def shown(project: Project) -> list[int]:
    """How many days each window that readers see is long."""
    current = project.published / "levels/current"
    items = items_in(current)
    assert all((current / "data" / one.path).exists() for item in items for one in item.files)
    return [(item.end_ms - item.start_ms) // 86_400_000 for item in items]


def ticks(template: Project, folder: Path, phase: str, *arguments: str) -> int:
    project = copied(template, folder)
    note = folder.with_suffix(".counts")
    ended = finish(project.start(command=command(note, "end", 1, 0, *arguments)))
    assert ended.code == 0, ended
    return int(json.loads(note.read_text())["counts"][phase])


def copied(template: Project, folder: Path) -> Project:
    shutil.copytree(template.folder, folder, symlinks=True)
    return Project(folder)


def struck(project: Project, phase: str, tick: int, *arguments: str) -> None:
    note = project.folder.with_suffix(".note")
    finish(project.start(command=command(note, phase, tick, signal.SIGKILL, *arguments)))


@pytest.mark.slow
@pytest.mark.req("DAT-5", "TRG-4")
def test_a_length_changes_wholly_or_not_at_all(tmp_path: Path) -> None:
    """Whatever is killed: one change at most, audited; the week takes the place of its days in one
    version."""
    template = Project(tmp_path / "template")
    configure(template, "P1D")
    template.write("incoming/a.csv", table("a", 20))
    for day in DAYS:
        assert template.kfm("run", "--json", "--window", f"{day}/P1D").code == 0
    total = ticks(template, tmp_path / "count-change", "start", *REWINDOW)
    for number in range(STRIKES):
        project = copied(template, tmp_path / f"change-{number}")
        struck(project, "start", 1 + number * (total - 1) // STRIKES, *REWINDOW)
        assert shown(project) == [1] * 6
        rules = project.rows("SELECT window_length, change_id FROM window_rules")
        changes = project.rows("SELECT change_id FROM dataset_changes")
        assert rules == ([("P1D", None)] if not changes else [("P1W", changes[0][0])])
        if not changes:
            assert project.kfm(*REWINDOW).code == 0
        assert len(project.rows("SELECT change_id FROM dataset_changes")) == 1
        assert project.kfm("audit", "verify", "--json").code == 0
    assert template.kfm(*REWINDOW).code == 0
    configure(template, "P1W")
    for phase in ("promote", "project"):
        total = ticks(template, tmp_path / f"count-{phase}", phase, *RUN)
        for number in range(STRIKES):
            project = copied(template, tmp_path / f"{phase}-{number}")
            struck(project, phase, 1 + number * (total - 1) // STRIKES, *RUN)
            assert shown(project) in ([1] * 6, [7])
            again = project.kfm("run", "--json", "--now", "--rationale", "again", "--window", WEEK)
            assert again.code == 0, again
            assert project.kfm("project", "--json").code == 0
            assert shown(project) == [7]
            assert project.kfm("audit", "verify", "--json").code == 0
