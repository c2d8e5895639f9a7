"""A YAML document whose every part knows its file and line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from kfm.model.documents import Document, ReadingRules, decoded, parse_yaml
from kfm.model.errors import ContractError
from kfm.model.quantities import suggest


class DocumentPart:
    """One value of the document, with its position for findings."""

    def __init__(self, value: Any, document: Document, line: int, path: str) -> None:
        self.value = value
        self.document = document
        self.line = line
        self.path = path

    def fail(self, problem: str) -> NoReturn:
        raise ContractError.at(
            self.document.name, self.line, f"{self.path} {problem}" if self.path else problem
        )

    def fields(self, known: Iterable[str]) -> None:
        """Every key has to be a known word."""
        words = sorted(known)
        for key in self._mapping():
            if key not in words:
                part = DocumentPart(key, self.document, self._key_line(key), self.path)
                part.fail(f"{key!r} is not a word of the standard{nearest(str(key), words)}")

    def get(self, key: str) -> DocumentPart | None:
        """The member of that name; None if it is absent or null."""
        value = self._mapping().get(key)
        if value is None:
            return None
        return DocumentPart(value, self.document, self._key_line(key), self._path_of(key))

    def need(self, key: str) -> DocumentPart:
        part = self.get(key)
        return part if part is not None else self.fail(f"{key} is missing")

    def parts(self) -> list[DocumentPart]:
        if not isinstance(self.value, list):
            self.fail(f"must be a list, not {_kind(self.value)}")
        paths = [f"{self.path}[{index}]" for index in range(len(self.value))]
        lines = self.document.lines
        return [
            DocumentPart(item, self.document, lines.get(path, self.line), path)
            for path, item in zip(paths, self.value, strict=True)
        ]

    def text(self) -> str:
        value = self.value
        if not isinstance(value, str):
            self.fail(f"must be text, not {_kind(value)}; put it in quotes")
        if not value.strip():
            self.fail("must not be empty")
        if any("\ud800" <= char <= "\udfff" for char in value):
            self.fail("must be Unicode text; a lone half of a surrogate pair is none")
        return value

    def choice(self, allowed: Iterable[str]) -> str:
        words = list(allowed)
        text = self.text()
        if text not in words:
            self.fail(f"{text!r} is not one of {', '.join(words)}{nearest(text, words)}")
        return text

    def number(self) -> float | int:
        value = self.value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.fail(f"must be a number, not {_kind(value)}")
        return value

    def whole(self, minimum: int = 0) -> int:
        value = self.number()
        if not isinstance(value, int) or value < minimum:
            self.fail(f"must be a whole number of at least {minimum}")
        return value

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            self.fail(f"must be true or false, not {_kind(self.value)}")
        return self.value

    def scalar(self) -> Any:
        """Text, number, flag or null, as plain Python."""
        if isinstance(self.value, (dict, list)):
            self.fail(f"must be one value, not {_kind(self.value)}")
        return self.value

    def _mapping(self) -> Mapping[Any, Any]:
        if not isinstance(self.value, dict):
            self.fail(f"must be a mapping, not {_kind(self.value)}")
        return self.value

    def _path_of(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def _key_line(self, key: str) -> int:
        return self.document.lines.get(self._path_of(key), self.line)


def nearest(word: str, words: Iterable[str]) -> str:
    """«; did you mean …?», or nothing."""
    by_lower = {candidate.lower(): candidate for candidate in words}
    close = suggest(word.lower(), by_lower)
    return f"; did you mean {by_lower[close]!r}?" if close else ""


def custom_properties(owner: DocumentPart, known: frozenset[str]) -> dict[str, DocumentPart]:
    """The extensions of ours in `customProperties`; others are none of our business."""
    block = owner.get("customProperties")
    if block is None:
        return {}
    found: dict[str, DocumentPart] = {}
    for entry in block.parts():
        name = entry.need("property").text()
        if not name.startswith("kfm"):
            continue
        entry.need("property").choice(sorted(known))
        if name in found:
            entry.fail(f"{name} stands here twice")
        found[name] = entry.need("value")
    return found


def read_document(text: bytes, name: str, *, bytes_max: int, nodes_max: int) -> DocumentPart:
    """Parse one YAML 1.2 document; duplicate keys, several documents and expansion bombs are refused."""
    if len(text) > bytes_max:
        raise ContractError.of_file(name, f"larger than {bytes_max} bytes")
    rules = ReadingRules(error=ContractError, values_max=nodes_max, whole_max=None, merges=True)
    document = parse_yaml(name, decoded(name, text, rules), rules)
    root = DocumentPart(document.values, document, 1, "")
    if not isinstance(document.values, dict):
        root.fail(f"must be a mapping, not {_kind(document.values)}")
    return root


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true or false"
    names = {dict: "a mapping", list: "a list", str: "text", int: "a number", float: "a number"}
    return next(word for kind, word in names.items() if isinstance(value, kind))
