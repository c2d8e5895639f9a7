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
    with a tombstone is left to Python. Lifted, the window is published and shown by the twin."""
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
    python(tmp_path, "withdraw", "d1", "--window", WINDOW, "--lift", "--yes", *WHY)
    assert not (current / "withdrawn.json").exists()
    again = run("run", "--window", WINDOW)
    assert again.returncode == 0, again
    assert len(list((current / "data").rglob("*.csv"))) == 2
    assert not (current / "withdrawn.json").exists()
    python(tmp_path, "audit", "verify")


def test_the_twin_does_again_what_a_rollback_changed(run: Run, tmp_path: Path) -> None:
    """Once the dataset is resumed, upstream as it was before the rollback is published again."""
    project(tmp_path)
    assert run("run", "--window", WINDOW).returncode == 0
    (tmp_path / "in/a.csv").write_text("id,v\n1,3\n")
    assert run("run", "--window", WINDOW).returncode == 0
    python(tmp_path, "rollback", "d1", "--to", "1", "--yes", *WHY)
    python(tmp_path, "switch", "set", "running", "--dataset", "d1", *WHY)
    again = run("run", "--window", WINDOW)
    assert again.returncode == 0, again
    (path,) = (tmp_path / "pub/d1/current/data").rglob("a.csv")
    assert path.read_text() == "id,v\n1,3\n"
    assert "unchanged" in python(tmp_path, "run", "--window", WINDOW)["results"][0]["word"]


def test_the_twin_keeps_a_withdrawal_from_one_target(run: Run, tmp_path: Path) -> None:
    """A target that takes the dataset again shows nothing of it by the twin before that is lifted."""
    project(tmp_path)
    assert run("run", "--window", WINDOW).returncode == 0
    config = json.loads((tmp_path / "kfm.yml").read_text())
    (target,) = config["publish"]
    name = target.setdefault("name", "first")
    (tmp_path / "kfm.yml").write_text(json.dumps(config))
    python(tmp_path, "project")
    away = {**config, "publish": [{**target, "datasets": ["other-*"]}]}
    (tmp_path / "kfm.yml").write_text(json.dumps(away))
    python(tmp_path, "withdraw", "d1", "--target", name, "--yes", *WHY)
    (tmp_path / "kfm.yml").write_text(json.dumps(config))
    (tmp_path / "in/a.csv").write_text("id,v\n1,7\n")
    kept = run("run", "--window", WINDOW)
    assert f"d1 is withdrawn from target {name}" in kept.stdout + kept.stderr, kept
    assert not list((tmp_path / "pub/d1/current").rglob("*.csv"))


def test_the_twin_refuses_a_renamed_dataset(run: Run, tmp_path: Path) -> None:
    """What was renamed is not published under its first name again, nor is the new name another dataset's;
    its targets are left to Python."""
    project(tmp_path)
    assert run("run", "--window", WINDOW).returncode == 0
    config = json.loads((tmp_path / "kfm.yml").read_text())
    named = json.dumps(config).replace('"id": "d1"', '"id": "d2", "formerly": ["d1"]')
    (tmp_path / "kfm.yml").write_text(named)
    python(tmp_path, "dataset", "rename", "d1", "d2", "--yes", *WHY)
    (tmp_path / "in/a.csv").write_text("id,v\n1,9\n")
    for name in ("d1", "d2"):
        (tmp_path / "kfm.yml").write_text(json.dumps(config).replace('"d1"', f'"{name}"'))
        refused = run("run", "--window", WINDOW)
        assert (refused.returncode, "was renamed" in refused.stderr) == (3, True), refused
    versions = python(tmp_path, "dataset", "show", "d1")["dataset"]["versions"]
    assert [one["by"] for one in versions] == ["rename", "run"]


def test_the_twin_keeps_to_the_length_on_record(run: Run, tmp_path: Path) -> None:
    """It notes the length of a source's windows with its first version, refuses another one with the command,
    and leaves a source that got another one to Python."""
    project(tmp_path)
    assert run("run", "--window", WINDOW).returncode == 0
    config = (tmp_path / "kfm.yml").read_text()
    weekly = json.loads(config)
    weekly["sources"][0]["window"] = "P1W"
    (tmp_path / "kfm.yml").write_text(json.dumps(weekly))
    name = weekly["sources"][0]["id"]
    refused = run("run", "--window", "2026-01-05/P1W")
    assert (refused.returncode, f"kfm source rewindow {name} --window P1W" in refused.stderr) == (3, True), (
        refused
    )
    python(tmp_path, "source", "rewindow", name, "--window", "P1W", "--yes", *WHY)
    left = run("run", "--window", "2026-01-05/P1W")
    assert (left.returncode, "with Python" in left.stderr) == (3, True), left
