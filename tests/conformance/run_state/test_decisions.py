"""What a pass learns before it decides."""

from __future__ import annotations

import pytest

from kfm.model.records import Justification
from kfm.model.run_state import REVERTED, outputs_hash, outputs_of
from kfm.runs.branch_merges import Merging
from tests.conformance.run_state.backends import Pipeline, Place, digest, output


def test_nothing_is_known_at_first(soil: Pipeline) -> None:
    """An empty store knows nothing, and says so."""
    known = soil.states.known("main", "run-1", ["a", "b"])
    assert (known.own, known.heads) == ({}, {})
    assert soil.states.made("main", "a", digest("x"), None) is None
    assert list(soil.states.of_run("run-1")) == []
    assert soil.states.history("a") == []


@pytest.mark.req("RS-4", "RS-5")
def test_heads_follow_the_newest_success(place: Place, soil: Pipeline) -> None:
    """A branch knows of each node its newest success; failures and partial ones change nothing."""
    soil.pass_of("run-1", "tiles", "wind", made="1")
    soil.pass_of("run-2", "tiles", made="2")
    soil.begin("run-3")
    soil.record(
        soil.node("tiles", "3", outcome="failed", outputs=()), soil.node("wind", "3", outcome="partial")
    )

    heads = place.open().known("main", "run-4", ["tiles", "wind"]).heads
    assert {node: head.run_id for node, head in heads.items()} == {"tiles": "run-2", "wind": "run-1"}
    assert heads["tiles"].inputs_hash == digest("inputs of 2")
    assert heads["tiles"].outputs_hash == digest("2")
    assert outputs_of(heads["tiles"].outputs) == (output("2"),)
    assert heads["tiles"].code_sha == "version:1"
    assert heads["tiles"].rerun is None


def test_branches_know_their_own(soil: Pipeline) -> None:
    """What was made on one branch says nothing about another."""
    soil.pass_of("run-1", "tiles")
    assert soil.states.known("trial", "run-2", ["tiles"]).heads == {}
    assert soil.states.made("trial", "tiles", digest("inputs of a"), "version:1") is None


def test_own_records_are_those_of_the_run(soil: Pipeline) -> None:
    """A run that is resumed finds what it has recorded itself, with outcome, attempt and outputs."""
    soil.pass_of("run-1", "tiles", made="1")
    soil.begin("run-2")
    soil.record(soil.node("tiles", "2", attempt=4), soil.node("wind", outcome="failed", outputs=()))

    own = soil.states.known("main", "run-2", ["tiles", "wind"]).own
    assert (own["tiles"].outcome, own["tiles"].attempt) == ("success", 4)
    assert own["tiles"].outputs_hash == digest("2")
    assert outputs_of(own["tiles"].outputs) == (output("2"),)
    assert own["wind"].outcome == "failed"
    assert own["tiles"].skipped_because is None


@pytest.mark.req("RS-4")
def test_an_earlier_result_is_found_by_hash_and_code(soil: Pipeline) -> None:
    """The newest success with the same hash and the same code; another hash, code or outcome is no match."""
    soil.pass_of("run-1", "tiles", made="1")
    soil.pass_of("run-2", "tiles", made="1")
    soil.pass_of("run-3", "tiles", made="3")
    soil.begin("run-4")
    soil.record(soil.node("tiles", "4", outcome="failed", outputs=()))

    found = soil.states.made("main", "tiles", digest("inputs of 1"), "version:1")
    assert found is not None
    assert (found.run_id, found.outputs_hash) == ("run-2", digest("1"))
    assert soil.states.made("main", "tiles", digest("inputs of 1"), "version:2") is None
    assert soil.states.made("main", "tiles", digest("inputs of 1"), None) is None
    assert soil.states.made("main", "tiles", digest("inputs of 4"), "version:1") is None
    assert soil.states.made("main", "wind", digest("inputs of 1"), "version:1") is None


def test_a_result_without_code(soil: Pipeline) -> None:
    """Where no code is recorded, only the absence of code matches."""
    soil.begin("run-1")
    soil.record(soil.node("tiles", "1", code_sha=None))
    found = soil.states.made("main", "tiles", digest("inputs of 1"), None)
    assert found is not None
    assert found.code_sha is None
    assert soil.states.made("main", "tiles", digest("inputs of 1"), "version:1") is None


@pytest.mark.req("RS-4")
def test_skipped_nodes_name_who_made_their_result(place: Place, soil: Pipeline) -> None:
    """Skipped nodes are recorded in bulk, each names its maker, and shows that one's outputs and checks."""
    nodes = [f"n{number:03}" for number in range(120)]
    soil.pass_of("run-1", *nodes, made="1")
    soil.begin("run-2")
    assert soil.end(skips=soil.skips(*((node, "1", "run-1") for node in nodes))).landed

    states = place.open()
    found = list(states.of_run("run-2"))
    assert [node.dataset_id for node in found] == nodes
    assert {(node.outcome, node.skipped_because, node.reason) for node in found} == {
        ("skipped", "run-1", "unchanged")
    }
    assert found[0].outputs == (output("1"),)
    assert found[0].validation_summary == {"checks": 2, "passed": 2, "failed": 0}
    own = states.known("main", "run-2", nodes).own
    assert (own["n000"].outcome, own["n000"].skipped_because) == ("skipped", "run-1")
    assert own["n000"].outputs_hash == outputs_hash((output("1"),))
    heads = states.known("main", "run-3", nodes).heads
    assert {head.run_id for head in heads.values()} == {"run-1"}


