"""Versions in both languages: those of before stay what they are, and large ones are carried on by either."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import apsw
import msgspec
import pytest

from kfm.model.canonical import canonical_bytes
from kfm.model.records import Item, Manifest
from kfm.model.version_trees import header_of
from kfm.model.versions import header_from, whole_id
from tests.twin.runtime import TWIN
from tests.twin.test_removals import WHY, python
from tests.twin.test_twin import Run, node, project, run

__all__ = ["node", "run"]  # fixtures

WINDOW = ("--source", "s1", "--window", "2026-01-01/P1D")
AGAIN = ("--force", "--ticket", "T-1", *WHY)

pytestmark = pytest.mark.req("UPD-14")


def _as_before(folder: Path, kept: Literal["whole", "trees"]) -> str:
    """Give the only version of a ledger the name that it would have had before; its id."""
    with contextlib.closing(apsw.Connection(str(folder / ".kfm" / "kfm.db"))) as database:
        [(old, text)] = database.execute("SELECT version_id, manifest FROM versions").fetchall()
        documents = database.execute("SELECT document FROM version_items ORDER BY document").fetchall()
        items = tuple(msgspec.json.decode(str(row[0]), type=Item) for row in documents)
        header = header_from(msgspec.json.decode(str(text)))
        manifest: Manifest = msgspec.structs.replace(header, items=items)
        new = whole_id(manifest)
        stored = manifest if kept == "whole" else header_of(manifest)
        database.execute("PRAGMA foreign_keys = OFF")
        database.execute(
            "UPDATE versions SET version_id = ?, manifest = ?",
            (new, canonical_bytes(msgspec.to_builtins(stored)).decode()),
        )
        if kept == "whole":
            database.execute("UPDATE versions SET tree_id = NULL, files_id = NULL")
            database.execute("DELETE FROM version_pages")
            database.execute("DELETE FROM version_items")
        for table in ("promotions", "runs"):
            database.execute(f"UPDATE {table} SET version_id = ? WHERE version_id = ?", (new, old))
    return new


def _versions(folder: Path) -> list[Any]:
    database = apsw.Connection(str(folder / ".kfm" / "kfm.db"))
    try:
        return database.execute(
            "SELECT p.sequence, v.version_id, v.manifest, v.tree_id, v.files_id FROM promotions p "
            "JOIN versions v ON v.version_id = p.version_id ORDER BY p.sequence"
        ).fetchall()
    finally:
        database.close()


@pytest.mark.parametrize("kept", ["whole", "trees"])
def test_an_upgrade_makes_no_version(run: Run, tmp_path: Path, kept: Literal["whole", "trees"]) -> None:
    """Over a version that was named by its whole manifest the same work changes nothing, in the plan and in
    the run; the next change makes a version that both name alike."""
    ours, theirs = tmp_path / "ours", tmp_path
    document = project(tmp_path)
    (tmp_path / "kfm.yml").write_text(json.dumps({**document, "publish": []}))
    python(tmp_path, "run", *WINDOW)
    before = _as_before(tmp_path, kept)
    shutil.copytree(tmp_path, ours, ignore=shutil.ignore_patterns("ours"))

    def twin(*words: str) -> Any:
        return json.loads(run(*words, "--json").stdout)

    ends = []
    for folder, ran in ((ours, lambda *words: python(ours, *words)), (theirs, twin)):
        planned = ran("run", *WINDOW, *AGAIN, "--dry-run")["results"][0]
        assert planned["version_id"] == before
        done = ran("run", *WINDOW, *AGAIN)["results"][0]
        assert (done["word"], done["version_id"]) == ("unchanged", before)
        assert [row[1] for row in _versions(folder)] == [before]
        (folder / "in/b.csv").write_text("id,v\n1,2\n")
        os.utime(folder / "in/b.csv", (1, 1))
        assert ran("run", *WINDOW)["results"][0]["word"] == "published"
        ends.append(_versions(folder))
    assert len(ends[0]) == 2
    assert ends[0] == ends[1]
    assert json.loads(ends[0][1][2])["manifest"] == 2


def test_large_versions_are_carried_on_by_either(node: str, tmp_path: Path) -> None:
    """Python's versions share folders, the twin's have their own; each builds on the other's, both read the
    whole, and what earlier versions show stays what it was."""
    document = project(tmp_path)
    for number in range(600):
        (tmp_path / f"in/{number:03d}.csv").write_text(f"id,v\n{number},1\n")
    (tmp_path / "kfm.yml").write_text(json.dumps(document))
    files = sorted(path.name for path in (tmp_path / "in").iterdir())
    seen: dict[str, dict[str, bytes]] = {}
    for day, by in enumerate(("python", "python", "node", "python", "node"), 1):
        words = ("run", "--source", "s1", "--window", f"2026-01-{day:02d}/P1D", "--json")
        program = [sys.executable, "-m", "kfm"] if by == "python" else [node, str(TWIN / "runner.mjs")]
        told = subprocess.run([*program, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        result = json.loads(told.stdout)["results"][0]
        assert (result["word"], result["version"]) == ("published", day), told
        current = tmp_path / "pub/d1/current"
        assert (current / "data").is_symlink() == (by == "python" and day > 1)
        shown = {str(path.relative_to(current)): path.read_bytes() for path in _files_in(current)}
        wanted = {f"data/2026-01-{one:02d}/{name}" for one in range(1, day + 1) for name in files}
        assert {name for name in shown if name.startswith("data/")} == wanted
        seen[os.readlink(current)] = shown
    for version, shown in seen.items():
        place = tmp_path / "pub/d1" / version
        assert {str(path.relative_to(place)): path.read_bytes() for path in _files_in(place)} == shown


def _files_in(place: Path) -> list[Path]:
    return [Path(folder) / name for folder, _, names in os.walk(place, followlinks=True) for name in names]
