"""Requests and schedules in simulated worlds, and the proof that their rules can be broken."""

from __future__ import annotations

import pytest

from tests.simulation.asked.seeds import live_asked
from tests.simulation.conditions import Patch
from tests.simulation.hunting import GROUNDS, hunt, named

SEEDS_PER_TEST = 20
PATCHES = GROUNDS["asked"].patches


TOLD = (10_950, 17_250)  # worlds that once found something amiss


@pytest.mark.req("TRG-2", "TRG-3", "UPD-13")
@pytest.mark.parametrize("first", range(0, 60, SEEDS_PER_TEST))
def test_no_history_of_requests_breaks_a_promise(first: int) -> None:
    """Whichever process dies, oversleeps or never hears the answer: what is asked for is accepted once and
    has its true end; machines wait where persons may pass; what is cancelled, bound to another plan or not
    approved is never published, and nothing acts twice outside; once faults stop, nothing is left."""
    seeds = (*range(first, first + SEEDS_PER_TEST), *(() if first else TOLD))
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
    who = (
        "begun again by a machine",
        "begun again by a person",
        "acted",
        "announced",
        "planned",
        "cancelled",
    )
    two = ("approved update", "rejected update", "approved release")
    ends = ("request success", "request noop", "request failed", "request refused", "request cancelled")
    for kind in ("crash", "stall", "beat", "lapsed", "dead", "skipped", "missed", *who, *two, *ends):
        assert seen[kind] > 0, kind


@pytest.mark.req("TRG-2", "TRG-3", "TRG-4", "RET-6")
@pytest.mark.parametrize("patch", PATCHES, ids=named)
def test_a_broken_rule_of_starting_is_caught(patch: Patch) -> None:
    """Each patch that removes a guard leads to a broken promise in some seed."""
    hunt("asked", patch)


def test_the_hunt_for_requests_is_fair() -> None:
    """Without a patch, worlds of the same weather keep every promise."""
    for chances in {patch.chances for patch in PATCHES}:
        for seed in range(4):
            assert live_asked(seed, chances=chances).violation is None
