"""Drawings of a pipeline run's graph: layout in layers, as text and as SVG."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple
from xml.sax.saxutils import escape, quoteattr

from kfm.model.quantities import counted, duration

SWEEPS = 8
BENDS_MAX = 20_000  # points that long lines pass through; a graph with more is drawn with straight lines

Reads = Mapping[str, tuple[str, ...]]


class NodeCell(NamedTuple):
    """One node as it is drawn."""

    id: str
    word: str  # ran, unchanged, failed, …
    reason: str = ""
    took_ms: int | None = None

    @property
    def remark(self) -> str:
        """The reason; nothing where it would only repeat the word."""
        return "" if self.reason == self.word else plain(self.reason)


@dataclass(frozen=True)
class Layout:
    """Layers of names in order, and how far down each is, in steps."""

    layers: list[list[str]]
    places: dict[str, float]
    lines: list[tuple[str, ...]]  # from, the bends in between, to
    height: float


def depths(reads: Reads) -> dict[str, int]:
    """Node → its layer, from 0: one more than the deepest that it reads from; those come first."""
    depth: dict[str, int] = {}
    for node, upstream in reads.items():
        depth[node] = 1 + max((depth[each] for each in upstream), default=-1)
    return depth


def lay_out(reads: Reads) -> Layout:
    """`reads` in an order in which every node comes after what it reads from."""
    depth = depths(reads)
    layers: list[list[str]] = [[] for _ in range(1 + max(depth.values(), default=-1))]
    for node, number in depth.items():
        layers[number].append(node)
    lines, links = _lines(reads, depth, layers)
    _sort(layers, links)
    places = _places(layers, links)
    return Layout(layers, places, lines, max(places.values(), default=0) + 1)


# A link is a piece of a line: between two names in neighbouring layers.
Links = tuple[dict[str, list[str]], dict[str, list[str]]]  # backwards, forwards


def _lines(
    reads: Reads, depth: Mapping[str, int], layers: list[list[str]]
) -> tuple[list[tuple[str, ...]], Links]:
    long = sum(depth[node] - depth[each] - 1 for node, upstream in reads.items() for each in upstream)
    lines: list[tuple[str, ...]] = []
    back: dict[str, list[str]] = {}
    ahead: dict[str, list[str]] = {}
    for node, upstream in reads.items():
        for each in upstream:
            bends = []
            if long <= BENDS_MAX:
                for number in range(depth[each] + 1, depth[node]):
                    bends.append(f"{each}/{node}/{number}")  # no node has a slash in its name
                    layers[number].append(bends[-1])
            line = (each, *bends, node)
            lines.append(line)
            for first, second in pairwise(line):
                back.setdefault(second, []).append(first)
                ahead.setdefault(first, []).append(second)
    return lines, (back, ahead)


def _sort(layers: list[list[str]], links: Links) -> None:
    """Fewer crossings: everything goes near the middle of what it is linked to, there and back again."""
    back, ahead = links
    for sweep in range(SWEEPS):
        forwards = sweep % 2 == 0
        order = range(1, len(layers)) if forwards else range(len(layers) - 2, -1, -1)
        for number in order:
            beside = layers[number - 1 if forwards else number + 1]
            place = {name: index for index, name in enumerate(beside)}
            near = back if forwards else ahead
            own = {name: index for index, name in enumerate(layers[number])}
            scale = len(beside) / max(1, len(own))
            layers[number].sort(key=lambda name: _middle(name, near, place, own[name] * scale))


def _middle(name: str, near: Mapping[str, Sequence[str]], place: Mapping[str, int], own: float) -> float:
    found = [place[each] for each in near.get(name, ()) if each in place]
    return sum(found) / len(found) if found else own


def _places(layers: list[list[str]], links: Links) -> dict[str, float]:
    """How far down each is: as near to its neighbours as its order and a distance of 1 allow."""
    back, ahead = links
    tallest = max(map(len, layers), default=0)
    places = {
        name: index + (tallest - len(layer)) / 2 for layer in layers for index, name in enumerate(layer)
    }
    for sweep in range(SWEEPS):
        forwards = sweep % 2 == 0
        for number in range(1, len(layers)) if forwards else range(len(layers) - 2, -1, -1):
            near = back if forwards else ahead
            wanted = []
            for name in layers[number]:
                found = [places[each] for each in near.get(name, ())]
                wanted.append(sum(found) / len(found) if found else places[name])
            places |= zip(layers[number], apart(wanted), strict=True)
    top = min(places.values(), default=0)
    return {name: round(place - top, 3) for name, place in places.items()}


def apart(wanted: Sequence[float]) -> list[float]:
    """As near to what is wanted as can be (least squares), in this order and at least 1 apart."""
    blocks: list[tuple[float, int]] = []  # sum, count of values that share one mean
    for index, value in enumerate(wanted):
        total, count = value - index, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / count:
            more, members = blocks.pop()
            total, count = total + more, count + members
        blocks.append((total, count))
    found: list[float] = []
    for total, count in blocks:
        for _ in range(count):
            found.append(total / count + len(found))
    return found


TEXT_NODES_MAX = 300  # more are summed up by layer
NAMED_MAX = 50  # of those at which something happened
READS_SHOWN_MAX = 6
REASON_CHARS_MAX = 48
QUIET = ("unchanged", "done")
NOUNS = ("source", "dataset")  # all other words say what became of a node
SIGNS = {
    "ran": "+", "unchanged": "=", "done": "=", "failed": "!", "blocked": "-", "partial": "~",
    "source": "*", "dataset": "#", "derived": ">", "stale": "!",
    "paused": "‖", "withdrawn": "†", "retired": "†",
}  # fmt: skip


def sketch(cells: Sequence[NodeCell], reads: Reads, nodes_max: int = TEXT_NODES_MAX) -> list[tuple[str, str]]:
    """Lines, each with the word of its node, or none: colour is the caller's.

    `cells` and `reads` in an order in which every node comes after what it reads from.
    """
    if not cells:
        return [("", "no nodes")]
    depth = depths(reads)
    layers: list[list[NodeCell]] = [[] for _ in range(1 + max(depth.values()))]
    for cell in cells:
        layers[depth[cell.id]].append(cell)
    if len(cells) > nodes_max:
        return _summary(layers)
    widths = [max(wide(plain(text)) for text in column) for column in zip(*map(_cells, cells), strict=True)]
    lines: list[tuple[str, str]] = []
    for number, layer in enumerate(layers, 1):
        lines.append(("", f"layer {number}"))
        lines += [(cell.word, _line(cell, reads[cell.id], widths)) for cell in layer]
    return lines


def _cells(cell: NodeCell) -> tuple[str, str, str]:
    return cell.id, cell.word, _details(cell)


def _details(cell: NodeCell) -> str:
    reason = cell.remark
    reason = reason if len(reason) <= REASON_CHARS_MAX else reason[: REASON_CHARS_MAX - 1] + "…"
    took = duration(cell.took_ms) if cell.took_ms is not None else ""
    return ", ".join(part for part in (reason, took) if part)


def _line(cell: NodeCell, upstream: Sequence[str], widths: Sequence[int]) -> str:
    texts = [padded(text, width) for text, width in zip(_cells(cell), widths, strict=True)]
    reads = [plain(each) for each in upstream[:READS_SHOWN_MAX]]
    more = f" and {len(upstream) - READS_SHOWN_MAX} more" if len(upstream) > READS_SHOWN_MAX else ""
    source = f"← {', '.join(reads)}{more}" if reads else ""
    return f"  {SIGNS.get(cell.word, '?')} {'  '.join([*texts, source])}".rstrip()


def _summary(layers: Sequence[Sequence[NodeCell]]) -> list[tuple[str, str]]:
    lines = []
    for number, layer in enumerate(layers, 1):
        words = Counter(cell.word for cell in layer)
        counts = ", ".join(f"{count:,} {word}" for word, count in sorted(words.items()))
        lines.append(("", f"layer {number}: {counted(len(layer), 'node')}: {counts}"))
    loud = [cell for layer in layers for cell in layer if cell.word not in QUIET]
    if loud:
        lines.append(("", ""))
    width = max((wide(plain(cell.id)) for cell in loud[:NAMED_MAX]), default=0)
    for cell in loud[:NAMED_MAX]:
        line = f"  {SIGNS.get(cell.word, '?')} {padded(cell.id, width)}  {cell.word}  {_details(cell)}"
        lines.append((cell.word, line.rstrip()))
    if len(loud) > NAMED_MAX:
        lines.append(("", f"  … and {len(loud) - NAMED_MAX:,} more"))
    return lines


def folded(cells: Sequence[NodeCell], reads: Reads) -> tuple[list[NodeCell], dict[str, tuple[str, ...]]]:
    """One cell for each layer: what is left of a graph that is too large to be drawn."""
    depth = depths(reads)
    words: dict[int, Counter[str]] = {}
    for cell in cells:
        words.setdefault(depth[cell.id], Counter())[cell.word] += 1
    made: list[NodeCell] = []
    links: dict[str, tuple[str, ...]] = {}
    for number, counts in sorted(words.items()):
        name = f"layer {number + 1}: {counts.total():,} nodes"
        summary = ", ".join(f"{count:,} {word}" for word, count in sorted(counts.items()))
        links[name] = (made[-1].id,) if made else ()
        made.append(NodeCell(name, _worst(counts), summary))
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


Direction = Literal["right", "down"]


class NodeBox(NamedTuple):
    x: float
    y: float
    width: float
    height: float


class SvgStyle(NamedTuple):
    """Sizes in px, and the attributes by which a drawing gets its colours and fonts."""

    margin: float
    top: float  # above the nodes
    box: float  # height of a node's box
    gap: float
    layers_apart: float
    radius: float
    padding: float  # of a box, left and right together
    inset: float  # of the texts in a box
    name_y: float
    small_y: float
    char: float  # widths of a character of the name, and of the small line
    small_char: float
    name_chars_max: int
    name: str
    small: str
    edges: str
    node: Callable[[NodeCell], tuple[str, str]]  # attributes of its group, and of its box
    small_text: Callable[[NodeCell], str]
    href: Callable[[NodeCell], str] = lambda _cell: ""  # where its box leads, if anywhere


class Drawing(NamedTuple):
    """Nodes and edges as SVG elements, and the size that they take."""

    width: float
    height: float
    elements: list[str]


def draw_graph(
    cells: Sequence[NodeCell], reads: Reads, style: SvgStyle, direction: Direction = "right"
) -> Drawing:
    """`cells` and `reads` in an order in which every node comes after what it reads from."""
    layout = lay_out(reads)
    names = {cell.id: cut(plain(cell.id), style.name_chars_max) for cell in cells}
    smalls = {cell.id: style.small_text(cell) for cell in cells}
    sizes = {
        name: max(wide(names[name]) * style.char, wide(smalls[name]) * style.small_char) + style.padding
        for name in names
    }
    boxes = (_across if direction == "right" else _downwards)(layout, sizes, style)
    elements = [
        f"<g {style.edges}>",
        *(_curve([boxes[name] for name in line], direction) for line in layout.lines),
        "</g>",
        *(_node(cell, names[cell.id], smalls[cell.id], boxes[cell.id], reads, style) for cell in cells),
    ]
    width = max((box.x + box.width for box in boxes.values()), default=0) + style.margin
    height = max((box.y + box.height for box in boxes.values()), default=style.top) + style.margin
    return Drawing(width, height, elements)


# --- placement ---------------------------------------------------------------------------


def _across(layout: Layout, sizes: Mapping[str, float], style: SvgStyle) -> dict[str, NodeBox]:
    """Layers from left to right."""
    boxes: dict[str, NodeBox] = {}
    x = style.margin
    for layer in layout.layers:
        width = max(sizes[name] for name in layer if name in sizes)
        for name in layer:
            y = style.top + style.margin + layout.places[name] * (style.box + style.gap)
            boxes[name] = NodeBox(x, y, width, style.box)
        x += width + style.layers_apart
    return boxes


def _downwards(layout: Layout, sizes: Mapping[str, float], style: SvgStyle) -> dict[str, NodeBox]:
    """Layers from top to bottom; all boxes are as wide as the widest."""
    boxes: dict[str, NodeBox] = {}
    width = max(sizes.values(), default=0)
    for number, layer in enumerate(layout.layers):
        y = style.top + style.margin + number * (style.box + style.layers_apart)
        for name in layer:
            x = style.margin + layout.places[name] * (width + style.gap)
            boxes[name] = NodeBox(x, y, width, style.box)
    return boxes


# --- elements ----------------------------------------------------------------------------


def _curve(stops: Sequence[NodeBox], direction: Direction) -> str:
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


def _node(cell: NodeCell, name: str, small: str, box: NodeBox, reads: Reads, style: SvgStyle) -> str:
    upstream = reads[cell.id]
    whole = [plain(cell.id), cell.word, plain(cell.reason)]
    whole += [f"took {duration(cell.took_ms)}"] if cell.took_ms is not None else []
    whole += [f"reads from {', '.join(plain(each) for each in upstream[:20])}"] if upstream else []
    title = "; ".join(part for part in whole if part)
    group, rect = style.node(cell)
    x = _n(box.x + style.inset)
    href = style.href(cell)
    before, after = (f"<a href={quoteattr(href)}>", "</a>") if href else ("", "")
    return (
        f'{before}<g{group} role="img" aria-label={quoteattr(title)}><title>{_x(title)}</title>'
        f'<rect x="{_n(box.x)}" y="{_n(box.y)}" width="{_n(box.width)}" height="{_n(box.height)}" '
        f'rx="{_n(style.radius)}"{rect}/>'
        f'<text x="{x}" y="{_n(box.y + style.name_y)}" {style.name}>{_x(name)}</text>'
        f'<text x="{x}" y="{_n(box.y + style.small_y)}" {style.small}>{_x(small)}</text></g>{after}'
    )


def cut(text: str, chars: int) -> str:
    """Shortened in its middle: the end of a name matters more."""
    if len(text) <= chars:
        return text
    head = (chars - 1) // 2
    return f"{text[:head]}…{text[len(text) - (chars - 1 - head) :]}"


def _x(text: str) -> str:
    return escape(plain(text))


def _n(value: float) -> str:
    """A number as short as it can be, and the same on every machine."""
    return f"{value:.1f}".removesuffix(".0")


# --- a file of its own -------------------------------------------------------------------

SVG_NODES_MAX = 1000  # of more, each layer is one box
SMALL_CHARS_MAX = 40
COUNTS_CHARS_MAX = 90
MARGIN, CHAR, HEADER = 24, 7.3, 62

# word → fill, line, width of the line, dashes. Text is #1b1b1b on all of them: at least 12 to 1.
LOOKS: dict[str, tuple[str, str, str, str]] = {
    "ran": ("#d5f0dc", "#1b6b34", "1.5", ""),
    "partial": ("#fff2b3", "#6b5900", "1.5", "6 3"),
    "failed": ("#fbd8d3", "#a3180c", "3", ""),
    "blocked": ("#fdead0", "#8a5200", "1.5", "3 3"),
    "done": ("#d8e6fb", "#1f4f99", "1.5", ""),
    "unchanged": ("#eceef0", "#5b6166", "1", ""),
    "running": ("#ffffff", "#1f4f99", "1.5", "6 3"),
    "source": ("#ffffff", "#5b6166", "1", ""),
    "dataset": ("#d8e6fb", "#1f4f99", "1.5", ""),
    "derived": ("#d5f0dc", "#1b6b34", "1.5", ""),
    "stale": ("#fdead0", "#8a5200", "1.5", "3 3"),
    "paused": ("#fff2b3", "#6b5900", "1.5", "6 3"),
    "withdrawn": ("#eceef0", "#5b6166", "1", "3 3"),
    "retired": ("#eceef0", "#5b6166", "1", "3 3"),
}
_OTHER = ("#ffffff", "#5b6166", "1", "")
EDGE = "#8a9096"


def arrow(name: str, look: str) -> str:
    """The head of every edge that has `marker-end="url(#name)"`."""
    return (
        f'<defs><marker id="{name}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
        f'orient="auto"><path d="M0 0L8 4L0 8z" {look}/></marker></defs>'
    )


def picture(
    cells: Sequence[NodeCell], reads: Reads, *, title: str, description: str, direction: Direction = "right"
) -> str:
    """An SVG file with a title, a description and a legend; a large graph has one box for each layer."""
    words = Counter(cell.word for cell in cells)
    small_chars = SMALL_CHARS_MAX
    if len(cells) > SVG_NODES_MAX:
        cells, reads = folded(cells, reads)
        small_chars, direction = COUNTS_CHARS_MAX, "down"  # a chain of wide boxes
    drawing = draw_graph(cells, reads, _file_style(small_chars), direction)
    legend = [word for word in LOOKS if words[word]]
    legend_width = sum(36 + CHAR * len(counted_word(word, words[word])) for word in legend)
    texts = max(wide(plain(title)) * 8.8, wide(plain(description)) * CHAR, legend_width)
    width, height = _n(max(MARGIN * 2 + texts, drawing.width)), _n(drawing.height)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="title desc" '
        f'width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="12" fill="#1b1b1b">',
        f'<title id="title">{_x(title)}</title>',
        f'<desc id="desc">{_x(description)}</desc>',
        arrow("arrow", f'fill="{EDGE}"'),
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{MARGIN}" y="26" font-size="14" font-weight="bold">{_x(title)}</text>',
        *_legend([(word, words[word]) for word in legend]),
        *drawing.elements,
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _file_style(small_chars: int) -> SvgStyle:
    return SvgStyle(
        margin=MARGIN,
        top=HEADER,
        box=40,
        gap=14,
        layers_apart=64,
        radius=5,
        padding=20,
        inset=10,
        name_y=17,
        small_y=32,
        char=CHAR,
        small_char=6.1,
        name_chars_max=32,
        name='font-weight="bold"',
        small='font-size="10"',
        edges=f'fill="none" stroke="{EDGE}" stroke-width="1.2" marker-end="url(#arrow)"',
        node=lambda cell: ("", _look(cell.word)),
        small_text=lambda cell: _small(cell, small_chars),
    )


def _look(word: str) -> str:
    fill, line, stroke, dashes = LOOKS.get(word, _OTHER)
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f' fill="{fill}" stroke="{line}" stroke-width="{stroke}"{dashed}'


def _legend(words: Sequence[tuple[str, int]]) -> list[str]:
    made: list[str] = []
    x: float = MARGIN
    for word, count in words:
        text = counted_word(word, count)
        made.append(
            f'<rect x="{_n(x)}" y="40" width="14" height="14" rx="3"{_look(word)}/>'
            f'<text x="{_n(x + 20)}" y="51.5">{_x(text)}</text>'
        )
        x += 28 + CHAR * len(text) + 8
    return made


def counted_word(word: str, count: int) -> str:
    """2 ran; of things their plural: 2 sources."""
    return f"{count:,} {word}{'s' if word in NOUNS and count != 1 else ''}"


def _small(cell: NodeCell, chars: int) -> str:
    took = duration(cell.took_ms) if cell.took_ms is not None else ""
    room = chars - len(cell.word) - len(took) - 6
    return " · ".join(part for part in (cell.word, cut(cell.remark, room), took) if part)
