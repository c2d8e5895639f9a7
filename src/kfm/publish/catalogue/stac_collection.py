"""STAC 1.1 from a version: a collection for a dataset, items for its work, catalogs on the way to them."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import msgspec

from kfm.model.item_ids import source_part
from kfm.model.quantities import counted
from kfm.model.records import Asset, Item, Manifest, PublishedRun
from kfm.model.settings import OWN_LICENCE, LicenceTerms, Rights
from kfm.model.times import rfc3339
from kfm.model.version_trees import NO_ITEMS, Box, ItemFacts
from kfm.model.versions import Version
from kfm.publish.catalogue.addresses import COLLECTION, DCAT, Addresses, Page
from kfm.publish.catalogue.pages import ITEMS
from kfm.publish.manifest import require_rights

STAC_VERSION = "1.1.0"
FILE_EXTENSION = "https://stac-extensions.github.io/file/v2.1.0/schema.json"
PROCESSING_EXTENSION = "https://stac-extensions.github.io/processing/v1.2.0/schema.json"
_SHA256_MULTIHASH = "1220"  # sha2-256, 32 bytes
_IDENTIFIER = re.compile(r"[A-Za-z0-9.+-]+")
_WORLD = [-180, -90, 180, 90]
_HIDDEN_LEVELS = ("restricted", "blocked")

Link = dict[str, Any]


def collection(version: Version, links: list[Link]) -> dict[str, Any]:
    """The collection; it is also the root, so that a version stands on its own. `links`: to its items, or to
    the pages of its sources."""
    header = version.header
    rights = require_rights(header.dataset_id, header.rights)
    document: dict[str, Any] = {
        "type": "Collection",
        "stac_version": STAC_VERSION,
        "stac_extensions": [],
        "id": header.dataset_id,
        "title": header.title,
        "description": header.description,
        "license": stac_license(rights),
        "extent": _extent(version.facts(), rights),
        "kfm:domain": header.domain,
        **rights_fields(rights),
        "links": [
            _link("root", f"./{COLLECTION}"),
            *_license_links(rights),
            *links,
            _link("describedby", f"./{DCAT}", "application/ld+json"),
        ],
    }
    if header.keywords:
        document["keywords"] = list(header.keywords)
    if rights.attribution:
        document["providers"] = [{"name": rights.attribution, "roles": ["producer"]}]
    return document


def page(header: Manifest, one: Page, links: list[Link], addresses: Addresses) -> dict[str, Any]:
    """A page of the catalogue: a STAC catalog. `links`: to what it lists."""
    up, above = addresses.above_page(one), addresses.page_above(one)
    parts = (header.dataset_id, source_part(one.source_id), "-".join(one.dates))
    when = f" whose windows begin {'on' if len(one.dates) == 3 else 'in'} {one.title} (UTC)"
    return {
        "type": "Catalog",
        "stac_version": STAC_VERSION,
        "id": "_".join(filter(None, parts)),
        "title": one.title,
        "description": f"Items of {one.source_id}{when if one.dates else ''}.",
        "links": [
            _link("root", up + addresses.collection),
            *([_link("parent", up + above)] if above else ()),
            *links,
        ],
    }


def item_link(address: str, one: Item) -> Link:
    return {**_link("item", address, "application/geo+json"), "title": one.id}


def page_link(address: str, one: Page, items: int | None = None) -> Link:
    """`items`: how many there are below, where that is known."""
    link: Link = {**_link("child", address), "title": one.title}
    return link if items is None else {**link, ITEMS: items}


def item(header: Manifest, one: Item, addresses: Addresses) -> dict[str, Any]:
    """One item. Rights stand on it as well: items are read without their collection."""
    rights = require_rights(header.dataset_id, header.rights)
    box, up = _box(one.bbox, rights), addresses.above_item(one)
    document: dict[str, Any] = {
        "type": "Feature",
        "stac_version": STAC_VERSION,
        "stac_extensions": [FILE_EXTENSION],
        "id": one.id,
        "collection": header.dataset_id,
        "geometry": _polygon(box) if box else None,
        "properties": {
            # A snapshot is true as of its newest part; a window is a span.
            "datetime": rfc3339(one.interval_ms[1]) if one.is_snapshot else None,
            "start_datetime": rfc3339(one.interval_ms[0]),
            "end_datetime": rfc3339(one.interval_ms[1]),
            "license": stac_license(rights),
            "kfm:source_id": one.source_id,
            **rights_fields(rights),
        },
        "assets": {asset.path: _asset(asset, up + addresses.asset(asset)) for asset in one.assets},
        "links": [
            *(_link(rel, up + addresses.collection) for rel in ("root", "parent", "collection")),
            *_license_links(rights),
        ],
    }
    properties = document["properties"]
    if box:
        document["bbox"] = box
    if not isinstance(one.run_state, msgspec.UnsetType):
        document["stac_extensions"].append(PROCESSING_EXTENSION)
        properties.update(run_fields(one.source_id, one.run_state))
    if one.partition is not None:
        properties["kfm:partition"] = one.partition
    modified = [asset.modified_ms for asset in one.assets if asset.modified_ms is not None]
    if modified:  # upstream's own word; a time of ours would differ from run to run
        properties["updated"] = rfc3339(max(modified))
    if rights.attribution:
        properties["providers"] = [{"name": rights.attribution, "roles": ["producer"]}]
    return document


def run_fields(pipeline_id: str, state: PublishedRun) -> dict[str, Any]:
    """The run that made an item. Neither kfm's version nor a time: the same work keeps the same bytes.

    There is no `processing:level` and no `processing:facility`: neither is declared anywhere.
    """
    return {
        "kfm:run_state": msgspec.to_builtins(state),
        "processing:lineage": processing_lineage(pipeline_id, state),
        "processing:software": {pipeline_id: state.code_sha},
        "processing:version": state.code_sha,
    }


def processing_lineage(pipeline_id: str, state: PublishedRun) -> str:
    """What happened, for people."""
    summary = state.validation_summary
    checks, failed = summary.get("checks", 0), summary.get("failed", 0)
    if not checks:
        contract = "no contract was declared"
    elif failed:
        contract = f"{failed} of {counted(checks, 'check')} of its contract failed"
    else:
        contract = f"its contract was kept ({counted(checks, 'check')})"
    return (
        f"Made by run {state.run_id} of pipeline {pipeline_id}, version {state.code_sha}, "
        f"from the inputs {state.inputs_hash}; {contract}."
    )


def _asset(asset: Asset, href: str) -> dict[str, Any]:
    document: dict[str, Any] = {
        "href": href,
        "title": asset.path,
        "type": asset.media_type,
        "roles": list(asset.roles),
        "file:checksum": multihash(asset.sha256),
        "file:size": asset.size,
    }
    if asset.modified_ms is not None:
        document["updated"] = rfc3339(asset.modified_ms)
    return document


def multihash(sha256: str) -> str:
    return _SHA256_MULTIHASH + sha256


def rights_fields(rights: Rights) -> dict[str, Any]:
    """Label and project address as the community gave them: carried, never made here."""
    fields: dict[str, Any] = {"kfm:care_label": rights.care.label, "kfm:care_level": rights.care.level}
    if stac_license(rights) != rights.license:
        fields["kfm:license"] = rights.license
    if rights.local_contexts:
        fields["kfm:local_contexts"] = rights.local_contexts
    if rights.attribution:
        fields["kfm:attribution"] = rights.attribution
    if rights.sovereignty:
        fields["kfm:sovereignty"] = {
            "authority": rights.sovereignty.authority,
            "consent": rights.sovereignty.consent,
            **({"agreement": rights.sovereignty.agreement} if rights.sovereignty.agreement else {}),
        }
    return fields


def stac_license(rights: Rights) -> str:
    """An SPDX identifier as it is; for an address, an expression or a licence of one's own the word that STAC
    has for that."""
    if rights.license.startswith(OWN_LICENCE) or not _IDENTIFIER.fullmatch(rights.license):
        return "other"
    return rights.license


def license_url(rights: Rights) -> str | None:
    if isinstance(rights.terms, LicenceTerms):
        return rights.terms.url
    return rights.license if urlsplit(rights.license).scheme in ("http", "https") else None


def _license_links(rights: Rights) -> list[Link]:
    links: list[Link] = []
    if url := license_url(rights):
        title = {"title": rights.terms.name} if isinstance(rights.terms, LicenceTerms) else {}
        links.append({"rel": "license", "href": url, **title})
    if rights.local_contexts and urlsplit(rights.local_contexts).scheme in ("http", "https"):
        links.append({"rel": "related", "href": rights.local_contexts, "title": "Local Contexts project"})
    return links


def _extent(facts: ItemFacts, rights: Rights) -> dict[str, Any]:
    interval: list[str | None] = [None, None]
    if facts != NO_ITEMS:
        interval = [rfc3339(facts.start_ms), rfc3339(facts.end_ms)]
    return {
        "spatial": {"bbox": [_box(facts.bbox, rights) or _WORLD]},
        "temporal": {"interval": [interval]},
    }


def _box(bbox: Box | None, rights: Rights) -> list[int | float] | None:
    """An extent, unless the rights forbid to tell where the data lies."""
    if bbox is None or rights.care.level in _HIDDEN_LEVELS:
        return None
    return [_number(edge) for edge in bbox]


def _number(text: str) -> int | float:
    value = float(text)
    return int(value) if value.is_integer() else value


def _polygon(box: list[int | float]) -> dict[str, Any]:
    """The box as a polygon, cut in two where it crosses the antimeridian."""
    west, south, east, north = box

    def ring(left: int | float, right: int | float) -> list[list[list[int | float]]]:
        return [[[left, south], [right, south], [right, north], [left, north], [left, south]]]

    if west > east:
        return {"type": "MultiPolygon", "coordinates": [ring(west, 180), ring(-180, east)]}
    return {"type": "Polygon", "coordinates": ring(west, east)}


def _link(rel: str, href: str, media_type: str = "application/json") -> Link:
    return {"rel": rel, "href": href, "type": media_type}
