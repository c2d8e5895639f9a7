"""Cells of coverage that a person chose, as texts in addresses. Pure.

`window:SOURCE@START` is a window of a source, `instant:SCHEDULE@TIME` a scheduled time, and
`units:DATASET/PRODUCT@FROM/TO` the units of a feed whose data are of that span; without a product, of all.
"""

from __future__ import annotations

from collections.abc import Iterable

from kfm.model.errors import UsageError
from kfm.model.patterns import late
from kfm.model.records import Record
from kfm.model.times import MS_MAX, MS_MIN, parse_rfc3339, rfc3339

CELLS_MAX = 250  # a form with more would be too long
CHARS_MAX = 40_000  # of all of them together: below what a request may be long
SHOWN_MAX = 80
_COMPACT = late(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z")
_MS = late(r"-?\d{1,15}")


class WindowCell(Record, frozen=True):
    """A window of a source."""

    source_id: str
    start_ms: int


class InstantCell(Record, frozen=True):
    """A scheduled time."""

    schedule_id: str
    instant_ms: int


class UnitsCell(Record, frozen=True):
    """Units of a feed, by the time of their data."""

    dataset: str
    product: str  # empty: any
    start_ms: int
    end_ms: int


Cell = WindowCell | InstantCell | UnitsCell


def parse_cells(text: str) -> tuple[Cell, ...]:
    """Cells between commas, each once, all of one kind."""
    if len(text) > CHARS_MAX:
        raise UsageError("Too many cells are chosen.", remedy="Choose fewer, or a span.")
    words = list(dict.fromkeys(filter(None, (word.strip() for word in text.split(",")))))
    if len(words) > CELLS_MAX:
        raise UsageError(
            f"{len(words):,} cells are chosen, and one plan takes at most {CELLS_MAX:,}.",
            remedy="Choose fewer, or a span.",
        )
    cells = tuple(map(_cell, words))
    if len({type(one) for one in cells}) > 1:
        raise UsageError(
            "Cells of different kinds are chosen: windows, scheduled times and objects of feeds are planned "
            "each by themselves."
        )
    return cells


def cells_text(cells: Iterable[Cell]) -> str:
    return ",".join(map(cell_text, cells))


def cell_text(cell: Cell) -> str:
    """The text of one, as pages write it."""
    if isinstance(cell, WindowCell):
        return f"window:{cell.source_id}@{rfc3339(cell.start_ms)}"
    if isinstance(cell, InstantCell):
        return f"instant:{cell.schedule_id}@{rfc3339(cell.instant_ms)}"
    product = f"/{cell.product}" if cell.product else ""
    return f"units:{cell.dataset}{product}@{rfc3339(cell.start_ms)}/{rfc3339(cell.end_ms)}"


def _cell(word: str) -> Cell:
    kind, _, rest = word.partition(":")
    name, _, when = rest.rpartition("@")
    if name and kind == "window":
        return WindowCell(source_id=name, start_ms=_time(when, word))
    if name and kind == "instant":
        return InstantCell(schedule_id=name, instant_ms=_time(when, word))
    if name and kind == "units":
        dataset, _, product = name.partition("/")
        start, _, end = when.partition("/")
        start_ms, end_ms = _time(start, word), _time(end, word)
        if dataset and start_ms < end_ms:
            return UnitsCell(dataset=dataset, product=product, start_ms=start_ms, end_ms=end_ms)
    raise _no_cell(word)


def _time(text: str, word: str) -> int:
    if _MS.fullmatch(text):
        found = int(text)
        if MS_MIN <= found <= MS_MAX:
            return found
        raise _no_cell(word)
    compact = _COMPACT.fullmatch(text)
    if compact:
        text = "{}-{}-{}T{}:{}:{}Z".format(*compact.groups())
    try:
        return parse_rfc3339(text)
    except UsageError:
        raise _no_cell(word) from None


def _no_cell(word: str) -> UsageError:
    return UsageError(
        f"`{word[:SHOWN_MAX]}` is no cell.",
        remedy="A cell is window:SOURCE@START, instant:SCHEDULE@TIME or units:DATASET/PRODUCT@FROM/TO.",
    )