@pytest.mark.req("RS-4", "RS-9")
@pytest.mark.parametrize("outcome", ["success", "failed", "skipped"])
def test_a_skip_shows_no_other_result_of_its_maker(place: Place, soil: Pipeline, outcome: str) -> None:
    """A run that is resumed with other inputs, fails, or skips overwrites its record; a skipped node that
    named it has no outputs on record then, rather than wrong ones."""
    soil.pass_of("maker", "tiles", made="1")
    soil.begin("reader")
    assert soil.end(skips=soil.skips(("tiles", "1", "maker"))).landed
    if outcome == "skipped":
        soil.pass_of("other", "tiles", made="2")
    soil.begin("maker")
    if outcome == "skipped":
        assert soil.end(skips=soil.skips(("tiles", "2", "other"))).landed
    else:
        made = () if outcome == "failed" else (output("2"),)
        assert soil.record(soil.node("tiles", "2", outcome=outcome, outputs=made, attempt=2))
        assert soil.end().landed

    states = place.open()
    own = states.known("main", "reader", ["tiles"]).own["tiles"]
    assert (own.outcome, own.skipped_because, own.attempt) == ("skipped", "maker", 1)
    assert own.outputs is None
    assert states.own("reader") == {"tiles": own}
    for shown in (*states.of_run("reader"), states.one("reader", "tiles"), states.history("tiles")[-1]):
        assert shown is not None
        if shown.run_id == "reader":
            assert shown.outputs == ()
            assert shown.validation_summary["checks"] == 0
    assert (
        outputs_of(states.own("maker")["tiles"].outputs or "[]")
        == {
            "success": (output("2"),),
            "failed": (),
            "skipped": (output("2"),),
        }[outcome]
    )


def test_skips_can_come_with_records(soil: Pipeline) -> None:
    """Records and skipped ones of the same write stand or fall together."""
    soil.pass_of("run-1", "a", "b", made="1")
    soil.begin("run-2")
    assert soil.record(soil.node("a", "2"), skips=soil.skips(("b", "1", "run-1")))
    found = {node.dataset_id: node.outcome for node in soil.states.of_run("run-2")}
    assert found == {"a": "success", "b": "skipped"}


@pytest.mark.req("RS-5")
def test_a_pass_leaves_a_commit(place: Place, soil: Pipeline) -> None:
    """At its end a pass names the commit that its outputs are in; the branch holds them, and the next
    pass trusts what it knows."""
    soil.begin("run-1")
    soil.record(soil.node("tiles", "1"), soil.node("wind", "2"))
    ended = soil.end()

    assert ended.landed
    assert ended.commit is not None
    assert soil.states.get("run-1").commit == ended.commit  # type: ignore[union-attr]
    assert soil.begin("run-2", nodes=("tiles", "wind"))
    heads = soil.states.known("main", "run-2", ["tiles", "wind"]).heads
    assert [head.rerun for head in heads.values()] == [None, None]
    if not place.kind.startswith(("branch", "lakefs")):  # there the record is part of the commit
        assert soil.states.one("run-1", "tiles").output_commit == ended.commit  # type: ignore[union-attr]


@pytest.mark.req("RS-4", "RS-5")
@pytest.mark.parametrize("place", ["sqlite", "postgresql"], indirect=True)
def test_a_merge_brings_nothing_of_what_was_reverted(place: Place) -> None:
    """A branch that was made before a revert knows the outputs as if they were still there: merging it, for
    what it has made itself, does not let the node pass for one that need not run."""
    main = Pipeline(place.open())
    merging = Merging(place.branches())
    why = Justification(actor="ada", rationale="a broken gauge")
    main.pass_of("run-1", "tiles")
    merging.branches.create("side", "main")
    assert main.begin("run-2")
    again = main.node("tiles", inputs_hash=digest("other inputs"))  # of which the same is made
    assert main.record(again)
    assert main.end().landed
    merging.revert("main", "main", author="ada", prefer="source", why=why)
    main.pass_of("run-3", "wind")
    assert main.states.known("main", "", ["tiles"]).heads["tiles"].rerun == REVERTED

    Pipeline(place.open(), branch="side").pass_of("run-4", "soil")
    merging.merge("side", "main", author="ada", prefer=None, why=why)
    heads = main.states.known("main", "", ["soil", "tiles"]).heads
    assert (heads["soil"].rerun, heads["tiles"].rerun) == (None, REVERTED)
