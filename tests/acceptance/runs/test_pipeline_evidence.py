"""Passes that stand on their own leave evidence, by a configuration or without one."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
import rdflib

from tests.acceptance.runs.conftest import Inside
from tests.acceptance.runs.test_evidence import Valid, shapes
from tests.acceptance.runs.test_node_evidence import events, of_pass, provenance

__all__ = ["shapes"]

FLOW = """\
import os
import kfm

pipeline = kfm.Pipeline("graves")


@pipeline.node("graves.sites", inputs=["sites.csv"])
def sites():
    if os.path.exists("deadly"):
        os._exit(9)
    return open("sites.csv").read()


@pipeline.node("graves.count")
def count(sites):
    return len(sites)
"""
RESTRICTED = '{license: CC0-1.0, care: {label: "Restricted", level: restricted}}'


def run(project: Inside, *options: str) -> dict[str, Any]:
    ended = project.kfm("pipeline", "run", "flow.py", "--json", *options)
    assert ended.code == 0, ended
    document: dict[str, Any] = json.loads(ended.out)
    return document


@pytest.fixture
def flow(project: Inside) -> Inside:
    project.write("flow.py", FLOW)
    project.write("sites.csv", "1\n2\n")
    return project


@pytest.mark.req("RS-8", "RS-3")
def test_a_pass_and_its_nodes_can_be_looked_up(flow: Inside, shapes: rdflib.Graph, valid: Valid) -> None:
    """Delivered when the pass is over; `show` lists it, `prov` prints a document that keeps to its shapes."""
    first, second = run(flow)["run_id"], run(flow)["run_id"]
    assert of_pass(events(flow, first, valid)) == {
        "graves": ["START", "COMPLETE"],
        "graves.graves.sites": ["START", "COMPLETE"],
        "graves.graves.count": ["START", "COMPLETE"],
    }
    last = events(flow, second, valid)
    assert last[-1]["run"]["facets"]["kfmRunState"]["skipped"] == ["graves.sites", "graves.count"]
    valid("cli-lineage-show", json.loads(flow.kfm("lineage", "show", first, "--json").out))
    shown = flow.kfm("lineage", "show", second)
    assert "pipeline run" in shown.out
    assert "yes" in shown.out, "it has been delivered"
    assert provenance(flow, first, shapes)[f"urn:kfm:run:{first}"]["kfm:status"] == "success"
    results = [
        thing for thing in provenance(flow, second, shapes).values() if "kfm:NodeResult" in thing["@type"]
    ]
    assert len(results) == 2
    assert all(f":{first}:" in thing["prov:wasGeneratedBy"]["@id"] for thing in results)


@pytest.mark.req("RS-8", "RS-9")
def test_a_pass_that_was_killed_is_ended_by_the_next_one(flow: Inside, valid: Valid) -> None:
    """Its node was never recorded, and so never told of; the pass has its abort, and a cause."""
    flow.write("deadly", "")
    command = [sys.executable, "-m", "kfm", "pipeline", "run", "flow.py", "--run-id", "night", "--jobs", "1"]
    ended = subprocess.run(command, cwd=flow.folder, timeout=60, capture_output=True, check=False)
    assert ended.returncode == 9, ended
    (flow.folder / "deadly").unlink()
    run(flow, "--resume", "night")
    found = events(flow, "night", valid)
    told = [(event["eventType"], event["run"]["facets"]["kfmRunState"]["attempt"]) for event in found]
    assert told[:3] == [("START", 1), ("ABORT", 1), ("START", 2)]
    assert "WORKER_DIED" in found[1]["run"]["facets"]["errorMessage"]["message"]
    assert of_pass(found)["graves.graves.sites"] == ["START", "COMPLETE"]


@pytest.mark.req("RS-13")
def test_a_masked_pipeline_is_named_in_nothing_public(
    flow: Inside, shapes: rdflib.Graph, valid: Valid
) -> None:
    """Nodes that are named after a masked dataset are as masked as the dataset."""
    config = (flow.folder / "kfm.yml").read_text()
    flow.write("kfm.yml", config.replace(
        "datasets:\n", f"datasets:\n  - {{id: graves, title: G, domain: history, rights: {RESTRICTED}}}\n", 1
    ))  # fmt: skip
    run_id = run(flow)["run_id"]
    public = json.dumps(events(flow, run_id, valid)) + json.dumps(provenance(flow, run_id, shapes))
    public += flow.kfm("metrics").out.replace('dataset="graves"', "")
    assert "graves" not in public
    assert "sites" not in public
    inside = flow.kfm("lineage", "prov", run_id, "--internal")
    assert "graves.sites" in inside.out


@pytest.mark.req("RS-8")
def test_a_folder_without_a_configuration_has_evidence_too(flow: Inside) -> None:
    """Beside its state."""
    (flow.folder / "kfm.yml").unlink(missing_ok=True)
    run(flow)
    lines = (flow.folder / ".kfm" / "lineage" / "openlineage.jsonl").read_text().splitlines()
    assert len(lines) == 6


@pytest.mark.req("RS-8")
def test_lineage_that_is_switched_off_is_off(flow: Inside) -> None:
    """`lineage.export: none` leaves no event, and the pass works as ever."""
    with (flow.folder / "kfm.yml").open("a") as file:
        file.write("lineage: {export: none}\n")
    run_id = run(flow)["run_id"]
    assert flow.kfm("lineage", "show", run_id, "--events").out == ""


@pytest.mark.req("RS-8")
def test_a_collector_in_trouble_does_not_fail_a_pass(flow: Inside) -> None:
    """It is a line on stderr; the events wait."""
    with (flow.folder / "kfm.yml").open("a") as file:
        file.write("lineage: {path: flow.py/nowhere.jsonl}\n")
    ended = flow.kfm("pipeline", "run", "flow.py")
    assert ended.code == 0, ended
    assert "lineage:" in ended.err
    assert "waiting" in flow.kfm("lineage", "status").out
