"""The schemas of answers: those that the commands have, and what the API adds to them."""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any, get_args

import kfm
from kfm.core.schedule_states import Became

_FOLDER = os.path.join(os.path.dirname(os.path.abspath(kfm.__file__)), "contracts", "schemas")
_TEXT = {"type": "string"}
_SOME = {"type": ["string", "null"]}
_AT = {"type": "string", "format": "date-time"}
_SOMETIME = {"type": ["string", "null"], "format": "date-time"}
_NUMBER = {"type": "integer", "minimum": 0}


def _object(**properties: Any) -> dict[str, Any]:
    """All of these, and nothing else."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": sorted(properties),
        "properties": properties,
    }


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


@cache
def contract(name: str) -> dict[str, Any]:
    """A schema of the contracts, as a part of another document."""
    with open(os.path.join(_FOLDER, f"{name}.schema.json"), encoding="utf-8") as file:
        schema = json.load(file)
    for field in ("$schema", "$id", "title"):
        schema.pop(field, None)
    moved: dict[str, Any] = _moved(schema, f"#/components/schemas/{name}/")
    return moved


def _moved(value: Any, base: str) -> Any:
    if isinstance(value, dict):
        return {
            key: each.replace("#/", base, 1)
            if key == "$ref" and isinstance(each, str)
            else _moved(each, base)
            for key, each in value.items()
        }
    return [_moved(each, base) for each in value] if isinstance(value, list) else value


def paged(name: str) -> dict[str, Any]:
    """The command's document, with the way to the next page."""
    schema = contract(name)
    return {
        **schema,
        "required": sorted([*schema["required"], "next"]),
        "properties": {**schema["properties"], "next": _SOME},
    }


def _stand() -> dict[str, Any]:
    paused = _object(at=_AT, by=_SOME, rationale=_SOME)
    return {"accounted_until": _SOMETIME, "paused": {**paused, "type": ["object", "null"]}}


def _schedule() -> dict[str, Any]:
    """As the command prints it, and where it stands."""
    schema = contract("cli-schedule-list")["properties"]["schedules"]["items"]
    properties = {name: each for name, each in schema["properties"].items() if name != "recent"}
    properties |= _stand()
    return {**schema, "required": sorted(properties), "properties": properties}


def _instants(**more: Any) -> dict[str, Any]:
    return _object(
        instant=_AT,
        window_start=_AT,
        window_end=_AT,
        fate={"enum": [*get_args(Became), "unaccounted", "held", "pending", "coming"]},
        **more,
    )


def _graph() -> dict[str, Any]:
    schema = contract("cli-graph")
    left = {name: value for name, value in schema["properties"].items() if name != "svg"}
    return {**schema, "type": ["object", "null"], "required": sorted(left), "properties": left}


def _request() -> dict[str, Any]:
    return _object(
        request_id=_TEXT,
        kind={"enum": ["cron", "webhook", "manual"]},
        state={"enum": ["open", "running", "awaiting-approval", "done", "cancelled"]},
        source_id=_TEXT,
        dataset_id=_TEXT,
        window_start=_AT,
        window_end=_AT,
        actor=_TEXT,
        claimed_actor=_SOME,
        rationale=_SOME,
        ticket=_SOME,
        correction=_SOME,
        accepted_at=_AT,
        not_before=_SOMETIME,
        schedule_id=_SOME,
        instant=_SOMETIME,
        request_uuid=_SOME,
        envelope_hash=_SOME,
        needs_approval={"type": "boolean"},
        plan_digest=_SOME,
        run_id=_SOME,
        outcome=_SOME,
        reason=_SOME,
        tries=_NUMBER,
        cancelling=_SOME,
        ended_at=_SOMETIME,
        details={"type": "object"},
    )


def shapes() -> dict[str, dict[str, Any]]:
    """What the API has of its own, by name."""
    return {
        "runs": paged("cli-runs"),
        "audit": paged("cli-audit-list"),
        "attempts": _object(run_id=_TEXT, attempts=_list(_ref("attempt")), retries=_list(_ref("retry"))),
        "nodes": _object(run_id=_TEXT, attempt=_NUMBER, nodes=_list(_ref("attempt")), pipeline=_graph()),
        "provenance": {"type": "object", "required": ["@context"]},
        "update-request": _request(),
        "request": _object(request=_ref("update-request")),
        "requests": _object(requests=_list(_ref("update-request")), more={"type": "boolean"}, next=_SOME),
        "schedules": _object(schedules=_list(_schedule())),
        "instants": _object(
            schedule_id=_TEXT,
            start=_AT,
            end=_AT,
            instants=_list(_instants(request_id=_SOME, reason=_SOME)),
            more={"type": "boolean"},
        ),
        "schedule-state": _object(schedule_id=_TEXT, changed={"type": "boolean"}, **_stand()),
        "backfill": _object(
            schedule_id=_TEXT,
            instants=_list(
                _instants(request_id=_TEXT, had_request={"type": "boolean"}, made={"type": "boolean"})
            ),
            made=_NUMBER,
            dry_run={"type": "boolean"},
        ),
        "preview": _object(request_id=_TEXT, run_id=_SOME, plan={"type": "object"}),
        "whoami": _object(
            subject=_SOME,
            known_by={"enum": ["token", "account", "nothing"]},
            roles=_list({"enum": ["read", "operate", "approve"]}),
            people=_NUMBER,
        ),
        "problem": {
            "type": "object",
            "required": ["detail", "status", "title", "type"],
            "properties": {
                "type": {**_TEXT, "format": "uri-reference", "description": "The page of the error."},
                "title": _TEXT,
                "status": {"type": "integer", "minimum": 400, "maximum": 599},
                "detail": _TEXT,
                "code": {**_TEXT, "pattern": "^KFM[0-9]{3}$"},
                "remedy": {**_TEXT, "description": "The way out."},
            },
        },
    }


@cache
def schemas(names: frozenset[str]) -> dict[str, dict[str, Any]]:
    """These, and all that they refer to."""
    known = shapes()
    found: dict[str, dict[str, Any]] = {}
    left = sorted(names)
    while left:
        name = left.pop()
        if name in found:
            continue
        found[name] = known[name] if name in known else contract(name)
        left += [other for other in _referred(found[name]) if other not in found]
    return dict(sorted(found.items()))


def _referred(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"].split("/")[3]] if str(value.get("$ref", "")).startswith("#/components/") else []
        return own + [name for each in value.values() for name in _referred(each)]
    return [name for each in value for name in _referred(each)] if isinstance(value, list) else []
