"""Requests and schedules in simulated worlds, and the proof that their rules can be broken."""

from __future__ import annotations

import pytest

from tests.simulation.asked.seeds import live_asked
from tests.simulation.broken import applied
from tests.simulation.broken_requests import REQUESTS
from tests.simulation.conditions import Patch

SEEDS_PER_TEST = 20
HUNT_SEEDS_MAX = 400


@pytest.mark.req("TRG-2", "UPD-13")
@pytest.mark.parametrize("first", range(0, 60, SEEDS_PER_TEST))
def test_no_history_of_requests_breaks_a_promise(first: int) -> None:
    """Whichever process dies, oversleeps or never hears the answer: each request is accepted once, run once
    and ended once by the process that held it, and every instant of a schedule has one fate."""
    seeds = range(first, first + SEEDS_PER_TEST)
    broken = [v for v in (live_asked(seed) for seed in seeds) if v.violation]
    assert not broken, f"seed {broken[0].seed}: {broken[0].violation!r}"


def test_the_same_seed_tells_the_same_story() -> None:
    """So that a failure can be looked at again."""
    first, second = live_asked(7), live_asked(7)
    assert (first.trace, first.outcomes) == (second.trace, second.outcomes)
    assert live_asked(8).trace != first.trace


def test_worlds_of_requests_are_rough() -> None:
    """The seeds of these tests contain what they claim."""
    seen = sum((live_asked(seed).outcomes for seed in range(30)), start=live_asked(30).outcomes)
    for kind in (
        "crash",
        "stall",
        "lapsed",
        "dead",
        "skipped",
        "missed",
        "request cancelled",
        "request success",
    ):
        assert seen[kind] > 0, kind


@pytest.mark.req("TRG-2")
@pytest.mark.parametrize("patch", REQUESTS, ids=lambda patch: patch.name.replace(" ", "-"))
def test_a_broken_ledger_of_requests_is_caught(patch: Patch) -> None:
    """Each patch that removes a guard leads to a broken promise in some seed."""
    with applied(patch):
        for seed in range(patch.first, patch.first + HUNT_SEEDS_MAX):
            violation = live_asked(seed, chances=patch.chances).violation
            if violation is not None:
                assert patch.rule in str(violation)
                return
    pytest.fail(f"{HUNT_SEEDS_MAX} seeds passed although {patch.name}")


def test_the_hunt_for_requests_is_fair() -> None:
    """Without a patch, worlds of the same weather keep every promise."""
    for chances in {patch.chances for patch in REQUESTS}:
        for seed in range(4):
            assert live_asked(seed, chances=chances).violation is None
