"""All schedules: when each fires next, and what its last instants became."""

from __future__ import annotations

from kfm.core.local_time import offset_ms
from kfm.core.records import Record
from kfm.core.schedule_states import ScheduleState
from kfm.core.schedules import Schedule, next_instant
from kfm.core.wording import duration, moment
from kfm.serving.console.views.coverage import Spot, spots
from kfm.serving.console.visits import ROWS, Paging, Visit, paged
from kfm.serving.console.words import Word, word

FILTERS = ("page",)
STRIP = 14  # instants of the past that a row shows


class Row(Record, frozen=True):
    schedule_id: str
    href: str
    source_id: str
    dataset_id: str
    pattern: str
    time_zone: str
    word: Word
    said: str
    next_ms: int | None
    next_local: str
    strip: tuple[Spot, ...]


class SchedulesView(Record, frozen=True):
    rows: tuple[Row, ...]
    paging: Paging


def view(visit: Visit) -> SchedulesView:
    states = visit.reader.schedule_reader().states()
    found = visit.place.schedules[(visit.page() - 1) * ROWS :]
    return SchedulesView(
        rows=tuple(row(visit, each, states.get(each.id)) for each in found[:ROWS]),
        paging=paged(visit, len(found), "schedules"),
    )


def row(visit: Visit, schedule: Schedule, state: ScheduleState | None) -> Row:
    from kfm.core.schedules import latest_instants

    source = visit.place.settings.source(schedule.source)
    is_paused = state is not None and state.paused_at_ms is not None
    coming = next_instant(schedule, visit.now_ms) if schedule.enabled and not is_paused else None
    past = latest_instants(schedule, 0, visit.now_ms + 1, STRIP)
    strip = spots(visit, schedule, state, past[0], visit.now_ms + 1) if past else []
    mark, said = standing(schedule, state)
    return Row(
        schedule_id=schedule.id,
        href=visit.at("schedules", schedule.id),
        source_id=schedule.source,
        dataset_id=source.dataset,
        pattern=pattern(schedule),
        time_zone=schedule.time_zone if schedule.cron is not None else "",
        word=mark,
        said=said,
        next_ms=coming,
        next_local=local(coming, schedule.time_zone) if coming is not None else "",
        strip=tuple(strip[-STRIP:]),
    )


def pattern(schedule: Schedule) -> str:
    return schedule.cron or f"every {duration(schedule.every_ms or 0)}"


def standing(schedule: Schedule, state: ScheduleState | None) -> tuple[Word, str]:
    if not schedule.enabled:
        return word("off"), "enabled: false in its file"
    if state is not None and state.paused_at_ms is not None:
        who = f"by {state.paused_by} since {moment(state.paused_at_ms)}"
        return word("paused"), f"{who}: {state.rationale or 'no reason was kept'}"
    if state is None:
        return word("not known yet"), "no service has seen it yet"
    return word("on"), f"accounted for up to {moment(state.cursor_ms)}"


def local(at_ms: int, zone: str) -> str:
    """What the local clock shows, with its offset."""
    ahead_ms = offset_ms(zone, at_ms)
    minutes = abs(ahead_ms) // 60_000
    sign = "−" if ahead_ms < 0 else "+"
    shown = moment(at_ms + ahead_ms).removesuffix(" UTC").removesuffix(":00")
    return f"{shown} {sign}{minutes // 60:02d}:{minutes % 60:02d}"
