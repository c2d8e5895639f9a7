"""A small project as a release left it: its ledger as SQL text, its objects and its files beside it.

`python -m tests.integration.db.old_project make FOLDER` makes one with the code of this checkout and
writes it to data/schema-NNNN. Run it once before a release: what was committed is never written again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

DATA = Path(__file__).parent / "data"
TOKENS = {who: f"kfm-{who}-0123456789abcdef0123456789abcdef" for who in ("ann", "cy")}
WINDOW = "2026-03-01/P1D"
SECONDS_MAX = 60
FILES = ("kfm.yml", "cron.yml", "broken.py", "flow.py", "incoming")  # of the project, copied as they are
FOREIGN = ("KFM_", "GITHUB_", "PYTHON")

CONFIG = """\
version: 1
environment: archive
datasets:
  - {id: notes, domain: paper, rights: {license: CC0-1.0, care: {label: Public, level: public}}}
  - {id: sketches, domain: paper, rights: {license: CC0-1.0, care: {label: Public, level: public}}}
  - {id: minutes, domain: council, rights: {license: CC0-1.0, care: {label: Public, level: public}}}
  - {id: burials, domain: heritage, rights: {license: CC0-1.0, care: {label: Restricted, level: restricted}}}
sources:
  - {id: note, dataset: notes, kind: files, folder: incoming, window: P1D}
  - {id: sketch, dataset: sketches, kind: files, folder: incoming, window: P1D, pipeline: "broken.py:publish"}
  - {id: minute, dataset: minutes, kind: files, folder: incoming, window: P1D}
  - {id: mound, dataset: burials, kind: files, folder: incoming, window: P1D}
publish:
  - {kind: local, path: published}
freezes:
  - {start: 2020-01-01, end: 2100-01-01, datasets: [minutes], reason: the council has not agreed}
ingest:
  queues:
    - {name: weather, kind: folder, path: spool}
people:
"""
CRON = """\
version: 1
schedules:
  - {id: note-daily, source: note, cron: "15 7 * * *", time_zone: America/Chicago}
