"""STAC from the catalogue's facts."""

from __future__ import annotations

from typing import Any

import msgspec
import pystac
import pytest

from kfm.model.catalogue import AssetFacts, CatalogueItem, CollectionFigures
from kfm.model.units import Content
from kfm.nodd.catalogue import stac_items
from kfm.nodd.catalogue.item_facts import entry
from kfm.nodd.dataset_registry import Generic, IntakePolicy, load_registry
from kfm.nodd.grammar import Dataset, Place
from tests.catalogue_model import ModelCatalogue
from tests.stac_checks import problems

NOW_MS = 1_704_100_000_250
BASE = "http://127.0.0.1:8080"
REGISTRY = load_registry(IntakePolicy(generic=(Generic(dataset="mine", bucket="my-bucket"),)))
DATASETS = {dataset.name: dataset for dataset in REGISTRY.datasets}
SCAN = "OR_ABI-L1b-RadF-M6C01_G18_s20240010001170_e20240010003543_c20240010003576.nc"
KEYS = {
    "scan": ("aws", "noaa-goes18", f"ABI-L1b-RadF/2024/001/00/{SCAN}"),
    "copy": ("azure", "goeseuwest/noaa-goes18", f"ABI-L1b-RadF/2024/001/00/{SCAN}"),
    "forecast": ("aws", "noaa-hrrr-bdp-pds", "hrrr.20240101/conus/hrrr.t00z.wrfsfcf06.grib2"),
    "cycle": ("gcp", "high-resolution-rapid-refresh", "hrrr.20240101/conus/hrrr.t00z.class1.bufr.tm00"),
    "volume": ("aws", "unidata-nexrad-level2", "2024/01/01/KICT/KICT20240101_000123_V06"),
    "bulletin": ("aws", "noaa-ndfd-pds", "wmo/temp/2024/01/01/YEAZ98_KWBN_202401010047"),
    "year": ("aws", "noaa-ghcn-pds", "csv/by_year/2024.csv"),
    "generic": ("aws", "my-bucket", "a file?.bin"),
}


def item_of(name: str, content: Content = Content(etag="abc", size=7)) -> CatalogueItem:  # noqa: B008
    reading = REGISTRY.read(*KEYS[name])
    model = ModelCatalogue()
    model.put(entry(reading, content, 1, None, DATASETS.get(reading.dataset)), NOW_MS, NOW_MS)
    (found,) = model.visible()
    return found


@pytest.mark.parametrize("base_url", [None, BASE])
@pytest.mark.parametrize("name", KEYS)
def test_items_are_valid(name: str, base_url: str | None) -> None:
    """Items of every kind are valid STAC 1.1, by the public schemas and by our narrower one."""
    document = stac_items.render_item(item_of(name), base_url)
    assert problems(document) == []
    assert pystac.Item.from_dict(document).id == document["id"]


def test_the_check_sees_what_is_wrong() -> None:
    """A document without its collection link, or with a box and no geometry, would be found."""
    document = stac_items.render_item(item_of("volume"), BASE)
    assert problems({**document, "links": []})
    assert problems({**document, "geometry": None})
    assert problems({**document, "properties": {**document["properties"], "datetime": None}})


@pytest.mark.parametrize(
    ("name", "datetime", "basis"),
    [
        ("scan", None, None),
        ("year", None, None),
        ("forecast", "2024-01-01T06:00:00Z", None),
        ("volume", "2024-01-01T00:01:23Z", None),
        ("cycle", "2024-01-01T00:00:00Z", "reference time"),
        ("bulletin", "2024-01-01T00:47:00Z", "time of issue"),
        ("generic", "2024-01-01T09:06:40.250Z", "announcement"),
    ],
)
def test_times(name: str, datetime: str | None, basis: str | None) -> None:
    """A range has no datetime, a moment has one; where the data's own is unknown, it says whose this is."""
    found = stac_items.render_item(item_of(name))["properties"]
    assert found["datetime"] == datetime
    assert ("start_datetime" in found, "end_datetime" in found) == (datetime is None, datetime is None)
    assert found.get("kfm:datetime_basis") == basis


