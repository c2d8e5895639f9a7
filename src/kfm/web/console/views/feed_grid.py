"""The picture of a feed: its products by hour, each cell with its objects behind it, and its trends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from kfm.model.errors import UsageError
from kfm.model.feeds import HOUR_MS
from kfm.model.quantities import counted, duration, moment
from kfm.model.records import Record
from kfm.model.times import rfc3339
from kfm.model.units import STANDINGS
from kfm.reports.coverage import why
from kfm.reports.feeds import FeedCell, FeedHours, FlowSum
from kfm.reports.state_words import RETRY
from kfm.web.console.state_words import Word, word
from kfm.web.console.visit import Link, Visit

CELLS_MAX = 144  # of one page, so that it stays small
STANDING_WORDS = {
    "there": "arrived",
    "running": "running",
    "waiting": "not tried yet",
    "retrying": RETRY,
    "failed": "failed",
    "quarantined": "quarantined",
}


class GridCell(Record, frozen=True):
    """An hour of a product: a sign, a colour, and the list of its objects."""

    word: Word
    href: str
    title: str
    product: str
    platform: str
    start: str
    end: str
    state: str
    is_here: bool = True  # False: nothing is expected, and nothing is known


class GridRow(Record, frozen=True):
    name: str
    about: str
    cells: tuple[GridCell, ...]


class GridHour(Record, frozen=True):
    at_ms: int
    text: str
    day: str  # where a day begins


class Grid(Record, frozen=True):
    hours: tuple[GridHour, ...]
    rows: tuple[GridRow, ...]
    legend: tuple[Word, ...]
    summary: str
    order: str
    links: tuple[Link, ...]


class Bar(Record, frozen=True):
    x: int
    y: int
    width: int
    height: int
    title: str


class Chart(Record, frozen=True):
    title: str
    width: int
    height: int
    bars: tuple[Bar, ...]
    top: str
    first: str
    last: str
    summary: str


# --- product by hour ----------------------------------------------------------------------


def grid(visit: Visit, name: str, hours: FeedHours, start_ms: int, end_ms: int) -> Grid | None:
    times = list(range(start_ms, end_ms, HOUR_MS))
    wanted = visit.query.get("product", "")
    cells = [one for one in hours.cells if not wanted or wanted in (one.product, one.source_id)]
    rows: dict[str, dict[int, FeedCell]] = {}
    for one in cells:
        rows.setdefault(one.source_id, {})[one.start_ms] = one
    if not rows:
        return None
    objectives = hours.coverage.objectives
    names = sorted(rows, key=lambda one: (one not in objectives, one))
    each = max(CELLS_MAX // max(len(times), 1), 1)
    first = _row_number(visit)
    shown = names[first : first + each]
    part = f", from {first + 1} to {first + len(shown)}" if len(names) > each else ""
    seen = {one.state: word(one.state) for name_ in shown for one in rows[name_].values()}
    links = [
        Link(text="← Earlier", href=visit.with_query(**_shifted(start_ms, end_ms, -1), last=None)),
        Link(text="Later →", href=visit.with_query(**_shifted(start_ms, end_ms, 1), last=None)),
    ]
    if first:
        links.append(
            Link(text="Products before", href=visit.with_query(rows=max(first - each, 0) + 1 or None))
        )
    if first + each < len(names):
        links.append(Link(text="More products", href=visit.with_query(rows=first + each + 1)))
    return Grid(
        hours=tuple(
            GridHour(at_ms=at_ms, text=_hour(at_ms), day=_day(at_ms, at_ms == start_ms)) for at_ms in times
        ),
        rows=tuple(
            GridRow(
                name=row.removeprefix(f"{name} "),
                about=objectives.get(row, "not expected: shown by what came"),
                cells=tuple(_cell(visit, name, rows[row].get(at_ms), at_ms) for at_ms in times),
            )
            for row in shown
        ),
        legend=tuple(seen.values()),
        summary=f"{counted(len(times), 'hour')} of {counted(len(names), 'product')}{part}",
        order="Hours of data time from left to right, products by name.",
        links=tuple(links),
    )


def _row_number(visit: Visit) -> int:
    text = visit.query.get("rows", "1")
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 100_000:
        raise UsageError("`rows` is the number of a row.")
    return int(text) - 1


def _shifted(start_ms: int, end_ms: int, way: int) -> dict[str, str]:
    length = end_ms - start_ms
    return {"from": typed_time(start_ms + way * length), "to": typed_time(end_ms + way * length)}


def typed_time(at_ms: int) -> str:
    """A time as the fields of the page take it."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%dT%H:%M}"


