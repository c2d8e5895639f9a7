"""Items name the run that made them: in the manifest, in STAC and in DCAT, and only that run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pystac
import pytest
import rdflib
from msgspec.structs import replace

from kfm.model.records import Item, Manifest, PublishedRun
from kfm.model.versions import Version, version_of, whole_id
from kfm.publish import manifest as m
from kfm.publish.catalogue import documents
from tests.unit.publish.stand_ins import DATASET, asset, item

pytestmark = pytest.mark.req("RS-8")

ROOT = Path(__file__).resolve().parents[3]
EXTENSIONS = ROOT.parent / "shared" / "data" / "specs" / "stac"
MANIFEST_SCHEMA = ROOT / "src" / "kfm" / "contracts" / "schemas" / "manifest.schema.json"
# As it was written before items named their run.
OLD_MANIFEST = (
    b'{"dataset_id":"ks-streamflow","description":"Kansas streamflow","domain":"general","items":[{"assets":'
    b'[{"media_type":"text/plain","modified_ms":null,"path":"a.csv","roles":["data"],"sha256":'
    b'"7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed","size":3,"source_uri":null}],'
    b'"bbox":null,"id":"usgs_19700102T000000Z_19700103T000000Z","partition":null,"source_id":"usgs",'
    b'"window_end_ms":172800000,"window_start_ms":86400000}],"keywords":[],"rights":{"attribution":null,'
    b'"care":{"label":"Public \xc2\xb7 Low-Risk","level":"public"},"license":"CC0-1.0","local_contexts":null,'
    b'"sovereignty":null},"title":"Kansas streamflow"}'
)


def state(run_id: str, **changes: Any) -> PublishedRun:
    made = PublishedRun(
        dataset_id=DATASET.id,
        run_id=run_id,
        lakefs_branch="main",
        inputs_hash="sha256:" + "0" * 64,
        validation_summary={"checks": 3, "passed": 3, "failed": 0},
        outcome="success",
        code_sha="auto-0123456789abcdef",
    )
    return replace(made, **changes)


def signed(day: int, data: bytes, run_id: str, **changes: Any) -> Item:
    return replace(item(day, asset(f"{day}.csv", data)), run_state=state(run_id, **changes))


def made() -> Version:
    head = m.merge(None, DATASET, signed(1, b"one", "run-1"), "merge")
    head = m.merge(head, DATASET, signed(2, b"two", "run-2", validation_summary=empty()), "merge")
    return m.merge(head, DATASET, item(3, asset("3.csv", b"three")), "merge")


def empty() -> dict[str, int]:
    return {"checks": 0, "passed": 0, "failed": 0}


def rendered() -> dict[str, Any]:
    return {name: json.loads(data) for name, data in documents(made())}


def test_an_older_manifest_keeps_its_bytes_and_its_version() -> None:
    """What was published before the field existed is read, and hashes to the version that it always had."""
    old = msgspec.json.decode(OLD_MANIFEST, type=Manifest)
    version = version_of(old, form=1)
    assert b"".join(version.pieces()) == OLD_MANIFEST
    assert version.version_id == whole_id(old)
    assert version.is_same(m.merge(None, DATASET, item(1, asset("a.csv", b"one")), "merge"))


@pytest.mark.parametrize("mode", ["merge", "replace"])
def test_the_same_outcome_keeps_the_run_that_made_it(mode: Any) -> None:
    """Work done again by another run is the same version if its outcome is: the first run stays named."""
    head = m.merge(None, DATASET, signed(1, b"one", "run-1"), "merge")
    again = m.merge(head, DATASET, signed(1, b"one", "run-9", code_sha="auto-new"), mode)
    assert again.version_id == head.version_id
    assert m.diff(head, again) == []
    old = m.merge(None, DATASET, item(1, asset("1.csv", b"one")), "merge")
    assert m.merge(old, DATASET, signed(1, b"one", "run-9"), mode).is_same(old)


def test_another_outcome_names_the_run_that_made_it() -> None:
    """New bytes come with the run that brought them, and the change is told as one of the file."""
    head = m.merge(None, DATASET, signed(1, b"one", "run-1"), "merge")
    new = m.merge(head, DATASET, signed(1, b"other", "run-9"), "merge")
    assert new.items()[0].run_state == state("run-9")
    assert [(change.what, change.name) for change in m.diff(head, new)] == [("asset", "1.csv")]


def test_manifests_keep_to_their_schema() -> None:
    """With the run or without it, a manifest is as its schema says; a time in it is refused."""
    validator = jsonschema_rs.validator_for(json.loads(MANIFEST_SCHEMA.read_text()))
    root = json.loads(b"".join(made().pieces()))
    assert validator.is_valid(root)
    assert not validator.is_valid(root | {"recorded_at": "2026-01-01T00:00:00Z"})
    plain = json.loads(b"".join(version_of(made().manifest(), form=1).pieces()))
    assert validator.is_valid(plain)
    plain["items"][0]["run_state"]["recorded_at"] = "2026-01-01T00:00:00Z"
    assert not validator.is_valid(plain)


def test_items_carry_run_state() -> None:
    """`kfm:run_state` has the documented fields and no time; an item without a run has none of it."""
    found = rendered()
    first, second, third = (found[name] for name in sorted(found) if name.startswith("items/"))
    told = first["properties"]["kfm:run_state"]
    assert {
        "dataset_id",
        "run_id",
        "lakefs_branch",
        "inputs_hash",
        "validation_summary",
        "outcome",
    } <= told.keys()
    assert "recorded_at" not in told
    assert "its contract was kept (3 checks)" in first["properties"]["processing:lineage"]
    assert "no contract was declared" in second["properties"]["processing:lineage"]
    assert first["properties"]["processing:software"] == {"usgs": "auto-0123456789abcdef"}
    assert not [name for name in third["properties"] if name.startswith(("processing:", "kfm:run"))]
    for one in (first, second, third):
        parsed = pystac.Item.from_dict(one)
        assert ("processing/v1.2.0" in " ".join(parsed.stac_extensions)) == (
            "kfm:run_state" in parsed.properties
        )


@pytest.mark.skipif(not (EXTENSIONS / "processing.json").exists(), reason="the schemas are not at hand")
def test_items_match_the_public_extensions() -> None:
    """What an item lists as an extension, it follows."""
    for document in (one for name, one in rendered().items() if name.startswith("items/")):
        for address in document["stac_extensions"]:
            name = address.split("/")[3]
            validator = jsonschema_rs.validator_for(json.loads((EXTENSIONS / f"{name}.json").read_text()))
            assert [error.message for error in validator.iter_errors(document)] == []


def test_the_dcat_record_names_its_runs() -> None:
    """A provenance statement for each run, and a link to it that PROV documents share."""
    data = dict(documents(made()))["dcat.jsonld"]
    graph = rdflib.Graph().parse(data=data, format="json-ld", publicID="https://example.org/dcat.jsonld")
    terms, prov = (
        rdflib.Namespace("http://purl.org/dc/terms/"),
        rdflib.Namespace("http://www.w3.org/ns/prov#"),
    )
    record = rdflib.URIRef("https://example.org/dcat.jsonld")
    runs = {rdflib.URIRef("urn:kfm:run:run-1"), rdflib.URIRef("urn:kfm:run:run-2")}
    assert set(graph.objects(record, prov.wasGeneratedBy)) == runs
    statements = list(graph.objects(record, terms.provenance))
    texts = sorted(str(graph.value(one, terms.description)) for one in statements)
    assert [text.split(",")[0] for text in texts] == [
        "Made by run run-1 of pipeline usgs",
        "Made by run run-2 of pipeline usgs",
    ]
    assert all((one, rdflib.RDF.type, terms.ProvenanceStatement) in graph for one in statements)