def test_extensions_are_listed_where_they_are_used() -> None:
    """Exactly those whose fields are there."""

    def listed(name: str, content: Content) -> set[str]:
        document = stac_items.render_item(item_of(name, content))
        return {address.split("/")[3] for address in document["stac_extensions"]}

    assert listed("scan", Content(size=1)) == {"alternate-assets", "file", "processing"}
    assert listed("scan", Content()) == {"alternate-assets", "processing"}
    assert listed("forecast", Content()) == {"alternate-assets", "forecast"}
    assert listed("volume", Content()) == {"alternate-assets"}


def test_assets_tell_unit_size_and_checksum() -> None:
    """The multihash is that of sha2-256; the unit's id leads to lineage; a second of a role is numbered."""
    item = item_of("forecast")
    index = AssetFacts(
        role="index",
        wal_id="0" * 13 + "-" + "a" * 20,
        content_version=2,
        href="s3://b/x.idx",
        media_type="text/plain",
    )
    data = msgspec.structs.replace(item.assets[0], checksum="sha256:" + "c" * 64)
    more = msgspec.structs.replace(index, href="s3://b/x.inv")
    document = stac_items.render_item(msgspec.structs.replace(item, assets=(more, index, data)))
    assert list(document["assets"]) == ["data", "index", "index-2"]
    assert document["assets"]["data"]["file:checksum"] == "1220" + "c" * 64
    assert document["assets"]["data"]["file:size"] == 7
    assert document["assets"]["data"]["kfm:wal_id"] == item.assets[0].wal_id
    assert document["assets"]["index"]["roles"] == ["index", "metadata"]
    assert document["assets"]["index-2"]["href"] == "s3://b/x.inv"
    beside = msgspec.structs.replace(index, role="metadata")
    document = stac_items.render_item(msgspec.structs.replace(item, assets=(data, beside)))
    assert document["assets"]["metadata"]["roles"] == ["metadata"]
    assert problems(document) == []


@pytest.mark.parametrize(
    ("href", "path"),
    [
        ("s3://bucket/a/b%20c%3F.nc", "/vsis3/bucket/a/b c?.nc"),
        ("gs://bucket/a", "/vsigs/bucket/a"),
        ("az://account/container/a/b", "/vsiaz/container/a/b"),
        ("https://example.org/a", None),
    ],
)
def test_gdal_is_told_the_key_as_it_is(href: str, path: str | None) -> None:
    """GDAL's paths have no escapes."""
    assert stac_items.vsi_path(href) == path


# --- collections ---------------------------------------------------------------------


def figures(name: str, **facts: Any) -> CollectionFigures:
    known: dict[str, Any] = {
        "items": 3,
        "start_ms": 0,
        "end_ms": 1,
        "bbox": (170.0, -5.0, -170.0, 5.0),
    } | facts
    return CollectionFigures(collection_id=name, **known)


@pytest.mark.parametrize("name", [*DATASETS, "mine"])
@pytest.mark.parametrize(
    "facts", [{}, {"bbox": None, "start_ms": None, "end_ms": None}], ids=["full", "empty"]
)
def test_collections_are_valid(name: str, facts: dict[str, Any]) -> None:
    """Every dataset's collection, and that of a generic one, with and without figures."""
    document = stac_items.render_collection(
        DATASETS.get(name), figures(name, **facts), BASE, mirror="./items.parquet"
    )
    assert problems(document) == []
    made = pystac.Collection.from_dict(document)
    assert made.assets["geoparquet-items"].roles == ["collection-mirror"]
    assert document["license"] == ("CC0-1.0" if name in DATASETS else "other")


def test_only_noaas_own_datasets_are_noaas() -> None:
    """A dataset of a plugin does not name NOAA as its producer; a licence with an address is kept."""
    theirs = Dataset(
        name="theirs",
        title="Theirs",
        places=(Place(bucket="b", provider="gcp"),),
        topics=(),
        rules=(),
        licence="https://example.org/terms",
    )
    document = stac_items.render_collection(theirs, figures("theirs"))
    assert [one["name"] for one in document["providers"]] == ["Google Cloud"]
    assert (document["license"], document["kfm:license"]) == ("other", "https://example.org/terms")
    assert problems(document) == []
    ours = stac_items.render_collection(DATASETS["goes-abi"], figures("goes-abi"))
    assert ours["providers"][0]["roles"] == ["producer", "licensor"]
    assert ours["summaries"]["platform"] == ["GOES-16", "GOES-17", "GOES-18", "GOES-19"]
