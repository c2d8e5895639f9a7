"""What is written of nodes, and what is read back."""

from __future__ import annotations

import json
from importlib.resources import files

import jsonschema_rs
import pytest
from msgspec.structs import replace

from kfm.model.errors import KfmError
from kfm.model.records import Output
from kfm.model.run_state import from_document, to_document
from tests.conformance.run_state.backends import Pipeline, Place, digest, output


@pytest.mark.req("RS-1", "RS-5", "RS-7")
def test_a_record_comes_back_as_it_was_put(place: Place, soil: Pipeline) -> None:
    """Every field of a record is read back as it was written, also by another process."""
    soil.begin("run-1")
    node = soil.node(
        "soil.tiles",
        attempt=3,
        outcome="failed",
        outputs=(output("a", "a.json"), Output(name="out/b.tif", checksum=digest("b"), size=7, kind="file")),
        validation_summary={"checks": 3, "passed": 1, "failed": 2, "worst": {"field": "pH", "at": 0.5}},
        error_code="KFM700",
        error_message="It is full; 'quoted', \"twice\", and a line\nbreak.",
    )
    assert soil.record(node)

    assert soil.states.one("run-1", "soil.tiles") == node
    assert place.open().one("run-1", "soil.tiles") == node
    assert from_document(to_document(node)) == node
    assert soil.states.one("run-1", "soil.other") is None
    assert soil.states.one("run-2", "soil.tiles") is None


def test_a_second_record_of_a_node_replaces_the_first(soil: Pipeline) -> None:
    """There is one record per node and run: the last one that was written."""
    soil.begin("run-1")
    failed = soil.node("tiles", outcome="failed", outputs=(), error_code="KFM700")
    assert soil.record(failed, soil.node("other"))
    again = soil.node("tiles", attempt=2)
    assert soil.record(again)

    assert [node.dataset_id for node in soil.states.of_run("run-1")] == ["other", "tiles"]
    assert soil.states.one("run-1", "tiles") == again
    assert soil.states.history("tiles") == [again]


def test_some_new_and_some_again_in_one_record(soil: Pipeline) -> None:
    """One write may both add and replace."""
    soil.begin("run-1")
    assert soil.record(soil.node("a", "1"), soil.node("b", "1"))
    later = [soil.node("b", "2"), soil.node("c", "2")]
    assert soil.record(*later)

    found = list(soil.states.of_run("run-1"))
    assert [node.dataset_id for node in found] == ["a", "b", "c"]
    assert found[1:] == later


SCRIPTS = ("Böden.größe", "тайлы", "o'brien", "a%2Fb", 'say "hi"', "土壌", "a\\b", "..")


def test_ids_of_any_script(soil: Pipeline) -> None:
    """An id in any script, with quotes or with percent signs, names one node and no other."""
    for dataset_id in SCRIPTS:
        run_id = f"run {dataset_id}"
        soil.begin(run_id)
        node = soil.node(dataset_id, outputs=())
        assert soil.record(node, soil.node("plain", outputs=()))
        soil.end(commits=False)

        assert soil.states.one(run_id, dataset_id) == node
        assert soil.states.history(dataset_id) == [node]
        assert soil.states.known("main", run_id, [dataset_id]).own[dataset_id].inputs_hash == node.inputs_hash
        assert {each.dataset_id for each in soil.states.of_run(run_id)} == {dataset_id, "plain"}
    assert len(soil.states.history("plain")) == len(SCRIPTS)


WRONG: list[dict[str, object]] = [
    {"inputs_hash": "md5:abc"},
    {"inputs_hash": "sha256:" + "Z" * 64},
    {"outcome": "perhaps"},
    {"outcome": "skipped"},  # and by whom?
    {"skipped_because": "run-0"},  # but it is a success
    {"validation_summary": {"checks": 3, "passed": 1, "failed": 1}},
    {"validation_summary": {}},
    {"attempt": 0},
    {"dataset_id": ""},
    {"dataset_id": "x" * 301},
    {"dataset_id": "half \ud800"},
    {"duration_ms": -1},
]


@pytest.mark.req("RS-2", "RS-7")
def test_an_invalid_record_is_refused(soil: Pipeline) -> None:
    """What does not match the schema is refused, and nothing is written: not even what came with it."""
    soil.begin("run-1")
    good = soil.node("good")

    for wrong in WRONG:
        with pytest.raises(KfmError):
            soil.record(good, replace(soil.node("bad"), **wrong), documents=[("d", "{}")])

    assert list(soil.states.of_run("run-1")) == []
    assert soil.states.known("main", "run-2", ["good", "bad"]).heads == {}
    assert soil.states.document("d") is None
    assert soil.record(good)
    assert list(soil.states.of_run("run-1")) == [good]


@pytest.mark.req("RS-2")
def test_the_schema_is_the_one_that_is_enforced() -> None:
    """`run-state.schema.json` takes what stores take, and refuses what they refuse by form."""
    text = files("kfm").joinpath("contracts", "schemas", "run-state.schema.json").read_text()
    schema = jsonschema_rs.validator_for(json.loads(text))
    soil = Pipeline(None)  # type: ignore[arg-type]
    soil.run_id = "run-1"
    assert schema.is_valid(to_document(soil.node("tiles")))
    by_form = [wrong for wrong in WRONG if not {"validation_summary", "skipped_because"} & wrong.keys()]
    for wrong in by_form:
        if wrong == {"outcome": "skipped"} or "half" in str(wrong):
            continue  # what it needs beside that is said by the record's other rules
        assert not schema.is_valid({**to_document(soil.node("tiles")), **wrong}), wrong


def test_history_is_newest_first_and_by_branch(place: Place, soil: Pipeline) -> None:
    """A node's history: newest first, of one branch or of all, no more than was asked for."""
    other = Pipeline(soil.states, branch="trial")
    for number in range(3):
        soil.pass_of(f"run-{number}", "tiles", made=str(number))
    other.clock = soil.clock + 10_000
    other.pass_of("run-t", "tiles", made="t")

    def runs(**how: object) -> list[str]:
        return [node.run_id for node in soil.states.history("tiles", **how)]  # type: ignore[arg-type]

    assert runs() == ["run-t", "run-2", "run-1", "run-0"]
    assert runs(branch="main") == ["run-2", "run-1", "run-0"]
    assert runs(limit=2) == ["run-t", "run-2"]
    assert runs(branch="nowhere") == []


def test_documents_are_kept_by_their_name(soil: Pipeline) -> None:
    """What a hash was made of can be read under that hash."""
    soil.begin("run-1")
    assert soil.record(soil.node("a"), documents=[("sha256:x", '{"a":1}')])
    assert soil.states.document("sha256:x") == '{"a":1}'
    assert soil.states.document("sha256:y") is None


def test_many_records_of_a_run(soil: Pipeline) -> None:
    """A run of many nodes is read back whole and in order."""
    soil.begin("run-1")
    nodes = [soil.node(f"n{number:04}", str(number), outputs=()) for number in range(250)]
    assert soil.record(*nodes)
    assert list(soil.states.of_run("run-1")) == nodes
    assert len(soil.states.known("main", "run-1", [node.dataset_id for node in nodes]).own) == 250
