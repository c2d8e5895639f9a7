"""The growth figures as charts in the documentation: `python -m bench.charts` draws what `figures/` holds.

Figures are measured apart from being drawn, since that takes an hour; each file is what a benchmark printed:

    python -m bench.windows 5000 > bench/figures/windows.jsonl
    python -m bench.growth       > bench/figures/promotions.jsonl
    python -m bench.feed_day     > bench/figures/units.jsonl

A chart is one row of small panels: one line each, its unit in the title, both axes from 0 (or by powers of
ten), and colours of its own for light and for dark.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "bench" / "figures"
IMAGES = ROOT / "docs" / "explanation" / "images"

PANEL, HEIGHT = 266, 236  # pixels
LEFT, RIGHT, TOP, BOTTOM = 52, 28, 52, 46  # around what is drawn of a panel
X_STEPS, Y_STEPS = (2, 3, 4, 5), (4, 5, 3)
STYLE = """\
.paper{fill:#ffffff}.ink{fill:#1f2328}.muted{fill:#59636e}.grid{stroke:#dfe4ea}.axis{stroke:#8b949e}
.line{stroke:#0b62c4;fill:none;stroke-width:2}.dot{fill:#0b62c4}
@media (prefers-color-scheme:dark){
.paper{fill:#0d1117}.ink{fill:#e6edf3}.muted{fill:#9aa4af}.grid{stroke:#262c34}.axis{stroke:#6e7681}
.line{stroke:#5aa6ff}.dot{fill:#5aa6ff}}"""

Figures = dict[str, float]
XY = tuple[float, float]


class Panel(NamedTuple):
    title: str  # what, and its unit
    x_label: str
    points: Sequence[XY]
    by_tens: bool = False  # is x drawn by powers of ten?


# --- drawing ---------------------------------------------------------------------------------------------


def drawn(panels: Sequence[Panel], told: str) -> str:
    """A row of panels, as SVG. `told`: in words, for those who do not see it."""
    width = PANEL * len(panels)
    parts = [_panel(panel, number * PANEL) for number, panel in enumerate(panels)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" width="{width}" '
        f'height="{HEIGHT}" role="img" font-family="system-ui,sans-serif" font-size="11">\n'
        f"<title>{told}</title>\n<style>\n{STYLE}\n</style>\n"
        f'<rect class="paper" width="{width}" height="{HEIGHT}"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _panel(panel: Panel, left: int) -> str:
    x_ticks = _tens(panel.points) if panel.by_tens else _ticks(max(x for x, _ in panel.points), X_STEPS)
    y_ticks = _ticks(max(y for _, y in panel.points), Y_STEPS)
    scale: Callable[[float], float] = math.log10 if panel.by_tens else float
    first, last, high = scale(x_ticks[0]), scale(x_ticks[-1]), y_ticks[-1]
    wide, tall = PANEL - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def at(x: float, y: float) -> XY:
        along = (scale(x) - first) / (last - first)
        return round(left + LEFT + wide * along, 1), round(TOP + tall * (1 - y / high), 1)

    x0, base = at(x_ticks[0], 0)
    x1 = at(x_ticks[-1], 0)[0]
    lines = [f'<text class="ink" x="{left + 14}" y="26" font-size="13">{panel.title}</text>']
    for tick in y_ticks:
        y = at(x_ticks[0], tick)[1]
        kind = "grid" if tick else "axis"
        lines.append(f'<line class="{kind}" x1="{x0}" y1="{y}" x2="{x1}" y2="{y}"/>')
        lines.append(f'<text class="muted" x="{x0 - 6}" y="{y + 4}" text-anchor="end">{_short(tick)}</text>')
    for tick in x_ticks:
        x = at(tick, 0)[0]
        lines.append(f'<line class="axis" x1="{x}" y1="{base}" x2="{x}" y2="{base + 4}"/>')
        lines.append(
            f'<text class="muted" x="{x}" y="{base + 16}" text-anchor="middle">{_short(tick)}</text>'
        )
    middle = (x0 + x1) / 2
    lines.append(
        f'<text class="muted" x="{middle}" y="{HEIGHT - 10}" text-anchor="middle">{panel.x_label}</text>'
    )
    places = [at(*point) for point in panel.points]
    path = " ".join(f"{x},{y}" for x, y in places)
    lines.append(f'<polyline class="line" points="{path}"/>')
    lines += [f'<circle class="dot" cx="{x}" cy="{y}" r="2.2"/>' for x, y in places]
    return "\n".join(lines)


def _ticks(most: float, counts: Sequence[int]) -> list[float]:
    """From 0 to a round number that is not below, in so many round steps: the least above, then as listed."""

    def step(count: int) -> float:
        power = 10 ** math.floor(math.log10(most / count))
        return next(power * one for one in (1, 2, 2.5, 5, 10) if power * one * count >= most)

    count = min(counts, key=lambda one: step(one) * one)
    return [round(step(count) * number, 10) for number in range(count + 1)]


def _tens(points: Iterable[XY]) -> list[float]:
    found = [x for x, _ in points]
    low, high = math.floor(math.log10(min(found))), math.ceil(math.log10(max(found)))
    return [float(10**power) for power in range(low, high + 1)]


def _short(number: float) -> str:
    return f"{number:,.0f}" if number == round(number) else f"{number:g}"


# --- the charts ------------------------------------------------------------------------------------------


def windows_charts(found: Sequence[Figures]) -> str:
    """What is there after so many windows, old versions collected."""
    panels = [
        Panel(title, "hourly windows", [(0, 0), *((one["windows"], one[name] / unit) for one in found)])
        for title, name, unit in (
            ("published folder, entries", "files", 1),
            ("bucket, objects", "objects", 1),
            ("ledger, MB", "ledger", 1e6),
        )
    ]
    return drawn(panels, "Files, objects and bytes of the ledger grow in a straight line with the windows.")


def written_charts(found: Sequence[Figures]) -> str:
    """What a window makes the product write, on the average of those between two looks."""

    def rates(name: str, unit: float) -> list[XY]:
        return [
            (after["windows"], (after[name] - before[name]) / (after["windows"] - before["windows"]) / unit)
            for before, after in pairwise(found)
        ]

    panels = [
        Panel("entries made, each window", "hourly windows on record", rates("made", 1)),
        Panel("objects put, each window", "hourly windows on record", rates("puts", 1)),
        Panel("processor time, ms each window", "hourly windows on record", rates("cpu_s", 0.001)),
    ]
    return drawn(panels, "What one more window writes does not grow with the windows on record.")


def promotion_charts(found: Sequence[Figures]) -> str:
    told = (("ledger, kB each promotion", "bytes", 1000), ("processor time, ms each promotion", "ms", 1))
    panels = [
        Panel(title, "items in the dataset", [(one["items"], one[name] / unit) for one in found], True)
        for title, name, unit in told
    ]
    return drawn(panels, "A promotion of one item costs about the same in small and in large datasets.")


def unit_charts(found: Sequence[Figures]) -> str:
    ledger = [(one["units"], (one["ledger"] - found[0]["ledger"]) / 1e6) for one in found]
    packed = {one["lineage_units"]: one["lineage"] / 1e6 for one in found}  # those in files that are closed
    panels = [
        Panel("ledger, MB", "units on record", ledger),
        Panel("lineage, compressed, MB", "units", list(packed.items())),
    ]
    return drawn(panels, "The ledger and the lineage files grow in a straight line with the units.")


CHARTS: dict[str, tuple[str, str, Callable[[Sequence[Figures]], str]]] = {
    "windows-left.svg": ("windows.jsonl", "windows", windows_charts),
    "windows-written.svg": ("windows.jsonl", "windows", written_charts),
    "promotions.svg": ("promotions.jsonl", "items", promotion_charts),
    "units.svg": ("units.jsonl", "units", unit_charts),
}


def figures(name: str, of: str) -> list[Figures]:
    """The points of a file: its lines that tell of this."""
    lines = map(json.loads, (FIGURES / name).read_text(encoding="utf-8").splitlines())
    return [line for line in lines if of in line]


def charts() -> dict[str, str]:
    """By name of the picture."""
    return {name: draw(figures(file, of)) for name, (file, of, draw) in CHARTS.items()}


def main() -> int:
    for name, text in charts().items():
        (IMAGES / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
