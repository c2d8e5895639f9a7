"""What becomes of events, and that nothing else depends on it."""

from __future__ import annotations

import pytest

from tests.simulation.scheduler import Chances
from tests.simulation.seeds import live

SEEDS = range(8)
ROUGH = Chances(crash=0.006, stall=0.006, jump=0.002, fail_before=0.01, fail_after=0.01)


@pytest.mark.req("RS-8", "TRG-8")
@pytest.mark.parametrize("chances", [None, ROUGH], ids=["any-weather", "rough"])
def test_a_dead_collector_changes_nothing(chances: Chances | None) -> None:
    """With the collector down for the whole time, a world takes the same steps and writes the same rows as
    with the collector up; and once it is back, every event arrives, in order, byte for byte."""
    told = 0
    for seed in SEEDS:
        up, down = (live(seed, chances=chances, collector=state) for state in ("up", "down"))
        assert up.violation is None, up.violation
        assert down.violation is None, down.violation
        assert down.trace == up.trace
        assert down.ledger == up.ledger
        assert down.steps == up.steps
        assert down.delivered == up.delivered > 0
        assert down.outcomes["delivered early"] == 0
        told += up.outcomes["delivered early"]
    assert told > 0, "a collector that is up is told while the world goes on"


@pytest.mark.req("RS-8")
@pytest.mark.parametrize("state", ["flapping", "forgetful"])
def test_an_unsteady_collector_gets_everything(state: str) -> None:
    """A collector that comes and goes, or whose answers are lost, has each event at least once in the end."""
    again = 0
    for seed in SEEDS:
        verdict = live(seed, collector=state)  # type: ignore[arg-type]
        assert verdict.violation is None, verdict.violation
        again += verdict.outcomes["arrived again"]
    # A sender that is killed between a delivery and its record repeats it, too: at least once, not exactly.
    assert again > 0 or state == "flapping"


def test_the_trace_would_show_a_difference() -> None:
    """What is compared is not blind: another seed has another trace and another ledger."""
    one, other = live(1, collector="down"), live(2, collector="down")
    assert one.trace != other.trace
    assert one.ledger != other.ledger
