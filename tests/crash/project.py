"""A project folder, commands started in it as people start them, and what they leave behind."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import apsw

WINDOW = "2026-01-01/P1D"  # named, so that a test may run over midnight
# A machine that finds a failed run waits for its time; these tests are about what a person's call finds.
PERSON = ("--now", "--rationale", "its process is gone")
TIMEOUT_SECONDS = 60

CONTRACT = """\
apiVersion: v3.1.0
kind: DataContract
id: levels
version: 1.0.0
status: active
schema:
  - name: levels
    physicalName: "**"
    logicalType: object
    properties:
      - {name: station, logicalType: string, required: true}
      - {name: level_m, logicalType: number, required: true, logicalTypeOptions: {minimum: -10, maximum: 50}}
"""

PIPELINE = '''\
"""Publishes every table, and a table of contents."""


def publish(context):
    sizes = ["station,level_m"]
    for entry in context.inputs:
        context.log(f"{entry.path}: {entry.size} bytes")
        context.publisher.write_file(entry.path, entry.fetched)
        sizes.append(f"{entry.path},1.5")
    context.publisher.write_file("contents.csv", "\\n".join(sizes).encode(), {"media_type": "text/csv"})
    context.publisher.update_state("tables", len(context.inputs))
    context.publisher.emit_event("tables.published", {"tables": len(context.inputs)})
'''

RIGHTS = '{license: CC0-1.0, care: {label: "Public", level: public}}'


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def result(self) -> Any:
        (only,) = self.document["results"]
        return only


def table(name: str, rows: int) -> bytes:
    """A table that keeps the contract, the same for the same name and length."""
    lines = [f"{name}-{number},{number % 40}.{number % 7}" for number in range(rows)]
    return ("station,level_m\n" + "\n".join(lines) + "\n").encode()


def environment(**more: str) -> dict[str, str]:
    """Ours, without anything that would change what a command does."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("KFM_", "GITHUB_", "OPENLINEAGE", "COV_", "COVERAGE"))
        and name not in ("NO_COLOR", "FORCE_COLOR")
    }
    return {**kept, **more}


class Project:
    """One folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.published = folder / "published"
        self.state = folder / ".kfm"
        self.cache = folder.with_name(f"{folder.name}.cache")
        self.env: dict[str, str] = {"XDG_CACHE_HOME": str(self.cache)}

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    # --- commands ---

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "kfm", *arguments]

    def start(self, *arguments: str, command: list[str] | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command or self.command(*arguments),
            cwd=self.folder,
            env=environment(**self.env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def kfm(self, *arguments: str) -> Ended:
        process = self.start(*arguments)
        return finish(process)

    def run(self, *arguments: str) -> Ended:
        return self.kfm("run", "--json", "--window", WINDOW, *arguments)

    # --- what is there ---

    def tree(self, below: str = "") -> dict[str, str]:
        return snapshot(self.published / below)

    def current(self, dataset: str = "levels") -> dict[str, str]:
        """What a reader sees; empty if nothing is published."""
        pointer = self.published / dataset / "current"
        return snapshot(pointer.resolve()) if pointer.is_symlink() else {}

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        path = self.state / "kfm.db"
        if not path.exists():
            return []
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.set_busy_timeout(5000)
            connection.pragma("query_only", True)
            return connection.execute(sql, parameters).fetchall()
        finally:
            connection.close()

    def governance(self, kind: str) -> list[dict[str, Any]]:
        found = self.rows(
            "SELECT subject, actor, rationale, ticket, details FROM governance "
            "WHERE kind = ? ORDER BY number",
            kind,
        )
        names = ("subject", "actor", "rationale", "ticket", "details")
        return [dict(zip(names, row, strict=True)) for row in found]


def finish(process: subprocess.Popen[str], timeout: float = TIMEOUT_SECONDS) -> Ended:
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"{process.args} did not end within {timeout} s\n{out}\n{err}") from None
    return Ended(process.returncode, out, err)


def snapshot(folder: Path) -> dict[str, str]:
    """Every name below a folder: the hash of a file, the target of a link, `folder`."""
    found: dict[str, str] = {}
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            key = str(path.relative_to(folder))
            if path.is_symlink():
                found[key] = f"-> {os.readlink(path)}"
            elif path.is_dir():
                found[key] = "folder"
            else:
                found[key] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def differences(expected: dict[str, str], actual: dict[str, str]) -> list[str]:
    return [
        f"{name}: {expected.get(name, 'absent')} expected, {actual.get(name, 'absent')} found"
        for name in sorted(expected.keys() | actual.keys())
        if expected.get(name) != actual.get(name)
    ]
