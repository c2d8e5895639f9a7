"""Lineage and provenance of what people change, judged by readers that are not ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyshacl
import pytest
import rdflib

from kfm.model.keys import change_urn, file_urn, publication_urn, tombstone_urn, version_urn
from tests.acceptance.runs.conftest import Inside
from tests.acceptance.runs.test_dataset_changes import DAYS, SOURCE, blob, day
from tests.crash.project import table

pytestmark = pytest.mark.req("DAT-4", "DAT-5", "RS-8")
SHAPES = Path(__file__).resolve().parents[3] / "src/kfm/contracts/shapes/prov.ttl"
PROV, KFM = rdflib.Namespace("http://www.w3.org/ns/prov#"), rdflib.Namespace("urn:kfm:terms#")
RESTRICTED = "{license: CC0-1.0, care: {label: Restricted, level: restricted}}"
Valid = Callable[[str, Any], None]


@pytest.fixture
def filled(project: Inside) -> Inside:
    """Three days in three versions."""
    project.configure(source=SOURCE)
    for text in DAYS:
        project.write(f"incoming/{text}.csv", table(text, 3))
        assert day(project, text).code == 0
    return project


def changed(project: Inside, *words: str) -> str:
    done = project.kfm(*words, "--yes", "--json", "--rationale", "the unit is wrong", "--ticket", "T-7")
    assert done.code == 0, done
    return str(done.document["receipt"]["change"]["change_id"])


def graph_of(project: Inside, what: str, *options: str) -> rdflib.Graph:
    """The document as rdflib reads it, which keeps to the shapes."""
    ended = project.kfm("lineage", "prov", what, *options)
    assert ended.code == 0, ended
    graph = rdflib.Graph().parse(data=ended.out, format="json-ld")
    assert problems(graph) == ""
    return graph


def problems(graph: rdflib.Graph) -> str:
    shapes = rdflib.Graph().parse(SHAPES, format="turtle")
    conforms, _, text = pyshacl.validate(graph, shacl_graph=shapes, inference="none")
    return "" if conforms else str(text)


def node(name: str) -> rdflib.URIRef:
    return rdflib.URIRef(name)


def events(project: Inside, change_id: str, valid: Valid) -> list[dict[str, Any]]:
    rows = project.rows("SELECT body FROM outbox WHERE subject = ? ORDER BY number", change_id)
    found = [json.loads(body) for (body,) in rows]
    for one in found:
        valid("openlineage-event", one)
    return found


def versions(project: Inside) -> dict[int, str]:
    return dict(project.rows("SELECT sequence, version_id FROM promotions"))


def test_a_rollback_names_who_why_and_what_it_came_from(filled: Inside, valid: Valid) -> None:
    """The version is a revision of the one before, made from the one that was put back, by a person who said
    why; and OpenLineage has both as inputs."""
    change_id = changed(filled, "rollback", "levels", "--to", "2")
    graph, change = graph_of(filled, change_id), node(change_urn(change_id))
    made, base, old = (node(publication_urn("levels", number)) for number in (4, 3, 2))
    assert (change, rdflib.RDF.type, KFM.DatasetChange) in graph
    assert str(graph.value(change, KFM.change)) == "rollback"
    assert str(graph.value(change, KFM.reason)) == "the unit is wrong"
    assert set(graph.objects(change, PROV.used)) == {base, old}
    assert graph.value(made, PROV.wasGeneratedBy) == change
    assert graph.value(made, PROV.wasRevisionOf) == base
    assert graph.value(made, PROV.wasDerivedFrom) == old
    assert graph.value(base, PROV.wasInvalidatedBy) == change
    known = versions(filled)
    assert graph.value(made, PROV.specializationOf) == node(version_urn(known[4]))
    for said in (KFM.reason, PROV.used, PROV.qualifiedAssociation):
        less = rdflib.Graph() + graph
        less.remove((change, said, None))
        assert problems(less), f"a change without {said} is refused"
    people = {
        str(graph.value(one, rdflib.RDFS.label)) for one in graph.objects(change, PROV.wasAssociatedWith)
    }
    (actor,) = filled.rows("SELECT actor FROM dataset_changes")[0]
    assert people == {"kfm", actor}
    shown = filled.kfm("lineage", "show", change_id[:13], "--json")
    valid("cli-lineage-show", shown.document)
    assert [one["event_type"] for one in shown.document["events"]] == ["START", "COMPLETE"]
    assert "levels.rollback" in filled.kfm("lineage", "show", change_id).out
    for event in events(filled, change_id, valid):
        read = [one["facets"]["version"]["datasetVersion"] for one in event["inputs"]]
        assert read == [known[3], known[2]]
        (output,) = event["outputs"]
        assert output["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == "OVERWRITE"


def test_what_is_withdrawn_is_invalidated_and_lifted(filled: Inside, valid: Valid) -> None:
    """The file has the name that its run gave it, and was invalidated by the withdrawal; the tombstone was
    made by it, and ended by the lift."""
    run_id = filled.rows("SELECT run_id FROM promotions WHERE sequence = 2")[0][0]
    change_id = changed(filled, "withdraw", "levels", "--window", "2026-01-02/P1D")
    graph, change = graph_of(filled, change_id), node(change_urn(change_id))
    file = node(file_urn("levels", f"{DAYS[1]}/{DAYS[1]}.csv", blob(DAYS[1])))
    assert (file, PROV.wasGeneratedBy, node(f"urn:kfm:run:{run_id}")) in graph_of(filled, run_id)
    assert set(graph.subjects(PROV.wasInvalidatedBy, change)) == {file, node(publication_urn("levels", 3))}
    stone = node(tombstone_urn(change_id))
    assert graph.value(stone, PROV.wasGeneratedBy) == change
    assert str(graph.value(stone, KFM.reason)) == "the unit is wrong"
    assert graph.value(node(version_urn(versions(filled)[4])), PROV.wasGeneratedBy) == change
    lifted = changed(filled, "withdraw", "levels", "--window", "2026-01-02/P1D", "--lift")
    after, lift = graph_of(filled, lifted), node(change_urn(lifted))
    assert after.value(stone, PROV.wasInvalidatedBy) == lift
    assert after.value(lift, PROV.wasInformedBy) == change
    assert versions(filled)[5] == versions(filled)[4]
    assert after.value(node(version_urn(versions(filled)[5])), PROV.wasGeneratedBy) is None, "nothing new"
    told = [
        (event["eventType"], event["outputs"][0]["facets"]["lifecycleStateChange"]["lifecycleStateChange"])
        for one in (change_id, lifted)
        for event in events(filled, one, valid)
    ]
    assert told == [
        ("START", "OVERWRITE"),
        ("COMPLETE", "OVERWRITE"),
        ("START", "ALTER"),
        ("COMPLETE", "ALTER"),
    ]
    joined = graph + after  # as a store of both documents has it
    assert len(list(joined.objects(stone, PROV.wasGeneratedBy))) == 1


@pytest.mark.parametrize(
    ("words", "kind", "lifecycle"),
    [(("withdraw", "levels"), "withdraw", "TRUNCATE"), (("dataset", "retire", "levels"), "retire", "DROP")],
)
def test_a_purge_says_what_is_gone_for_good(
    filled: Inside, valid: Valid, words: tuple[str, ...], kind: str, lifecycle: str
) -> None:
    """Every version whose bytes went is invalidated, and each place tells how far it is."""
    before = set(versions(filled).values())
    change_id = changed(filled, *words, "--purge")
    graph, change = graph_of(filled, change_id), node(change_urn(change_id))
    assert str(graph.value(change, KFM.change)) == kind
    gone = set(graph.subjects(PROV.wasInvalidatedBy, change))
    assert {node(version_urn(one)) for one in before} <= gone
    places = {
        (str(graph.value(one, KFM.place)), str(graph.value(one, KFM.state)))
        for one in graph.objects(change, KFM.purge)
    }
    assert places == {("objects", "done"), ("target:local", "done")}
    for event in events(filled, change_id, valid):
        assert event["run"]["facets"]["kfmRunState"]["purge"] is True
        assert event["outputs"][0]["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == lifecycle


def test_a_masked_dataset_is_not_named(filled: Inside, valid: Valid) -> None:
    """Outside, neither its name, its files, the person nor the reason is told; at home they are."""
    change_id = changed(filled, "withdraw", "levels", "--window", "2026-01-02/P1D")
    filled.configure(source=SOURCE, rights=RESTRICTED)
    told = filled.kfm("lineage", "prov", change_id).out
    graph = graph_of(filled, change_id)
    assert graph.value(node(change_urn(change_id)), KFM.withheld) is not None
    for word in ("levels", "unit is wrong", "T-7", DAYS[1] + ".csv"):
        assert word not in told, word
    assert "the unit is wrong" in filled.kfm("lineage", "prov", change_id, "--internal").out
    second = changed(filled, "withdraw", "levels", "--window", "2026-01-03/P1D")
    assert all("levels" not in json.dumps(one) for one in events(filled, second, valid))


def test_no_such_change(filled: Inside) -> None:
    """An id that nothing has is said to be unknown."""
    ended = filled.kfm("lineage", "prov", "00000000-0000-7000-8000-00000000cccc")
    assert (ended.code, "no run" in ended.err) == (2, True)
