"""JSON with line numbers. The standard parser gives none, and keeps the last of two equal keys."""

from __future__ import annotations

import re
from json.decoder import scanstring  # type: ignore[attr-defined,unused-ignore]
from typing import Any

from kfm.configuration.document import DEPTH_MAX, INT_MAX, Collector, Document

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?")
_WORDS = {"true": True, "false": False, "null": None}


class _Parser:
    def __init__(self, name: str, text: str) -> None:
        self.text = text
        self.at = 0
        self.collect = Collector(name)
        self._line = 1
        self._line_at = 0

    def line(self) -> int:
        # Positions only grow, so the count goes on from where it stopped.
        self._line += self.text.count("\n", self._line_at, self.at)
        self._line_at = self.at
        return self._line

    def fail(self, sentence: str) -> Exception:
        return self.collect.fail(self.line(), sentence)

    def peek(self) -> str:
        self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]
        return self.text[self.at : self.at + 1]

    def expect(self, char: str, after: str) -> None:
        if self.peek() != char:
            raise self.fail(f"expected `{char}` {after}, found {self.found()}")
        self.at += 1

    def found(self) -> str:
        here = self.text[self.at : self.at + 1]
        return f"`{here}`" if here.strip() else "the end of the file"

    def value(self, path: str, depth: int) -> Any:
        start = self.peek()
        self.collect.note(path, self.line(), depth)
        if start == "{":
            return self.object(path, depth)
        if start == "[":
            return self.array(path, depth)
        if start == '"':
            return self.string()
        for word, meaning in _WORDS.items():
            if self.text.startswith(word, self.at):
                self.at += len(word)
                return meaning
        number = _NUMBER.match(self.text, self.at)
        if number is None:
            raise self.fail(f"expected a value, found {self.found()}")
        self.at = number.end()
        return self.number(number)

    def number(self, match: re.Match[str]) -> int | float:
        text = match.group()
        if match.group(1) or match.group(2):
            value = float(text)
            if value in (float("inf"), float("-inf")):
                raise self.fail(f"`{text}` is too large a number")
            return value
        if len(text) > 17 or abs(int(text)) > INT_MAX:
            raise self.fail(f"`{text[:20]}` is too large a number")
        return int(text)

    def string(self) -> str:
        try:
            value, self.at = scanstring(self.text, self.at + 1, True)
            value.encode()
        except UnicodeEncodeError:
            raise self.fail("the text holds half of a surrogate pair") from None
        except ValueError as error:
            raise self.fail(f"the text can't be read: {str(error).split(':')[0].lower()}") from None
        return str(value)

    def object(self, path: str, depth: int) -> dict[str, Any]:
        self.at += 1
        values: dict[str, Any] = {}
        while self.peek() != "}":
            if values:
                self.expect(",", "between two settings")
                self.peek()
            if self.peek() != '"':
                raise self.fail(f"expected a name in double quotes, found {self.found()}")
            line = self.line()
            key = self.string()
            child = self.collect.key(values, path, key, line)
            self.expect(":", f"after `{key}`")
            values[key] = self.value(child, depth + 1)
        self.at += 1
        return values

    def array(self, path: str, depth: int) -> list[Any]:
        self.at += 1
        values: list[Any] = []
        while self.peek() != "]":
            if values:
                self.expect(",", "between two values")
            values.append(self.value(f"{path}[{len(values)}]", depth + 1))
        self.at += 1
        return values


def parse_json(name: str, text: str) -> Document:
    parser = _Parser(name, text)
    assert DEPTH_MAX < 200, "the parser recurses"
    values = parser.value("", 0)
    if parser.peek():
        raise parser.fail(f"expected the end of the file, found {parser.found()}")
    return Document(name, values, parser.collect.lines)
