"""A short form of the workers of `make crash`: killed on one feed, at any moment."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KILLS = 12


@pytest.mark.slow
@pytest.mark.req("WAL-3", "WAL-5", "WAL-8", "WAL-10", "WAL-11", "WAL-20")
@pytest.mark.parametrize(("backend", "workers"), [("sqlite", 2), ("postgresql", 3)])
def test_killed_workers_leave_each_object_exactly_one_item(
    backend: str, workers: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Whichever worker is killed, and whenever: every announced object is one item with its newest bytes,
    every sidecar one asset, every version one lineage edge; no unit is lost, and no message either."""
    dsn = request.getfixturevalue("postgres_database") if backend == "postgresql" else None
    command = [sys.executable, "-m", "tests.crash.workers", str(tmp_path / "project")]
    command += ["--kills", str(KILLS), "--workers", str(workers), "--seed", "20260101"]
    command += ["--dsn", dsn] if dsn else []
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert ended.stdout, ended.stderr
    told = json.loads(ended.stdout)
    assert not told["problems"], "\n".join(told["problems"][:20])
    assert told["kills"] >= KILLS, told
    assert told["objects"] >= 20, told
