"""Which columns JSON values need: found by looking at all of them, merged as they come."""

from __future__ import annotations

from typing import Any

# None: only nulls so far. "mixed": no column can hold all of them.
Kind = str | dict[str, Any] | list[Any] | None


def kind_of(value: object) -> Kind:
    """A text's kind is `text`, an object's is a dict of its fields' kinds, a list's a list of one kind."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int" if -(2**63) <= value < 2**63 else "float"
    if isinstance(value, float):
        return "float"
    if isinstance(value, str):
        return "text"
    if isinstance(value, dict):
        return {str(name): kind_of(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        inner: Kind = None
        for each in value:
            inner = merged(inner, kind_of(each))
        return [inner]
    return "mixed"


def merged(one: Kind, other: Kind) -> Kind:
    """The kind that holds both."""
    if one == other or other is None:
        return one
    if one is None:
        return other
    if isinstance(one, dict) and isinstance(other, dict):
        return {name: merged(one.get(name), other.get(name)) for name in {**one, **other}}
    if isinstance(one, list) and isinstance(other, list):
        return [merged(one[0], other[0])]
    if isinstance(one, str) and isinstance(other, str) and {one, other} == {"int", "float"}:
        return "float"
    return "mixed"


def is_mixed(kind: Kind) -> bool:
    """Is there anything within that no column can hold?"""
    if isinstance(kind, dict):
        return any(map(is_mixed, kind.values()))
    if isinstance(kind, list):
        return is_mixed(kind[0])
    return kind == "mixed"


def has_values(kind: Kind) -> bool:
    """Was there ever more than nulls? What was not, gets no column."""
    return any(map(has_values, kind.values())) if isinstance(kind, dict) else kind is not None


def arrow_type(kind: Kind) -> Any:
    from arro3.core import DataType, Field

    if isinstance(kind, list):
        return DataType.list(Field("item", arrow_type(kind[0]), nullable=True))
    if isinstance(kind, dict):
        known = [(name, each) for name, each in kind.items() if has_values(each)]
        return DataType.struct([Field(name, arrow_type(each), nullable=True) for name, each in known])
    plain = {"bool": DataType.bool, "int": DataType.int64, "float": DataType.float64}
    return plain[kind]() if kind in plain else DataType.utf8()
