"""Coverage of a schedule: what became of each scheduled time, drawn as a calendar."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby, islice

from kfm.model.plan_cells import InstantCell, WindowCell, cell_text, parse_cells
from kfm.model.quantities import moment
from kfm.model.records import Record
from kfm.model.requests import UpdateRequest
from kfm.model.scheduled_times import Expected, coverage
from kfm.model.schedules import Schedule, ScheduleState, instants, latest_instants
from kfm.model.times import rfc3339
from kfm.web.console import state_words
from kfm.web.console.state_words import Word
from kfm.web.console.views.requests import ended
from kfm.web.console.visit import Visit

ROWS_MAX = 10_000
SPOTS_MAX = 10_000
SINGLY_MAX = 100  # requests that are read one by one
TOGETHER_MIN = 10  # consecutive scheduled times with the same outcome that share one row
RECENT, COMING = 300, 60  # scheduled times that are shown of a frequent schedule
DAY_MS = 86_400_000
_WITHOUT = {
    "unaccounted": "it is past, and no record says what became of it",
    "pending": "it is due now",
    "held": "it waits until the schedule is resumed",
}
_BEHIND = re.compile(r"Request ([0-9a-f-]{36}) ", re.ASCII)
SECOND_MS, MINUTE_MS, HOUR_MS = 1_000, 60_000, 3_600_000
LABEL, TOP, ROW = 92, 22, 28
_TONES = ("bad", "warn", "busy", "good", "quiet", "faint")
_SIXTY = tuple(f"{number:02d}" for number in range(60))


def worst_word(words: Sequence[Word]) -> Word:
    """Of several in one cell the worst shows."""
    return min(words, key=lambda each: _TONES.index(each.tone))


class Spot(Record, frozen=True):
    """One scheduled time."""

    at_ms: int
    word: Word
    start_ms: int
    end_ms: int
    reason: str
    href: str | None
    title: str
    cell: str = ""  # as a plan takes it
    behind_href: str | None = None  # the request for which it was skipped


class CoverageStretch(Record, frozen=True):
    """A row of the table: one scheduled time, or several in a row with the same outcome and no request."""

    first_ms: int
    last_ms: int
    count: int
    word: Word
    start_ms: int
    end_ms: int
    reason: str
    href: str | None
    title: str
    behind_href: str | None
    cell: str = ""


def spots(
    visit: Visit, schedule: Schedule, state: ScheduleState | None, start_ms: int, end_ms: int
) -> list[Spot]:
    """The scheduled times of a span, in order, each with its outcome."""
    reader = visit.reader.schedule_reader()
    known = reader.instants(schedule.id, start_ms, end_ms, limit=ROWS_MAX)
    first = reader.instants(schedule.id, 0, visit.now_ms, limit=1)
    watched_ms = first[0].instant_ms if first else None
    expected = coverage(
        schedule,
        visit.context.settings.source(schedule.source),
        known,
        start_ms,
        end_ms,
        state=state,
        now_ms=visit.now_ms,
        late_ms=round(visit.context.settings.serve.late_seconds * 1000),
        limit=SPOTS_MAX,
    )
    wanted = [each.request_id for each in expected if each.request_id]
    asked = _requests(visit, schedule.id, wanted)
    return [_spot(visit, each, watched_ms, asked) for each in expected]


def _requests(visit: Visit, schedule_id: str, wanted: list[str]) -> dict[str, UpdateRequest]:
    reader = visit.reader.request_reader()
    found = {}
    if len(wanted) > SINGLY_MAX:
        found = {each.request_id: each for each in reader.requests(schedule_id=schedule_id, limit=ROWS_MAX)}
    for name in wanted:
        each = found.get(name) or reader.request(name)
        if each is not None:
            found[name] = each
    return found


def _spot(visit: Visit, each: Expected, watched_ms: int | None, asked: dict[str, UpdateRequest]) -> Spot:
    found = asked.get(each.request_id) if each.request_id else None
    if found is not None:
        mark = state_words.of_request(found.state, found.outcome, found.blocked_by)
        reason = ended(found) or each.reason or ""
    else:
        unseen = each.before_first_seen or (
            each.fate == "unaccounted" and (watched_ms is None or each.instant_ms < watched_ms)
        )
        mark = state_words.of_scheduled_time(each.fate, before_first_seen=unseen)
        reason = each.reason or _WITHOUT.get(each.fate, "")
        if unseen:
            reason = "no service had seen the schedule"
    behind = _BEHIND.match(each.reason or "") if found is None else None
    return Spot(
        at_ms=each.instant_ms,
        word=mark,
        start_ms=each.window_start_ms,
        end_ms=each.window_end_ms,
        reason=reason,
        href=visit.at("requests", found.request_id) if found else None,
        title=f"{moment(each.instant_ms)}: {mark.text}",
        behind_href=visit.at("requests", behind[1]) if behind else None,
        cell=_cell_of(visit, each),
    )


def _cell_of(visit: Visit, each: Expected) -> str:
    """What can be planned: a scheduled time that is past."""
    if each.instant_ms > visit.now_ms:
        return ""
    return cell_text(InstantCell(schedule_id=each.schedule_id, instant_ms=each.instant_ms))


def fitting_days(schedule: Schedule, start_ms: int, days: int) -> int:
    """The number of days whose scheduled times can be shown; at least one."""
    beyond = next(islice(instants(schedule, start_ms, start_ms + days * DAY_MS), SPOTS_MAX, None), None)
    return days if beyond is None else max((beyond - start_ms) // DAY_MS, 1)


def recent(schedule: Schedule, now_ms: int) -> tuple[int, int]:
    """A span around now, for a schedule too frequent for days: recent scheduled times, and a few upcoming."""
    past = latest_instants(schedule, 0, now_ms + 1, RECENT)
    coming = list(islice(instants(schedule, now_ms + 1), COMING))
    ends = [*past, *coming] or [now_ms]
    return ends[0], ends[-1] + 1


def from_there(schedule: Schedule, start_ms: int) -> tuple[int, int]:
    """A span of as many scheduled times from a time on."""
    found = list(islice(instants(schedule, start_ms), RECENT + COMING))
    return start_ms, (found[-1] if found else start_ms) + 1


def before(schedule: Schedule, start_ms: int) -> int:
    """The start of a span of as many scheduled times that ends at a time."""
    found = latest_instants(schedule, 0, start_ms, RECENT + COMING)
    return found[0] if found else start_ms


def stretches(listed: list[Spot]) -> list[CoverageStretch]:
    """Rows, in the same order. A scheduled time with a request has a row of its own."""
    rows: list[CoverageStretch] = []
    for _, same in groupby(listed, key=lambda spot: (spot.word.text, spot.reason, spot.href)):
        many = list(same)
        alone = many[0].href is not None or len(many) < TOGETHER_MIN
        rows += [_stretch([spot]) for spot in many] if alone else [_stretch(many)]
    return rows


def _stretch(many: list[Spot]) -> CoverageStretch:
    times = [spot.at_ms for spot in many]
    return CoverageStretch(
        first_ms=min(times),
        last_ms=max(times),
        count=len(many),
        word=many[0].word,
        start_ms=min(spot.start_ms for spot in many),
        end_ms=max(spot.end_ms for spot in many),
        reason=many[0].reason,
        href=many[0].href,
        title=many[0].title,
        behind_href=many[0].behind_href,
        cell=",".join(spot.cell for spot in many if spot.cell),
    )


class Grid(Record, frozen=True):
    """A unit of time as a cell, and how many of them make a row."""

    name: str
    unit_ms: int
    across: int
    wide: int
    columns: tuple[str, ...]
    each: int  # so many columns have one label
    row: str  # how a row's beginning is written


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


class CalendarCell(Record, frozen=True):
    x: int
    y: int
    width: int
    word: Word
    text: str
    title: str
    now: bool
    start: str  # of its first window or scheduled time, as RFC 3339
    end: str  # of its last one
    owner: str  # the source or the schedule
    windows: str  # beginnings of windows, between spaces
    instants: str  # scheduled times
    state: str


class Label(Record, frozen=True):
    x: int
    y: int
    text: str


class Calendar(Record, frozen=True):
    width: int
    height: int
    cells: tuple[CalendarCell, ...]
    rows: tuple[Label, ...]
    columns: tuple[Label, ...]
    legend: tuple[Word, ...]
    summary: str
    unit: str


def calendar(
    found: list[Spot], start_ms: int, end_ms: int, now_ms: int, what: str = "scheduled times"
) -> Calendar:
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
        summary=_summary(found, what),
        unit=grid.name,
    )


def _grid(instants: int, span_ms: int) -> Grid:
    """The finest that has room; days where it fires up to three times in one."""
    if span_ms <= HOUR_MS // 4:
        return SECONDS
    if span_ms <= 36 * HOUR_MS and instants > 72:
        return MINUTES
    return HOURS if instants > 3 * max(span_ms // DAY_MS, 1) else DAYS


def _cell(index: int, many: list[Spot], grid: Grid, now: bool) -> CalendarCell:
    worst = worst_word([spot.word for spot in many])
    past = [spot.word.text for spot in many]
    counts = ", ".join(f"{past.count(text)} {text}" for text in dict.fromkeys(past))
    return CalendarCell(
        x=LABEL + index % grid.across * grid.wide,
        y=TOP + index // grid.across * ROW,
        width=grid.wide,
        word=worst,
        text=worst.sign,
        title=many[0].title
        if len(many) == 1
        else f"{moment(many[0].at_ms)[:-4]} … {moment(many[-1].at_ms)[11:]}: {counts}",
        now=now,
        start=rfc3339(many[0].start_ms),
        end=rfc3339(many[-1].end_ms),
        **_planned(many, grid),
    )


def _planned(many: Sequence[Spot], grid: Grid) -> dict[str, str]:
    """What scripts select of it. Cells that are too small to be hit are not selected."""
    found = [parse_cells(spot.cell)[0] for spot in many if spot.cell] if grid.wide >= HOURS.wide else []
    windows = [rfc3339(one.start_ms) for one in found if isinstance(one, WindowCell)]
    instants = [rfc3339(one.instant_ms) for one in found if isinstance(one, InstantCell)]
    owners = [one.source_id for one in found if isinstance(one, WindowCell)]
    owners += [one.schedule_id for one in found if isinstance(one, InstantCell)]
    state = worst_word([spot.word for spot in many]).text
    return {
        "owner": next(iter(owners), ""),
        "windows": " ".join(windows),
        "instants": " ".join(instants),
        "state": state,
    }


def _summary(found: list[Spot], what: str) -> str:
    texts = [spot.word.text for spot in found]
    counts = ", ".join(f"{texts.count(text)} {text}" for text in dict.fromkeys(texts))
    return f"{len(found)} {what}: {counts}" if found else f"no {what} in this span"
