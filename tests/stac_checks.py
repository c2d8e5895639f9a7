"""What others say of our STAC documents: the public schemas, from pystac's own copy, and a narrower one."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
from pystac.validation.local_validator import get_local_schema_cache

ROOT = Path(__file__).resolve().parents[1]
OURS = ROOT / "src" / "kfm" / "contracts" / "schemas" / "stac-item.schema.json"
EXTENSIONS = ROOT.parent / "shared" / "data" / "specs" / "stac"
_KINDS = {"Feature": "item", "Collection": "collection", "Catalog": "catalog"}


@cache
def _public(kind: str) -> Any:
    schemas = get_local_schema_cache()
    schema = schemas[f"https://schemas.stacspec.org/v1.1.0/{kind}-spec/json-schema/{kind}.json"]
    return jsonschema_rs.validator_for(schema, retriever=lambda uri: schemas[uri.partition("#")[0]])


@cache
def _own() -> Any:
    return jsonschema_rs.validator_for(json.loads(OURS.read_text()), validate_formats=True)


@cache
def extension(name: str) -> Any:
    """The schema of a STAC extension, where a copy is at hand."""
    path = EXTENSIONS / f"{name}.json"
    return jsonschema_rs.validator_for(json.loads(path.read_text())) if path.exists() else None


def public_problems(document: dict[str, Any]) -> list[str]:
    """What the public schemas say of an item, a collection or a catalog."""
    return [error.message for error in _public(_KINDS[document["type"]]).iter_errors(document)]


def problems(document: dict[str, Any]) -> list[str]:
    """All that is wrong with an item, a collection or a catalog."""
    found = public_problems(document)
    if document["type"] == "Feature":
        found += (f"{error.instance_path}: {error.message}" for error in _own().iter_errors(document))
    for name in ("file", "forecast", "processing"):
        listed = any(f"/{name}/" in address for address in document.get("stac_extensions", ()))
        if listed and (validator := extension(name)) is not None:
            found += (f"{name}: {error.message}" for error in validator.iter_errors(document))
    return found
