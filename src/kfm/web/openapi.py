"""OpenAPI documents: 3.1 of the API, 3.0 of the STAC API."""

from __future__ import annotations

from functools import cache
from typing import Any

from kfm import __version__
from kfm.nodd.catalogue.search import LIMIT_DEFAULT, LIMIT_MAX
from kfm.web.api.components import component_ref
from kfm.web.api.events import EVENTS
from kfm.web.api.operations import ID, Operation, Parameter
from kfm.web.api.schemas import schemas
from kfm.web.api.short_ids import takes_short_ids
from kfm.web.problems import JSON, PROBLEM, TITLES, problem_schema
from kfm.web.query_params import ITEMS_FIELDS, SEARCH_FIELDS

OPENAPI = "application/vnd.oai.openapi+json;version=3.0"
BASE = "/api/v1"
_GEOJSON = "application/geo+json"
_TEXT = {"type": "string"}
_ALWAYS = (400, 406, 421, 500, 503)
_CHANGING = (409, 413, 415, 422)
_DONE = {200: "The requested document", 201: "Kept", 202: "Accepted"}
_RESPONSE_HEADERS = {401: "WWW-Authenticate", 503: "Retry-After"}
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "With the same body: the same answer, nothing is done twice. With another body: 422.",
    "schema": {"type": "string", "pattern": "^[!-~]{1,200}$"},
}
_KNOWN = {
    "name": "If-None-Match",
    "in": "header",
    "description": "Entity tags of answers that the client has: one of them is answered 304.",
    "schema": _TEXT,
}
_TAG = {"ETag": {"description": "Of the bytes of the answer.", "schema": _TEXT}}
_ABOUT = (
    "What the commands show and do, over HTTP. A bearer token identifies the caller; changes need a role and "
    "a rationale, and leave an entry in the audit log. Errors are problem details (RFC 9457)."
)


@cache
def api_openapi(base: str = BASE) -> dict[str, Any]:
    """OpenAPI 3.1 of the API; `base` is its path."""
    from kfm.web.api.operation_table import OPERATIONS, TAGS  # all of the API, which STAC does without

    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.shown_path, {})[operation.method.lower()] = _operation(operation)
    paths["/openapi.json"] = {"get": _itself()}
    answers = tuple(dict.fromkeys([*(operation.answer for operation in OPERATIONS), "problem"]))
    bodies = tuple(dict.fromkeys(operation.body for operation in OPERATIONS if operation.body is not None))
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
            "schemas": schemas(answers, bodies),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def statuses(operation: Operation) -> tuple[int, ...]:
    """Every status that an operation may be answered with."""
    found = {operation.status, *operation.more, *_ALWAYS, 401, 403}
    found |= {*_CHANGING} if operation.method == "POST" else {304}
    if takes_short_ids(operation):
        found.add(409)
    if operation.fields:
        found.add(404)
    return tuple(sorted(found))


def _operation(operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.about,
        "description": f"Needs the role {operation.role}.",
        "tags": [operation.tag],
        "parameters": [
            *(_in_path(name, pattern=f"^{ID}$") for name in operation.fields),
            *map(_in_query, operation.parameters),
            _KEY if operation.method == "POST" else _KNOWN,
        ],
        "responses": _responses(operation),
        # Without people in the configuration, this machine may read without a token.
        "security": [{"token": []}] if operation.method == "POST" else [{"token": []}, {}],
    }
    if operation.body is not None:
        found["requestBody"] = _body(operation.body.__name__)
    return found


def _itself() -> dict[str, Any]:
    return {
        "operationId": "describe",
        "summary": "This document",
        "description": "Needs no role.",
        "tags": ["people"],
        "parameters": [],
        "security": [{}],
        "responses": {
            "200": {"description": "OpenAPI 3.1", "content": _content(JSON, {"type": "object"})},
            **{str(status): _problem(status) for status in _ALWAYS},
        },
    }


