"""About a minute of simulated worlds, and the proof that the rules can be broken."""

from __future__ import annotations

import pytest

from tests.simulation.broken import PATCHES
from tests.simulation.conditions import Patch
from tests.simulation.hunting import hunt, named
from tests.simulation.seeds import live

SEEDS_PER_TEST = 25
SMALL_AND_TOLD = (60_134, 20_679)  # small worlds that once found something amiss


@pytest.mark.req("UPD-2", "UPD-5", "UPD-8", "UPD-9", "TRG-4")
@pytest.mark.parametrize("first", range(0, 100, SEEDS_PER_TEST))
def test_no_history_breaks_a_promise(first: int) -> None:
    """Whatever crashes, stalls, jumps or fails: nothing is lost, doubled, stale, or promoted past a gate."""
    broken = [v for v in (live(seed) for seed in range(first, first + SEEDS_PER_TEST)) if v.violation]
    assert not broken, f"seed {broken[0].seed}: {broken[0].violation!r}"


def test_small_worlds() -> None:
    """One round and few sources: what most seeds of a campaign are, and those that once told of something."""
    seeds = (*range(2_000, 2_020), *SMALL_AND_TOLD)
    broken = [v for v in (live(seed, small=True) for seed in seeds) if v.violation]
    assert not broken, f"seed {broken[0].seed}: {broken[0].violation!r}"


@pytest.mark.req("UPD-2", "UPD-8")
def test_on_real_sqlite_files() -> None:
    """The same rules hold when the ledger is a SQLite file with its write lock."""
    broken = [v for v in (live(seed, real_sqlite=True) for seed in range(1_000, 1_015)) if v.violation]
    assert not broken, f"seed {broken[0].seed}: {broken[0].violation!r}"


def test_same_seed_same_trace() -> None:
    """A seed tells the same story each time, so a failure can be looked at again."""
    first, second = live(7), live(7)
    assert first.trace == second.trace
    assert first.outcomes == second.outcomes
    assert live(8).trace != first.trace


def test_the_worlds_are_rough() -> None:
    """The seeds of these tests contain what they claim: crashes, cuts, takeovers, refusals, collections."""
    # 117 and 123: collections that find something
    seen = sum((live(seed).outcomes for seed in (*range(60), 117)), start=live(123).outcomes)
    kinds = ("crash", "stall", "power cut", "beat", "refused", "busy", "noop", "success", "failed")
    delivery = ("delivered early", "delivery troubled", "deliverer crash", "deliverer stall", "arrived again")
    trying = ("provider down", "circuit opened", "circuit closed", "probe", "automatic attempt", "granted")
    letting_go = ("release requested", "released", "not approved", "retry success")
    for kind in (*kinds, *delivery, *trying, *letting_go, "collected", "preview planned", "drifted"):
        assert seen[kind] > 0, kind
    assert any(name.startswith("interrupted") for name in seen)


@pytest.mark.req("UPD-2", "UPD-8", "UPD-9", "TRG-4")
@pytest.mark.parametrize("patch", PATCHES, ids=named)
def test_a_broken_protocol_is_caught(patch: Patch) -> None:
    """Each patch that removes a guard leads to a broken promise in some seed."""
    hunt("updates", patch)


def test_the_hunt_is_fair() -> None:
    """Without a patch, worlds of the same weather keep every promise."""
    for chances in {patch.chances for patch in PATCHES}:
        for seed in (*range(6), 34):  # 34: a release that was approved, and then had to wait for a circuit
            assert live(seed, chances=chances, small=seed in (1, 2, 4, 5)).violation is None
