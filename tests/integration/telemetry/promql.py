"""As much of PromQL's grammar as it takes to tell which metrics and labels a query names."""

from __future__ import annotations

import re
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|\#[^\n]*)
  | (?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`)
  | (?P<duration>\[[^\]]*\])
  | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?:ms|[smhdwy])?)
  | (?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
  | (?P<symbol>=~|!~|!=|==|<=|>=|[-+*/%^<>=(){},@])
    """,
    re.VERBOSE,
)
_GROUPING = {"by", "without", "on", "ignoring", "group_left", "group_right"}
_WORDS = {"and", "or", "unless", "bool", "offset", "inf", "nan", "start", "end"}


class Selector(NamedTuple):
    """A metric in a query, and the labels that it is chosen by."""

    name: str
    labels: tuple[str, ...]


class Query(NamedTuple):
    selectors: list[Selector]
    functions: set[str]
    grouping: set[str]


def tokens(query: str) -> list[tuple[str, str]]:
    found, position = [], 0
    while position < len(query):
        match = _TOKEN.match(query, position)
        assert match is not None, f"not PromQL: {query[position:]!r}"
        kind = str(match.lastgroup)
        if kind != "space":
            found.append((kind, match[0]))
        position = match.end()
    return found


def read_query(query: str) -> Query:
    """The metrics that a query names. Every name is a metric, a function, a word or in a list of labels."""
    rest = tokens(query)
    selectors: list[Selector] = []
    functions: set[str] = set()
    grouping: set[str] = set()
    index = 0

    def at(place: int) -> str:
        return rest[place][1] if place < len(rest) else ""

    def inside(place: int, closing: str) -> tuple[list[str], int]:
        """The names in a list that begins here, and where it ends."""
        names = []
        while at(place) != closing:
            assert place < len(rest), query
            if rest[place][0] == "name":
                names.append(at(place))
            place += 1
        return names, place + 1

    while index < len(rest):
        kind, text = rest[index]
        index += 1
        if kind != "name" or text.lower() in _WORDS:
            continue
        if text.lower() in _GROUPING:
            if at(index) == "(":
                names, index = inside(index + 1, ")")
                grouping.update(names)
        elif at(index) == "(" or at(index).lower() in ("by", "without"):
            functions.add(text)
        elif at(index) == "{":
            labels, index = inside(index + 1, "}")
            selectors.append(Selector(text, tuple(labels)))
        else:
            selectors.append(Selector(text, ()))
    return Query(selectors, functions, grouping)
