"""A short form of `make crash`: ten processes killed, ten stopped past their lease."""

from __future__ import annotations

import time

import pytest

from tests.crash.campaign import histogram, worlds
from tests.crash.trial import INSIDE, Outcome, plan_trial

SEED = 20260101
SCENARIOS = ("files-update", "sync-first")
EACH = 10
DEADLINE_SECONDS = 300.0


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    """By operation only: a clock would hit something else each time."""
    kinds = ("kill", "stop")
    plans = [
        plan_trial(SEED, kind, number, list(SCENARIOS), clock_every=0)  # type: ignore[arg-type]
        for kind in kinds
        for number in range(EACH)
    ]
    with worlds(SCENARIOS) as campaign:
        return campaign.run(plans, 4, time.monotonic() + DEADLINE_SECONDS, lambda _: None)


@pytest.mark.slow
@pytest.mark.req("UPD-2", "UPD-5", "UPD-8", "TRG-4", "TRG-8", "GOV-2")
def test_interrupted_work_is_published_once_and_whole(outcomes: list[Outcome]) -> None:
    """Whenever a process dies or stalls, its successor publishes what an undisturbed run would have; and
    the evidence is whole: one start and one end for each attempt, an unbroken chain, no event lost."""
    told = [
        f"{o.plan.kind}-{o.plan.number} in {o.hit} ({o.where}): {o.problems}" for o in outcomes if o.problems
    ]
    assert not told, "\n".join(told)
    assert len(outcomes) == 2 * EACH


@pytest.mark.slow
@pytest.mark.req("TRG-4")
def test_interrupted_work_leaves_nothing_in_the_tree(outcomes: list[Outcome]) -> None:
    """What a dead process was building is gone once its successor has published."""
    told = [
        f"{o.plan.kind}-{o.plan.number} in {o.hit} ({o.where}): {o.litter[0]}" for o in outcomes if o.litter
    ]
    assert not told, "\n".join(told)


@pytest.mark.slow
def test_the_interruptions_are_inside_the_run(outcomes: list[Outcome]) -> None:
    """The trials above prove something: they interrupt runs, in several phases."""
    struck = [outcome.hit for outcome in outcomes]
    assert sum(phase in INSIDE for phase in struck) >= 0.8 * len(struck), histogram(outcomes)
    assert len({phase for phase in struck if phase in INSIDE}) >= 5, histogram(outcomes)
