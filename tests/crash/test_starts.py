"""A short form of the starts of `make crash`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STARTS = 2


@pytest.mark.slow
@pytest.mark.req("UPD-13")
def test_services_and_workers_start_and_end(tmp_path: Path) -> None:
    """With work waiting, and threads that are switched as often as can be, a service answers and a worker
    takes in what was announced, and both end with 0 when they are asked to."""
    command = [sys.executable, "-m", "tests.crash.starts", str(tmp_path / "project")]
    command += ["--serves", str(STARTS), "--workers", str(STARTS)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert ended.stdout, ended.stderr
    told = json.loads(ended.stdout)
    assert not told["problems"], "\n".join(told["problems"])
    assert (told["serves"], told["workers"]) == (STARTS, STARTS)
    assert told["answers"] >= 7 * STARTS
