"""Published documents, rendered from a manifest and its tombstone alone: same input, same bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from kfm.model.dataset_changes import TombstonedPromotion
from kfm.model.records import Asset, Manifest, Promotion
from kfm.publish.catalogue import dcat, stac_collection
from kfm.publish.manifest import manifest_bytes

WITHDRAWN = "withdrawn.json"  # beside the manifest of a version that lacks what is withdrawn
Locate = Callable[[Asset], str]  # an asset's address, relative to the version's folder


Tombstone = dict[str, Any]


def tombstone_of(promotion: Promotion) -> Tombstone | None:
    """What stands in the place of withdrawn data."""
    return promotion.tombstone if isinstance(promotion, TombstonedPromotion) else None


def documents(manifest: Manifest, locate: Locate, tombstone: Tombstone | None = None) -> dict[str, bytes]:
    """Every document of a version by its path in the version's folder."""
    found = {
        "manifest.json": manifest_bytes(manifest),
        "collection.json": encode(stac_collection.collection(manifest)),
        "dcat.jsonld": encode(dcat.dataset(manifest, locate)),
    }
    for item in manifest.items:
        found[f"items/{item.id}.json"] = encode(stac_collection.item(manifest, item, locate))
    if tombstone is not None:
        found[WITHDRAWN] = encode(tombstone)
    return found


def in_data_folder(asset: Asset) -> str:
    return "data/" + quote(asset.path)


def encode(plain: dict[str, Any]) -> bytes:
    """RFC 8785 with real numbers: these documents are read, not hashed."""
    import rfc8785  # imported late: start-up is measured

    return rfc8785.dumps(plain) + b"\n"
