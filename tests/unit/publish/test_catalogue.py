"""STAC and DCAT documents, read by clients that are not ours."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pystac
import pytest
from pystac.validation.local_validator import get_local_schema_cache

from kfm.model.errors import RightsMissing
from kfm.model.settings import Care, DatasetSettings, Rights, Sovereignty
from kfm.model.versions import Version, edited
from kfm.publish import manifest as m
from kfm.publish.catalogue import HashedDocuments, documents
from tests.unit.publish.stand_ins import DATASET, asset, item

pytestmark = pytest.mark.req("UPD-16")

RIGHTS = Rights(
    license="CC-BY-4.0",
    care=Care(label="Tribal · Review", level="review"),
    sovereignty=Sovereignty(authority="A Nation", consent="granted", agreement="A-7"),
    local_contexts="https://localcontextshub.org/projects/1234",
    attribution="Example Survey",
)
BOXED = msgspec.structs.replace(
    DATASET, bbox=(-102.05, 37.0, -94.6, 40.0), rights=RIGHTS, keywords=("water", "Kansas")
)
EXTENSIONS = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "specs" / "stac"


def version(dataset: DatasetSettings = BOXED) -> Version:
    dated = msgspec.structs.replace(asset("2026/a b.csv", b"one"), modified_ms=1_700_000_000_000)
    head = m.merge(None, dataset, item(1, dated, asset("2026/plain.csv", b"two")), "merge")
    return m.merge(head, dataset, item(2, asset("day2.csv", b"three"), partition="nord/süd"), "merge")


def rendered(dataset: DatasetSettings = BOXED) -> dict[str, Any]:
    return {name: json.loads(data) for name, data in documents(version(dataset))}


def stac_documents(dataset: DatasetSettings = BOXED) -> list[dict[str, Any]]:
    found = rendered(dataset)
    return [found["collection.json"], *(found[name] for name in found if name.startswith("items/"))]


def large(days: int = 120) -> Version:
    """So many that its collection has pages."""
    items = [item(day, asset(f"{day}.csv", f"{day}".encode())) for day in range(days)]
    items.append(item(3, asset("other.csv", b"other"), source="noaa"))
    return m.merge_items(None, BOXED, items, "merge")


def problems(document: dict[str, Any]) -> list[str]:
    """What the public schemas of STAC 1.1 say, from pystac's own copy, without the network."""
    schemas = get_local_schema_cache()
    kind = "item" if document["type"] == "Feature" else document["type"].lower()
    schema = schemas[f"https://schemas.stacspec.org/v1.1.0/{kind}-spec/json-schema/{kind}.json"]

    def fetch(uri: str) -> Any:
        return schemas[uri.partition("#")[0]]

    return [
        error.message for error in jsonschema_rs.validator_for(schema, retriever=fetch).iter_errors(document)
    ]


BARE = msgspec.structs.replace(DATASET, title=None, bbox=None)
ACROSS = msgspec.structs.replace(DATASET, bbox=(170.0, -20.0, -170.0, 5.5))


@pytest.mark.parametrize("dataset", [BOXED, BARE, ACROSS], ids=["boxed", "bare", "antimeridian"])
def test_documents_match_the_public_schemas(dataset: DatasetSettings) -> None:
    """Collection and items are valid STAC 1.1."""
    for document in stac_documents(dataset):
        assert problems(document) == []
    broken = {**stac_documents(dataset)[1]}
    del broken["geometry"]
    assert problems(broken)


@pytest.mark.skipif(not (EXTENSIONS / "file.json").exists(), reason="the extension's schema is not at hand")
def test_items_match_the_file_extension() -> None:
    """Checksums and sizes are as the file extension wants them."""
    validator = jsonschema_rs.validator_for(json.loads((EXTENSIONS / "file.json").read_text()))
    for document in stac_documents()[1:]:
        assert [error.message for error in validator.iter_errors(document)] == []