def _hour(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%H}"


def _day(at_ms: int, is_first: bool) -> str:
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return f"{at:%m-%d}" if is_first or at.hour == 0 else ""


def _cell(visit: Visit, name: str, one: FeedCell | None, at_ms: int) -> GridCell:
    start, end = rfc3339(at_ms), rfc3339(at_ms + HOUR_MS)
    if one is None:
        mark = Word(text="not expected", tone="faint", sign="·")
        return GridCell(
            word=mark,
            href="",
            title="",
            product="",
            platform="",
            start=start,
            end=end,
            state="",
            is_here=False,
        )
    mark = word(one.state)
    reason = why(one.verdict) if one.verdict is not None else ""
    return GridCell(
        word=mark,
        href=visit.href(
            "units",
            dataset=name,
            product=one.product,
            platform=one.platform,
            **{"from": typed_time(at_ms), "to": typed_time(at_ms + HOUR_MS)},
        ),
        title=f"{moment(at_ms)[5:16]}: {mark.text}, {_counts(one)}{f'; {reason}' if reason else ''}",
        product=one.product,
        platform=one.platform or "",
        start=start,
        end=end,
        state=one.state,
    )


def _counts(one: FeedCell) -> str:
    """How many are there of how many, and what became of the others."""
    expected = f" of {one.expected}" if one.expected is not None else ""
    others = [
        f"{count} {STANDING_WORDS[standing]}"
        for standing in STANDINGS[1:]
        if (count := getattr(one.counts, standing))
    ]
    return ", ".join([f"{one.counts.there}{expected} arrived", *others])


# --- trends -------------------------------------------------------------------------------

CHART_HEIGHT, BAR, BAR_GAP = 64, 12, 2


def charts(flow: Sequence[FlowSum], hours: FeedHours) -> tuple[Chart, ...]:
    if not flow:
        return ()
    times = [one.hour_ms for one in flow]
    return (
        _chart("Done per hour", times, [one.ended for one in flow], _plain),
        _chart("Open at the end of each hour", times, [one.open for one in flow], _plain),
        _chart(
            "From data time to intake",
            times,
            [hours.delays.get(at_ms, 0) for at_ms in times],
            lambda ms: duration(ms) if ms else "nothing announced",
        ),
    )


def _plain(value: int) -> str:
    return f"{value:,}"


def _chart(title: str, times: Sequence[int], values: Sequence[int], text: Callable[[int], str]) -> Chart:
    top = max(values) or 1
    bars = [
        Bar(
            x=index * (BAR + BAR_GAP),
            y=CHART_HEIGHT - (height := max(round(value * CHART_HEIGHT / top), 1 if value else 0)),
            width=BAR,
            height=height,
            title=f"{moment(at_ms)[5:16]}: {text(value)}",
        )
        for index, (at_ms, value) in enumerate(zip(times, values, strict=True))
    ]
    return Chart(
        title=title,
        width=len(times) * (BAR + BAR_GAP),
        height=CHART_HEIGHT,
        bars=tuple(bars),
        top=text(max(values)),
        first=moment(times[0])[5:16],
        last=moment(times[-1])[5:16],
        summary=f"{title}, {moment(times[0])[5:16]} to {moment(times[-1])[5:16]}: "
        f"at most {text(max(values))}, last {text(values[-1])}",
    )
