"""Nodes that come one by one into the same run, each under a lock of its own, in every store."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kfm.db.run_state import RunStateTables
from kfm.model.run_state import BeginPass, EndedPass, EndPass, Fence, PassTry, node_scope
from tests.conformance.run_state.backends import Pipeline, Place


class Lone(Pipeline):
    """One node at work by itself."""

    def __init__(self, states: RunStateTables, node: str) -> None:
        super().__init__(states)
        self.lone = node
        self.scope = node_scope(node, self.branch)
        self.left: list[PassTry] = []

    def begin(self, run_id: str, *, dead: Any = lambda _worker: False, nodes: tuple[str, ...] = ()) -> bool:
        def emit(_about: PassTry, left: Any) -> tuple[()]:
            self.left = [each for each, _code in left]
            return ()

        begun = self.states.begin(
            BeginPass(
                run_id=run_id,
                pipeline_id=self.pipeline_id,
                branch=self.branch,
                graph=((self.lone, nodes),),
                worker_id=f"worker of {self.lone} in {run_id}",
                lease_ms=60_000,
                scope=self.scope,
                lone=self.lone,
                emit=emit,
            ),
            dead,
        )
        if begun.held_by is not None:
            return False
        self.run_id, self.fence = run_id, Fence(self.scope, begun.fence)
        return True

    def leave(self, skips: Any = None) -> EndedPass:
        outcomes = {node.dataset_id: node.outcome for node in self.states.of_run(self.run_id)}
        outcomes |= {row[0]: "skipped" for row in skips.rows} if skips else {}
        return self.states.end(
            EndPass(
                run_id=self.run_id,
                pipeline_id=self.pipeline_id,
                scope=self.scope,
                fence=self.fence.fence,
                branch=self.branch,
                state="success",
                counts=dict(Counter(outcomes.values())),
                author="ada",
                lone=self.lone,
            ),
            skips,
        )


def state_of(states: RunStateTables, run_id: str) -> tuple[str, dict[str, int]]:
    kept = states.get(run_id)
    assert kept is not None
    return kept.state, kept.counts


@pytest.mark.req("RS-5", "RS-9")
def test_a_run_of_lone_nodes_ends_with_the_last(place: Place) -> None:
    """Side by side in one run: the end of one does not end the other, and the last counts all of them."""
    tiles, wind = Lone(place.open(), "tiles"), Lone(place.open(), "wind")
    assert tiles.begin("run-1")
    assert wind.begin("run-1", nodes=("tiles",))
    assert tiles.record(tiles.node("tiles"))
    assert tiles.leave().landed
    assert state_of(wind.states, "run-1")[0] == "running"
    assert wind.record(wind.node("wind", "b"))
    assert wind.leave().landed
    assert state_of(tiles.states, "run-1") == ("success", {"success": 2})
    kept = tiles.states.get("run-1")
    assert kept is not None
    assert kept.graph == (("tiles", ()), ("wind", ("tiles",)))
    heads = wind.states.known("main", "run-2", ["tiles", "wind"]).heads
    assert {node: head.run_id for node, head in heads.items()} == {"tiles": "run-1", "wind": "run-1"}
    assert tiles.begin("run-2")
    assert tiles.leave(tiles.skips(("tiles", "a", "run-1"))).landed
    assert state_of(tiles.states, "run-2") == ("success", {"skipped": 1})


@pytest.mark.req("RS-5")
def test_a_lone_node_and_a_pass_keep_off_each_other(place: Place) -> None:
    """Neither begins while the other is at work on the same node; a dead one is no hindrance."""
    whole, tiles = Pipeline(place.open()), Lone(place.open(), "tiles")
    assert tiles.begin("run-1")
    assert not Lone(tiles.states, "tiles").begin("run-2")
    assert not whole.begin("run-3", nodes=("tiles",))
    assert whole.begin("run-3", nodes=("other",))
    assert not Lone(tiles.states, "wind").begin("run-4")
    assert whole.end().landed
    successor = Lone(place.open(), "tiles")
    assert successor.begin("run-5", dead=lambda _worker: True)
    assert [(each.run_id, each.attempt) for each in successor.left] == [("run-1", 1)]
    assert tiles.record(tiles.node("tiles")) is False
    assert tiles.leave().landed is False
    assert successor.record(successor.node("tiles"))
    assert successor.leave().landed
