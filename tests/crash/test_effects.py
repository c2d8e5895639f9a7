"""A short form of the effects of `make crash`: work that acts outside, killed around its effects."""

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
KILLS = 10


@pytest.mark.slow
@pytest.mark.req("TRG-1", "TRG-2", "UPD-5")
def test_killed_work_acts_once_unless_a_person_asks_again() -> None:
    """Whichever process is killed around an effect that must not be repeated, and whatever comes after it
    (a command, a webhook, a schedule, an announced object, a retry): there is one effect, and one more for
    each person who asked for it; what may be repeated is published, and every request has an end."""
    with tempfile.TemporaryDirectory(dir=memory_disk()) as folder:
        command = [sys.executable, "-m", "tests.crash.effects", folder, "--kills", str(KILLS)]
        ended = subprocess.run(
            [*command, "--seed", "20260101", "--seconds", "120"],
            cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=280,
        )  # fmt: skip
    assert ended.stdout, ended.stderr
    told = json.loads(ended.stdout)
    assert not told["problems"], "\n".join(told["problems"][:20])
    assert told["kills"] >= KILLS, told
    assert told["inside"] >= 3, told  # of a long campaign nine in ten; how many of ten depends on the machine
    assert told["effects"] >= KILLS, told
    assert told["published"] >= 3, told
