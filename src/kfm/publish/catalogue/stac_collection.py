"""STAC 1.1 from a manifest: one collection for a dataset, one item for each piece of work."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from kfm.model.quantities import counted
from kfm.model.records import Asset, Item, Manifest, PublishedRun
from kfm.model.settings import OWN_LICENCE, LicenceTerms, Rights
from kfm.model.times import rfc3339
from kfm.publish.manifest import require_rights

STAC_VERSION = "1.1.0"
FILE_EXTENSION = "https://stac-extensions.github.io/file/v2.1.0/schema.json"
PROCESSING_EXTENSION = "https://stac-extensions.github.io/processing/v1.2.0/schema.json"
_SHA256_MULTIHASH = "1220"  # sha2-256, 32 bytes
_IDENTIFIER = re.compile(r"[A-Za-z0-9.+-]+")
_WORLD = [-180, -90, 180, 90]
_HIDDEN_LEVELS = ("restricted", "blocked")


def collection(manifest: Manifest) -> dict[str, Any]:
    """The collection; it is also the root, so that a version stands on its own."""
    rights = require_rights(manifest.dataset_id, manifest.rights)
    document: dict[str, Any] = {
        "type": "Collection",
        "stac_version": STAC_VERSION,
        "stac_extensions": [],
        "id": manifest.dataset_id,
        "title": manifest.title,
        "description": manifest.description,
        "license": stac_license(rights),
        "extent": _extent(manifest),
        "kfm:domain": manifest.domain,
        **rights_fields(rights),
        "links": [
            _link("root", "./collection.json"),
            *_license_links(rights),
            *(
                _link("item", f"./items/{quote(item.id)}.json", "application/geo+json")
                for item in manifest.items
            ),
            _link("describedby", "./dcat.jsonld", "application/ld+json"),
        ],
    }
    if manifest.keywords:
        document["keywords"] = list(manifest.keywords)
    if rights.attribution:
        document["providers"] = [{"name": rights.attribution, "roles": ["producer"]}]
    return document


def item(manifest: Manifest, one: Item, locate: Callable[[Asset], str]) -> dict[str, Any]:
    """One item. Rights stand on it as well: items are read without their collection."""
    rights = require_rights(manifest.dataset_id, manifest.rights)
    box = _box(one, rights)
    document: dict[str, Any] = {
        "type": "Feature",
        "stac_version": STAC_VERSION,
        "stac_extensions": [FILE_EXTENSION],
        "id": one.id,
        "collection": manifest.dataset_id,
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
        "assets": {asset.path: _asset(asset, locate) for asset in one.assets},
        "links": [
            _link("root", "../collection.json"),
            _link("parent", "../collection.json"),
            _link("collection", "../collection.json"),
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


def _asset(asset: Asset, locate: Callable[[Asset], str]) -> dict[str, Any]:
    document: dict[str, Any] = {
        "href": "../" + locate(asset),
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


def _license_links(rights: Rights) -> list[dict[str, str]]:
    links = []
    if url := license_url(rights):
        title = {"title": rights.terms.name} if isinstance(rights.terms, LicenceTerms) else {}
        links.append({"rel": "license", "href": url, **title})
    if rights.local_contexts and urlsplit(rights.local_contexts).scheme in ("http", "https"):
        links.append({"rel": "related", "href": rights.local_contexts, "title": "Local Contexts project"})
    return links


def _extent(manifest: Manifest) -> dict[str, Any]:
    boxes = [box for one in manifest.items if (box := _box(one, manifest.rights))]
    spans = [one.interval_ms for one in manifest.items]
    interval: list[str | None] = [None, None]
    if spans:
        interval = [rfc3339(min(start for start, _ in spans)), rfc3339(max(end for _, end in spans))]
    return {
        "spatial": {"bbox": [_union(boxes) if boxes else _WORLD]},
        "temporal": {"interval": [interval]},
    }


def _union(boxes: list[list[int | float]]) -> list[int | float]:
    """The box around all. One that crosses the antimeridian makes it a band around the globe."""
    if any(west > east for west, _, east, _ in boxes) and len({tuple(box) for box in boxes}) > 1:
        return [-180, min(box[1] for box in boxes), 180, max(box[3] for box in boxes)]
    return [
        min(box[0] for box in boxes),
        min(box[1] for box in boxes),
        max(box[2] for box in boxes),
        max(box[3] for box in boxes),
    ]


def _box(one: Item, rights: Rights) -> list[int | float] | None:
    """The item's extent, unless its rights forbid to tell where it lies."""
    if one.bbox is None or rights.care.level in _HIDDEN_LEVELS:
        return None
    return [_number(edge) for edge in one.bbox]


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


def _link(rel: str, href: str, media_type: str = "application/json") -> dict[str, str]:
    return {"rel": rel, "href": href, "type": media_type}
