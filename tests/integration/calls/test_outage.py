"""Two simulated hours without a provider: its circuit is open, nothing is lost, and nothing rushes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kfm.db.ledger import Ledger
from kfm.model import breaker as rules
from tests.conformance.db.ledgers import START_MS, memory_store, sqlite_store
from tests.integration.calls.outage import PROVIDER, Fleet, SimClock, Unit, peak

pytestmark = pytest.mark.req("RET-7", "WAL-14")

HOUR_MS = 3_600_000
OUTAGE_MS = 2 * HOUR_MS
WAITING = 1_000
PACE_MS = OUTAGE_MS // WAITING  # between two units in quiet times
DOWN_MS, UP_MS = START_MS + HOUR_MS, START_MS + HOUR_MS + OUTAGE_MS


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[SimClock], Ledger]]:
    made: list[Ledger] = []

    def make(clock: SimClock) -> Ledger:
        if request.param == "memory":
            made.append(memory_store(clock))
        else:
            made.append(sqlite_store(str(tmp_path / "kfm.db"), clock))
        return made[-1]

    yield make
    for store in made:
        store.close()


def steady(make: Callable[[SimClock], Ledger], hours: int = 8) -> Fleet:
    """A unit every 7.2 s, before, during and after the outage: 1,000 pile up."""
    clock = SimClock(START_MS)
    count = hours * HOUR_MS // PACE_MS
    units = [Unit(name=f"unit-{number}", due_ms=START_MS + number * PACE_MS) for number in range(count)]
    return Fleet(clock, make(clock), units, (DOWN_MS, UP_MS))


def piled_up(make: Callable[[SimClock], Ledger]) -> Fleet:
    """1,000 that are all due before the provider goes down, ten seconds after the first call."""
    clock = SimClock(START_MS)
    units = [Unit(name=f"unit-{number}", due_ms=START_MS) for number in range(WAITING)]
    return Fleet(clock, make(clock), units, (START_MS + 10_000, START_MS + 10_000 + OUTAGE_MS))


def judge_outage(fleet: Fleet) -> tuple[int, int]:
    """Three failures, those in flight at opening, one per cool-down; returns calls in flight, and probes."""
    failed = [call for call in fleet.calls if not call.ok]
    opened_ms = sorted(call.ended_ms for call in failed)[rules.FAILURES_MAX - 1]
    first = [call for call in failed if call.began_ms <= opened_ms]
    in_flight = len(first) - rules.FAILURES_MAX
    assert 0 <= in_flight <= fleet.workers - 1, "no worker began another once it was open"
    probes = sorted(call.began_ms for call in failed if call.began_ms > opened_ms)
    assert len(first) + len(probes) == len(failed)
    gaps = [later - earlier for earlier, later in zip([opened_ms, *probes], probes, strict=False)]
    assert all(gap >= rules.COOLDOWN_MS for gap in gaps), gaps
    assert len(probes) <= OUTAGE_MS // rules.COOLDOWN_MS
    assert len(probes) >= OUTAGE_MS // (rules.COOLDOWN_MS + 20_000) - 1, "one worker keeps probing"
    return in_flight, len(probes)


def judge_units(fleet: Fleet) -> None:
    """Every unit has succeeded, each succeeded once, and none spent its attempts on waiting."""
    assert all(unit.done_ms is not None for unit in fleet.units)
    assert sum(call.ok for call in fleet.calls) == len(fleet.units)
    assert sum(unit.attempts for unit in fleet.units) == len(fleet.calls)
    assert max(unit.attempts for unit in fleet.units) <= 8
    assert fleet.store.breaker(PROVIDER).state == "closed"


def test_a_provider_that_is_down_has_an_open_circuit_and_finds_its_usual_pace_again(
    ledger: Callable[[SimClock], Ledger],
) -> None:
    """1,000 units pile up over two hours; the peak afterwards stays under twice the usual rate."""
    fleet = steady(ledger)
    fleet.run(START_MS + 24 * HOUR_MS)
    judge_outage(fleet)
    judge_units(fleet)
    for span_ms in (60_000, 300_000, HOUR_MS):
        assert peak(fleet.calls, UP_MS, span_ms) < 2 * span_ms / PACE_MS
    closed_ms = fleet.store.breaker(PROVIDER).closed_at_ms or 0
    assert closed_ms <= UP_MS + rules.COOLDOWN_MS + 10_000
    late = [unit for unit in fleet.units if (unit.done_ms or 0) - unit.due_ms > 60_000]
    assert len(late) >= WAITING * 9 // 10
    caught_up_ms = max(unit.done_ms or 0 for unit in late)
    assert caught_up_ms <= closed_ms + rules.RECOVERY_STRETCH * (closed_ms - DOWN_MS) + 60_000


def test_a_backlog_from_before_the_outage_is_spread_too(ledger: Callable[[SimClock], Ledger]) -> None:
    """1,000 units that were all due at once come back evenly, not with everything the workers have."""
    fleet = piled_up(ledger)
    fleet.run(START_MS + 24 * HOUR_MS)
    judge_outage(fleet)
    judge_units(fleet)
    before = [call for call in fleet.calls if call.began_ms < fleet.outage[0]]
    usual = len(before) * 30  # in five minutes, from what four busy workers did in ten seconds
    even = WAITING * 300_000 / (rules.RECOVERY_STRETCH * OUTAGE_MS)
    assert peak(fleet.calls, fleet.outage[1], 300_000) < min(2 * usual, 2 * even)


def test_without_the_pace_they_would_rush() -> None:
    """The same outage, with all that waits released at once: the peak shows what the pace is for."""
    fleet = steady(memory_store)
    fleet.release = lambda _breaker, due_ms, _share, _now_ms: due_ms
    fleet.run(START_MS + 24 * HOUR_MS)
    judge_units(fleet)
    assert peak(fleet.calls, UP_MS, 300_000) > 10 * 300_000 / PACE_MS
