"""Turn a document into settings, or say in whole sentences what is wrong with its shape.

A good file is converted in one step; only a bad one is walked, to name every line at fault.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from kfm.config.document import Document
from kfm.model.errors import ConfigError
from kfm.model.settings import Settings
from kfm.model.wording import did_you_mean

PROBLEMS_MAX = 20
ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.)){0,99}", re.ASCII)  # of what is part of paths
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", re.ASCII)
NAME_RULE = "letters, digits, `.`, `_` and `-`, beginning with a letter or digit, at most 100"
SOME_TIME_MS = 1_735_732_800_000  # any will do where only the form of a window is checked

Problem = tuple[str, str]  # path, sentence
_Shape = TypeVar("_Shape")


def to_settings(document: Document) -> Settings:
    return shaped(document, Settings)


def shaped(document: Document, kind: type[_Shape]) -> _Shape:
    """The document as a value of this kind."""
    try:
        return msgspec.convert(document.values, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        problems = _Walker(document).problems(kind)
        if not problems:  # the walker is kinder than the converter: still refuse
            raise document.error("", str(error)) from None
        raise gathered(problems) from None


def gathered(problems: list[ConfigError]) -> ConfigError:
    """One error for all problems: the first in the message, the others below it."""
    details = [problem.detail for problem in problems[:PROBLEMS_MAX]]
    left_off = len(problems) - len(details)
    if left_off:
        details.append(f"… and {left_off} more")
    first = problems[0]
    return ConfigError("\n".join(details), problems=tuple(details), file=first.file, line=first.line)


def is_web_address(url: str) -> bool:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc)


def clause(sentence: str) -> str:
    """A sentence as a part of another one: without capital and full stop."""
    lowered = sentence[:1].lower() + sentence[1:] if sentence[:1].isalpha() else sentence
    return lowered.rstrip(".")


def has_plugin(group: str, name: str) -> bool:
    """Is a plugin of that name installed?"""
    from importlib.metadata import entry_points

    return any(point.name == name for point in entry_points(group=group))


class _Walker:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.found: list[ConfigError] = []

    def problems(self, kind: type) -> list[ConfigError]:
        from msgspec import inspect

        self.inspect = inspect
        self.walk(self.document.values, inspect.type_info(kind), "")
        return self.found

    def say(self, path: str, sentence: str) -> None:
        self.found.append(self.document.error(path, sentence))

    def walk(self, value: Any, kind: Any, path: str) -> None:
        name = type(kind).__name__
        if name == "UnionType":
            self.union(value, kind, path)
        elif name == "StructType":
            self.struct(value, kind, path)
        elif name in ("VarTupleType", "TupleType"):
            self.sequence(value, kind, path)
        elif name == "DictType":
            self.table(value, kind, path)
        elif name == "LiteralType":
            self.literal(value, kind, path)
        elif not _fits(value, name):
            self.say(path, f"`{_last(path)}` must be {_NAMES.get(name, name)}, not {_describe(value, path)}")

    def union(self, value: Any, kind: Any, path: str) -> None:
        options = [option for option in kind.types if type(option).__name__ != "NoneType"]
        if value is not None or len(options) == len(kind.types):
            self.walk(value, options[0], path)

    def struct(self, value: Any, kind: Any, path: str) -> None:
        if not isinstance(value, dict):
            self.say(path, f"`{_last(path)}` must be a group of settings, not {_describe(value, path)}")
            return
        fields = {field.encode_name: field for field in kind.fields}
        for key in value:
            if key not in fields:
                child = f"{path}.{key}" if path else key
                where = f" of `{_last(path)}`" if path else ""
                self.say(child, f"`{key}` is not a setting{where}{did_you_mean(key, sorted(fields))}")
        for key, field in fields.items():
            child = f"{path}.{key}" if path else key
            if key in value:
                self.walk(value[key], field.type, child)
            elif field.required:
                self.say(path, f"`{key}` is missing from `{_last(path)}`")

    def sequence(self, value: Any, kind: Any, path: str) -> None:
        items = getattr(kind, "item_types", None)
        if not isinstance(value, list):
            self.say(path, f"`{_last(path)}` must be a list, not {_describe(value, path)}")
        elif items is None:
            for index, item in enumerate(value):
                self.walk(item, kind.item_type, f"{path}[{index}]")
        elif len(items) != len(value):
            self.say(path, f"`{_last(path)}` must hold {len(items)} values, not {len(value)}")
        else:
            for index, (item, item_type) in enumerate(zip(value, items, strict=True)):
                self.walk(item, item_type, f"{path}[{index}]")

    def table(self, value: Any, kind: Any, path: str) -> None:
        if not isinstance(value, dict):
            self.say(path, f"`{_last(path)}` must be names with values, not {_describe(value, path)}")
            return
        for key, item in value.items():
            self.walk(item, kind.value_type, f"{path}.{key}")

    def literal(self, value: Any, kind: Any, path: str) -> None:
        if any(value == right and type(value) is type(right) for right in kind.values):
            return
        words = [str(right) for right in kind.values]
        hint = did_you_mean(str(value), words) if isinstance(value, str) else ""
        rights = " or ".join(f"`{word}`" for word in words)
        if "did you mean" in hint:
            self.say(path, f"`{_last(path)}` can't be {_describe(value, path)}{hint}")
        else:
            self.say(path, f"`{_last(path)}` must be {rights}, not {_describe(value, path)}")


_PRIVATE = re.compile(r"headers|params|options|url|bucket|store")
_NAMES = {
    "StrType": "text",
    "IntType": "a whole number",
    "FloatType": "a number",
    "BoolType": "true or false",
}
_PYTHON: dict[str, tuple[type, ...]] = {
    "StrType": (str,),
    "IntType": (int,),
    "FloatType": (int, float),
    "BoolType": (bool,),
}


def _fits(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name in ("BoolType", "AnyType")
    return isinstance(value, _PYTHON.get(name, (object,)))


def _last(path: str) -> str:
    """The part of a path that a person recognises: `sources[0].url` → `url`, `sources[0]` → `sources[0]`."""
    return path.rpartition(".")[2] or "the file"


def _describe(value: Any, path: str) -> str:
    """A value in words; its text only where it can be no secret."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int | float):
        return f"`{value}`"
    if isinstance(value, str):
        harmless = len(value) <= 40 and value.isprintable() and not _PRIVATE.search(path)
        return f"`{value}`" if harmless else "that text"
    return "a list" if isinstance(value, list) else "a group"
