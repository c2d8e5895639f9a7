"""A dry-run changes nothing: no file, no row, nothing upstream; only what --artifacts names."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.acceptance.runs.conftest import SOURCE, Inside, http_source
from tests.crash.project import PIPELINE, finish, table
from tests.crash.scenarios import RUN, child_command
from tests.crash.upstream import Upstream

DRY = ("run", "--dry-run", "--json", "--window", "2026-01-01/P1D")
STATES = ("empty", "history", "killed", "killed-in-promotion", "changed", "stopped-by-switch")

Valid = Callable[[str, Any], None]


def everything(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Names, kinds, bytes, sizes, modes and times; SQLite's -shm is scratch memory and left out."""
    found: dict[str, tuple[Any, ...]] = {}
    for parent, folders, files in os.walk(folder):
        for name in (".", *folders, *files):
            path = Path(parent, name)
            if name.endswith("-shm"):
                continue
            status = path.lstat()
            content = b"" if path.is_dir() else os.readlink(path) if path.is_symlink() else path.read_bytes()
            found[str(path.relative_to(folder))] = (
                status.st_mode,
                status.st_ino,
                status.st_mtime_ns,
                content,
            )
    return found


def dump(state: Path, scratch: Path) -> list[str]:
    """The whole database as text, read from a copy so that looking changes nothing."""
    if not (state / "kfm.db").exists():
        return []
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    for name in ("kfm.db", "kfm.db-wal"):
        if (state / name).exists():
            shutil.copyfile(state / name, scratch / name)
    connection = apsw.Connection(str(scratch / "kfm.db"))
    try:
        names = connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
        lines = [str(row) for row in names]
        for name, sql in names:
            if sql and sql.startswith("CREATE TABLE"):
                what = "*" if "WITHOUT ROWID" in sql else "rowid, *"
                lines += sorted(str(row) for row in connection.execute(f'SELECT {what} FROM "{name}"'))
        return lines
    finally:
        connection.close()


def prepare(project: Inside, upstream: Upstream, state: str) -> None:
    """Bring a project with a files and an HTTP source, joined by a pipeline, into a state."""
    members = f"""{http_source(upstream).replace("id: notes", "id: gauges")}
  - {SOURCE.format(more="")}
  - {{id: all, dataset: levels, kind: sync, members: [gauges, notes], pipeline: "pipeline.py:publish"}}"""
    project.configure(source=members)
    project.write("pipeline.py", PIPELINE)
    project.env["PYTHONDONTWRITEBYTECODE"] = "1"  # what Python itself writes has a test of its own
    if state == "empty":
        return
    assert project.run().code == 0
    if state == "changed":
        project.write("incoming/b.csv", table("b", 11))
        upstream.bodies["/levels.csv"] = table("gauge", 4000)
    if state == "stopped-by-switch":
        project.kfm("switch", "set", "stopped", "--all", "--rationale", "storm")
    if state.startswith("killed"):
        project.write("incoming/b.csv", table("b", 12))
        phase = "fetch" if state == "killed" else "promote"
        command = child_command(project.folder.with_name("note"), phase, 30, signal.SIGKILL)
        assert finish(project.start(command=command)).code == -signal.SIGKILL
        assert (project.state / "kfm.db-wal").stat().st_size > 0


@pytest.mark.req("UPD-7")
@pytest.mark.parametrize("state", STATES)
def test_nothing_changes(
    project: Inside, upstream: Upstream, tmp_path: Path, state: str, valid: Valid
) -> None:
    """Whatever state a project is in, a dry-run in a process of its own leaves it as it was."""
    prepare(project, upstream, state)
    files, rows = everything(project.folder), dump(project.state, tmp_path / "before")
    upstream.asked.clear()
    for command in (DRY, (*DRY, "--artifacts", str(tmp_path / "artifacts")), ("diff", *DRY[2:])):
        ended = finish(project.start(*command))
        expected = 3 if state == "stopped-by-switch" else 0
        assert ended.code == expected, ended
        word = {"history": "unchanged", "stopped-by-switch": "blocked"}.get(state, "planned")
        assert ended.result["word"] == word, ended
        valid("cli-run", ended.document)
        assert everything(project.folder) == files, command
        assert dump(project.state, tmp_path / "after") == rows, command
    assert {method for method, _ in upstream.asked} <= {"GET", "HEAD"}
    assert bool(upstream.asked) == (state != "stopped-by-switch")
    assert (tmp_path / "artifacts" / "run.jsonl").exists()
    assert (tmp_path / "artifacts" / "plan.jsonl").exists() == (word == "planned")


@pytest.mark.req("UPD-7")
def test_the_plan_is_what_the_run_does(project: Inside, upstream: Upstream) -> None:
    """The version that a dry-run announces is the version that the run publishes."""
    prepare(project, upstream, "changed")
    planned = project.kfm(*DRY).result
    ended = project.run().result
    assert planned["version_id"] == planned["plan"]["version_id"] == ended["version_id"]


@pytest.mark.req("UPD-7")
def test_artifacts_say_dry_run(project: Inside, upstream: Upstream, tmp_path: Path, valid: Valid) -> None:
    """The artifacts of a dry-run are valid and say what they are; a plan has its digest."""
    import json

    prepare(project, upstream, "changed")
    folder = tmp_path / "artifacts"
    project.kfm(*DRY, "--artifacts", str(folder))
    names = {
        "run.jsonl": "run-event",
        "event_log.jsonl": "event-log",
        "publisher_trace.jsonl": "publisher-trace",
    }
    for name, schema in names.items():
        for line in (folder / name).read_text().splitlines():
            valid(schema, json.loads(line))
            assert json.loads(line).get("dry_run", True) is True
    record = json.loads((folder / "idempotency.json").read_bytes())
    valid("idempotency", record)
    assert record["dry_run"] is True
    assert '"digest"' in (folder / "plan.jsonl").read_text().splitlines()[0]


