"""A pass's graph as text: layer by layer, each node with what it reads from."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence

from kfm.core.wording import counted, duration
from kfm.runs.layout import Cell, Reads, depths

NODES_MAX = 300  # more are told by layer
NAMED_MAX = 50  # of those at which something happened
READS_SHOWN_MAX = 6
REASON_CHARS_MAX = 48
QUIET = ("unchanged", "done")
SIGNS = {"ran": "+", "unchanged": "=", "done": "=", "failed": "!", "blocked": "-", "partial": "~"}


def sketch(cells: Sequence[Cell], reads: Reads, nodes_max: int = NODES_MAX) -> list[str]:
    """`cells` and `reads` in an order in which every node comes after what it reads from."""
    if not cells:
        return ["no nodes"]
    depth = depths(reads)
    layers: list[list[Cell]] = [[] for _ in range(1 + max(depth.values()))]
    for cell in cells:
        layers[depth[cell.id]].append(cell)
    if len(cells) > nodes_max:
        return _summary(layers)
    widths = [max(wide(plain(text)) for text in column) for column in zip(*map(_cells, cells), strict=True)]
    lines: list[str] = []
    for number, layer in enumerate(layers, 1):
        lines.append(f"layer {number}")
        lines += [_line(cell, reads[cell.id], widths) for cell in layer]
    return lines


def _cells(cell: Cell) -> tuple[str, str, str]:
    return cell.id, cell.word, _told(cell)


def _told(cell: Cell) -> str:
    reason = plain(cell.reason)
    reason = reason if len(reason) <= REASON_CHARS_MAX else reason[: REASON_CHARS_MAX - 1] + "…"
    reason = "" if reason == cell.word else reason
    took = duration(cell.took_ms) if cell.took_ms is not None else ""
    return ", ".join(part for part in (reason, took) if part)


def _line(cell: Cell, upstream: Sequence[str], widths: Sequence[int]) -> str:
    texts = [padded(text, width) for text, width in zip(_cells(cell), widths, strict=True)]
    reads = [plain(each) for each in upstream[:READS_SHOWN_MAX]]
    more = f" and {len(upstream) - READS_SHOWN_MAX} more" if len(upstream) > READS_SHOWN_MAX else ""
    source = f"← {', '.join(reads)}{more}" if reads else ""
    return f"  {SIGNS.get(cell.word, '?')} {'  '.join([*texts, source])}".rstrip()


def _summary(layers: Sequence[Sequence[Cell]]) -> list[str]:
    lines = []
    for number, layer in enumerate(layers, 1):
        words = Counter(cell.word for cell in layer)
        said = ", ".join(f"{count:,} {word}" for word, count in sorted(words.items()))
        lines.append(f"layer {number}: {counted(len(layer), 'node')}: {said}")
    loud = [cell for layer in layers for cell in layer if cell.word not in QUIET]
    if loud:
        lines.append("")
    width = max((wide(plain(cell.id)) for cell in loud[:NAMED_MAX]), default=0)
    for cell in loud[:NAMED_MAX]:
        told = _told(cell)
        lines.append(f"  {SIGNS.get(cell.word, '?')} {padded(cell.id, width)}  {cell.word}  {told}".rstrip())
    if len(loud) > NAMED_MAX:
        lines.append(f"  … and {len(loud) - NAMED_MAX:,} more")
    return lines


def folded(cells: Sequence[Cell], reads: Reads) -> tuple[list[Cell], dict[str, tuple[str, ...]]]:
    """One cell for each layer: what is left of a graph that is too large to be drawn."""
    depth = depths(reads)
    words: dict[int, Counter[str]] = {}
    for cell in cells:
        words.setdefault(depth[cell.id], Counter())[cell.word] += 1
    made: list[Cell] = []
    links: dict[str, tuple[str, ...]] = {}
    for number, counts in sorted(words.items()):
        name = f"layer {number + 1}: {counts.total():,} nodes"
        said = ", ".join(f"{count:,} {word}" for word, count in sorted(counts.items()))
        links[name] = (made[-1].id,) if made else ()
        made.append(Cell(name, _worst(counts), said))
    return made, links


def _worst(words: Mapping[str, int]) -> str:
    order = ("failed", "blocked", "partial", "running", "ran", "done", "unchanged")
    return next((word for word in order if words.get(word)), next(iter(words)))


# --- text from outside -------------------------------------------------------------------


def plain(text: str) -> str:
    """On one line, and nothing that a terminal or a reader of XML would take for an order."""
    return "".join(char if char.isprintable() else " " for char in text)


def wide(text: str) -> int:
    """How many columns it takes: some signs take two, marks upon others none."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def padded(text: str, width: int) -> str:
    text = plain(text)
    return text + " " * (width - wide(text))
