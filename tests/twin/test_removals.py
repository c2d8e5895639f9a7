"""What people took down: the twin neither brings it back nor shows it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.twin.test_twin import Run, node, project, run

__all__ = ["node", "run"]  # fixtures

WINDOW = "2026-01-01/P1D"
WHY = ("--rationale", "It was wrong.")
pytestmark = pytest.mark.req("DAT-4", "DAT-5", "UPD-14")


def python(folder: Path, *words: str) -> Any:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    ended = subprocess.run(
        [sys.executable, "-m", "kfm", *words, "--json"],
        cwd=folder,
        env=kept,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended
    return json.loads(ended.stdout)


def test_the_twin_obeys_rollback_and_withdrawal(run: Run, tmp_path: Path) -> None:
    """After a rollback the dataset is paused for it, too; what is withdrawn is refused by name; a version
    with a tombstone is left to Python."""
    project(tmp_path)
    assert run("run", "--window", WINDOW).returncode == 0
    (tmp_path / "in/a.csv").write_text("id,v\n1,3\n")
    assert run("run", "--window", WINDOW).returncode == 0
    python(tmp_path, "rollback", "d1", "--to", "1", "--yes", *WHY)
    (tmp_path / "in/a.csv").write_text("id,v\n1,4\n")
    paused = run("run", "--window", WINDOW)
    assert (paused.returncode, "KFM307" in paused.stderr) == (3, True), paused
    python(tmp_path, "switch", "set", "running", "--dataset", "d1", *WHY)
    python(tmp_path, "withdraw", "d1", "--window", WINDOW, "--yes", *WHY)
    refused = run("run", "--window", WINDOW, "--force", "--ticket", "T-1", *WHY)
    assert (refused.returncode, "KFM350" in refused.stderr, "--lift" in refused.stderr) == (3, True, True), (
        refused
    )
    other = run("run", "--window", "2026-02-01/P1D")
    assert "tombstones are written by Python" in other.stdout + other.stderr, other
    python(tmp_path, "project")
    current = tmp_path / "pub/d1/current"
    assert json.loads((current / "withdrawn.json").read_bytes())["state"] == "partly-withdrawn"
    python(tmp_path, "audit", "verify")
