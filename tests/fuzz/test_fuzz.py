"""A short fuzz of every reader; the campaign is `make fuzz`."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.mutate import mutated
from tests.fuzz.targets import TARGETS, attempt


@pytest.mark.req("CLI-2")
@pytest.mark.parametrize("name", sorted(TARGETS))
def test_hostile_bytes_meet_an_answer(name: str) -> None:
    """Whatever the bytes, a reader answers or refuses with an error of ours."""
    rng = random.Random(f"1/{name}")
    for seed in TARGETS[name].seeds:
        attempt(name, seed)
    for _ in range(8 if TARGETS[name].slow else 150):
        attempt(name, mutated(rng.choice(TARGETS[name].seeds), rng))


DEEP = (b"[" * 5_000, b'{"a":' * 5_000, b"(" * 5_000, b"- " * 5_000, b"\xff" * 5_000, b"9" * 10_000)


@pytest.mark.req("CLI-2")
@pytest.mark.parametrize("name", sorted(name for name in TARGETS if not TARGETS[name].slow))
def test_deep_and_long_bytes_meet_an_answer(name: str) -> None:
    """Nesting and length by themselves break no reader."""
    for data in DEEP:
        attempt(name, data)


def test_inputs_are_led_by_what_they_reach(tmp_path: Path) -> None:
    """A reader fuzzed in its own process reports branches and stays within the bounds; a second will do."""
    pytest.importorskip("atheris")
    only = ["--only", "expression", "--seconds", "2", "--found", str(tmp_path)]
    ended = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *only],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert ended.returncode == 0, ended.stderr
    assert " branches, " in ended.stdout
    assert "? branches" not in ended.stdout
