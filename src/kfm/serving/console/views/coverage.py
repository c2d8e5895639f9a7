"""What became of every instant that a schedule expects: drawn from the schedule, not from rows that exist."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice

from kfm.core.records import Record
from kfm.core.requests import UpdateRequest
from kfm.core.schedule_coverage import Expected, coverage
from kfm.core.schedule_states import ScheduleState
from kfm.core.schedules import Schedule, instants
from kfm.core.scheduling import FIRST_SEEN
from kfm.serving.console import words
from kfm.serving.console.visits import Visit
from kfm.serving.console.words import Word, word

ROWS_MAX = 10_000
SPOTS_MAX = 10_000
SINGLY_MAX = 100  # requests that are asked for one by one
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
LABEL, TOP, ROW = 92, 22, 28
HOUR_WIDTH, DAY_WIDTH = 28, 52
_FATES = {"coming": "ahead", "pending": "waiting", "held": "paused"}
_TONES = ("bad", "warn", "busy", "good", "quiet", "faint")  # of several in one cell the worst shows


class Spot(Record, frozen=True):
    """One instant."""

    at_ms: int
    word: Word
    start_ms: int
    end_ms: int
    reason: str
    href: str | None
    title: str


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


def spots(
    visit: Visit, schedule: Schedule, state: ScheduleState | None, start_ms: int, end_ms: int
) -> list[Spot]:
    """The instants of a span with what became of each, in order."""
    reader = visit.reader.schedule_reader()
    known = reader.instants(schedule.id, start_ms, end_ms, limit=ROWS_MAX)
    first = reader.instants(schedule.id, 0, visit.now_ms, limit=1)
    watched_ms = first[0].instant_ms if first else None
    expected = coverage(
        schedule,
        visit.place.settings.source(schedule.source),
        known,
        start_ms,
        end_ms,
        state=state,
        now_ms=visit.now_ms,
        late_ms=round(visit.place.settings.serve.late_seconds * 1000),
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
        mark, reason = words.of_request(found.state, found.outcome), found.reason or each.reason or ""
    elif each.fate == "redefined" and each.reason == FIRST_SEEN:
        mark, reason = word("not watched"), FIRST_SEEN
    elif each.fate == "unaccounted" and (watched_ms is None or each.instant_ms < watched_ms):
        mark, reason = word("not watched"), "no service was there yet"
    else:
        mark, reason = word(_FATES.get(each.fate, each.fate)), each.reason or ""
    return Spot(
        at_ms=each.instant_ms,
        word=mark,
        start_ms=each.window_start_ms,
        end_ms=each.window_end_ms,
        reason=reason,
        href=visit.at("requests", found.request_id) if found else None,
        title=f"{_clock(each.instant_ms)} UTC: {mark.text}",
    )


def fitting_days(schedule: Schedule, start_ms: int, days: int) -> int:
    """So many days of a span that their instants can be shown; one at least."""
    beyond = next(islice(instants(schedule, start_ms, start_ms + days * DAY_MS), SPOTS_MAX, None), None)
    return days if beyond is None else max((beyond - start_ms) // DAY_MS, 1)


def calendar(found: list[Spot], start_ms: int, end_ms: int, now_ms: int) -> Calendar:
    """Days as cells in rows of a week; of what fires oftener, hours as cells in rows of a day."""
    days = max((end_ms - start_ms) // DAY_MS, 1)
    hourly = len(found) > 3 * days
    unit_ms, across, wide = (HOUR_MS, 24, HOUR_WIDTH) if hourly else (DAY_MS, 7, DAY_WIDTH)
    if not hourly:  # weeks begin on Mondays; 1970-01-01 was a Thursday
        start_ms -= (start_ms // DAY_MS + 3) % 7 * DAY_MS
    held: dict[int, list[Spot]] = {}
    for spot in found:
        held.setdefault((spot.at_ms - start_ms) // unit_ms, []).append(spot)
    here = (now_ms - start_ms) // unit_ms
    count = -(-(end_ms - start_ms) // (unit_ms * across))
    names = (
        [f"{hour:02d}" for hour in range(24)] if hourly else ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
    )
    seen = {spot.word.text: spot.word for spot in found}
    return Calendar(
        width=LABEL + across * wide + 4,
        height=TOP + count * ROW + 4,
        cells=tuple(
            _cell(index, many, (across, wide), index == here) for index, many in sorted(held.items())
        ),
        rows=tuple(
            Label(x=LABEL - 10, y=TOP + row * ROW + 18, text=_day(start_ms + row * across * unit_ms))
            for row in range(count)
        ),
        columns=tuple(
            Label(x=LABEL + index * wide + wide // 2, y=14, text=name)
            for index, name in enumerate(names)
            if not hourly or index % 3 == 0
        ),
        legend=tuple(sorted(seen.values(), key=lambda each: (_TONES.index(each.tone), each.text))),
        said=_said(found),
        unit="hour (UTC)" if hourly else "day (UTC)",
    )


def _cell(index: int, many: list[Spot], shape: tuple[int, int], now: bool) -> Cell:
    across, wide = shape
    worst = min(many, key=lambda spot: _TONES.index(spot.word.tone)).word
    past = [spot.word.text for spot in many]
    told = ", ".join(f"{past.count(text)} {text}" for text in dict.fromkeys(past))
    return Cell(
        x=LABEL + index % across * wide,
        y=TOP + index // across * ROW,
        width=wide,
        word=worst,
        text=worst.sign,
        title=many[0].title
        if len(many) == 1
        else f"{_clock(many[0].at_ms)} … {_clock(many[-1].at_ms)[11:]} UTC: {told}",
        now=now,
    )


def _said(found: list[Spot]) -> str:
    texts = [spot.word.text for spot in found]
    told = ", ".join(f"{texts.count(text)} {text}" for text in dict.fromkeys(texts))
    return f"{len(found)} instants expected: {told}" if found else "no instants in this span"


def _clock(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M}"


def _day(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d}"