def _in_query(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": "query",
        "description": parameter.about,
        "schema": dict(parameter.schema),
        **({"required": True} if parameter.required else {}),
    }


def _responses(operation: Operation) -> dict[str, Any]:
    done: dict[str, Any] = {
        "description": _DONE[operation.status],
        "content": _content(operation.media_type, component_ref(operation.answer))
        if operation.media_type != EVENTS
        else {EVENTS: {}},
    }
    if operation.method == "GET" and operation.media_type != EVENTS:
        done["headers"] = _TAG
    elif operation.once == "request":
        done["headers"] = {"Location": {"description": "The request.", "schema": _TEXT}}
    found: dict[str, Any] = {str(operation.status): done}
    for status in statuses(operation):
        if 200 <= status < 300:  # the same document
            found[str(status)] = {**done, "description": _DONE[status]}
        elif status == 304:
            found[str(status)] = {"description": "Not modified", "headers": _TAG}
        else:
            found[str(status)] = _problem(status)
    return found


def _problem(status: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "description": TITLES[status],
        "content": _content(PROBLEM, component_ref("problem")),
    }
    if status in _RESPONSE_HEADERS:
        found["headers"] = {_RESPONSE_HEADERS[status]: {"schema": _TEXT}}
    return found


def stac_openapi(title: str) -> dict[str, Any]:
    """OpenAPI 3.0 of the STAC API."""
    items = [_in_path("collectionId"), *map(_search_parameter, ITEMS_FIELDS)]
    search = list(map(_search_parameter, SEARCH_FIELDS))
    return {
        "openapi": "3.0.3",
        "info": {
            "title": title,
            "version": __version__,
            "description": "A read-only STAC API. Items come newest first.",
        },
        "paths": {
            "/": _get("The landing page", JSON),
            "/conformance": _get("Conformance classes", JSON),
            "/api": _get("This document", OPENAPI),
            "/collections": _get("All collections", JSON),
            "/collections/{collectionId}": _get("One collection", JSON, [_in_path("collectionId")]),
            "/collections/{collectionId}/items": _get("Items of a collection", _GEOJSON, items),
            "/collections/{collectionId}/items/{itemId}": _get(
                "One item", _GEOJSON, [_in_path("collectionId"), _in_path("itemId")]
            ),
            "/search": {**_get("Search for items", _GEOJSON, search), "post": _post_search()},
        },
        "components": {"schemas": {"search": _search_schema(), "problem": problem_schema(stac=True)}},
    }


def _get(summary: str, media_type: str, parameters: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {
        "get": {"summary": summary, "parameters": parameters or [], "responses": _stac_responses(media_type)}
    }


def _post_search() -> dict[str, Any]:
    return {
        "summary": "Search for items",
        "requestBody": _body("search"),
        "responses": _stac_responses(_GEOJSON),
    }


def _stac_responses(media_type: str) -> dict[str, Any]:
    problem = _content(PROBLEM, _ref("problem"))
    return {
        "200": {
            "description": "The requested document",
            "content": _content(media_type, {"type": "object"}),
        },
        "4XX": {"description": "The request is not valid", "content": problem},
        "5XX": {"description": "The server failed", "content": problem},
    }


def _search_parameter(name: str) -> dict[str, Any]:
    schema = _search_schema()["properties"][name]
    if name == "intersects":
        return {"name": name, "in": "query", "content": _content(JSON, schema)}
    found: dict[str, Any] = {"name": name, "in": "query", "schema": schema}
    if schema["type"] == "array":
        found |= {"style": "form", "explode": False}
    return found


def _search_schema() -> dict[str, Any]:
    names = {"type": "array", "items": _TEXT}
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


def _in_path(name: str, **schema: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {**_TEXT, **schema}}


def _body(schema: str) -> dict[str, Any]:
    return {"required": True, "content": _content(JSON, _ref(schema))}


def _content(media_type: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {media_type: {"schema": schema}}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}
