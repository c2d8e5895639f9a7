"""What clients of /api/v1 rely on, in a form that can be compared.

`python -m tests.integration.web.api.frozen` writes it down anew, which is right where it has only grown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kfm.web.openapi import api_openapi

PATH = Path(__file__).with_name("frozen.json")
Shape = dict[str, Any]


def relied_on() -> Shape:
    """Operations with what they take and answer; components with their members."""
    document = api_openapi()
    operations = {
        f"{method.upper()} {path}": _operation(operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    components = {name: _object(schema) for name, schema in document["components"]["schemas"].items()}
    return {"operations": operations, "components": components}


def _operation(operation: Shape) -> Shape:
    taken = [one for one in operation["parameters"] if one["in"] != "header"]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    answers = {
        status: sorted(kind for kind in answer.get("content", {}))
        + [
            str(each["schema"].get("$ref", ""))
            for each in answer.get("content", {}).values()
            if "schema" in each
        ]
        for status, answer in operation["responses"].items()
        if status.startswith("2")
    }
    return {
        "name": operation["operationId"],
        "takes": {one["name"]: sorted(one["schema"].get("enum", [])) for one in taken},
        "needs": sorted(one["name"] for one in taken if one.get("required")),
        "body": body.get("$ref", ""),
        "answers": answers,
    }


def _object(schema: Shape) -> Shape:
    members = schema.get("properties", {})
    return {
        "members": {name: sorted(_kinds(each)) for name, each in sorted(members.items())},
        "always": sorted(schema.get("required", [])),
        "values": sorted(map(str, schema.get("enum", []))),
    }


def _kinds(schema: Shape) -> set[str]:
    """Which types a member may have, by name."""
    found: set[str] = set()
    for variant in (schema, *schema.get("anyOf", []), *schema.get("oneOf", [])):
        kinds = variant.get("type", [])
        found |= {kinds} if isinstance(kinds, str) else set(kinds)
        found |= {variant["$ref"]} if "$ref" in variant else set()
        found |= (
            {f"{one} in it" for one in _kinds(variant["items"])}
            if isinstance(variant.get("items"), dict)
            else set()
        )
    return found


def broken(before: Shape, now: Shape) -> Iterator[str]:
    """What a client that was written then does not find now."""
    for name, then in before["operations"].items():
        operation = now["operations"].get(name)
        if operation is None:
            yield f"{name} is gone"
            continue
        for key in ("name", "body", "answers"):
            if operation[key] != then[key]:
                yield f"{name}: {key} was {then[key]}, is {operation[key]}"
        for parameter, values in then["takes"].items():
            if parameter not in operation["takes"]:
                yield f"{name} does not take {parameter} any more"
            elif values and not set(values) <= set(operation["takes"][parameter]):
                yield f"{name}: {parameter} does not take all values"
        if not set(operation["needs"]) <= set(then["needs"]):
            yield f"{name} needs more: {operation['needs']}"
    bodies = {one["body"].rpartition("/")[2] for one in before["operations"].values()}
    for name, then in before["components"].items():
        component = now["components"].get(name)
        if component is None:
            yield f"component {name} is gone"
            continue
        yield from _broken_object(name, then, component, is_sent=name in bodies)


def _broken_object(name: str, then: Shape, now: Shape, *, is_sent: bool) -> Iterator[str]:
    for member, kinds in then["members"].items():
        if member not in now["members"]:
            yield f"{name}.{member} is gone"
        elif not set(now["members"][member]) <= set(kinds):
            yield f"{name}.{member} was {kinds}, is {now['members'][member]}"
    if is_sent and not set(now["always"]) <= set(then["always"]):
        yield f"{name} needs more: {now['always']}"
    if not is_sent and not set(then["always"]) <= set(now["always"]):
        yield f"{name} has no longer always {sorted(set(then['always']) - set(now['always']))}"
    if not set(then["values"]) <= set(now["values"]):
        yield f"{name} has fewer values"


if __name__ == "__main__":
    PATH.write_text(f"{json.dumps(relied_on(), indent=1, sort_keys=True)}\n")
