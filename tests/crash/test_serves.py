"""A short form of the services of `make crash`: three of them, killed while they serve."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 20


@pytest.mark.slow
@pytest.mark.req("TRG-2", "UPD-12", "UPD-13")
@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_killed_services_keep_what_they_promised(
    backend: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Whichever of three services is killed, stopped or asked to end, and whenever: what a sender was told
    is accepted has exactly one run, every instant of every schedule has exactly one fate, and nothing stays
    open."""
    dsn = request.getfixturevalue("postgres_database") if backend == "postgresql" else None
    command = [sys.executable, "-m", "tests.crash.serves", str(tmp_path / "project")]
    command += ["--seconds", str(SECONDS), "--seed", "20260101", *(["--dsn", dsn] if dsn else [])]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert ended.stdout, ended.stderr
    told = json.loads(ended.stdout)
    assert not told["problems"], "\n".join(told["problems"][:20])
    assert told["kills"] >= 4, told
    assert told["messages"] >= 5, told
    assert told["found"]["instants"] >= 30, told