"""
BROKEN = 'def publish(context):\n    raise ValueError("the pipeline is broken")\n'
FLOW = '''\
"""Two nodes."""

import kfm

flow = kfm.Pipeline("flow")


@flow.node("flow.gauges")
def gauges() -> int:
    return 1


@flow.node("flow.total")
def total(gauges: int) -> int:
    return gauges + 1
'''
SCAN = (
    "ABI-L2-CMIPC/2026/073/{hour}/OR_ABI-L2-CMIPC-M6C13_G19"
    "_s2026073{hour}01171_e2026073{hour}03556_c2026073{hour}04041.nc"
)


class Project:
    """A project's folder, and commands run in it by a person with a token."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        self._environ = {**kept, "NO_COLOR": "1", "XDG_CACHE_HOME": str(folder / ".cache")}
        if "PYTHONPATH" in os.environ:
            self._environ["PYTHONPATH"] = os.environ["PYTHONPATH"]

    def run(self, *words: str, expect: int = 0, who: str = "ann") -> str:
        ended = subprocess.run(
            [sys.executable, "-m", "kfm", *words],
            cwd=self.folder,
            env={**self._environ, "KFM_TOKEN": TOKENS[who]},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
        assert ended.returncode == expect, (words, ended.returncode, ended.stdout, ended.stderr)
        return ended.stdout

    def ask(self, *words: str, expect: int = 0, who: str = "ann") -> Any:
        return json.loads(self.run(*words, "--json", expect=expect, who=who))

    def announce(self, *bodies: str) -> None:
        (self.folder / "spool").mkdir(exist_ok=True)
        (self.folder / "spool" / "messages.jsonl").write_text("".join(f"{body}\n" for body in bodies))


def scan(hour: int) -> str:
    """The announcement of one GOES scan, as S3 words it."""
    key = SCAN.format(hour=f"{hour:02}")
    return json.dumps(
        {
            "Records": [
                {
                    "eventVersion": "2.1",
                    "eventSource": "aws:s3",
                    "awsRegion": "us-east-1",
                    "eventTime": f"2026-03-14T{hour:02}:05:00.000Z",
                    "eventName": "ObjectCreated:Put",
                    "s3": {
                        "s3SchemaVersion": "1.0",
                        "bucket": {"name": "noaa-goes19"},
                        "object": {"key": key, "size": 1000 + hour, "eTag": f"{hour:032x}"},
                    },
                }
            ]
        }
    )


# --- making ----------------------------------------------------------------------------


def make(folder: Path) -> Project:
    """A project in which most of what a ledger keeps has happened."""
    (folder / "incoming").mkdir(parents=True)
    (folder / "incoming" / "a.csv").write_text("day,note\n1,first\n")
    marks = {who: "sha256:" + hashlib.sha256(token.encode()).hexdigest() for who, token in TOKENS.items()}
    people = [
        f'  - {{subject: {who}, roles: [{roles}], tokens: ["{marks[who]}"]}}'
        for who, roles in (("ann", "read, operate"), ("cy", "read, operate, approve"))
    ]
    (folder / "kfm.yml").write_text(CONFIG + "\n".join(people) + "\n")
    (folder / "cron.yml").write_text(CRON)
    (folder / "broken.py").write_text(BROKEN)
    (folder / "flow.py").write_text(FLOW)
    project = Project(folder)
    _runs(project)
    _approvals(project)
    project.run("schedule", "pause", "note-daily", "--rationale", "quiet")
    span = ("--from", "2026-03-18", "--to", "2026-03-20")
    project.run("schedule", "backfill", "note-daily", *span, "--yes", "--rationale", "two days")
    project.announce(scan(10), scan(11), '{"what": "is this"}')
    project.run("worker", "--until-idle")
    project.run("pipeline", "run", "flow.py")
    project.run("branch", "create", "review")
    project.run("audit", "seal")
    return project


def _runs(project: Project) -> None:
    for _ in range(2):  # the second time unchanged
        project.run("run", "--source", "note", "--window", WINDOW)
    (project.folder / "incoming" / "b.csv").write_text("day,note\n2,second\n")
    project.run("run", "--source", "note", "--window", WINDOW)  # a revision
    project.run("run", "--source", "sketch", "--window", WINDOW, expect=1)  # failed and quarantined
    project.run("run", "--source", "minute", "--window", WINDOW, expect=3)  # frozen
    paper = ("--domain", "paper", "--rationale", "stocktaking")
    project.run("switch", "set", "paused", *paper)
    project.run("run", "--source", "note", "--window", "2026-03-02/P1D", expect=3)
    project.run("switch", "set", "running", *paper)


def _approvals(project: Project) -> None:
    """One that was given, and one that is asked for."""
    project.run("run", "--source", "mound", "--window", WINDOW, expect=3)
    project.run("request", "--source", "mound", "--window", WINDOW, "--rationale", "review", expect=3)
    (asked,) = project.ask("approve")["requests"]
    project.run("approve", asked["request_id"], "--rationale", "agreed", who="cy")
    (held,) = project.ask("quarantine", "list")["held"]
    project.run("quarantine", "release", held["held_id"], "--rationale", "mended", expect=3)


def keep(project: Project, to: Path) -> None:
    """Write what a later release needs of a project, as text."""
    database = apsw.Connection(str(project.folder / ".kfm" / "kfm.db"), flags=apsw.SQLITE_OPEN_READONLY)
    to.mkdir()
    (to / "ledger.sql").write_text("".join(f"{line};\n" for line in _dump(database)), encoding="utf-8")
    shutil.copytree(project.folder / ".kfm" / "objects", to / "objects")
    for name in FILES:
        copy = shutil.copytree if (project.folder / name).is_dir() else shutil.copy
        copy(project.folder / name, to / name)


def _dump(database: apsw.Connection) -> Iterator[str]:
    yield f"PRAGMA application_id = {database.execute('PRAGMA application_id').fetchall()[0][0]}"
    yield "PRAGMA foreign_keys = OFF"
    yield "BEGIN"
    tables = "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND sql IS NOT NULL ORDER BY rowid"
    named = [(str(name), str(sql)) for name, sql in database.execute(tables)]
    virtual = {name for name, sql in named if "VIRTUAL TABLE" in sql}
    for name, sql in named:
        if name.startswith("sqlite_") or any(name.startswith(f"{one}_") for one in virtual):
            continue  # made together with its virtual table
        yield sql
        for row in database.execute(f'SELECT * FROM "{name}"'):
            yield f'INSERT INTO "{name}" VALUES({",".join(map(apsw.format_sql_value, row))})'
    rest = "SELECT sql FROM sqlite_schema WHERE type <> 'table' AND sql IS NOT NULL ORDER BY rowid"
    yield from (str(sql) for (sql,) in database.execute(rest))
    yield "COMMIT"


# --- opening ---------------------------------------------------------------------------


def restore(kept: Path, folder: Path) -> Project:
    """The project again, its ledger at the schema that it had."""
    for name in FILES:
        copy = shutil.copytree if (kept / name).is_dir() else shutil.copy
        copy(kept / name, folder / name)
    shutil.copytree(kept / "objects", folder / ".kfm" / "objects")
    database = apsw.Connection(str(folder / ".kfm" / "kfm.db"))
    database.execute((kept / "ledger.sql").read_text(encoding="utf-8"))
    database.close()
    return Project(folder)


def schema_of(project: Project) -> int:
    """The newest migration that the ledger says it has."""
    database = apsw.Connection(str(project.folder / ".kfm" / "kfm.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return int(str(database.execute("SELECT max(version) FROM migrations").fetchall()[0][0]))
    finally:
        database.close()


if __name__ == "__main__":
    made = make(Path(sys.argv[2]).resolve())
    keep(made, DATA / f"schema-{schema_of(made):04}")
