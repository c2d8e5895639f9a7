"""Services that keep the same schedules in simulated worlds, and the proof that their rules can be broken."""

from __future__ import annotations

import pytest

from tests.simulation.broken_schedules import SCHEDULES
from tests.simulation.conditions import Patch
from tests.simulation.hunting import hunt, named
from tests.simulation.served.seeds import live_served

SEEDS_PER_TEST = 20


@pytest.mark.req("UPD-13", "TRG-2")
@pytest.mark.parametrize("first", range(0, 40, SEEDS_PER_TEST))
def test_no_history_of_services_breaks_a_promise(first: int) -> None:
    """A process dies, stalls or has a clock that jumps: each instant has one fate, each request one end."""
    seeds = range(first, first + SEEDS_PER_TEST)
    broken = [v for v in (live_served(seed) for seed in seeds) if v.violation]
    assert not broken, f"seed {broken[0].seed}: {broken[0].violation!r}"


@pytest.mark.req("UPD-13")
def test_services_on_real_sqlite_files() -> None:
    """The same rules hold when the ledger is a SQLite file with its write lock."""
    verdicts = (live_served(seed, real_sqlite=True) for seed in range(1_000, 1_005))
    broken = [verdict for verdict in verdicts if verdict.violation]
    assert not broken, f"seed {broken[0].seed}: {broken[0].violation!r}"


def test_the_same_seed_tells_the_same_story() -> None:
    """So that a failure can be looked at again."""
    first, second = live_served(7), live_served(7)
    assert (first.trace, first.outcomes) == (second.trace, second.outcomes)
    assert live_served(8).trace != first.trace


def test_worlds_of_services_are_rough() -> None:
    """The seeds of these tests contain what they claim."""
    seen = sum((live_served(seed).outcomes for seed in range(15)), start=live_served(15).outcomes)
    for kind in (
        "crash",
        "stall",
        "power cut",
        "skipped",
        "missed",
        "dropped",
        "backfilled",
        "paused",
        "cancelled in flight",
        "request cancelled",
        "request success",
    ):
        assert seen[kind] > 0, kind


@pytest.mark.req("UPD-13", "TRG-2")
@pytest.mark.parametrize("patch", SCHEDULES, ids=named)
def test_a_broken_scheduler_is_caught(patch: Patch) -> None:
    """Each patch that removes a guard leads to a broken promise in some seed."""
    hunt("served", patch)


def test_the_hunt_is_fair() -> None:
    """Without a patch, worlds of the same weather keep every promise."""
    for chances in {patch.chances for patch in SCHEDULES}:
        for seed in range(3):
            assert live_served(seed, chances=chances).violation is None
