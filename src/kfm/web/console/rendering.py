"""Records into pages. Every text is escaped, and whatever a template lacks is an error."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from kfm.model.times import rfc3339
from kfm.model.wording import counted, duration, moment, readable_size, span

HERE = "kfm.web.console"
CLIP_CHARS = 200
_DAY_MS = 86_400_000


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
        "ago": ago,
        "took": duration,
        "clip": clip,
        "prose": prose,
        "size": readable_size,
        "span": _span,
        "counted": counted,
        "thousands": lambda number: f"{number:,}",
    }
    return made


def stylesheet() -> tuple[str, bytes]:
    """Its name, which changes with it, and its bytes."""
    data = resources.files(HERE).joinpath("static/console.css").read_bytes()
    return f"console.{sha256(data).hexdigest()[:12]}.css", data


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


def _span(start_ms: int, end_ms: int) -> str:
    return span(start_ms, end_ms).removesuffix(" UTC")


def day(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d}"


def render(made: Environment, template: str, **context: Any) -> str:
    return made.get_template(template).render(**context)
