"""Windows that Python publishes together, and whose process dies: the twin ends all of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.acceptance.cli.test_coverage import CONFIG, DAYS, EXPECTED, deliver
from tests.twin.runtime import TWIN
from tests.twin.test_twin import node

__all__ = ["node"]  # a fixture

WAIT_S = 60
WAITING = """\
import pathlib, time

def publish(context):
    if not pathlib.Path("go").exists() and context.window.start_ms > 1767225600000:
        pathlib.Path("begun").touch()
        time.sleep(600)
    for each in context.inputs:
        context.publisher.write_file(each.path, each.read())
"""
TOGETHER = ("run", "--missing", "levels", "--to", "2026-01-04", "--together", "--yes")


def started(folder: Path, *command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        cwd=folder,
        env={name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def kfm(folder: Path, *words: str) -> subprocess.Popen[str]:
    return started(folder, sys.executable, "-m", "kfm", *words)


def rows(folder: Path, statement: str) -> list[Any]:
    database = apsw.Connection(str(folder / ".kfm" / "kfm.db"))
    try:
        return list(database.execute(statement))
    finally:
        database.close()


@pytest.mark.req("UPD-14", "DAT-3")
def test_the_twin_ends_all_and_tries_none_alone(node: str, tmp_path: Path) -> None:
    """It reaps every window of the process that died, and promises none an attempt of its own; Python then
    publishes all of them as the next attempts of the same runs."""
    (tmp_path / "kfm.yml").write_text(
        CONFIG.replace("EXPECT", f"{EXPECTED}, pipeline: 'pipeline.py:publish'")
    )
    (tmp_path / "pipeline.py").write_text(WAITING)
    (tmp_path / "incoming").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.csv").write_text("a")
    deliver(tmp_path, *DAYS)
    dying = kfm(tmp_path, *TOGETHER)
    until = time.monotonic() + WAIT_S
    while not (tmp_path / "begun").exists():
        assert dying.poll() is None, dying.communicate()[0]
        assert time.monotonic() < until, "its pipeline does not begin"
        time.sleep(0.02)
    dying.send_signal(signal.SIGKILL)
    dying.communicate()
    assert rows(tmp_path, "SELECT DISTINCT status FROM runs") == [("running",)]
    twin = started(
        tmp_path, node, str(TWIN / "runner.mjs"), "run", "--source", "else", "--window", "2026-01-01/P1D"
    )
    told = twin.communicate(timeout=WAIT_S)[0]
    assert twin.returncode == 0, told
    mine = "FROM runs r JOIN retry_states s ON s.run_id = r.run_id WHERE r.source_id = 'daily'"
    assert (
        rows(tmp_path, f"SELECT r.status, r.error_code, s.fate, s.reason {mine}")
        == [("failed", "WORKER_DIED", "spent", "together")] * 3
    )
    assert rows(tmp_path, "SELECT COUNT(*) FROM requests WHERE state NOT IN ('done', 'cancelled')") == [(0,)]
    assert rows(tmp_path, "SELECT COUNT(*) FROM held WHERE state = 'held'") == [(0,)]
    (tmp_path / "go").touch()
    again = kfm(tmp_path, *TOGETHER)
    told = again.communicate(timeout=WAIT_S)[0]
    assert again.returncode == 0, told
    assert (
        rows(tmp_path, "SELECT status, attempts FROM runs WHERE source_id = 'daily'") == [("success", 2)] * 3
    )
    assert rows(tmp_path, "SELECT COUNT(*) FROM promotions WHERE dataset_id = 'levels'") == [(1,)]
