"""Documents that people write, as YAML 1.2 or JSON: values that know their lines, checked against a shape."""

from __future__ import annotations

import math
import re
from functools import partial
from json.decoder import scanstring  # type: ignore[attr-defined,unused-ignore]
from typing import Any, NamedTuple, TypeVar

import msgspec

from kfm.model.errors import ConfigError
from kfm.model.patterns import late
from kfm.model.quantities import did_you_mean, meant

VALUES_MAX = 100_000  # aliases can multiply; no configuration has this many settings
DEPTH_MAX = 64
INT_MAX = 2**53 - 1


class ReadingRules(NamedTuple):
    """What differs between kinds of files."""

    error: type[ConfigError] = ConfigError  # the class of what is wrong with the file
    values_max: int = VALUES_MAX
    whole_max: int | None = INT_MAX
    merges: bool = False  # does `<<` take over the members of another mapping?


SETTINGS = ReadingRules()


class Document:
    """Plain values (dict, list, str, int, float, bool, None) and the line of every field.

    Paths are written as people would: `sources[0].headers.Accept`.
    """

    def __init__(
        self, name: str, values: Any, lines: dict[str, int], kind: type[ConfigError] = ConfigError
    ) -> None:
        self.name = name
        self.values = values
        self.lines = lines
        self.kind = kind

    def line(self, path: str) -> int:
        """The line of a field, or of the nearest thing around it that was written."""
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get(path, 1)

    def error(self, path: str, sentence: str) -> ConfigError:
        return self.kind.at(self.name, self.line(path), sentence)


class DocumentBuilder:
    """Builds a document value by value; refuses what would be ambiguous or endless."""

    def __init__(self, name: str, rules: ReadingRules) -> None:
        self.name = name
        self.rules = rules
        self.lines: dict[str, int] = {}
        self._count = 0

    def fail(self, line: int, sentence: str) -> ConfigError:
        return self.rules.error.at(self.name, line, sentence)

    def document(self, values: Any) -> Document:
        return Document(self.name, values, self.lines, self.rules.error)

    def note(self, path: str, line: int, depth: int) -> None:
        self._count += 1
        if self._count > self.rules.values_max:
            count = f"{self.rules.values_max:,}"
            raise self.fail(line, f"more than {count} values; is an alias repeated too often?")
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


def decoded(name: str, data: bytes, rules: ReadingRules = SETTINGS) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise rules.error.at(name, line, "the file is not UTF-8 text") from None


_TAG = "tag:yaml.org,2002:"


class _Reader:
    def __init__(self, name: str, rules: ReadingRules) -> None:
        self.collect = DocumentBuilder(name, rules)
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

    def mapping(
        self, node: Any, path: str, depth: int, known: frozenset[str] = frozenset()
    ) -> dict[str, Any]:
        """Without the `known` keys: what is written in a mapping beats what it takes over."""
        values: dict[str, Any] = {}
        merged: list[tuple[int, Any]] = []
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node.value, str):
                raise self.collect.fail(line, "a name must be plain text")
            if self.collect.rules.merges and key_node.tag == f"{_TAG}merge":
                merged += self.merged(value_node, line)
                continue
            key = key_node.value
            if key not in known:
                child = self.collect.key(values, path, key, line)
                values[key] = self.value(value_node, child, depth + 1)
        for line, source in merged:
            self.collect.note(path, line, depth + 1)
            here = known.union(values)
            values |= self.inside(source, line, partial(self.mapping, source, path, depth + 1, here))
        return values

    def merged(self, node: Any, line: int) -> list[tuple[int, Any]]:
        found = node.value if node.tag == f"{_TAG}seq" else [node]
        if any(each.tag != f"{_TAG}map" for each in found):
            raise self.collect.fail(line, "`<<` takes over mappings only")
        return [(line, each) for each in found]

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
        whole_max = self.collect.rules.whole_max
        if whole_max is not None and abs(value) > whole_max:
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


