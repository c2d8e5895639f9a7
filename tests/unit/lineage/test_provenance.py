"""Provenance documents, judged by readers that are not ours: rdflib parses them, pyshacl holds the shapes."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyshacl
import pytest
import rdflib
from msgspec.structs import replace

from kfm.lineage.provenance import prov_bytes, prov_of, prov_of_call
from kfm.model.keys import refused_call_id
from kfm.model.redaction import mask
from tests.unit.lineage import stories

pytestmark = pytest.mark.req("RS-8", "TRG-8")

SHAPES = Path(__file__).resolve().parents[3] / "src" / "kfm" / "contracts" / "shapes" / "prov.ttl"
PROV = rdflib.Namespace("http://www.w3.org/ns/prov#")
KFM = rdflib.Namespace("urn:kfm:terms#")
RUN = rdflib.URIRef(f"urn:kfm:run:{stories.RUN_ID}")


def hidden(text: str) -> str:
    return mask(text, "k" * 32)


def parsed(document: dict[str, Any]) -> rdflib.Graph:
    return rdflib.Graph().parse(data=json.dumps(document), format="json-ld")


@pytest.fixture(scope="module")
def problems() -> Callable[[dict[str, Any]], str]:
    shapes = rdflib.Graph().parse(SHAPES, format="turtle")

    def judge(document: dict[str, Any]) -> str:
        conforms, _, text = pyshacl.validate(parsed(document), shacl_graph=shapes, inference="none")
        return "" if conforms else text

    return judge


Judge = Callable[[dict[str, Any]], str]


@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
@pytest.mark.parametrize("kind", stories.EVERY)
def test_every_run_has_a_valid_document(problems: Judge, kind: str, masked: bool) -> None:
    """However a run ended, and if its dataset must not be named, its document keeps to the shapes."""
    ledger = stories.EVERY[kind]()
    document = prov_of(ledger, stories.RUN_ID, mask=hidden if masked else None, environment="test")
    assert problems(document) == ""
    again = prov_of(
        stories.EVERY[kind](), stories.RUN_ID, mask=hidden if masked else None, environment="test"
    )
    assert prov_bytes(again) == prov_bytes(document)


def test_a_refused_call_has_a_document_of_its_own(problems: Judge) -> None:
    """A call that never became a run still says who asked, what was refused, and under which policies."""
    ledger = stories.refused()
    ledger.calls = [stories.call(1, "refused", run_id=None)]
    for hide in (None, hidden):
        document = prov_of_call(
            ledger, stories.CALLS[1], mask=hide, policies=stories.BUNDLE, producer="1.2.3", environment="test"
        )
        assert problems(document) == ""
        graph = parsed(document)
        activity = rdflib.URIRef(f"urn:kfm:attempt:{refused_call_id(stories.CALLS[1])}")
        assert (activity, KFM.ending, rdflib.Literal("abort")) in graph
        assert set(graph.subjects(rdflib.RDF.type, PROV.Activity)) == {activity}


def node(document: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(thing for thing in document["@graph"] if kind in thing["@type"])


def without(kind: str, member: str) -> Callable[[dict[str, Any]], None]:
    return lambda document: node(document, kind).pop(member) and None


def with_value(kind: str, member: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: node(document, kind).update({member: value})


def no_plan(document: dict[str, Any]) -> None:
    for each in node(document, "kfm:Run")["prov:qualifiedAssociation"]:
        each.pop("prov:hadPlan", None)


def plan_of_nothing(document: dict[str, Any]) -> None:
    for each in node(document, "kfm:Attempt")["prov:qualifiedAssociation"]:
        if "prov:hadPlan" in each:
            each["prov:hadPlan"] = {"@id": "urn:kfm:policies:elsewhere"}


def no_runner(document: dict[str, Any]) -> None:
    document["@graph"] = [thing for thing in document["@graph"] if "prov:SoftwareAgent" not in thing["@type"]]


def short_hash(document: dict[str, Any]) -> None:
    node(document, "kfm:Output")["spdx:checksum"]["spdx:checksumValue"]["@value"] = "abcd"


def untyped_time(document: dict[str, Any]) -> None:
    thing = node(document, "kfm:NodeAttempt")
    thing["prov:startedAtTime"] = thing["prov:startedAtTime"]["@value"]


def no_assumption(document: dict[str, Any]) -> None:
    del node(document, "kfm:Attempt")["kfm:energy"]["kfm:assumption"]


def early_end(document: dict[str, Any]) -> None:
    node(document, "kfm:Run")["prov:endedAtTime"]["@value"] = "2020-01-01T00:00:00Z"


MUTATIONS: dict[str, Callable[[dict[str, Any]], None]] = {
    "output without checksum": without("kfm:Output", "spdx:checksum"),
    "output without place": without("kfm:Output", "prov:atLocation"),
    "input without checksum": without("kfm:Input", "spdx:checksum"),
    "version without checksum": without("kfm:DatasetVersion", "spdx:checksum"),
    "policy without checksum": without("kfm:Policy", "spdx:checksum"),
    "bundle without checksum": without("kfm:PolicyBundle", "spdx:checksum"),
    "checksum too short": short_hash,
    "run without plan": no_plan,
    "plan that is not there": plan_of_nothing,
    "run without agents": without("kfm:Run", "prov:wasAssociatedWith"),
    "node without agents": without("kfm:NodeAttempt", "prov:wasAssociatedWith"),
    "no runner": no_runner,
    "ended run without end": without("kfm:Run", "prov:endedAtTime"),
    "ended attempt without end": without("kfm:Attempt", "prov:endedAtTime"),
    "ended node without end": without("kfm:NodeAttempt", "prov:endedAtTime"),
    "end before start": early_end,
    "attempt without start": without("kfm:Attempt", "prov:startedAtTime"),
    "time without type": untyped_time,
    "number as text": with_value("kfm:Run", "kfm:revision", "0"),
    "size as text": with_value("kfm:Output", "kfm:size", "3"),
    "unknown status": with_value("kfm:Run", "kfm:status", "fine"),
    "unknown ending": with_value("kfm:Attempt", "kfm:ending", "done"),
    "attempt of no run": without("kfm:Attempt", "dcterms:isPartOf"),
    "attempt of no invocation": without("kfm:Attempt", "prov:wasStartedBy"),
    "invocation by no agent": without("kfm:Invocation", "prov:wasAttributedTo"),
    "run without key": without("kfm:Run", "kfm:idempotencyKey"),
    "run without dataset": without("kfm:Run", "kfm:dataset"),
    "energy without assumption": no_assumption,
    "version of no dataset": without("kfm:DatasetVersion", "prov:specializationOf"),
    "runner without version": without("prov:SoftwareAgent", "kfm:version"),
}


@pytest.mark.parametrize("change", MUTATIONS)
def test_a_document_with_a_gap_fails(problems: Judge, change: str) -> None:
    """The shapes are strict: each fact that a reader relies on is missed when it is gone or misshapen."""
    document = copy.deepcopy(prov_of(stories.succeeded(), stories.RUN_ID))
    MUTATIONS[change](document)
    assert problems(document)


def test_a_failed_run_must_say_with_what(problems: Judge) -> None:
    """A failure without a code is no evidence."""
    document = copy.deepcopy(prov_of(stories.failed(), stories.RUN_ID))
    del node(document, "kfm:Run")["kfm:errorCode"]
    assert problems(document)


def test_outputs_lead_back_to_inputs() -> None:
    """From a published file one gets to the run, the inputs, the people and the policies."""
    graph = parsed(prov_of(stories.succeeded(), stories.RUN_ID))
    outputs = set(graph.subjects(rdflib.RDF.type, KFM.Output))
    assert len(outputs) == 2
    for output in outputs:
        assert (output, PROV.wasGeneratedBy, RUN) in graph
        sources = set(graph.objects(output, PROV.wasDerivedFrom))
        assert len(sources) == 1
        assert all((RUN, PROV.used, source) in graph for source in sources)
    plans = {
        plan
        for each in graph.objects(RUN, PROV.qualifiedAssociation)
        for plan in graph.objects(each, PROV.hadPlan)
    }
    assert plans == {rdflib.URIRef("urn:kfm:policies:" + stories.BUNDLE.removeprefix("sha256:"))}
    assert len(set(graph.subjects(rdflib.RDF.type, KFM.Policy))) == 2
    version = next(iter(graph.subjects(rdflib.RDF.type, KFM.DatasetVersion)))
    assert (version, PROV.wasRevisionOf, rdflib.URIRef("urn:kfm:version:" + "a" * 64)) in graph


def test_a_retry_follows_on_what_it_retries() -> None:
    """The second attempt is informed by the first, and the person who answered for it is its approver."""
    graph = parsed(prov_of(stories.retried(), stories.RUN_ID))
    first, second = (
        rdflib.URIRef(f"urn:kfm:attempt:{stories.attempt_id(stories.RUN_ID, number)}") for number in (1, 2)
    )
    assert (second, PROV.wasInformedBy, first) in graph
    olga = rdflib.URIRef("urn:kfm:agent:olga")
    assert (olga, rdflib.RDF.type, PROV.Person) in graph
    roles = {
        (graph.value(each, PROV.agent), graph.value(each, PROV.hadRole))
        for each in graph.objects(RUN, PROV.qualifiedAssociation)
    }
    assert (olga, KFM.approver) in roles


def test_unchanged_work_is_not_claimed() -> None:
    """A run that found its result in place did not make it: the run that did is named."""
    graph = parsed(prov_of(stories.unchanged(), stories.RUN_ID))
    assert set(graph.subjects(PROV.wasGeneratedBy, RUN)) == set()
    assert set(graph.objects(None, PROV.wasGeneratedBy)) == {
        rdflib.URIRef(f"urn:kfm:run:{stories.OTHER_RUN}")
    }
    assert graph.value(RUN, KFM.foundUnchanged) is not None


def test_what_was_not_kept_is_said() -> None:
    """Where there is no evidence, the document says so instead of filling in what is likely."""
    text = prov_bytes(prov_of(stories.forgotten(), stories.RUN_ID)).decode()
    for sentence in (
        "which policies were in force",
        "which version did the work",
        "This version is not kept",
    ):
        assert sentence in text
    assert "prov:used" not in text
    assert "9.9.9" not in text


@pytest.mark.req("RS-13")
@pytest.mark.parametrize("kind", stories.EVERY)
def test_nothing_private_is_told(kind: str) -> None:
    """No secrets, no coordinates, no words of people: only names of actors, ids, times and verdicts."""
    text = prov_bytes(prov_of(stories.EVERY[kind](), stories.RUN_ID)).decode()
    for private in ("hunter2", "user:secret", "-102.05", "38.97", "Tom", "well again"):
        assert private not in text
    masked = prov_bytes(prov_of(stories.EVERY[kind](), stories.RUN_ID, mask=hidden)).decode()
    for name in (
        "levels",
        "daily",
        "csv",
        "example.org",
        "bucket",
        "jane",
        "olga",
        "boss",
        "auto-1",
        "1" * 64,
    ):
        assert name not in masked


@pytest.mark.parametrize("name", ['Jörg <x> "y"', "a/b:c#d?e", "\ud800half", " ", "%41", "x" * 300, "日本"])
def test_any_name_can_be_told(problems: Judge, name: str) -> None:
    """Names come from anywhere: whatever they hold, the document can be written, read and judged."""
    ledger = stories.retried()
    ledger.calls = [replace(call, actor=name, claimed_actor=name) for call in ledger.calls]
    ledger.kept_inputs = {
        stories.FINGERPRINT: tuple(
            replace(found, uri=f"s3://b/{name}/{found.path}") for found in stories.FOUND
        )
    }
    document = json.loads(prov_bytes(prov_of(ledger, stories.RUN_ID)))
    assert problems(document) == ""
