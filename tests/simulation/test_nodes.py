"""Pipelines of nodes in simulated worlds, and the proof that their rules can be broken."""

from __future__ import annotations

import pytest

from tests.simulation.broken_nodes import NODES
from tests.simulation.conditions import Patch
from tests.simulation.hunting import hunt, named
from tests.simulation.nodes.seeds import live_nodes

SEEDS_PER_TEST = 40


@pytest.mark.req("RS-3", "RS-4", "RS-9", "RS-10")
@pytest.mark.parametrize("first", range(0, 120, SEEDS_PER_TEST))
def test_no_history_of_pipelines_breaks_a_promise(first: int) -> None:
    """Runs die, stall, are resumed, forked and taken over: what is skipped is what would be made, and no work
    is done, recorded or committed by a process that has lost its lock."""
    broken = [v for v in (live_nodes(seed) for seed in range(first, first + SEEDS_PER_TEST)) if v.violation]
    assert not broken, f"seed {broken[0].seed}: {broken[0].violation!r}"


@pytest.mark.req("RS-9")
def test_pipelines_on_real_sqlite_files() -> None:
    """The same rules hold when the ledger is a SQLite file with its write lock."""
    verdicts = (live_nodes(seed, real_sqlite=True) for seed in range(1_000, 1_008))
    broken = [verdict for verdict in verdicts if verdict.violation]
    assert not broken, f"seed {broken[0].seed}: {broken[0].violation!r}"


def test_the_same_seed_tells_the_same_story() -> None:
    """So that a failure can be looked at again."""
    first, second = live_nodes(7), live_nodes(7)
    assert (first.trace, first.outcomes) == (second.trace, second.outcomes)
    assert live_nodes(8).trace != first.trace


def test_worlds_of_pipelines_are_rough() -> None:
    """The seeds of these tests contain what they claim."""
    seen = sum((live_nodes(seed).outcomes for seed in range(60)), start=live_nodes(60).outcomes)
    for kind in (
        "crash",
        "stall",
        "power cut",
        "damaged",
        "taken over",
        "busy",
        "merged",
        "reverted",
        "lone node",
        "node failed",
        "node partial",
        "run cancelled",
        "run failed",
        "run partial",
        "update success",
        "update failed",
    ):
        assert seen[kind] > 0, kind


@pytest.mark.req("RS-3", "RS-4", "RS-9", "RS-10")
@pytest.mark.parametrize("patch", NODES, ids=named)
def test_a_broken_pipeline_run_is_caught(patch: Patch) -> None:
    """Each patch that removes a guard leads to a broken promise in some seed."""
    hunt("nodes", patch)


def test_the_hunt_for_pipelines_is_fair() -> None:
    """Without a patch, worlds of the same weather keep every promise."""
    for chances in {patch.chances for patch in NODES}:
        for seed in range(12):
            assert live_nodes(seed, chances=chances).violation is None
