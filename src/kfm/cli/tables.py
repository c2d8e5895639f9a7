"""Tables on a terminal: as wide as it is. Columns give way one by one, the last ones are cut.

A pipe and a file get every column whole (`kfm.cli.output.table`).
"""

from __future__ import annotations

from collections.abc import Sequence

from kfm.model.patterns import late
from kfm.model.quantities import short_id

GAP = 2
CELL_CHARS_MIN = 8
_TIME = late(r"([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2})(?::[0-9]{2})?( UTC)?")
_SPAN = late(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2})(?::[0-9]{2})? … "
    r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}(?::[0-9]{2})?( UTC)?"
)
_WHOLE_ID = late(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{13}-[0-9a-f]{20}")
_ID = late(r"(?:[a-z-]+ )?(?:[0-9a-f]{8}-[0-9a-f]{4}[0-9a-f-]*|[0-9a-f]{13}-[0-9a-f]{8,20}|[0-9a-f]{12,64})")
STATES = frozenset(
    (
        *("STATUS", "STATE", "HEALTH", "SEVERITY", "LAST", "LAST RUN", "OUTCOME", "RESULT", "POSITION"),
        *("NOW", "KIND"),
    )
)
_COLOURS = {"good": 32, "quiet": 2, "busy": 36, "warn": 33, "bad": 31, "faint": 2}


def fitted(rows: Sequence[list[str]], columns: int, spare: Sequence[str]) -> list[list[str]]:
    """The header and its rows in so many columns of a terminal.

    What gives way, as far as it must: the seconds of times, the ends of spans, the rest of ids; columns of
    `spare`, in that order; text; at last the columns before the last one. Ids and states are never cut.
    """
    for shorten in (_to_the_minute, _to_the_start, _to_the_short_id):
        if _width(rows) > columns:
            rows = [list(row) for row in zip(*map(shorten, zip(*rows, strict=True)), strict=True)]
    for name in spare:
        if _width(rows) > columns and name in rows[0]:
            rows = _without(rows, rows[0].index(name))
    while _width(cut := _cut(rows, columns)) > columns and len(rows[0]) > 1:
        rows = _without(rows, max(len(rows[0]) - 2, 1))
    return [[cell[:columns] for cell in row] for row in cut]


def _width(rows: Sequence[list[str]]) -> int:
    return sum(_widths(rows)) + GAP * (len(rows[0]) - 1)


def _widths(rows: Sequence[list[str]]) -> list[int]:
    return [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]


def _without(rows: Sequence[list[str]], column: int) -> list[list[str]]:
    return [[*row[:column], *row[column + 1 :]] for row in rows]


def _to_the_minute(column: Sequence[str]) -> list[str]:
    return [f"{found[1]}{found[2] or ''}" if (found := _TIME.fullmatch(cell)) else cell for cell in column]


def _to_the_start(column: Sequence[str]) -> list[str]:
    """Only the day, where all of them begin with one."""
    starts = [found[1] if (found := _SPAN.fullmatch(cell)) else None for cell in column]
    chars = 10 if all(one.endswith(" 00:00") for one in starts if one) else 16
    return [f"{one[:chars]} …" if one else cell for one, cell in zip(starts, column, strict=True)]


def _to_the_short_id(column: Sequence[str]) -> list[str]:
    return [short_id(cell) if _WHOLE_ID.fullmatch(cell) else cell for cell in column]


def _cut(rows: Sequence[list[str]], columns: int) -> list[list[str]]:
    """The widest columns of text, down to what is left for them."""
    widths = _widths(rows)
    meant = [
        number
        for number, name in enumerate(rows[0])
        if name not in STATES and not any(map(_is_whole, (row[number] for row in rows[1:])))
    ]
    room = (
        columns
        - GAP * (len(widths) - 1)
        - sum(width for number, width in enumerate(widths) if number not in meant)
    )
    most = max((widths[number] for number in meant), default=0)
    while most > CELL_CHARS_MIN and sum(min(widths[number], most) for number in meant) > room:
        most -= 1
    return [
        [_clipped(cell, most) if number in meant else cell for number, cell in enumerate(row)] for row in rows
    ]


def _is_whole(cell: str) -> bool:
    """Would a part of it mean something else, or nothing?"""
    return bool(_ID.fullmatch(cell) or _TIME.fullmatch(cell) or _SPAN.fullmatch(cell) or cell.endswith(" …"))


def _clipped(cell: str, chars_max: int) -> str:
    if len(cell) <= chars_max:
        return cell
    if "/" in cell and " " not in cell:  # of an address the end tells
        return f"…{cell[1 - chars_max :]}"
    return f"{cell[: chars_max - 1]}…"


def painted(cell: str, column: str) -> str:
    """A cell, padded or not, in the colour of its state."""
    text = cell.rstrip()
    return coloured(text, text) + cell[len(text) :] if column in STATES else cell


def coloured(text: str, word: str) -> str:
    """A text in the colour of a state's word, as the console has it; as it is, if the word is another."""
    from kfm.web.console.state_words import known

    first = word.partition(",")[0]
    found = known(first) or known(f"circuit {first}")
    return text if found is None else f"\x1b[{_COLOURS[found.tone]}m{text}\x1b[0m"