def _bounded_yaml() -> Any:
    """A parser of YAML 1.2 that refuses nesting where it begins: later, its time would be squared."""
    from ruamel.yaml import YAML
    from ruamel.yaml.scanner import Scanner, ScannerError

    class BoundedScanner(Scanner):
        def fetch_flow_collection_start(self, *arguments: Any, **more: Any) -> Any:
            self._require(self.flow_level < DEPTH_MAX, f"nested more than {DEPTH_MAX} levels deep")
            return super().fetch_flow_collection_start(*arguments, **more)

        def add_indent(self, column: int) -> Any:
            self._require(len(self.indents) <= DEPTH_MAX, f"nested more than {DEPTH_MAX} levels deep")
            return super().add_indent(column)

        def fetch_directive(self) -> Any:
            # Under `%YAML 1.1` a bare `yes` is true, and under others we don't know.
            plain = self.reader.prefix(9) == "%YAML 1.2"
            self._require(plain, "a directive other than `%YAML 1.2` is not supported")
            return super().fetch_directive()

        def _require(self, holds: bool, problem: str) -> None:
            if not holds:
                raise ScannerError(None, None, problem, self.reader.get_mark())

    yaml = YAML(typ="safe", pure=True)
    yaml.Scanner = BoundedScanner
    return yaml


def parse_yaml(name: str, text: str, rules: ReadingRules = SETTINGS) -> Document:
    """One document; one without anything in it has no lines."""
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.events import DocumentStartEvent

    reader = _Reader(name, rules)
    try:
        nodes = list(_bounded_yaml().compose_all(text))
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise reader.collect.fail(mark.line + 1 if mark else 1, f"not YAML: {_plain(error)}") from None
    except YAMLError as error:
        line = text[: getattr(error, "position", 0)].count("\n") + 1
        raise reader.collect.fail(line, "not YAML: a character is not allowed here") from None
    except RecursionError:
        raise reader.collect.fail(1, "not YAML: nested too deeply") from None
    except (ValueError, TypeError, AttributeError, IndexError, KeyError, AssertionError):
        # The parser itself gave up: still one plain sentence.
        raise reader.collect.fail(1, "not YAML: it can't be read at all") from None
    if len(nodes) > 1:
        events = _bounded_yaml().parse(text)
        starts = [each.start_mark.line for each in events if isinstance(each, DocumentStartEvent)]
        line = starts[1] + 1
        raise reader.collect.fail(line, "a second document begins here; one file holds one configuration")
    values = reader.value(nodes[0], "", 0) if nodes and nodes[0] is not None else None
    return reader.collect.document(values)


def _plain(error: Any) -> str:
    parts = [error.context, error.problem]
    return ", ".join(str(part).strip() for part in parts if part)


_SPACE = late(r"[ \t\n\r]*")
_NUMBER = late(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?")
_WORDS = {"true": True, "false": False, "null": None}


class _Parser:
    def __init__(self, name: str, text: str) -> None:
        self.text = text
        self.at = 0
        self.collect = DocumentBuilder(name, SETTINGS)
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
    return parser.collect.document(values)


PROBLEMS_MAX = 20
_Shape = TypeVar("_Shape")


def shaped(document: Document, kind: type[_Shape], part: tuple[str, Any] | None = None) -> _Shape:
    """The document, or a part of it (path and value), as a value of this kind."""
    path, value = part or ("", document.values)
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        problems = _Walker(document).problems(value, kind, path)
        if not problems:  # the walker is kinder than the converter: still refuse
            raise document.error(path, str(error)) from None
        raise gathered(problems) from None


def gathered(problems: list[ConfigError]) -> ConfigError:
    """One error for all problems: the first in the message, the others below it.

    What is wrong with a default is wrong with every source that has it, and said once.
    """
    problems = list({problem.detail: problem for problem in reversed(problems)}.values())[::-1]
    details = [problem.detail for problem in problems[:PROBLEMS_MAX]]
    left_off = len(problems) - len(details)
    if left_off:
        details.append(f"… and {left_off} more")
    first = problems[0]
    return type(first)("\n".join(details), problems=tuple(details), file=first.file, line=first.line)


class _Walker:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.found: list[ConfigError] = []

    def problems(self, value: Any, kind: type, path: str) -> list[ConfigError]:
        from msgspec import inspect

        self.inspect = inspect
        self.walk(value, inspect.type_info(kind), path)
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
        if value is None and len(options) < len(kind.types):
            return
        words = [option for option in options if type(option).__name__ == "LiteralType"]
        self.walk(value, words[0] if words and isinstance(value, str) else options[0], path)

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
        close = meant(value, words) if isinstance(value, str) else None
        rights = " or ".join(f"`{word}`" for word in words)
        if close is not None:
            self.say(path, f"`{_last(path)}` can't be {_describe(value, path)}; did you mean `{close}`?")
        else:
            self.say(path, f"`{_last(path)}` must be {rights}, not {_describe(value, path)}")


_PRIVATE = late(r"headers|params|options|url|bucket|store")
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
