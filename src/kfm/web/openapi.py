"""OpenAPI documents: 3.1 of the API, 3.0 of the STAC API."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from kfm import __version__
from kfm.nodd.catalogue.search import LIMIT_DEFAULT, LIMIT_MAX
from kfm.web.api.operation_table import OPERATIONS, TAGS
from kfm.web.api.operations import ID, JSON, Operation, Parameter
from kfm.web.api.schemas import schemas
from kfm.web.problems import PROBLEM, TITLES
from kfm.web.query_params import ITEMS_FIELDS, SEARCH_FIELDS

OPENAPI = "application/vnd.oai.openapi+json;version=3.0"
_JSON = "application/json"
_GEOJSON = "application/geo+json"


def stac_openapi(title: str) -> dict[str, Any]:
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


BASE = "/api/v1"
_ALWAYS = (400, 406, 421, 500, 503)
_CHANGING = (409, 413, 415, 422)
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "Once more with the same body: the same answer, nothing is done twice. Another body: 422.",
    "schema": {"type": "string", "pattern": "^[!-~]{1,200}$"},
}
_ABOUT = (
    "What the commands know and do, over HTTP. Whoever asks shows a token; changes need a role and a reason, "
    "and leave an entry in the governance ledger. What goes wrong is told as RFC 9457 says it."
)


@cache
def api_openapi(base: str = BASE) -> dict[str, Any]:
    """The whole description; `base` is where the API is."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.shown_path, {})[operation.method.lower()] = described(operation)
    paths["/openapi.json"] = {"get": _itself()}
    bodies, parts = msgspec.json.schema_components(
        [operation.body for operation in OPERATIONS if operation.body is not None],
        ref_template="#/components/schemas/{name}",
    )
    del bodies
    answers = schemas(frozenset({operation.answer for operation in OPERATIONS} | {"problem"}))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "kfm",
            "version": __version__,
            "description": _ABOUT,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": base or "/"}],
        "tags": [{"name": name, "description": about} for name, about in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": {**answers, **dict(sorted(parts.items()))},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def described(operation: Operation) -> dict[str, Any]:
    """One operation."""
    found: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.about,
        "description": _needs(operation),
        "tags": [operation.tag],
        "parameters": [
            *map(_api_in_path, operation.fields),
            *map(_in_query, operation.parameters),
            *([_KEY] if operation.method == "POST" else []),
        ],
        "responses": _api_responses(operation),
        # Without people in the configuration, this machine may look without a token.
        "security": [{"token": []}] if operation.method == "POST" else [{"token": []}, {}],
    }
    if operation.body is not None:
        schema = {"$ref": f"#/components/schemas/{operation.body.__name__}"}
        found["requestBody"] = {"required": True, "content": {JSON: {"schema": schema}}}
    return found


def _needs(operation: Operation) -> str:
    return f"Needs the role {operation.role}."


def _api_in_path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": f"^{ID}$"}}


def _in_query(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": "query",
        "description": parameter.about,
        "schema": dict(parameter.schema),
    }


def statuses(operation: Operation) -> tuple[int, ...]:
    """Every status that it may be answered with."""
    found = {operation.status, *_ALWAYS, 401, 403}
    if operation.method == "POST":
        found |= {*_CHANGING}
    if operation.fields:
        found.add(404)
    return tuple(sorted(found))


def _api_responses(operation: Operation) -> dict[str, Any]:
    done: dict[str, Any] = {
        "description": "Accepted" if operation.status == 202 else "What was asked for",
        "content": {operation.media_type: {"schema": {"$ref": f"#/components/schemas/{operation.answer}"}}},
    }
    if operation.once == "request" and operation.method == "POST":
        done["headers"] = {"Location": {"description": "The request.", "schema": {"type": "string"}}}
    found = {str(operation.status): done}
    for status in statuses(operation):
        if status != operation.status:
            found[str(status)] = _wrong(status)
    return found


def _wrong(status: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "description": TITLES.get(status, "This server does not answer to that name"),
        "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/problem"}}},
    }
    header: Mapping[int, str] = {401: "WWW-Authenticate", 503: "Retry-After"}
    if status in header:
        found["headers"] = {header[status]: {"schema": {"type": "string"}}}
    return found


def _itself() -> dict[str, Any]:
    return {
        "operationId": "describe",
        "summary": "This document",
        "description": "Anybody may read it.",
        "tags": ["people"],
        "parameters": [],
        "security": [{}],
        "responses": {
            "200": {"description": "OpenAPI 3.1", "content": {JSON: {"schema": {"type": "object"}}}},
            **{str(status): _wrong(status) for status in _ALWAYS},
        },
    }
