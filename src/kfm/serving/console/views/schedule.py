"""One schedule: what every instant that it expects has become, and which come next."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from kfm.core.errors import UsageError
from kfm.core.records import Record
from kfm.core.schedules import Schedule
from kfm.core.wording import duration
from kfm.serving.console.rendering import day, roughly
from kfm.serving.console.views import schedules
from kfm.serving.console.views.coverage import (
    DAY_MS,
    SPOTS_MAX,
    Calendar,
    Spot,
    calendar,
    fitting_days,
    spots,
)
from kfm.serving.console.views.facts import Fact, Next
from kfm.serving.console.visits import Filter, NotHere, Paging, Visit, chosen

FILTERS = ("from", "days", "page")
DAYS = ("7", "14", "28", "91")
DAYS_DEFAULT = 28
AHEAD_DAYS = 7
ROWS = 100


class ScheduleView(Record, frozen=True):
    title: str
    row: schedules.Row
    facts: tuple[Fact, ...]
    filters: tuple[Filter, ...]
    clear: str
    cut: str
    calendar: Calendar
    spots: tuple[Spot, ...]
    paging: Paging
    start: str
    end: str
    earlier: str
    later: str
    commands: tuple[Next, ...]


def view(visit: Visit) -> ScheduleView:
    wanted = visit.params["schedule_id"]
    schedule = next((each for each in visit.place.schedules if each.id == wanted), None)
    if schedule is None:
        raise NotHere("No schedule has that name. `kfm schedule list` has them.")
    wished = int(visit.choice("days", DAYS) or DAYS_DEFAULT)
    days = fitting_days(schedule, _start(visit, wished), wished)
    start_ms = _start(visit, days)
    end_ms = start_ms + days * DAY_MS
    state = visit.reader.schedule_reader().states().get(schedule.id)
    found = spots(visit, schedule, state, start_ms, end_ms)
    number = visit.page()
    came = [each for each in found if each.at_ms <= visit.now_ms]
    listed = [*reversed(came), *found[len(came) :]][(number - 1) * ROWS :]
    return ScheduleView(
        title=f"Schedule {schedule.id}",
        row=schedules.row(visit, schedule, state),
        facts=tuple(_facts(visit, schedule)),
        filters=(
            Filter(name="from", label="From (UTC)", value=day(start_ms)),
            Filter(
                name="days",
                label="Days",
                value=str(wished),
                options=chosen("days", "Days", DAYS, str(wished)).options[1:],
            ),
        ),
        clear=visit.href(visit.path),
        cut=_cut(wished, days, len(found)),
        calendar=calendar(found, start_ms, end_ms, visit.now_ms),
        spots=tuple(listed[:ROWS]),
        paging=Paging(
            newer=visit.with_query(page=number - 1) if number > 1 else None,
            older=visit.with_query(page=number + 1) if len(listed) > ROWS else None,
            said=f"{len(found)} instants: what has come, the latest first; then what lies ahead"
            if found
            else "no instants",
        ),
        start=day(start_ms),
        end=day(end_ms - 1),
        earlier=visit.with_query(**{"from": day(start_ms - days * DAY_MS), "page": None}),
        later=visit.with_query(**{"from": day(end_ms), "page": None}),
        commands=tuple(_commands(schedule, state is not None and state.paused_at_ms is not None)),
    )


def _cut(wished: int, days: int, found: int) -> str:
    """What is said where it fires too often for all that was asked for."""
    if found >= SPOTS_MAX:
        return f"It fires too often: only its first {SPOTS_MAX:,} instants from there on are shown."
    return f"It fires too often for {wished} days: {days} are shown." if days < wished else ""


def _start(visit: Visit, days: int) -> int:
    """The chosen day; without one, so that a quarter of the days, or a week, lies ahead."""
    text = visit.query.get("from")
    if text is None:
        return (visit.now_ms // DAY_MS + 1 + min(AHEAD_DAYS, days // 4) - days) * DAY_MS
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII):
        raise UsageError("`from` is a day such as 2026-03-08.")
    try:
        found = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise UsageError("`from` is a day such as 2026-03-08.") from None
    if not 1970 <= found.year <= 2200:
        raise UsageError("`from` lies between 1970 and 2200.")
    return int(found.timestamp()) * 1000


def _facts(visit: Visit, schedule: Schedule) -> list[Fact]:
    source = visit.place.settings.source(schedule.source)
    missed = schedule.missed
    return [
        Fact(name="Fires", text=schedules.pattern(schedule), code=True),
        Fact(name="Time zone", text=schedule.time_zone),
        Fact(name="Source", text=schedule.source, href=visit.href("runs", source=schedule.source)),
        Fact(name="Dataset", text=source.dataset, href=visit.href("runs", dataset=source.dataset)),
        Fact(name="Window", text=schedule.window or source.window, code=True),
        Fact(name="Jitter", text=duration(schedule.jitter_ms) if schedule.jitter_ms else "none"),
        Fact(name="While one runs", text=schedule.overlap.replace("-", " ")),
        Fact(
            name="Missed", text=f"run {missed.run}, within {roughly(missed.within_ms)}, at most {missed.cap}"
        ),
        Fact(name="While paused", text=schedule.while_paused),
        Fact(name="Requests", text="all of this schedule", href=visit.href("requests", schedule=schedule.id)),
    ]


def _commands(schedule: Schedule, paused: bool) -> list[Next]:
    wanted = "resume" if paused else "pause"
    why = "lets it fire again" if paused else "stops it for a while"
    return [
        Next(command=f"kfm schedule next {schedule.id}", why="shows the next instants with their windows"),
        Next(command=f"kfm schedule {wanted} {schedule.id} --rationale TEXT", why=why),
    ]
