"""One demo, played once for all tests that look at it, in a world where every stray file shows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[3]
DEMO = ROOT / "examples" / "demo"
SECONDS_MAX = 300  # a machine that also does other things; on an idle one it takes about thirty


class Played(NamedTuple):
    """How a demo ended, and what it left behind."""

    code: int
    text: str
    folder: Path
    home: Path
    tmp: Path


def clean_environment(**more: str) -> dict[str, str]:
    """What a fresh shell has; nothing that could steer kfm."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    return {**kept, **more}


def run_demo(folder: Path, environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(DEMO / "demo.py"), str(folder)],
        cwd=ROOT,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        timeout=SECONDS_MAX,
        check=False,
    )


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """The demo, played once. Its folder exists already, from an earlier one."""
    base = tmp_path_factory.mktemp("demo")
    folder, home, tmp = base / "work", base / "home", base / "tmp"
    for each in (folder, home, tmp):
        each.mkdir()
    (folder / ".made-by-demo").touch()
    (folder / "stale").write_text("of an earlier demo")
    # Settings of the caller must not reach it: this one would break every command.
    environ = clean_environment(HOME=str(home), TMPDIR=str(tmp), KFM_CONFIG="/nowhere.yml")
    ended = run_demo(folder, environ)
    return Played(ended.returncode, ended.stdout, folder, home, tmp)
