"""Components of the OpenAPI document: every object has a name, and is described once.

Programs that write clients make one class of each component, and invent names for objects inside others; some
fail for a component that only refers into itself. So nothing is inside: inner objects become components. One
is named after its definition or the member that holds it; where that name is taken by another shape, after
the component around it, too. The order of operations decides which shape has a name: a new operation, put at
the end, leaves the names of the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

Schema = dict[str, Any]
DEFINED = "x-defined-as"  # the name of a definition, in the place of a reference to it
_PREFIX = "#/components/schemas/"
# Answers whose command says little about them.
_NAMES = {
    "cli-show": "run-record",
    "cli-request": "approval-record",
    "cli-approve": "approved",
    "cli-nodd-show": "unit-record",
}
_NULL = {"type": "null"}
_VARIANTS = ("anyOf", "oneOf", "allOf")
_INNER = ("items", "additionalProperties")
_LEFT_OUT = ("title", "$defs", DEFINED)


def component_name(answer: str) -> str:
    """The name of the component of an answer: as a class, without the command line it may come from."""
    words = re.split("[^A-Za-z0-9]+", _NAMES.get(answer, answer.removeprefix("cli-")))
    return "".join(f"{word[:1].upper()}{word[1:]}" for word in words)


def component_ref(answer: str) -> dict[str, str]:
    return {"$ref": f"{_PREFIX}{component_name(answer)}"}


def dereferenced(schema: Schema) -> Schema:
    """A schema with its definitions in the places of the references to them; none refers to itself."""

    def read(value: Any) -> Any:
        if isinstance(value, dict):
            ref = value.get("$ref")
            if isinstance(ref, str) and ref.startswith("#/$defs/"):
                name = ref.removeprefix("#/$defs/")
                return {**read(schema["$defs"][name]), DEFINED: name}
            return {key: read(each) for key, each in value.items() if key != "$defs"}
        return [read(each) for each in value] if isinstance(value, list) else value

    found: Schema = read(schema)
    return found


class Components:
    """The components of one document."""

    def __init__(self, taken: Mapping[str, Schema], answers: Iterable[str]) -> None:
        """`taken` have their shapes already; `answers` have their names, whatever is inside of them."""
        self.schemas: dict[str, Schema] = dict(taken)
        self._by_shape: dict[bytes, str] = {}
        for name in map(component_name, answers):
            assert name not in self.schemas, name
            self.schemas[name] = {}

    def add(self, answer: str, schema: Schema) -> None:
        """One answer, with everything that is inside of it."""
        name = component_name(answer)
        self.schemas[name] = self._whole(schema, name, "variant")

    def _whole(self, schema: Schema, owner: str, called: str) -> Schema:
        """A schema whose inner objects are references."""
        found = {key: value for key, value in schema.items() if key not in _LEFT_OUT}
        if "properties" in found:
            found["properties"] = {
                member: self._inner(value, owner, _one_of(member))
                for member, value in found["properties"].items()
            }
        for key in _INNER:
            if isinstance(found.get(key), dict):
                found[key] = self._inner(found[key], owner, called)
        for key in _VARIANTS:
            if key in found:
                found[key] = [self._inner(value, owner, called) for value in found[key]]
        return found

    def _inner(self, schema: Schema, owner: str, called: str) -> Schema:
        """A schema inside of another: a reference, if it is an object of its own."""
        called = schema.get(DEFINED, called)
        if "properties" not in schema:
            return self._whole(schema, owner, called)
        nullable = schema.get("type") == ["object", "null"]
        whole = self._whole({**schema, "type": "object"} if nullable else schema, owner, called)
        ref = {"$ref": f"{_PREFIX}{self._named(whole, owner, called)}"}
        return {"anyOf": [ref, _NULL]} if nullable else ref

    def _named(self, whole: Schema, owner: str, called: str) -> str:
        shape = msgspec.json.encode(whole, order="deterministic")
        if shape not in self._by_shape:
            name = self._free(component_name(called), owner)
            self._by_shape[shape] = name
            self.schemas[name] = whole
        return self._by_shape[shape]

    def _free(self, name: str, owner: str) -> str:
        numbered = (f"{owner}{name}{number}" for number in range(2, 100))
        return next(one for one in (name, f"{owner}{name}", *numbered) if one not in self.schemas)


def _one_of(member: str) -> str:
    """The name of one of many: of `entries` it is `entry`."""
    if member.endswith("ies"):
        return f"{member[:-3]}y"
    if member.endswith(("ches", "shes", "sses")):
        return member[:-2]
    return member[:-1] if member.endswith("s") and not member.endswith(("ss", "us")) else member
