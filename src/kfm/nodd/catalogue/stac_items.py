"""STAC 1.1 from the catalogue's facts, rendered on request: the same facts, the same document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

from kfm.model.catalogue import AssetFacts, CatalogueItem, CollectionFigures
from kfm.model.times import rfc3339
from kfm.nodd.catalogue.item_facts import licence_fields
from kfm.nodd.dataset_registry import BUILT_IN
from kfm.nodd.grammar import Dataset

STAC_VERSION = "1.1.0"
GEOJSON = "application/geo+json"
JSON = "application/json"
PARQUET = "application/vnd.apache.parquet"
WORLD = [-180.0, -90.0, 180.0, 90.0]
# Prefix of a field → the extension that defines it. An extension is listed where a field of it is there.
EXTENSIONS = {
    "alternate": "https://stac-extensions.github.io/alternate-assets/v1.2.0/schema.json",
    "file": "https://stac-extensions.github.io/file/v2.1.0/schema.json",
    "forecast": "https://stac-extensions.github.io/forecast/v0.2.0/schema.json",
    "processing": "https://stac-extensions.github.io/processing/v1.2.0/schema.json",
    "proj": "https://stac-extensions.github.io/projection/v2.0.0/schema.json",
}
# How GDAL addresses what lies in a bucket.
VSI = {"s3": "/vsis3/", "gs": "/vsigs/", "az": "/vsiaz/"}
_SHA256_MULTIHASH = "1220"  # sha2-256, 32 bytes
_NOAA_DATASETS = frozenset(name.replace("_", "-") for name in BUILT_IN)
_HOSTS = {
    "aws": {"name": "Amazon Web Services", "roles": ["host"], "url": "https://aws.amazon.com/opendata/"},
    "gcp": {"name": "Google Cloud", "roles": ["host"], "url": "https://cloud.google.com/datasets"},
    "azure": {"name": "Microsoft Azure", "roles": ["host"], "url": "https://azure.microsoft.com"},
}
_NOAA = {
    "name": "National Oceanic and Atmospheric Administration (NOAA)",
    "roles": ["producer", "licensor"],
    "url": "https://www.noaa.gov/information-technology/open-data-dissemination",
}
_TITLES = {"data": "The data", "index": "Where the messages of the data begin"}
Links = Sequence[Mapping[str, Any]]


# --- items ---------------------------------------------------------------------------


def render_item(
    item: CatalogueItem, base_url: str | None = None, links: Links | None = None
) -> dict[str, Any]:
    """One item. Links are those of an API at `base_url`, or relative ones, unless others are given."""
    assets = _assets(item.assets)
    properties = _times(item) | item.properties
    properties["created"] = rfc3339(item.created_at_ms)
    properties["updated"] = rfc3339(item.updated_at_ms)
    properties["kfm:revision"] = item.revision
    document: dict[str, Any] = {
        "type": "Feature",
        "stac_version": STAC_VERSION,
        "stac_extensions": _extensions(properties, *assets.values()),
        "id": item.item_id,
        "collection": item.collection_id,
        "geometry": item.geometry if item.bbox is not None else None,
        "properties": properties,
        "links": item_links(item, base_url) if links is None else list(links),
        "assets": assets,
    }
    if item.bbox is not None and item.geometry is not None:
        document["bbox"] = list(item.bbox)
    else:
        document["geometry"] = None  # STAC has both of them or neither
    return document


def _times(item: CatalogueItem) -> dict[str, Any]:
    """A range, or a moment. Where the data's own time is unknown, it names whose time this is."""
    if item.start_ms is not None and item.end_ms is not None and item.end_ms > item.start_ms:
        return {
            "datetime": None,
            "start_datetime": rfc3339(item.start_ms),
            "end_datetime": rfc3339(item.end_ms),
        }
    times: dict[str, Any] = {"datetime": rfc3339(item.at_ms)}
    if item.start_ms is None:
        if "forecast:reference_datetime" in item.properties:
            times["kfm:datetime_basis"] = "reference time"
        elif "kfm:issued" in item.properties:
            times["kfm:datetime_basis"] = "time of issue"
        else:
            times["kfm:datetime_basis"] = "announcement"
    return times


def _assets(facts: Iterable[AssetFacts]) -> dict[str, dict[str, Any]]:
    """By role, the data first; a second file of a role gets a number, always the same one."""
    found: dict[str, dict[str, Any]] = {}
    for one in sorted(facts, key=lambda each: (each.role != "data", each.role, each.href)):
        name, count = one.role, 1
        while name in found:
            count += 1
            name = f"{one.role}-{count}"
        found[name] = _asset(one)
    return found


def _asset(facts: AssetFacts) -> dict[str, Any]:
    document: dict[str, Any] = {
        "href": facts.href,
        "type": facts.media_type,
        "roles": _roles(facts.role),
        "kfm:wal_id": facts.wal_id,
        "kfm:content_version": facts.content_version,
    }
    if title := _TITLES.get(facts.role):
        document["title"] = title
    if facts.size is not None:
        document["file:size"] = facts.size
    if facts.checksum is not None:
        document["file:checksum"] = _SHA256_MULTIHASH + facts.checksum.removeprefix("sha256:")
    if facts.etag is not None:
        document["kfm:etag"] = facts.etag
    if (path := vsi_path(facts.href)) is not None:
        document["alternate"] = {"gdal": {"href": path, "alternate:name": "GDAL"}}
    return document


def _roles(role: str) -> list[str]:
    return [role] if role in ("data", "metadata") else [role, "metadata"]


