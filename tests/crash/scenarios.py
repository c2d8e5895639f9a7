"""The worlds in which processes are interrupted: where the data comes from, and what was there before."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.crash.child import PHASES
from tests.crash.project import CONTRACT, PIPELINE, RIGHTS, WINDOW, Project, finish, table
from tests.crash.upstream import Upstream

CHILD = Path(__file__).with_name("child.py")
LEASE_SECONDS = 1.0
NAMES = ("files-first", "files-update", "sync-first", "sync-update")

_HEAD = f"""\
version: 1
environment: crash
lease: {{seconds: {LEASE_SECONDS}}}
datasets:
  - {{id: levels, title: Levels, domain: hydrology, rights: {RIGHTS}}}
publish:
  - {{kind: local, path: published}}
sources:
"""
_FILES = """\
  - {id: notes, dataset: levels, kind: files, folder: incoming, contract: contract.odcs.yaml}
"""
_SYNC = """\
  - {{id: gauges, dataset: levels, kind: http, url: "{url}/gauges.csv", contract: contract.odcs.yaml}}
  - {{id: wells, dataset: levels, kind: http, url: "{url}/wells.csv"}}
  - {{id: all, dataset: levels, kind: sync, members: [gauges, wells, notes], pipeline: "pipeline.py:publish"}}
"""


@dataclass(frozen=True)
class Scenario:
    """A folder to copy, and what an undisturbed run makes of it."""

    name: str
    template: Path
    tree: dict[str, str]
    runs: int
    ticks: dict[str, int]  # by phase
    seconds: dict[str, float]  # by phase

    def copy_to(self, folder: Path) -> Project:
        shutil.copytree(self.template, folder, symlinks=True)
        return Project(folder)


def child_command(note: Path, phase: str, number: int, sent: int) -> list[str]:
    """`kfm run` that strikes itself, or counts (signal 0)."""
    return [sys.executable, str(CHILD), str(note), phase, str(number), str(sent), *RUN]


RUN = ("run", "--json", "--window", WINDOW)


def build(name: str, scratch: Path, upstream: Upstream) -> Scenario:
    """Make the template, run it undisturbed, and count what can be interrupted."""
    kind, _, history = name.partition("-")
    project = Project(scratch / name / "template")
    base = f"/{name}"
    config = _HEAD + _FILES
    if kind == "sync":
        config += _SYNC.format(url=upstream.url + base)
        project.write("pipeline.py", PIPELINE)
    project.write("kfm.yml", config)
    project.write("contract.odcs.yaml", CONTRACT)
    for number in range(3):
        project.write(f"incoming/table-{number}.csv", table(f"note-{number}", 50))
    upstream.bodies[f"{base}/gauges.csv"] = table("gauge", 6000)
    upstream.bodies[f"{base}/wells.csv"] = table("well", 3000)
    if history == "update":
        ended = project.run()
        assert ended.code == 0, ended
        project.write("incoming/table-1.csv", table("later", 60))
        upstream.bodies[f"{base}/wells.csv"] = table("well", 4000)

    counted = _count(project, scratch / name / "counted")
    plain = Project(scratch / name / "plain")
    shutil.copytree(project.folder, plain.folder, symlinks=True)
    ended = plain.run()
    assert ended.code == 0, ended
    assert ended.result["word"] == "published", ended
    tree = plain.tree()
    assert tree, "nothing was published"
    assert Project(scratch / name / "counted").tree() == tree, "two undisturbed runs differ"
    runs = len(plain.rows("SELECT run_id FROM runs"))
    return Scenario(name, project.folder, tree, runs, counted["counts"], counted["seconds"])


def _count(template: Project, folder: Path) -> dict[str, dict[str, int]]:
    shutil.copytree(template.folder, folder, symlinks=True)
    note = folder.with_name("counts.json")
    ended = finish(Project(folder).start(command=child_command(note, "end", 1, 0)))
    assert ended.code == 0, ended
    counted: dict[str, dict[str, int]] = json.loads(note.read_text())
    missing = [phase for phase in PHASES if not counted["counts"].get(phase)]
    assert not missing, f"nothing to interrupt in {missing}"
    return counted


KILL, STOP = signal.SIGKILL, signal.SIGSTOP
