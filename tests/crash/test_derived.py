"""A short form of the derived datasets of `make crash`: a change, and kills until it has been worked off."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.crash.campaign import memory_disk
from tests.crash.project import environment

ROOT = Path(__file__).resolve().parents[2]
KILLS = 8


@pytest.mark.slow
@pytest.mark.req("DAT-7")
def test_killed_processes_lose_no_change_and_make_nothing_twice() -> None:
    """Whichever process is killed between a promotion and what is made of it: exactly the windows that read
    what has changed are asked for and made, each once, from what their inputs hold."""
    with tempfile.TemporaryDirectory(dir=memory_disk()) as folder:
        command = [sys.executable, "-m", "tests.crash.derived", folder, "--kills", str(KILLS)]
        ended = subprocess.run(
            [*command, "--seed", "20260101", "--seconds", "120"],
            cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=280,
        )  # fmt: skip
    assert ended.stdout, ended.stderr
    told = json.loads(ended.stdout)
    assert not told["problems"], "\n".join(told["problems"][:20])
    assert told["kills"] >= KILLS, told
    assert told["inside"] >= 2, told
    assert told["rebuilt"] > told["changes"] >= 2, told
