"""A configuration file as plain values that remember their lines."""

from __future__ import annotations

from typing import Any

from kfm.core.errors import ConfigError

VALUES_MAX = 100_000  # aliases can multiply; nobody writes this many settings
DEPTH_MAX = 64
INT_MAX = 2**53 - 1


class Document:
    """Plain values (dict, list, str, int, float, bool, None) and the line of every field.

    Paths are written as people would: `sources[0].headers.Accept`.
    """

    def __init__(self, name: str, values: Any, lines: dict[str, int]) -> None:
        self.name = name
        self.values = values
        self.lines = lines

    def line(self, path: str) -> int:
        """The line of a field, or of the nearest thing around it that was written."""
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get(path, 1)

    def error(self, path: str, sentence: str) -> ConfigError:
        return ConfigError(f"{self.name}:{self.line(path)}: {sentence}")


class Collector:
    """Builds a document value by value; refuses what would be ambiguous or endless."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: dict[str, int] = {}
        self._count = 0

    def fail(self, line: int, sentence: str) -> ConfigError:
        return ConfigError(f"{self.name}:{line}: {sentence}")

    def note(self, path: str, line: int, depth: int) -> None:
        self._count += 1
        if self._count > VALUES_MAX:
            raise self.fail(line, f"more than {VALUES_MAX:,} values; is an alias repeated too often?")
        if depth > DEPTH_MAX:
            raise self.fail(line, f"nested more than {DEPTH_MAX} levels deep")
        self.lines.setdefault(path, line)

    def key(self, mapping: dict[str, Any], parent: str, key: str, line: int) -> str:
        """The path of a new key; a second key of one name is an error that names both lines."""
        path = f"{parent}.{key}" if parent else key
        if key in mapping:
            first = self.lines.get(path, line)
            raise self.fail(line, f"`{key}` is given twice; the first is on line {first}")
        self.lines[path] = line
        return path


def read_document(name: str, data: bytes) -> Document:
    """Parse a file's bytes; `name` decides the format (.json is JSON, anything else YAML 1.2)."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError(f"{name}:{line}: the file is not UTF-8 text") from None
    if not text.strip():
        raise ConfigError(f"{name}: the file is empty")
    if name.endswith(".json"):
        from kfm.configuration.json_text import parse_json

        document = parse_json(name, text)
    else:
        from kfm.configuration.yaml_text import parse_yaml

        document = parse_yaml(name, text)
    if not isinstance(document.values, dict):
        raise document.error("", "the file must hold settings, written as `name: value`")
    return document
