"""Announced objects in simulated worlds, and the proof that their rules can be broken."""

from __future__ import annotations

import pytest

from tests.simulation.announced.seeds import live_announced
from tests.simulation.broken_units import UNITS
from tests.simulation.conditions import Patch
from tests.simulation.hunting import hunt, named

SEEDS_PER_TEST = 50


@pytest.mark.req("WAL-3", "WAL-5", "WAL-8", "WAL-10", "WAL-11", "WAL-14", "WAL-20")
@pytest.mark.parametrize("first", range(0, 200, SEEDS_PER_TEST))
def test_no_history_of_announced_objects_breaks_a_promise(first: int) -> None:
    """Whatever repeats, comes late or dies: each object ends as one item, and the newest bytes are shown."""
    seeds = range(first, first + SEEDS_PER_TEST)
    broken = [v for v in (live_announced(seed) for seed in seeds) if v.violation]
    assert not broken, f"seed {broken[0].seed}: {broken[0].violation!r}"


@pytest.mark.req("WAL-11")
def test_announced_objects_on_real_sqlite_files() -> None:
    """The same rules hold when the ledger is a SQLite file with its write lock."""
    verdicts = (live_announced(seed, real_sqlite=True) for seed in range(1_000, 1_015))
    broken = [verdict for verdict in verdicts if verdict.violation]
    assert not broken, f"seed {broken[0].seed}: {broken[0].violation!r}"


def test_the_same_seed_tells_the_same_story() -> None:
    """So that a failure can be looked at again."""
    first, second = live_announced(7), live_announced(7)
    assert (first.trace, first.outcomes) == (second.trace, second.outcomes)
    assert live_announced(8).trace != first.trace


def test_announced_worlds_are_rough() -> None:
    """The seeds of these tests contain what they claim."""
    seen = sum((live_announced(seed).outcomes for seed in range(80)), start=live_announced(80).outcomes)
    for kind in (
        "crash",
        "stall",
        "power cut",
        "poisoned",
        "lapsed",
        "isolated",
        "objects away",
        "circuit refused",
        "reissued in progress",
        "removed",
        "stale",
        "ignored",
        "ledger ahead",
        "spent",
        "damaged",
        "replayed",
        "renewed",
        "not begun",
    ):
        assert seen[kind] > 0, kind


@pytest.mark.req("WAL-5", "WAL-8", "WAL-14", "WAL-20")
@pytest.mark.parametrize("patch", UNITS, ids=named)
def test_a_broken_ledger_of_units_is_caught(patch: Patch) -> None:
    """Each patch that removes a guard leads to a broken promise in some seed."""
    hunt("announced", patch)


def test_the_hunt_for_units_is_fair() -> None:
    """Without a patch, worlds of the same weather keep every promise."""
    for chances in {patch.chances for patch in UNITS}:
        for seed in range(15):
            assert live_announced(seed, chances=chances).violation is None