def test_a_foreign_client_walks_the_tree(tmp_path: Path) -> None:
    """pystac opens the collection, finds every item and every file, and the checksums are right."""
    for name, data in documents(version()):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    contents = {"2026/a b.csv": b"one", "2026/plain.csv": b"two", "day2.csv": b"three"}
    for path, data in contents.items():
        (tmp_path / "data" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / path).write_bytes(data)
    collection = pystac.Collection.from_file(str(tmp_path / "collection.json"))
    items = list(collection.get_items())
    assert len(items) == 2
    seen = {}
    for one in items:
        assert one.get_parent() is collection
        assert one.get_root() is collection
        for name, file in one.assets.items():
            href = file.get_absolute_href()
            assert href is not None
            data = Path(href.replace("%20", " ")).read_bytes()
            assert file.extra_fields["file:checksum"] == "1220" + hashlib.sha256(data).hexdigest()
            assert file.extra_fields["file:size"] == len(data)
            seen[name] = data
    assert seen == contents


@pytest.mark.req("RS-13")
def test_rights_travel_with_every_record() -> None:
    """Licence, CARE label, Local Contexts address and attribution are on the collection and each item."""
    for document in stac_documents():
        fields = {**document, **document.get("properties", {})}
        assert fields["license"] == "CC-BY-4.0"
        assert fields["kfm:care_label"] == "Tribal · Review"
        assert fields["kfm:care_level"] == "review"
        assert fields["kfm:local_contexts"] == RIGHTS.local_contexts
        assert fields["kfm:attribution"] == "Example Survey"
        assert fields["kfm:sovereignty"]["consent"] == "granted"
    record = json.dumps(rendered()["dcat.jsonld"], ensure_ascii=False)
    for words in (
        "CC-BY-4.0",
        "Tribal · Review",
        "localcontextshub.org/projects/1234",
        "Example Survey",
        "A Nation",
    ):
        assert words in record


def test_documents_are_the_same_bytes_each_time() -> None:
    """The same manifest gives the same bytes, and they hold no run and no time of ours."""
    first, second = dict(documents(version())), dict(documents(version()))
    assert first == second
    assert b"run_id" not in b"".join(first.values())


def test_times_are_those_of_the_data() -> None:
    """An item spans its window, the end included; `updated` is upstream's word or absent."""
    first, second = stac_documents()[1:]
    assert first["properties"]["datetime"] is None
    assert first["properties"]["start_datetime"] == "1970-01-02T00:00:00Z"
    assert first["properties"]["end_datetime"] == "1970-01-02T23:59:59.999Z"
    assert first["properties"]["updated"] == "2023-11-14T22:13:20Z"
    assert "updated" not in second["properties"]
    extent = stac_documents()[0]["extent"]
    assert extent["temporal"]["interval"] == [["1970-01-02T00:00:00Z", "1970-01-03T23:59:59.999Z"]]
    assert extent["spatial"]["bbox"] == [[-102.05, 37, -94.6, 40]]


def test_an_unknown_extent_is_not_invented() -> None:
    """Without a box an item has no geometry and no bbox."""
    for document in stac_documents(BARE)[1:]:
        assert document["geometry"] is None
        assert "bbox" not in document


@pytest.mark.req("RS-13")
@pytest.mark.parametrize("level", ["restricted", "blocked"])
def test_restricted_data_does_not_tell_where_it_lies(level: Any) -> None:
    """No coordinates of restricted data are in any catalogue record."""
    rights = msgspec.structs.replace(RIGHTS, care=Care(label="Restricted", level=level))
    hidden = msgspec.structs.replace(BOXED, rights=rights)
    for document in [*stac_documents(hidden), rendered(hidden)["dcat.jsonld"]]:
        assert "102.05" not in json.dumps(document)


@pytest.mark.parametrize(
    ("text", "stac_word"),
    [
        ("CC0-1.0", "CC0-1.0"),
        ("MIT OR Apache-2.0", "other"),
        ("https://example.org/licence", "other"),
        ("Free for everyone!", "other"),
    ],
)
def test_any_licence_is_kept_word_for_word(text: str, stac_word: str) -> None:
    """STAC gets an SPDX identifier or `other`; what was declared is never lost."""
    dataset = msgspec.structs.replace(BOXED, rights=msgspec.structs.replace(RIGHTS, license=text))
    for document in stac_documents(dataset):
        fields = {**document, **document.get("properties", {})}
        assert fields["license"] == stac_word
        assert text in json.dumps(document)
        assert problems(document) == []
    assert text in json.dumps(rendered(dataset)["dcat.jsonld"])


