"""The import rules are not only written down: breaking one is found."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# where → an import that must not be there, and the contract that says so
BREACHES = {
    "model/breach.py": ("import time\n", "The model is pure"),
    "runs/breach.py": ("import kfm.service\n", "Imports go downwards only"),
    "calls/breach.py": ("import updater\n", "kfm does not know its façade"),
    "../kfm_lint/breach.py": ("import kfm\n", "The linter is a distribution of its own"),
}


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [
        str(Path(sys.executable).with_name("lint-imports")),
        "--no-cache",
        "--config",
        "pyproject.toml",
    ]
    env = {**os.environ, "PYTHONPATH": str(folder / "src"), "COLUMNS": "200"}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_each_breach_is_found(copy: Path) -> None:
    """An import against the layers breaks the contract that forbids it."""
    for where, (line, _) in BREACHES.items():
        (copy / "src" / "kfm" / where).write_text(line)
    ran = _lint(copy)
    assert ran.returncode == 1
    broken = {line.removesuffix(" BROKEN") for line in ran.stdout.splitlines() if line.endswith(" BROKEN")}
    assert {name for _, name in BREACHES.values()} == {name.split(":")[0] for name in broken}, ran.stdout
