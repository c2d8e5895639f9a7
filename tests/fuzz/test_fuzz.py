"""A short fuzz of every reader; the campaign is `make fuzz`."""

from __future__ import annotations

import random

import pytest

from tests.fuzz.mutate import mutated
from tests.fuzz.targets import TARGETS, attempt


@pytest.mark.req("CLI-2")
@pytest.mark.parametrize("name", sorted(TARGETS))
def test_hostile_bytes_meet_an_answer(name: str) -> None:
    """Whatever the bytes, a reader answers or refuses with an error of ours."""
    rng = random.Random(f"1/{name}")
    attempt(name, TARGETS[name][1])
    for _ in range(150):
        attempt(name, mutated(TARGETS[name][1], rng))
