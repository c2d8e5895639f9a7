"""What became of instants, drawn: cells of a day, an hour, a minute or a second, in rows."""

from __future__ import annotations

from datetime import UTC, datetime

from kfm.core.records import Record
from kfm.core.wording import moment
from kfm.serving.console.views.coverage import DAY_MS, Spot
from kfm.serving.console.words import Word

SECOND_MS, MINUTE_MS, HOUR_MS = 1_000, 60_000, 3_600_000
LABEL, TOP, ROW = 92, 22, 28
_TONES = ("bad", "warn", "busy", "good", "quiet", "faint")  # of several in one cell the worst shows


class Grid(Record, frozen=True):
    """A unit of time as a cell, and how many of them make a row."""

    name: str
    unit_ms: int
    across: int
    wide: int
    columns: tuple[str, ...]
    each: int  # so many columns have one label
    row: str  # how a row's beginning is written


_SIXTY = tuple(f"{number:02d}" for number in range(60))
SECONDS = Grid(
    name="second (UTC)", unit_ms=SECOND_MS, across=60, wide=16, columns=_SIXTY, each=10, row="%m-%d %H:%M"
)
MINUTES = Grid(
    name="minute (UTC)", unit_ms=MINUTE_MS, across=60, wide=16, columns=_SIXTY, each=10, row="%m-%d %H:00"
)
HOURS = Grid(
    name="hour (UTC)", unit_ms=HOUR_MS, across=24, wide=28, columns=_SIXTY[:24], each=3, row="%Y-%m-%d"
)
DAYS = Grid(
    name="day (UTC)",
    unit_ms=DAY_MS,
    across=7,
    wide=52,
    columns=("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"),
    each=1,
    row="%Y-%m-%d",
)


class Cell(Record, frozen=True):
    x: int
    y: int
    width: int
    word: Word
    text: str
    title: str
    now: bool


class Label(Record, frozen=True):
    x: int
    y: int
    text: str


class Calendar(Record, frozen=True):
    width: int
    height: int
    cells: tuple[Cell, ...]
    rows: tuple[Label, ...]
    columns: tuple[Label, ...]
    legend: tuple[Word, ...]
    said: str
    unit: str


def calendar(found: list[Spot], start_ms: int, end_ms: int, now_ms: int) -> Calendar:
    grid = _grid(len(found), end_ms - start_ms)
    row_ms = grid.unit_ms * grid.across
    # weeks begin on Mondays; 1970-01-01 was a Thursday
    start_ms -= (start_ms + (3 * DAY_MS if grid is DAYS else 0)) % row_ms
    held: dict[int, list[Spot]] = {}
    for spot in found:
        held.setdefault((spot.at_ms - start_ms) // grid.unit_ms, []).append(spot)
    here = (now_ms - start_ms) // grid.unit_ms
    count = -(-(end_ms - start_ms) // row_ms)
    seen = {spot.word.text: spot.word for spot in found}
    return Calendar(
        width=LABEL + grid.across * grid.wide + 4,
        height=TOP + count * ROW + 4,
        cells=tuple(_cell(index, many, grid, index == here) for index, many in sorted(held.items())),
        rows=tuple(
            Label(
                x=LABEL - 10,
                y=TOP + row * ROW + 18,
                text=datetime.fromtimestamp((start_ms + row * row_ms) / 1000, UTC).strftime(grid.row),
            )
            for row in range(count)
        ),
        columns=tuple(
            Label(x=LABEL + index * grid.wide + grid.wide // 2, y=14, text=name)
            for index, name in enumerate(grid.columns)
            if index % grid.each == 0
        ),
        legend=tuple(sorted(seen.values(), key=lambda each: (_TONES.index(each.tone), each.text))),
        said=_said(found),
        unit=grid.name,
    )


def _grid(instants: int, span_ms: int) -> Grid:
    """The finest that has room; days where it fires up to three times in one."""
    if span_ms <= HOUR_MS // 4:
        return SECONDS
    if span_ms <= 36 * HOUR_MS and instants > 72:
        return MINUTES
    return HOURS if instants > 3 * max(span_ms // DAY_MS, 1) else DAYS


def _cell(index: int, many: list[Spot], grid: Grid, now: bool) -> Cell:
    worst = min(many, key=lambda spot: _TONES.index(spot.word.tone)).word
    past = [spot.word.text for spot in many]
    told = ", ".join(f"{past.count(text)} {text}" for text in dict.fromkeys(past))
    return Cell(
        x=LABEL + index % grid.across * grid.wide,
        y=TOP + index // grid.across * ROW,
        width=grid.wide,
        word=worst,
        text=worst.sign,
        title=many[0].title
        if len(many) == 1
        else f"{moment(many[0].at_ms)[:-4]} … {moment(many[-1].at_ms)[11:]}: {told}",
        now=now,
    )


def _said(found: list[Spot]) -> str:
    texts = [spot.word.text for spot in found]
    told = ", ".join(f"{texts.count(text)} {text}" for text in dict.fromkeys(texts))
    return f"{len(found)} instants expected: {told}" if found else "no instants in this span"
