"""The API's description of itself, as OpenAPI 3.1, from the table of operations."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from kfm import __version__
from kfm.serving.api.answers import TITLES
from kfm.serving.api.operations import ID, JSON, Operation, Parameter
from kfm.serving.api.shapes import schemas
from kfm.serving.api.table import OPERATIONS, TAGS
from kfm.serving.problems import PROBLEM

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
def openapi(base: str = BASE) -> dict[str, Any]:
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
            *map(_in_path, operation.fields),
            *map(_in_query, operation.parameters),
            *([_KEY] if operation.method == "POST" else []),
        ],
        "responses": _responses(operation),
        # Without people in the configuration, this machine may look without a token.
        "security": [{"token": []}] if operation.method == "POST" else [{"token": []}, {}],
    }
    if operation.body is not None:
        schema = {"$ref": f"#/components/schemas/{operation.body.__name__}"}
        found["requestBody"] = {"required": True, "content": {JSON: {"schema": schema}}}
    return found


def _needs(operation: Operation) -> str:
    return f"Needs the role {operation.role}."


def _in_path(name: str) -> dict[str, Any]:
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


def _responses(operation: Operation) -> dict[str, Any]:
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
