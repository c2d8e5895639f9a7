"""The API's own description, as OpenAPI 3.0."""

from __future__ import annotations

from typing import Any

from kfm import __version__
from kfm.ingest.searching import LIMIT_DEFAULT, LIMIT_MAX
from kfm.serving.queries import ITEMS_FIELDS, SEARCH_FIELDS

OPENAPI = "application/vnd.oai.openapi+json;version=3.0"
_JSON = "application/json"
_GEOJSON = "application/geo+json"


def openapi(title: str) -> dict[str, Any]:
    items = [_in_path("collectionId"), *map(_parameter, ITEMS_FIELDS)]
    search = list(map(_parameter, SEARCH_FIELDS))
    return {
        "openapi": "3.0.3",
        "info": {
            "title": title,
            "version": __version__,
            "description": "A read-only STAC API. Items come newest first.",
        },
        "paths": {
            "/": _get("The landing page", _JSON),
            "/conformance": _get("What it conforms to", _JSON),
            "/api": _get("This document", OPENAPI),
            "/collections": _get("All collections", _JSON),
            "/collections/{collectionId}": _get("One collection", _JSON, [_in_path("collectionId")]),
            "/collections/{collectionId}/items": _get("Items of a collection", _GEOJSON, items),
            "/collections/{collectionId}/items/{itemId}": _get(
                "One item", _GEOJSON, [_in_path("collectionId"), _in_path("itemId")]
            ),
            "/search": {**_get("Search for items", _GEOJSON, search), "post": _post()},
        },
        "components": {"schemas": {"search": _search_schema(), "problem": _problem_schema()}},
    }


def _get(summary: str, media_type: str, parameters: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"get": {"summary": summary, "parameters": parameters or [], "responses": _responses(media_type)}}


def _post() -> dict[str, Any]:
    return {
        "summary": "Search for items",
        "requestBody": {
            "required": True,
            "content": {_JSON: {"schema": {"$ref": "#/components/schemas/search"}}},
        },
        "responses": _responses(_GEOJSON),
    }


def _responses(media_type: str) -> dict[str, Any]:
    wrong = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/problem"}}}
    return {
        "200": {"description": "What was asked for", "content": {media_type: {"schema": {"type": "object"}}}},
        "4XX": {"description": "What is wrong with the request", "content": wrong},
        "5XX": {"description": "What is wrong here", "content": wrong},
    }


def _in_path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _parameter(name: str) -> dict[str, Any]:
    schema = _search_schema()["properties"][name]
    if name == "intersects":
        return {"name": name, "in": "query", "content": {_JSON: {"schema": schema}}}
    found: dict[str, Any] = {"name": name, "in": "query", "schema": schema}
    if schema["type"] == "array":
        found |= {"style": "form", "explode": False}
    return found


def _search_schema() -> dict[str, Any]:
    names = {"type": "array", "items": {"type": "string"}}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "bbox": {
                "description": "West, south, east, north, in degrees; with heights, six numbers.",
                "type": "array",
                "minItems": 4,
                "maxItems": 6,
                "items": {"type": "number"},
            },
            "collections": names,
            "datetime": {
                "description": "An RFC 3339 time, or two with / between; .. leaves one end open.",
                "type": "string",
            },
            "ids": names,
            "intersects": {"description": "A GeoJSON geometry.", "type": "object"},
            "limit": {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT},
            "token": {"description": "From the link to the next page.", "type": "string"},
        },
    }


def _problem_schema() -> dict[str, Any]:
    text = {"type": "string"}
    return {
        "type": "object",
        "required": ["type", "title", "status"],
        "properties": {
            "type": text,
            "title": text,
            "status": {"type": "integer"},
            "detail": text,
            "code": text,
            "description": text,
        },
    }
