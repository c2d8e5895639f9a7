"""Which fields of a node's inputs changed, from the two documents that were hashed."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from kfm.core.canonical import FLOAT_TAG
from kfm.core.hushed import hushed
from kfm.core.records import Record

VALUE_CHARS_MAX = 80


class Change(Record, frozen=True):
    """One field that is not what it was; None: it was not there."""

    what: Literal["input", "parameter"]
    name: str
    field: str
    before: str | None
    after: str | None

    @property
    def text(self) -> str:
        if self.before is None:
            return f"{self.what} {self.name} is new{'' if self.what == 'input' else f': {self.after}'}"
        if self.after is None:
            return f"{self.what} {self.name} is gone"
        field = f"{self.field} of " if self.field else ""
        return f"{field}{self.what} {self.name} changed from {self.before} to {self.after}"


def changes(before: str, after: str) -> list[Change]:
    """In the order of names: inputs, then parameters."""
    old, new = _read(before), _read(after)
    found: list[Change] = []
    inputs = [{_name(row): row for row in document["inputs"]} for document in (old, new)]
    for name in sorted(inputs[0].keys() | inputs[1].keys()):
        found += _of_input(name, inputs[0].get(name), inputs[1].get(name))
    params = old["params"], new["params"]
    for name in sorted(params[0].keys() | params[1].keys()):
        values = [_value(each[name]) if name in each else None for each in params]
        if values[0] != values[1] or params[0].get(name) != params[1].get(name):
            found.append(Change(what="parameter", name=name, field="", before=values[0], after=values[1]))
    return found


def upstream(document: str) -> list[tuple[str, str]]:
    """The nodes that were read from, with what was seen of their outputs."""
    return [(row["id"], row.get("checksum", "")) for row in _read(document)["inputs"] if "id" in row]


def outside(document: str) -> list[str]:
    """What was read from elsewhere."""
    return [str(row["uri"]) for row in _read(document)["inputs"] if "uri" in row]


def _read(document: str) -> dict[str, Any]:
    read = msgspec.json.decode(hushed(document))
    return {"inputs": read.get("inputs") or [], "params": read.get("params") or {}}


def _name(row: dict[str, Any]) -> str:
    return str(row.get("uri") or row.get("id"))


def _of_input(name: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> list[Change]:
    if old is None or new is None:
        sign = "" if old is None else "there"
        return [
            Change(what="input", name=name, field="", before=sign or None, after=None if sign else "there")
        ]
    return [
        Change(
            what="input", name=name, field=field, before=_value(old.get(field)), after=_value(new.get(field))
        )
        for field in sorted(old.keys() | new.keys())
        if old.get(field) != new.get(field)
    ]


def _value(value: Any) -> str:
    """As a person would write it: numbers with a fraction are tagged in what is hashed."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        text = value
    elif isinstance(value, dict) and set(value) == {FLOAT_TAG}:
        text = str(value[FLOAT_TAG])
    else:
        text = msgspec.json.encode(value).decode()
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[: VALUE_CHARS_MAX - 1]}…"