@pytest.mark.req("UPD-7")
@pytest.mark.parametrize("state", ["empty", "killed", "changed"])
def test_no_file_is_opened_for_writing(
    project: Inside, upstream: Upstream, tmp_path: Path, state: str
) -> None:
    """Seen by the operating system: only the artifacts and nameless temporary files are written."""
    strace = shutil.which("strace")
    probe = [strace or "", "-o", os.devnull, "true"]
    if strace is None or subprocess.run(probe, check=False, capture_output=True).returncode:
        pytest.skip("service unavailable: strace: it is not here, or may not trace")
    prepare(project, upstream, state)
    before = set(everything(project.folder))
    artifacts, trace, own_tmp = tmp_path / "artifacts", tmp_path / "trace", tmp_path / "tmp"
    own_tmp.mkdir()
    project.env["TMPDIR"] = str(own_tmp)
    command = [strace, "-f", "-y", "-s", "300", "-o", str(trace), "-e", f"trace={','.join(TRACED)}"]
    ended = finish(project.start(command=[*command, *project.command(*DRY, "--artifacts", str(artifacts))]))
    assert ended.code == 0, ended
    allowed = (str(artifacts), str(own_tmp), "/dev/", str(project.cache), "pipe:", "socket:")
    changes = [
        line
        for line in trace.read_text().splitlines()
        for path in changed_paths(line)
        if not path.startswith(allowed)
    ]
    # SQLite opens what a dead writer left for writing, also where it only reads; it may change the -shm,
    # which is mapped memory. Asking whether that writer is dead opens the file that it had locked.
    left = [name for name in before if name.endswith(("-wal", ".alive"))]
    harmless = [f'"{project.folder / name}"' for name in left] + ["kfm.db-shm"] * bool(left)
    scratch = [line for line in changes if any(name in line for name in harmless) and "openat" in line]
    scratch += [line for line in changes if "kfm.db-shm>" in line]
    assert state == "killed" or not scratch
    unexpected = [line for line in changes if line not in scratch]
    assert not unexpected, "\n".join(unexpected)
    assert os.listdir(own_tmp) == []


WRITING = (
    "write",
    "pwrite64",
    "writev",
    "pwritev",
    "ftruncate",
    "fallocate",
    "fchmod",
    "sendfile",
    "copy_file_range",
)
TRACED = (
    "open", "openat", "creat", "mkdir", "mkdirat", "rename", "renameat", "renameat2", "unlink", "unlinkat",
    "link", "linkat", "symlink", "symlinkat", "truncate", "utimensat", "chmod", "fchmodat", "rmdir", *WRITING,
)  # fmt: skip


def changed_paths(line: str) -> list[str]:
    """What one traced call changes, or opens for writing."""
    call = re.search(r"^\d+ +(\w+)\(", line)
    if call is None or " = -1 E" in line:
        return []
    if call[1] in WRITING:
        return re.findall(r"^\d+ +\w+\(\d+<([^>]*)>", line)
    if call[1] in ("open", "openat") and not re.search(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC", line):
        return []
    return re.findall(r'"([^"]*)"', line)


@pytest.mark.req("UPD-7")
def test_no_bytecode_beside_the_pipeline(project: Inside, upstream: Upstream) -> None:
    """A dry-run leaves nothing in the folder of the pipeline either, whatever Python is used to do."""
    prepare(project, upstream, "empty")
    project.env["PYTHONDONTWRITEBYTECODE"] = ""
    before = everything(project.folder)
    assert finish(project.start(*DRY)).code == 0
    assert sorted(everything(project.folder)) == sorted(before)


@pytest.mark.req("UPD-7")
@pytest.mark.parametrize("how", ["file", "row", "time"])
def test_these_tests_notice(
    project: Inside, upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A dry-run with a defect is caught: the comparisons above are not blind."""
    from kfm.publish.publisher import NoopPublisher
    from kfm.runs import preview

    prepare(project, upstream, "changed")
    files, rows = everything(project.folder), dump(project.state, tmp_path / "before")
    guard = NoopPublisher.noop_guard

    def broken(self: NoopPublisher) -> None:
        if how == "file":
            (project.published / "levels" / "stray").touch()
        elif how == "time":
            os.utime(project.published / "levels" / "current", (1, 1), follow_symlinks=False)
        else:
            connection = apsw.Connection(str(project.state / "kfm.db"))
            connection.execute("INSERT INTO states VALUES ('levels', 'stray', '1', 'no-run')")
            connection.close()
        guard(self)

    monkeypatch.setattr(preview.NoopPublisher, "noop_guard", broken)
    assert project.kfm(*DRY).code == 0
    if how == "row":
        assert dump(project.state, tmp_path / "after") != rows
    else:
        assert everything(project.folder) != files


def test_the_run_of_these_tests_is_a_run(project: Inside, upstream: Upstream) -> None:
    """Without --dry-run the same project is published: the dry-runs above had something to leave undone."""
    prepare(project, upstream, "empty")
    assert finish(project.start(*RUN)).result["word"] == "published"
