"""The simulation reaches the code that it speaks for."""

from __future__ import annotations

import subprocess
import sys

import pytest

SECONDS_MAX = 300  # it takes a tenth of that; on a machine that is busy with other things, more


@pytest.mark.slow
def test_the_worlds_reach_the_kernel() -> None:
    """At least 79 of 100 statements of the kernel's own modules run under the simulator."""
    command = [sys.executable, "-m", "tests.simulation", "--coverage", "--seeds", "60"]
    told = subprocess.run(
        [*command, "--minutes", str(SECONDS_MAX / 60)], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert "together" in told.stdout