def test_without_rights_nothing_is_rendered() -> None:
    """A manifest whose rights are empty is not rendered."""
    empty = msgspec.structs.replace(version().header, rights=Rights(license="", care=Care(label="x")))
    with pytest.raises(RightsMissing):
        dict(documents(edited(version(), empty, {})))


def test_the_dcat_record_is_linked_data() -> None:
    """The record parses as RDF without the network, with a checksum, size and licence for each file."""
    rdflib = pytest.importorskip("rdflib")
    data = dict(documents(version()))["dcat.jsonld"]
    base = "https://example.org/ks/dcat.jsonld"
    graph = rdflib.Graph().parse(data=data, format="json-ld", publicID=base)
    dcat, spdx, terms = (
        rdflib.Namespace(uri)
        for uri in ("http://www.w3.org/ns/dcat#", "http://spdx.org/rdf/terms#", "http://purl.org/dc/terms/")
    )
    me = rdflib.URIRef(base)
    assert (me, rdflib.RDF.type, dcat.Dataset) in graph
    assert str(graph.value(me, terms.accrualPeriodicity)).endswith("/daily")
    files = list(graph.objects(me, dcat.distribution))
    assert len(files) == 3
    hashes = set()
    for file in files:
        assert graph.value(file, terms.license) == rdflib.URIRef("https://spdx.org/licenses/CC-BY-4.0")
        assert int(graph.value(file, dcat.byteSize)) in (3, 5)
        assert str(graph.value(file, dcat.downloadURL)).startswith("https://example.org/ks/data/")
        hashes.add(str(graph.value(graph.value(file, spdx.checksum), spdx.checksumValue)).lower())
    assert hashlib.sha256(b"one").hexdigest() in hashes


def test_a_large_collection_is_walked_by_its_pages(tmp_path: Path) -> None:
    """Beyond a hundred items the collection leads to pages of sources, years, months and days: valid STAC, by
    which a foreign client finds every item."""
    made = large()
    for name, data in documents(made):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
        if name.endswith(".json") and name != "manifest.json":
            assert problems(json.loads(data)) == []
            assert len(data) < 10_000
    collection = pystac.Collection.from_file(str(tmp_path / "collection.json"))
    assert [child.title for child in collection.get_children()] == ["noaa", "usgs"]
    found = {one.id: one for one in collection.get_items(recursive=True)}
    assert found.keys() == {one.id for one in made.items()}
    assert all(one.get_root() is collection for one in found.values())
    page = pystac.Catalog.from_file(str(tmp_path / "catalogue/usgs/1970/02/01.json"))
    assert [link.title for link in page.get_item_links()] == ["usgs_19700201T000000Z_19700202T000000Z"]
    assert page.get_parent().id == f"{DATASET.id}_usgs_1970-02"  # type: ignore[union-attr]


def test_pages_by_hash_are_walked(tmp_path: Path) -> None:
    """In a bucket the same client finds every item, and its files, by documents that are never replaced."""
    made, hashed = large(), HashedDocuments(large())
    written = dict(hashed.new())
    written["versions/1/collection.json"] = hashed.collection("../../")
    written["latest/collection.json"] = hashed.collection("../")
    for name, data in written.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
        assert problems(json.loads(data)) == []
        assert name.startswith(("versions/", "latest/")) or hashlib.sha256(data).hexdigest() in name
    collection = pystac.Collection.from_file(str(tmp_path / "versions/1/collection.json"))
    found = {one.id: one for one in collection.get_items(recursive=True)}
    assert found.keys() == {one.id for one in made.items()}
    for one in made.items():
        (asset_there,) = found[one.id].assets.values()
        wanted = tmp_path / "files" / one.assets[0].sha256 / one.assets[0].path
        assert asset_there.get_absolute_href() == str(wanted)


def test_a_large_record_leads_to_what_lists_the_files() -> None:
    """Beyond a hundred files a DCAT record has two distributions and no runs; times are as before."""
    found = json.loads(dict(documents(large()))["dcat.jsonld"])
    links = [one["dcat:downloadURL"]["@id"] for one in found["dcat:distribution"]]
    assert links == ["./collection.json", "./manifest.json"]
    assert "prov:wasGeneratedBy" not in found
    assert found["dcterms:temporal"]["dcat:startDate"]["@value"] == "1970-01-01T00:00:00Z"
    assert found["dcterms:accrualPeriodicity"] == {"@id": "http://purl.org/cld/freq/daily"}
