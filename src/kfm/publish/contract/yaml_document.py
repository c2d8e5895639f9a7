"""A YAML document whose every part knows its file and line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import Any, NoReturn

from kfm.model.errors import ContractError
from kfm.model.quantities import suggest


class DocumentPart:
    """One value of the document, with its position for findings."""

    def __init__(self, value: Any, file: str, line: int, path: str) -> None:
        self.value = value
        self.file = file
        self.line = line
        self.path = path

    def fail(self, problem: str) -> NoReturn:
        raise ContractError.at(self.file, self.line, f"{self.path} {problem}" if self.path else problem)

    def fields(self, known: Iterable[str]) -> None:
        """Every key has to be a known word."""
        words = sorted(known)
        for key in self._mapping():
            if key not in words:
                part = DocumentPart(key, self.file, self._key_line(key), self.path)
                part.fail(f"{key!r} is not a word of the standard{nearest(str(key), words)}")

    def get(self, key: str) -> DocumentPart | None:
        """The member of that name; None if it is absent or null."""
        value = self._mapping().get(key)
        if value is None:
            return None
        return DocumentPart(value, self.file, self._key_line(key), f"{self.path}.{key}".lstrip("."))

    def need(self, key: str) -> DocumentPart:
        part = self.get(key)
        return part if part is not None else self.fail(f"{key} is missing")

    def parts(self) -> list[DocumentPart]:
        if not isinstance(self.value, list):
            self.fail(f"must be a list, not {_kind(self.value)}")
        lines = getattr(self.value, "lc", None)
        return [
            DocumentPart(item, self.file, _line_of(lines, index, self.line), f"{self.path}[{index}]")
            for index, item in enumerate(self.value)
        ]

    def text(self) -> str:
        value = self.value
        if isinstance(value, (date, datetime)):
            return value.isoformat()
        if not isinstance(value, str):
            self.fail(f"must be text, not {_kind(value)}; put it in quotes")
        if not value.strip():
            self.fail("must not be empty")
        if any("\ud800" <= char <= "\udfff" for char in value):
            self.fail("must be Unicode text; a lone half of a surrogate pair is none")
        return str(value)

    def choice(self, allowed: Iterable[str]) -> str:
        words = list(allowed)
        text = self.text()
        if text not in words:
            self.fail(f"{text!r} is not one of {', '.join(words)}{nearest(text, words)}")
        return text

    def number(self) -> float | int:
        value = self.value
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
            self.fail(f"must be a number, not {_kind(value)}")
        return int(value) if isinstance(value, int) else float(value)

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
        value = self.value
        if isinstance(value, (date, datetime)):
            return value.isoformat()
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return float(value)
        if not isinstance(value, str):
            self.fail(f"must be one value, not {_kind(value)}")
        return str(value)

    def _mapping(self) -> Mapping[Any, Any]:
        if not isinstance(self.value, dict):
            self.fail(f"must be a mapping, not {_kind(self.value)}")
        return self.value

    def _key_line(self, key: Any) -> int:
        return _line_of(getattr(self.value, "lc", None), key, self.line)


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
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    if len(text) > bytes_max:
        raise ContractError(f"{name}: larger than {bytes_max} bytes")
    try:
        value = YAML(typ="rt").load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        problem = " ".join((error.problem or "is not YAML").split())
        raise ContractError.at(name, line, problem) from None
    except YAMLError as error:
        raise ContractError(f"{name}:1: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ContractError(f"{name}:1: nested too deeply") from None
    except ValueError as error:  # a number or a date that Python refuses
        raise ContractError(f"{name}:1: {error}") from None
    _count_nodes(value, name, nodes_max)
    root = DocumentPart(value, name, 1, "")
    if not isinstance(value, dict):
        root.fail(f"must be a mapping, not {_kind(value)}")
    return root


def _count_nodes(value: Any, name: str, nodes_max: int) -> None:
    # Aliases share objects, so that a small file may unfold to billions of nodes.
    seen = 0
    waiting = [value]
    while waiting:
        seen += 1
        if seen > nodes_max:
            raise ContractError(f"{name}: more than {nodes_max} values")
        node = waiting.pop()
        if isinstance(node, dict):
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


def _line_of(lines: Any, key: Any, default: int) -> int:
    data = getattr(lines, "data", None) or {}
    mark = data.get(key) if not isinstance(key, (list, dict)) else None
    return mark[0] + 1 if mark else default


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true or false"
    names = {dict: "a mapping", list: "a list", str: "text", int: "a number", float: "a number"}
    return next((word for kind, word in names.items() if isinstance(value, kind)), f"{type(value).__name__}")
