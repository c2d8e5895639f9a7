"""`make` and the installer, as far as they go without a network."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("sh", "sed", "expand", "make", "dirname", "cat", "rm", "env")


@pytest.fixture
def bare_path(tmp_path: Path) -> Path:
    """A PATH with the tools that the installer uses and no Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        if found := shutil.which(tool):
            (folder / tool).symlink_to(found)
    return folder


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The installer in a folder of its own, whose name has a space."""
    folder = tmp_path / "a copy"
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    return folder


def _install(copy: Path, path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": str(path), "HOME": str(copy), **environment}
    command = [str(copy / "requirements" / "install.sh"), "base"]
    return subprocess.run(
        command, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=30
    )


def _fake_python(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_bare_make_explains_every_target() -> None:
    """Typing `make` does nothing but say what there is."""
    env = {**os.environ, "MAKEFLAGS": ""}
    ran = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, timeout=30, env=env)
    assert ran.returncode == 0, ran.stderr
    for target in "install demo test lint trace bench simulate crash fuzz docs clean dist".split():
        assert f"\n  {target} " in ran.stdout


def test_no_python_is_told_with_a_way_out(copy: Path, bare_path: Path) -> None:
    """Without a Python the message says which is needed and how to name one."""
    ran = _install(copy, bare_path)
    assert ran.returncode != 0
    assert "kfm needs Python 3.11 or later" in ran.stderr
    assert "make install PYTHON=" in ran.stderr
    assert not (copy / ".venv").exists()


def test_old_python_is_told(copy: Path, bare_path: Path) -> None:
    """A Python that is too old is named, not used."""
    _fake_python(bare_path, "python3", 'case "$1" in --version) echo Python 3.9.2;; *) exit 1;; esac')
    ran = _install(copy, bare_path)
    assert ran.returncode != 0
    assert "Found: Python 3.9.2." in ran.stderr


def test_a_newer_python_is_preferred_and_a_broken_one_passed_over(copy: Path, bare_path: Path) -> None:
    """The newest Python that works is chosen; a shim that only complains is not."""
    _fake_python(bare_path, "python3.13", "exit 127")
    for name in ("python3.12", "python3"):
        _fake_python(
            bare_path,
            name,
            f'case "$*" in --version) echo Fake {name};; *venv*.venv) echo {name} >&2; exit 9;; esac',
        )
    ran = _install(copy, bare_path)
    assert ran.returncode == 9
    assert ran.stderr.splitlines()[-2:] == ["Making .venv with Fake python3.12", "python3.12"]


def test_missing_venv_module_is_told(copy: Path, bare_path: Path) -> None:
    """Debian splits venv off: the message names the package."""
    _fake_python(bare_path, "python3.11", 'case "$*" in *ensurepip*) exit 1;; esac')
    ran = _install(copy, bare_path)
    assert ran.returncode != 0
    assert "apt-get install python3-venv" in ran.stderr


def test_a_named_python_that_will_not_do_is_told(copy: Path, bare_path: Path) -> None:
    """PYTHON=… is taken at its word, or refused by name."""
    ran = _install(copy, bare_path, PYTHON="/nonexistent/python3.12")
    assert ran.returncode != 0
    assert "PYTHON=/nonexistent/python3.12 is not a Python of 3.11 or later" in ran.stderr
