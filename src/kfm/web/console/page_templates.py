"""Rendering of pages by templates. Every text is escaped; an undefined name in a template is an error."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from kfm.model.quantities import counted, duration, moment, readable_size, span
from kfm.model.times import rfc3339
from kfm.pipelines.draw import NodeCell, SvgStyle, arrow, depths, draw_graph

if TYPE_CHECKING:
    from kfm.web.console.views.pipeline_runs import NodeSeen

HERE = "kfm.web.console"
CLIP_CHARS = 200
LAYERS_ACROSS_MAX = 6  # a deeper graph goes downwards: it fits the width of the page
PHONE_WIDTH = 340  # of a picture that is seen whole on a small screen
_DAY_MS = 86_400_000


class PageDrawing(NamedTuple):
    width: float
    height: float
    elements: Markup  # of SVG; the style sheet gives them their colours


def environment() -> Environment:
    made = Environment(
        loader=PackageLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "when": when,
        "until": until,
        "clock": clock,
        "ago": ago,
        "took": duration,
        "clip": clip,
        "prose": prose,
        "size": readable_size,
        "span": _span,
        "drawing": drawing,
        "counted": counted,
        "thousands": lambda number: f"{number:,}",
    }
    return made


def when(at_ms: int | None) -> Markup:
    """A time in UTC, which the column or the sentence around it says."""
    if at_ms is None:
        return Markup('<span class="none">–</span>')
    text = moment(at_ms).removesuffix(" UTC")
    try:
        machine = rfc3339(at_ms)
    except (ValueError, OverflowError):
        return escape(text)
    return Markup('<time datetime="{}">{}</time>').format(machine, text)


def until(last_ms: int, first_ms: int) -> Markup:
    """The end of a stretch, after its beginning: on the same day only the time."""
    text = moment(last_ms).removesuffix(" UTC")
    same = text[:10] == moment(first_ms)[:10]
    return Markup('<time datetime="{}">{}</time>').format(rfc3339(last_ms), text[11:] if same else text)


def clock(at_ms: int, now_ms: int) -> Markup:
    """A time that is near: of today without its day."""
    text = moment(at_ms).removesuffix(" UTC")
    shown = text[11:16] if text[:10] == moment(now_ms)[:10] else text[5:16]
    return Markup('<time datetime="{}">{}</time>').format(rfc3339(at_ms), shown)


def clip(text: str, chars: int = CLIP_CHARS) -> str:
    """What a row of a list has room for; the page of the thing has all of it."""
    return text if len(text) <= chars else f"{text[: chars - 1]}…"


def ago(at_ms: int | None, now_ms: int) -> str:
    """How long ago, or how far ahead: roughly, beside the exact time."""
    if at_ms is None:
        return ""
    apart = abs(now_ms - at_ms)
    if apart < 1000:
        return "now"
    far = roughly(apart)
    return f"{far} ago" if at_ms <= now_ms else f"in {far}"


def roughly(ms: int) -> str:
    if ms < 60_000:
        return f"{ms // 1000} s"
    if ms < 3_600_000:
        return f"{ms // 60_000} min"
    if ms < _DAY_MS:
        return f"{ms // 3_600_000} h"
    return counted(ms // _DAY_MS, "day")


def prose(text: str) -> Markup:
    """A sentence; what stands between backticks is code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one is left over: it stays what it is
        parts[-2:] = ["`".join(parts[-2:])]
    made = [
        escape(part) if index % 2 == 0 else Markup("<code>{}</code>").format(part)
        for index, part in enumerate(parts)
    ]
    return Markup("").join(made)


def drawing(nodes: Sequence[NodeSeen], name: str) -> PageDrawing:
    """A graph as SVG elements: drawn last, so that every text in it is fit to be shown."""
    cells = [NodeCell(node.name, node.word.text, node.reason, node.took_ms) for node in nodes]
    seen = {node.name: node for node in nodes}

    def small(cell: NodeCell) -> str:
        if seen[cell.id].members:
            return cell.reason
        took = [duration(cell.took_ms)] if cell.took_ms is not None else []
        return " · ".join([f"{seen[cell.id].word.sign} {cell.word}", *took])

    style = SvgStyle(
        margin=8,
        top=0,
        box=44,
        gap=14,
        layers_apart=48,
        radius=4,
        padding=24,
        inset=12,
        name_y=19,
        small_y=35,
        char=7.4,
        small_char=6.3,
        name_chars_max=28,
        name='class="name"',
        small='class="small"',
        edges=f'class="curve" marker-end="url(#{name}-arrow)"',
        node=lambda cell: (
            f' class="box {seen[cell.id].word.tone}{" group" if seen[cell.id].members else ""}"',
            "",
        ),
        small_text=small,
        href=lambda cell: seen[cell.id].href,
    )
    reads = {node.name: node.reads for node in nodes}
    across, down = (draw_graph(cells, reads, style, way) for way in ("right", "down"))
    deep = len(set(depths(reads).values())) > LAYERS_ACROSS_MAX
    narrow = next((one for one in (across, down) if one.width <= PHONE_WIDTH), None)
    drawn = narrow or (down if deep else across)
    elements = [arrow(f"{name}-arrow", 'class="head"'), *drawn.elements]
    return PageDrawing(round(drawn.width, 1), round(drawn.height, 1), Markup("\n".join(elements)))


def _span(start_ms: int, end_ms: int) -> str:
    return span(start_ms, end_ms).removesuffix(" UTC")


def day(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d}"


def render(made: Environment, template: str, **context: Any) -> str:
    return made.get_template(template).render(**context)
