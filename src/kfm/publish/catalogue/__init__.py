"""Published documents, rendered from a manifest and from nothing else: same manifest, same bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from kfm.model.records import Asset, Manifest
from kfm.publish.catalogue import dcat, stac_collection
from kfm.publish.manifest import manifest_bytes

Locate = Callable[[Asset], str]  # an asset's address, relative to the version's folder


def documents(manifest: Manifest, locate: Locate) -> dict[str, bytes]:
    """Every document of a version by its path in the version's folder."""
    found = {
        "manifest.json": manifest_bytes(manifest),
        "collection.json": encode(stac_collection.collection(manifest)),
        "dcat.jsonld": encode(dcat.dataset(manifest, locate)),
    }
    for item in manifest.items:
        found[f"items/{item.id}.json"] = encode(stac_collection.item(manifest, item, locate))
    return found


def in_data_folder(asset: Asset) -> str:
    return "data/" + quote(asset.path)


def encode(plain: dict[str, Any]) -> bytes:
    """RFC 8785 with real numbers: these documents are read, not hashed."""
    import rfc8785  # imported late: start-up is measured

    return rfc8785.dumps(plain) + b"\n"
