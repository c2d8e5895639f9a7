"""YAML 1.2 with line numbers.

The node graph is built by ruamel.yaml and read here, so that no tag can make an object, dates stay
text, and a key that is given twice is found.
"""

from __future__ import annotations

import math
from typing import Any

from kfm.configuration.document import INT_MAX, Collector, Document

_TAG = "tag:yaml.org,2002:"


class _Reader:
    def __init__(self, name: str) -> None:
        self.collect = Collector(name)
        self._open: set[int] = set()  # nodes that are being read: an alias to one of them never ends

    def value(self, node: Any, path: str, depth: int) -> Any:
        line = node.start_mark.line + 1
        self.collect.note(path, line, depth)
        kind = str(node.tag or "").removeprefix(_TAG)
        if kind == "map":
            return self.inside(node, line, lambda: self.mapping(node, path, depth))
        if kind == "seq":
            return self.inside(
                node,
                line,
                lambda: [self.value(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(node.value)],
            )
        return self.scalar(kind, node.value, line)

    def inside(self, node: Any, line: int, read: Any) -> Any:
        if id(node) in self._open:
            raise self.collect.fail(line, "an alias refers to something that it is part of")
        self._open.add(id(node))
        try:
            return read()
        finally:
            self._open.discard(id(node))

    def mapping(self, node: Any, path: str, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node.value, str):
                raise self.collect.fail(line, "a name must be plain text")
            key = key_node.value
            child = self.collect.key(values, path, key, line)
            values[key] = self.value(value_node, child, depth + 1)
        return values

    def scalar(self, kind: str, text: Any, line: int) -> Any:
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() == "true"
        if kind == "int":
            return self.integer(text, line)
        if kind == "float":
            return self.decimal(text, line)
        if kind in ("str", "timestamp"):  # dates are text here: their meaning needs a zone
            return str(text)
        raise self.collect.fail(line, f"the tag `{kind}` is not supported")

    def integer(self, text: str, line: int) -> int:
        digits = text.replace("_", "")
        try:
            value = int(digits, 0) if digits.lstrip("+-")[:2].lower() in ("0x", "0o", "0b") else int(digits)
        except ValueError:
            raise self.collect.fail(line, f"`{text[:20]}` is not a number") from None
        if abs(value) > INT_MAX:
            raise self.collect.fail(line, f"`{text[:20]}` is too large a number")
        return value

    def decimal(self, text: str, line: int) -> float:
        try:
            value = float(text.replace("_", ""))
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise self.collect.fail(line, f"`{text[:20]}` is not a finite number")
        return value


def parse_yaml(name: str, text: str) -> Document:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    reader = _Reader(name)
    try:
        nodes = list(YAML(typ="safe", pure=True).compose_all(text))
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise reader.collect.fail(mark.line + 1 if mark else 1, f"not YAML: {_plain(error)}") from None
    except YAMLError as error:
        line = text[: getattr(error, "position", 0)].count("\n") + 1
        raise reader.collect.fail(line, "not YAML: a character is not allowed here") from None
    except (RecursionError, ValueError, TypeError, AttributeError, IndexError, KeyError, AssertionError):
        # The parser itself gave up: still one plain sentence.
        raise reader.collect.fail(1, "not YAML: it can't be read at all") from None
    if len(nodes) > 1:
        line = nodes[1].start_mark.line + 1
        raise reader.collect.fail(line, "a second document begins here; one file holds one configuration")
    if not nodes or nodes[0] is None:
        raise reader.collect.fail(1, "the file holds no settings, only comments")
    return Document(name, reader.value(nodes[0], "", 0), reader.collect.lines)


def _plain(error: Any) -> str:
    parts = [error.context, error.problem]
    return ", ".join(str(part).strip() for part in parts if part)
