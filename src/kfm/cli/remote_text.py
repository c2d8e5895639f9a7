"""Any document of the API as lines for people: lists as tables, the rest as facts."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from typing import Any

from kfm.cli.output import clipped, table
from kfm.model.quantities import counted, short_id, utc

_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z")
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
CELL_CHARS_MAX = 32
_UNSAID = ("more", "next", "exit_code")  # of pages and processes, not of what they are about
# What a reader looks for first; the rest follows as the document has it.
_FIRST = ("state", "status", "severity", "outcome", "kind", "dataset_id", "source_id", "schedule_id", "name")


def document_lines(document: Any) -> list[str]:
    return list(_lines(document, ""))


def _lines(document: Any, indent: str) -> Iterator[str]:
    if not isinstance(document, dict):
        yield indent + _cell(document)
        return
    plain = [(name, value) for name, value in document.items() if not isinstance(value, dict | list)]
    said = [(name, value) for name, value in plain if value is not None and name not in _UNSAID]
    width = max((len(_words(name, document)) for name, _ in said), default=0)
    for name, value in said:
        yield f"{indent}{_words(name, document).ljust(width)}  {_cell(value)}"
    for name, value in document.items():
        if isinstance(value, dict) and value:
            yield f"{indent}{_words(name)}:"
            yield from _lines(value, f"{indent}  ")
        elif isinstance(value, list) and (value or not (said or indent)):
            yield from _list(name, value, indent)
    if document.get("more"):
        yield f"{indent}there are more: --limit shows them"


def _list(name: str, rows: Sequence[Any], indent: str) -> Iterator[str]:
    if not rows:
        yield f"{indent}no {_words(name)}"
    elif all(isinstance(row, dict) for row in rows):
        yield f"{indent}{_words(name)}, {counted(len(rows), 'row')}:"
        yield from (f"{indent}{line}" for line in _table(rows, len(indent)))
    else:
        yield f"{indent}{_words(name)}: {', '.join(map(_cell, rows))}"


def _table(rows: Sequence[dict[str, Any]], indent: int) -> list[str]:
    """The telling columns first; on a terminal the last ones give way."""
    rows = [_flat(row) for row in rows]
    names = dict.fromkeys(name for row in rows for name, value in row.items() if _is_shown(value))
    ranked = sorted(names, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
    ids = [name for name in names if name.endswith("_id") and name not in _FIRST][:1]
    ranked = [*ids, *(name for name in ranked if name not in ids)]
    header = [_words(name, names).upper() for name in ranked]
    cells = ([_cell(row.get(name)) for name in ranked] for row in rows)
    return table(header, cells, spare=header[:0:-1], indent=indent)


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """With what its parts say, where it does not say it itself."""
    inner = [each for each in row.values() if isinstance(each, dict)]
    return {name: value for each in inner for name, value in each.items()} | row


def _is_shown(value: Any) -> bool:
    return value is not None and not isinstance(value, dict | list)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = str(value)
    if _TIME.fullmatch(text):
        return utc(text)
    if _ID.fullmatch(text):
        return short_id(text)
    return clipped(text, CELL_CHARS_MAX * 4)


def _words(name: str, beside: Container[str] = ()) -> str:
    """A field's name for people; `beside`: other names, of which none is shown twice."""
    brief = name.removesuffix("_id")
    return (name if brief in beside else brief).replace("_", " ")