def vsi_path(href: str) -> str | None:
    """`/vsis3/…` for `s3://…`: GDAL takes the key as it is, without escapes."""
    scheme, separator, rest = href.partition("://")
    if not separator or scheme not in VSI:
        return None
    if scheme == "az":  # the account is a setting of GDAL's, not part of the path
        rest = rest.partition("/")[2]
    return VSI[scheme] + unquote(rest)


def _extensions(*fields: Mapping[str, Any]) -> list[str]:
    prefixes = {name.partition(":")[0] for each in fields for name in each}
    return [address for prefix, address in EXTENSIONS.items() if prefix in prefixes]


def item_links(item: CatalogueItem, base_url: str | None) -> list[dict[str, Any]]:
    collection = quote(item.collection_id)
    if base_url is None:  # as seen from `collections/C/items/I`, wherever that is
        return [link("collection", f"../../{collection}"), link("parent", f"../../{collection}")]
    parent = f"{base_url}/collections/{collection}"
    return [
        link("self", f"{parent}/items/{segment(item.item_id)}", GEOJSON),
        link("root", f"{base_url}/"),
        link("parent", parent),
        link("collection", parent),
    ]


def segment(item_id: str) -> str:
    """An id as part of an address. What ids are made of needs no escape there, and files bear their names."""
    return quote(item_id, safe="~=@")


def link(rel: str, href: str, media_type: str = JSON, **more: Any) -> dict[str, Any]:
    return {"rel": rel, "href": href, "type": media_type, **more}


# --- collections ---------------------------------------------------------------------


def render_collection(
    dataset: Dataset | None,
    figures: CollectionFigures,
    base_url: str | None = None,
    links: Links | None = None,
    mirror: str | None = None,
) -> dict[str, Any]:
    """A collection. Of a generic dataset only the name is known.

    `mirror` is the address of a stac-geoparquet file with all its items.
    """
    name = figures.collection_id
    document: dict[str, Any] = {
        "type": "Collection",
        "stac_version": STAC_VERSION,
        "stac_extensions": [],
        "id": name,
        "title": title_of(dataset, figures),
        "description": _description(dataset, name),
        **({"license": "other"} if dataset is None else licence_fields(dataset.licence)),
        "keywords": _keywords(dataset, name),
        "extent": {
            "spatial": {"bbox": [list(figures.bbox) if figures.bbox is not None else WORLD]},
            "temporal": {"interval": [[_instant(figures.start_ms), _instant(figures.end_ms)]]},
        },
        "item_assets": _item_assets(dataset),
        "kfm:items": figures.items,
        "links": collection_links(name, base_url) if links is None else list(links),
    }
    if dataset is not None:
        document["providers"] = _providers(dataset)
        if platforms := _platforms(dataset):
            document["summaries"] = {"platform": platforms}
    if mirror is not None:
        document["assets"] = {
            "geoparquet-items": {
                "href": mirror,
                "type": PARQUET,
                "title": "All items of this collection, as stac-geoparquet",
                "roles": ["collection-mirror"],
            }
        }
    return document


def title_of(dataset: Dataset | None, figures: CollectionFigures) -> str:
    return figures.collection_id if dataset is None else dataset.title


def _description(dataset: Dataset | None, name: str) -> str:
    if dataset is None:
        return f"Objects that were taken in as `{name}`. Nothing is known of them but their addresses."
    text = f"{dataset.title}: one item for each data object that was announced."
    if dataset.sidecars:
        text += (
            f" Files that describe it ({', '.join(sorted(dataset.sidecars))}) are further assets of its item."
        )
    return text


def _keywords(dataset: Dataset | None, name: str) -> list[str]:
    return [name] if dataset is None or dataset.name not in _NOAA_DATASETS else [name, "NOAA", "NODD"]


def _providers(dataset: Dataset) -> list[dict[str, Any]]:
    made = [_NOAA] if dataset.name in _NOAA_DATASETS else []
    hosts = dict.fromkeys(place.provider for place in dataset.places)
    return [*made, *(_HOSTS.get(name, {"name": name, "roles": ["host"]}) for name in hosts)]


def _platforms(dataset: Dataset) -> list[str]:
    named = {platform for rule in dataset.rules for platform in (rule.platforms or {}).values()}
    return sorted(named)


def _item_assets(dataset: Dataset | None) -> dict[str, Any]:
    assets: dict[str, Any] = {"data": {"title": _TITLES["data"], "roles": ["data"]}}
    if dataset is not None:
        for role in sorted(set(dataset.sidecars.values())):
            assets[role] = {"title": _TITLES.get(role, role), "roles": _roles(role)}
    return assets


def collection_links(name: str, base_url: str | None) -> list[dict[str, Any]]:
    if base_url is None:
        return []
    address = f"{base_url}/collections/{quote(name)}"
    return [
        link("self", address),
        link("root", f"{base_url}/"),
        link("parent", f"{base_url}/"),
        link("items", f"{address}/items", GEOJSON),
    ]


def _instant(at_ms: int | None) -> str | None:
    return None if at_ms is None else rfc3339(at_ms)


# --- catalogs ------------------------------------------------------------------------


def render_catalog(
    links: Links,
    *,
    catalog_id: str = "kfm",
    title: str = "kfm catalogue",
    description: str = "Announced objects, one item each.",
    conforms_to: Sequence[str] = (),
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "type": "Catalog",
        "stac_version": STAC_VERSION,
        "stac_extensions": [],
        "id": catalog_id,
        "title": title,
        "description": description,
        "links": list(links),
    }
    if conforms_to:
        document["conformsTo"] = list(conforms_to)
    return document
