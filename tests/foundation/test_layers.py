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


CLIENTS = ("httpx", "httpcore", "requests", "urllib3", "urllib.request", "aiohttp", "http.client")


@pytest.mark.req("UPD-16")
def test_there_is_one_http_client() -> None:
    """Any other module that imports a library with which addresses can be asked is found by the linter."""
    for module in CLIENTS:
        text = f"def ask() -> None:\n    import {module}\n\n    {module}.get\n"
        command = [
            sys.executable,
            "-m",
            "ruff",
            "check",
            "--no-cache",
            "--stdin-filename",
            "src/kfm/runs/ask.py",
        ]
        ran = subprocess.run(
            [*command, "-"], input=text, cwd=ROOT, capture_output=True, text=True, timeout=60
        )
        assert "TID251" in ran.stdout, (module, ran.stdout, ran.stderr)


def test_no_client_is_imported_by_its_name_as_text() -> None:
    """One is: the exporter of spans wants a session of its own library."""
    found = [
        str(path.relative_to(ROOT / "src"))
        for path in sorted((ROOT / "src").rglob("*.py"))
        if any(f'import_module("{client}' in path.read_text() for client in CLIENTS)
    ]
    assert found == ["kfm/telemetry/otel.py"]
