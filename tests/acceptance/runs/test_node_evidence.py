"""A governed run whose pipeline is a graph of nodes tells of the pass and of each node that it executed."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pyshacl
import pytest
import rdflib

from tests.acceptance.runs.conftest import Inside
from tests.acceptance.runs.test_evidence import Valid, shapes
from tests.acceptance.runs.test_nodes import FLOW, noded
from tests.crash import evidence
from tests.crash.project import WINDOW

__all__ = ["noded", "shapes"]

JOBS = ("levels", "levels.levels.tables", "levels.levels.copies", "levels.levels.count")


def events(project: Inside, run_id: str, valid: Valid) -> list[dict[str, Any]]:
    ended = project.kfm("lineage", "show", run_id, "--events")
    assert ended.code == 0, ended
    found = [json.loads(line) for line in ended.out.splitlines()]
    for event in found:
        valid("openlineage-event", event)
    return found


def of_pass(found: list[dict[str, Any]]) -> dict[str, list[str]]:
    told: dict[str, list[str]] = {}
    for event in found:
        if event["run"]["facets"]["kfmRunState"]["kind"].startswith("pass"):
            told.setdefault(event["job"]["name"], []).append(event["eventType"])
    return told


def provenance(project: Inside, run_id: str, shapes: rdflib.Graph) -> dict[str, dict[str, Any]]:
    ended = project.kfm("lineage", "prov", run_id)
    assert ended.code == 0, ended
    graph = rdflib.Graph().parse(data=ended.out, format="json-ld")
    conforms, _, text = pyshacl.validate(graph, shacl_graph=shapes, inference="none")
    assert conforms, text
    return {thing["@id"]: thing for thing in json.loads(ended.out)["@graph"]}


@pytest.mark.req("RS-8", "TRG-8")
def test_the_pass_of_a_run_and_its_nodes_have_one_start_and_one_end(
    noded: Inside, shapes: rdflib.Graph, valid: Valid
) -> None:
    """Their parent is the run; PROV has the run as an activity and each node's dataset as an entity."""
    ended = noded.run()
    assert ended.code == 0, ended
    run_id = ended.result["run_id"]
    found = events(noded, run_id, valid)
    assert of_pass(found) == {job: ["START", "COMPLETE"] for job in JOBS}
    whole = next(e for e in found if e["run"]["facets"]["kfmRunState"]["kind"] == "pass")
    assert whole["run"]["facets"]["parent"]["run"]["runId"] == run_id
    things = provenance(noded, run_id, shapes)
    assert f"urn:kfm:run:{run_id}" in things
    for node in ("levels.tables", "levels.copies", "levels.count"):
        assert f"urn:kfm:dataset:{node}" in things
        part_of = things[f"urn:kfm:node:{run_id}:{node}"]["dcterms:isPartOf"]
        assert part_of == {"@id": f"urn:kfm:run:{run_id}"}
    assert evidence.problems(noded) == []


@pytest.mark.req("RS-3", "RS-8")
def test_a_run_that_repeats_nothing_names_what_it_skipped(
    noded: Inside, shapes: rdflib.Graph, valid: Valid
) -> None:
    """No node has an event of its own, and provenance names the run that made each result."""
    first = noded.run().result["run_id"]
    again = noded.run("--force", "--rationale", "again", "--ticket", "T-1")
    assert again.code == 0, again
    run_id = again.result["run_id"]
    found = events(noded, run_id, valid)
    ends = [e for e in found if e["run"]["facets"]["kfmRunState"]["kind"] == "pass"]
    state = ends[-1]["run"]["facets"]["kfmRunState"]
    assert sorted(state["skipped"]) == ["levels.copies", "levels.count", "levels.tables"]
    made_by = {
        thing["prov:wasGeneratedBy"]["@id"]
        for thing in provenance(noded, run_id, shapes).values()
        if "kfm:NodeResult" in thing["@type"]
    }
    assert run_id != first
    assert len(made_by) == 3
    assert all(f":{first}:" in name for name in made_by)


@pytest.mark.req("RS-8")
def test_a_failed_node_ends_its_pass(noded: Inside, shapes: rdflib.Graph, valid: Valid) -> None:
    """Both have their failure; what did not run has no event."""
    noded.write("flow.py", FLOW.replace("bool(tables)", "False"))
    ended = noded.run()
    assert ended.code != 0
    run_id = ended.result["run_id"]
    told = of_pass(events(noded, run_id, valid))
    assert told["levels"] == ["START", "FAIL"]
    assert told["levels.levels.count"] == ["START", "FAIL"]
    provenance(noded, run_id, shapes)


@pytest.mark.req("RS-8", "RS-9")
def test_a_run_that_is_killed_in_a_node_leaves_no_open_pass(noded: Inside, valid: Valid) -> None:
    """The process that takes the run over ends its pipeline run before it begins its own."""
    noded.write("flow.py", FLOW.replace('    ran("count")', "    import os; os._exit(9)"))
    command = [sys.executable, "-m", "kfm", "run", "--window", WINDOW]
    killed = subprocess.run(command, cwd=noded.folder, timeout=60, capture_output=True, check=False)
    assert killed.returncode == 9, killed
    noded.write("flow.py", FLOW)
    ended = noded.run()
    assert ended.code == 0, ended
    told = of_pass(events(noded, ended.result["run_id"], valid))
    assert told["levels"] == ["START", "ABORT", "START", "COMPLETE"]
    assert evidence.problems(noded) == []


@pytest.mark.req("RS-8", "RS-11")
def test_the_evidence_of_such_a_run_can_be_exported_and_counted(noded: Inside) -> None:
    """A bundle verifies with the events of its nodes in it; a release counts every record."""
    run_id = noded.run().result["run_id"]
    bundle = noded.kfm("export", run_id, "--to", "bundle")
    assert bundle.code == 0, bundle
    checked = noded.kfm("export", "--verify", "bundle")
    assert checked.code == 0, checked
    made = noded.kfm("release", "v1.0.0", "--to", "releases")
    assert made.code == 0, made
    document = json.loads(next(noded.folder.rglob("patterns-telemetry.json")).read_bytes())
    (pipeline,) = document["pipelines"]
    assert (pipeline["pipeline_id"], pipeline["writes"]["success"]) == ("levels", 3)
    metrics = noded.kfm("metrics")
    assert 'kfm_pass_nodes_total{pipeline="levels",outcome="success"} 3' in metrics.out


@pytest.mark.req("RS-8")
def test_catalogues_name_the_run_that_made_the_data(noded: Inside) -> None:
    """STAC items carry the run-state of the governed run, DCAT a note: nodes change nothing about that."""
    run_id = noded.run().result["run_id"]
    items = [json.loads(path.read_bytes()) for path in noded.published.rglob("*.json")]
    found = [item["properties"] for item in items if isinstance(item.get("properties"), dict)]
    states = [each["kfm:run_state"] for each in found if "kfm:run_state" in each]
    assert {state["run_id"] for state in states} == {run_id}
    (record,) = [json.loads(path.read_bytes()) for path in noded.published.rglob("dcat.jsonld")]
    assert record["dcterms:provenance"]
    assert run_id in json.dumps([record["dcterms:provenance"], record["prov:wasGeneratedBy"]])
