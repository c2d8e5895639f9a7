"""The simulation reaches the code that it speaks for."""

from __future__ import annotations

import subprocess
import sys

import pytest

SECONDS_MAX = 45


@pytest.mark.slow
def test_the_worlds_reach_the_kernel() -> None:
    """At least nine of ten statements of the kernel's own modules run under the simulator."""
    command = [sys.executable, "-m", "tests.simulation", "--coverage", "--seeds", "80"]
    told = subprocess.run(
        [*command, "--minutes", str(SECONDS_MAX / 60)], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert "together" in told.stdout
