"""A pass's graph as SVG: boxes in layers, curves between them. No script, no font, nothing from elsewhere.

What a colour says is written in the box, too; the whole has a title and a description for those who
do not see it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple
from xml.sax.saxutils import escape, quoteattr

from kfm.core.wording import duration
from kfm.runs.layout import Cell, Layout, Reads, lay_out
from kfm.runs.sketch import folded, plain, wide

Direction = Literal["right", "down"]
NODES_MAX = 1000  # of more, each layer is one box
NAME_CHARS_MAX = 32
SMALL_CHARS_MAX = 40
COUNTS_CHARS_MAX = 90
MARGIN, BOX, GAP, LAYERS_APART = 24, 40, 14, 64
CHAR, SMALL_CHAR = 7.3, 6.1  # widths of a monospaced sign at 12 and 10 px
HEADER = 62

# word → fill, line, width of the line, dashes. Text is #1b1b1b on all of them: at least 12 to 1.
LOOKS: dict[str, tuple[str, str, str, str]] = {
    "ran": ("#d5f0dc", "#1b6b34", "1.5", ""),
    "partial": ("#fff2b3", "#6b5900", "1.5", "6 3"),
    "failed": ("#fbd8d3", "#a3180c", "3", ""),
    "blocked": ("#fdead0", "#8a5200", "1.5", "3 3"),
    "done": ("#d8e6fb", "#1f4f99", "1.5", ""),
    "unchanged": ("#eceef0", "#5b6166", "1", ""),
    "running": ("#ffffff", "#1f4f99", "1.5", "6 3"),
}
_OTHER = ("#ffffff", "#5b6166", "1", "")


class Box(NamedTuple):
    x: float
    y: float
    width: float
    height: float


def picture(
    cells: Sequence[Cell], reads: Reads, *, title: str, said: str, direction: Direction = "right"
) -> str:
    """`cells` and `reads` in an order in which every node comes after what it reads from."""
    words = Counter(cell.word for cell in cells)
    small_chars = SMALL_CHARS_MAX
    if len(cells) > NODES_MAX:
        cells, reads = folded(cells, reads)
        small_chars, direction = COUNTS_CHARS_MAX, "down"  # a chain of wide boxes
    layout = lay_out(reads)
    smalls = {cell.id: _small(cell, small_chars) for cell in cells}
    sizes = {
        cell.id: max(wide(_name(cell)) * CHAR, wide(smalls[cell.id]) * SMALL_CHAR) + 20 for cell in cells
    }
    boxes = _across(layout, sizes) if direction == "right" else _downwards(layout, sizes)
    legend = [word for word in LOOKS if words[word]]
    legend_width = sum(28 + CHAR * len(f"{words[word]:,} {word}") for word in legend)
    texts = max(wide(plain(title)) * 8.8, wide(plain(said)) * CHAR, legend_width)
    width = max([MARGIN * 2 + texts, *(box.x + box.width + MARGIN for box in boxes.values())])
    height = max([HEADER + MARGIN, *(box.y + box.height + MARGIN for box in boxes.values())])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="title desc" '
        f'width="{_n(width)}" height="{_n(height)}" viewBox="0 0 {_n(width)} {_n(height)}" '
        f'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="12" fill="#1b1b1b">',
        f'<title id="title">{_x(title)}</title>',
        f'<desc id="desc">{_x(said)}</desc>',
        f'<rect width="{_n(width)}" height="{_n(height)}" fill="#ffffff"/>',
        f'<text x="{MARGIN}" y="26" font-size="14" font-weight="bold">{_x(title)}</text>',
        *_legend([(word, words[word]) for word in legend]),
        '<g fill="none" stroke="#8a9096" stroke-width="1.2">',
        *(_curve([boxes[name] for name in line], direction) for line in layout.lines),
        "</g>",
        *(_box(cell, smalls[cell.id], boxes[cell.id], reads[cell.id]) for cell in cells),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


# --- places ------------------------------------------------------------------------------


def _across(layout: Layout, sizes: dict[str, float]) -> dict[str, Box]:
    """Layers from left to right."""
    boxes: dict[str, Box] = {}
    x: float = MARGIN
    for layer in layout.layers:
        width = max(sizes[name] for name in layer if name in sizes)
        for name in layer:
            y = HEADER + MARGIN + layout.places[name] * (BOX + GAP)
            boxes[name] = Box(x, y, width, BOX)
        x += width + LAYERS_APART
    return boxes


def _downwards(layout: Layout, sizes: dict[str, float]) -> dict[str, Box]:
    """Layers from top to bottom; all boxes are as wide as the widest."""
    boxes: dict[str, Box] = {}
    width = max(sizes.values(), default=0)
    for number, layer in enumerate(layout.layers):
        for name in layer:
            x = MARGIN + layout.places[name] * (width + GAP)
            boxes[name] = Box(x, HEADER + MARGIN + number * (BOX + LAYERS_APART), width, BOX)
    return boxes


# --- signs -------------------------------------------------------------------------------


def _legend(words: Sequence[tuple[str, int]]) -> list[str]:
    made: list[str] = []
    x: float = MARGIN
    for word, count in words:
        fill, line, stroke, dashes = LOOKS[word]
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        text = f"{count:,} {word}"
        made.append(
            f'<rect x="{_n(x)}" y="40" width="14" height="14" rx="3" fill="{fill}" stroke="{line}" '
            f'stroke-width="{stroke}"{dashed}/>'
            f'<text x="{_n(x + 20)}" y="51.5">{_x(text)}</text>'
        )
        x += 28 + CHAR * len(text) + 8
    return made


def _curve(stops: Sequence[Box], direction: Direction) -> str:
    """From box to box; through the places of bends straight on."""
    first, *rest = stops
    if direction == "right":
        x, y = first.x + first.width, first.y + first.height / 2
    else:
        x, y = first.x + first.width / 2, first.y + first.height
    path = [f"M{_n(x)} {_n(y)}"]
    for number, box in enumerate(rest):
        if direction == "right":
            to_x, to_y = box.x, box.y + box.height / 2
            middle = (x + to_x) / 2
            path.append(f"C{_n(middle)} {_n(y)} {_n(middle)} {_n(to_y)} {_n(to_x)} {_n(to_y)}")
            x, y = to_x, to_y
            if number < len(rest) - 1:
                x = box.x + box.width
                path.append(f"H{_n(x)}")
        else:
            to_x, to_y = box.x + box.width / 2, box.y
            middle = (y + to_y) / 2
            path.append(f"C{_n(x)} {_n(middle)} {_n(to_x)} {_n(middle)} {_n(to_x)} {_n(to_y)}")
            x, y = to_x, to_y
            if number < len(rest) - 1:
                y = box.y + box.height
                path.append(f"V{_n(y)}")
    return f'<path d="{"".join(path)}"/>'


def _box(cell: Cell, small: str, box: Box, upstream: Sequence[str]) -> str:
    fill, line, stroke, dashes = LOOKS.get(cell.word, _OTHER)
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    whole = [plain(cell.id), cell.word, plain(cell.reason)]
    whole += [f"took {duration(cell.took_ms)}"] if cell.took_ms is not None else []
    whole += [f"reads from {', '.join(plain(each) for each in upstream[:20])}"] if upstream else []
    title = "; ".join(part for part in whole if part)
    return (
        f'<g role="img" aria-label={quoteattr(title)}><title>{_x(title)}</title>'
        f'<rect x="{_n(box.x)}" y="{_n(box.y)}" width="{_n(box.width)}" height="{_n(box.height)}" rx="5" '
        f'fill="{fill}" stroke="{line}" stroke-width="{stroke}"{dashed}/>'
        f'<text x="{_n(box.x + 10)}" y="{_n(box.y + 17)}" font-weight="bold">{_x(_name(cell))}</text>'
        f'<text x="{_n(box.x + 10)}" y="{_n(box.y + 32)}" font-size="10">{_x(small)}</text></g>'
    )


def _name(cell: Cell) -> str:
    return _cut(plain(cell.id), NAME_CHARS_MAX)


def _small(cell: Cell, chars: int) -> str:
    reason = plain(cell.reason) if cell.reason != cell.word else ""
    took = duration(cell.took_ms) if cell.took_ms is not None else ""
    room = chars - len(cell.word) - len(took) - 6
    return " · ".join(part for part in (cell.word, _cut(reason, room), took) if part)


def _cut(text: str, chars: int) -> str:
    """The end of a name tells more than its middle."""
    if len(text) <= chars:
        return text
    head = (chars - 1) // 2
    return f"{text[:head]}…{text[len(text) - (chars - 1 - head) :]}"


def _x(text: str) -> str:
    return escape(plain(text))


def _n(value: float) -> str:
    """A number as short as it can be said; the same on every machine."""
    return f"{value:.1f}".removesuffix(".0")
