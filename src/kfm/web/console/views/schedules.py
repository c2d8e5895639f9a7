"""Pages of schedules: all of them, and one with every scheduled time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import takewhile
from typing import NamedTuple

from kfm.model.errors import UsageError
from kfm.model.quantities import counted, duration, moment
from kfm.model.records import Record
from kfm.model.schedules import Schedule, ScheduleState, latest_instants, next_instant
from kfm.model.settings import SourceSettings
from kfm.model.times import offset_ms
from kfm.reports.blockers import blockers_of, frozen, halted, switched
from kfm.web.console.actions import Offer, offer
from kfm.web.console.page_templates import day, roughly
from kfm.web.console.state_words import Word, word
from kfm.web.console.views.coverage import (
    COMING,
    DAY_MS,
    RECENT,
    SPOTS_MAX,
    Calendar,
    CoverageStretch,
    Spot,
    before,
    calendar,
    fitting_days,
    from_there,
    recent,
    spots,
    stretches,
)
from kfm.web.console.views.explanation import Fact, Next, allowed
from kfm.web.console.visit import (
    ROWS,
    Filter,
    NotHere,
    Option,
    Paging,
    TypedFilter,
    Visit,
    chosen,
    paged,
    typed,
)

FILTERS = ("page",)
_HELD = {"freeze": "frozen", "halt": "halted", "breaker": "circuit open"}
_FAILED = ("failed", "refused", "partial", "dead letter", "quarantined", "halted")
STRIP = 14  # past scheduled times that a row shows
ONE_FILTERS = ("from", "days", "page")
DAYS = ("7", "14", "28", "91")
DAYS_DEFAULT = 28
AHEAD_DAYS = 7
TIMES_ROWS = 100
WRITTEN = "`from` is a day such as 2026-03-08, or a time such as 2026-03-08T07:15Z."


class ScheduleRow(Record, frozen=True):
    schedule_id: str
    href: str
    source_id: str
    dataset_id: str
    dataset_href: str
    pattern: str
    time_zone: str
    word: Word
    note: str
    next_ms: int | None
    next_local: str
    refused: str  # what the next one will come to, and why; empty: it will run
    strip: tuple[Spot, ...]
    actions: tuple[Offer, ...]


class SchedulesView(Record, frozen=True):
    rows: tuple[ScheduleRow, ...]
    paging: Paging


def view(visit: Visit) -> SchedulesView:
    states = visit.reader.schedule_reader().states()
    found = visit.context.schedules[(visit.page() - 1) * ROWS :]
    return SchedulesView(
        rows=tuple(row(visit, each, states.get(each.id)) for each in found[:ROWS]),
        paging=paged(visit, len(found), "schedules"),
    )


def row(visit: Visit, schedule: Schedule, state: ScheduleState | None) -> ScheduleRow:
    source = visit.context.settings.source(schedule.source)
    coming = next_instant(schedule, visit.now_ms) if schedule.enabled else None
    past = latest_instants(schedule, 0, visit.now_ms + 1, STRIP)
    strip = spots(visit, schedule, state, past[0], visit.now_ms + 1)[-STRIP:] if past else []
    mark, note = _health(visit, schedule, state, source, strip)
    return ScheduleRow(
        schedule_id=schedule.id,
        href=visit.at("schedules", schedule.id),
        source_id=schedule.source,
        dataset_id=source.dataset,
        dataset_href=visit.dataset_page(source.dataset),
        pattern=pattern(schedule),
        time_zone=schedule.time_zone if schedule.cron is not None else "",
        word=mark,
        note=note,
        next_ms=coming,
        next_local=local(coming, schedule.time_zone) if coming is not None else "",
        refused=refused_then(visit, schedule, state, coming) if coming is not None else "",
        strip=tuple(strip),
        actions=tuple(_actions(visit, schedule, is_paused(state))[:2]),
    )


def pattern(schedule: Schedule) -> str:
    return schedule.cron or f"every {duration(schedule.every_ms or 0)}"


def is_paused(state: ScheduleState | None) -> bool:
    return state is not None and state.paused_at_ms is not None


def _health(
    visit: Visit,
    schedule: Schedule,
    state: ScheduleState | None,
    source: SourceSettings,
    strip: Sequence[Spot],
) -> tuple[Word, str]:
    """Is it well: it fires, nothing holds its dataset, and its last scheduled times went well."""
    if not schedule.enabled:
        return word("off"), "enabled: false in its file"
    if state is not None and state.paused_at_ms is not None:
        who = f"by {state.paused_by} since {moment(state.paused_at_ms)}"
        return word("paused"), f"{who}: {state.rationale or 'no rationale on record'}"
    if state is None:
        return word("not seen yet"), "no service has seen it yet"
    held = next(
        blockers_of(visit.context.settings, visit.reader, source.dataset, visit.now_ms, source.id), None
    )
    if held is not None:
        return word(_HELD.get(held.kind, held.how)), held.why
    ended = [spot for spot in strip if spot.word.tone != "busy"]
    troubled = list(takewhile(lambda spot: spot.word.tone in ("bad", "warn"), reversed(ended)))
    if troubled:
        last = troubled[0]
        mark = word("failing") if last.word.text in _FAILED else last.word
        return mark, f"the last {counted(len(troubled), 'scheduled time')}: {last.word.text}"
    return word("on"), f"accounted up to {moment(state.cursor_ms)}"


def refused_then(visit: Visit, schedule: Schedule, state: ScheduleState | None, at_ms: int) -> str:
    """Why a scheduled time to come will not run, as far as is known now; empty: it will."""
    if is_paused(state):
        left = "dropped" if schedule.while_paused == "drop" else "held"
        return f"will be {left}: the schedule is paused"
    settings = visit.context.settings
    source = next((each for each in settings.sources if each.id == schedule.source), None)
    if source is None:
        return ""
    dataset, domain = source.dataset, settings.domain_of(source.dataset)
    for each in (
        *halted(settings, visit.reader, visit.now_ms),
        *switched(visit.reader.switches()),
        *frozen(settings, at_ms),
    ):
        if each.kind != "replays" and each.holds(dataset, domain):
            verb = "will wait" if each.kind in ("switch", "freeze") else "will be refused"
            return f"{verb}: {each.why.rstrip('.')}"
    return ""


def local(at_ms: int, zone: str) -> str:
    """Local time with its offset."""
    ahead_ms = offset_ms(zone, at_ms)
    minutes = abs(ahead_ms) // 60_000
    sign = "−" if ahead_ms < 0 else "+"
    shown = moment(at_ms + ahead_ms).removesuffix(" UTC").removesuffix(":00")
    return f"{shown} {sign}{minutes // 60:02d}:{minutes % 60:02d}"


class ScheduleView(Record, frozen=True):
    title: str
    row: ScheduleRow
    facts: tuple[Fact, ...]
    filters: tuple[Filter | TypedFilter, ...]
    clear: str
    cut: str
    calendar: Calendar
    rows: tuple[CoverageStretch, ...]
    paging: Paging
    start: str
    end: str
    earlier: str
    later: str
    commands: tuple[Next, ...]
    actions: tuple[Offer, ...]


def view_one(visit: Visit) -> ScheduleView:
    wanted = visit.schedule(visit.params["schedule_id"])
    schedule = next((each for each in visit.context.schedules if each.id == wanted), None)
    if schedule is None:
        raise NotHere("No schedule has that name. `kfm schedule list` has them.")
    allowed(visit, visit.context.settings.source(schedule.source).dataset)
    span = _span(visit, schedule)
    state = visit.reader.schedule_reader().states().get(schedule.id)
    found = spots(visit, schedule, state, span.start_ms, span.end_ms)
    number = visit.page()
    came = [each for each in found if each.at_ms <= visit.now_ms]
    listed = stretches([*reversed(came), *found[len(came) :]])[(number - 1) * TIMES_ROWS :]
    return ScheduleView(
        title=f"Schedule {schedule.id}",
        row=row(visit, schedule, state),
        facts=tuple(_facts(visit, schedule)),
        filters=_filters(span),
        clear=visit.href(visit.path),
        cut=_cut(span, len(found)),
        calendar=calendar(found, span.start_ms, span.end_ms, visit.now_ms),
        rows=tuple(listed[:TIMES_ROWS]),
        paging=Paging(
            newer=visit.with_query(page=number - 1) if number > 1 else None,
            older=visit.with_query(page=number + 1) if len(listed) > TIMES_ROWS else None,
            summary=f"{len(found)} scheduled times: past ones, the latest first; then upcoming ones"
            if found
            else "no scheduled times",
        ),
        start=span.shown(span.start_ms),
        end=span.shown(span.end_ms - 1),
        earlier=visit.with_query(**{"from": span.written(span.earlier_ms), "page": None}),
        later=visit.with_query(**{"from": span.written(span.end_ms), "page": None}),
        commands=tuple(_commands(schedule, is_paused(state))),
        actions=tuple(_actions(visit, schedule, is_paused(state))),
    )


class _Span(NamedTuple):
    """The span of a page: whole days, or a number of scheduled times."""

    start_ms: int
    end_ms: int
    earlier_ms: int
    days_asked: int  # 0: it is a number of scheduled times
    days: int
    often: bool  # shown by scheduled times, unless days are chosen

    def shown(self, at_ms: int) -> str:
        return day(at_ms) if self.days_asked else moment(at_ms).removesuffix(" UTC")

    def written(self, at_ms: int) -> str:
        """As `from` takes it."""
        return day(at_ms) if self.days_asked else f"{self.shown(at_ms).replace(' ', 'T')}Z"


def _span(visit: Visit, schedule: Schedule) -> _Span:
    chosen_days = visit.choice("days", DAYS)
    start_ms = first_moment(visit)
    often = fitting_days(schedule, visit.now_ms, DAYS_DEFAULT) < DAYS_DEFAULT
    if often and chosen_days is None:
        start_ms, end_ms = (
            recent(schedule, visit.now_ms) if start_ms is None else from_there(schedule, start_ms)
        )
        return _Span(start_ms, end_ms, before(schedule, start_ms), 0, 0, often)
    days_asked = int(chosen_days or DAYS_DEFAULT)
    days = fitting_days(schedule, _first_day(visit, start_ms, days_asked), days_asked)
    start_ms = _first_day(visit, start_ms, days)
    return _Span(start_ms, start_ms + days * DAY_MS, start_ms - days * DAY_MS, days_asked, days, often)


def _first_day(visit: Visit, start_ms: int | None, days: int) -> int:
    """The chosen day; without one, so that a quarter of the days, or a week, lies ahead."""
    if start_ms is not None:
        return start_ms // DAY_MS * DAY_MS
    return (visit.now_ms // DAY_MS + 1 + min(AHEAD_DAYS, days // 4) - days) * DAY_MS


def first_moment(visit: Visit) -> int | None:
    """The day or time that was typed; None: none was."""
    text = visit.query.get("from")
    if text is None:
        return None
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2})?Z?)?", text, re.ASCII):
        raise UsageError(WRITTEN)
    try:
        found = datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=UTC)
    except ValueError:
        raise UsageError(WRITTEN) from None
    if not 1970 <= found.year <= 2200:
        raise UsageError("`from` lies between 1970 and 2200.")
    return int(found.timestamp()) * 1000


def _filters(span: _Span) -> tuple[Filter | TypedFilter, ...]:
    chosen_days = str(span.days_asked) if span.days_asked else None
    options = chosen("days", "Span", DAYS, chosen_days, [f"{each} days" for each in DAYS]).options
    instants = Option(value="", text=f"{RECENT + COMING} scheduled times", chosen=chosen_days is None)
    return (
        typed("from", "From (UTC)", span.written(span.start_ms)),
        Filter(
            name="days",
            label="Span",
            options=(instants, *options[1:]) if span.often else options[1:],
        ),
    )


def _cut(span: _Span, found: int) -> str:
    """The note of a page that can't show all of the chosen span."""
    if found >= SPOTS_MAX:
        return f"It fires too often: only the first {SPOTS_MAX:,} scheduled times are shown."
    if not span.days_asked:
        return f"It fires too often to show days: these are {found} scheduled times."
    return (
        f"It fires too often for {span.days_asked} days: {span.days} are shown."
        if span.days < span.days_asked
        else ""
    )


def _facts(visit: Visit, schedule: Schedule) -> list[Fact]:
    source = visit.context.settings.source(schedule.source)
    missed = schedule.missed
    return [
        Fact(name="Fires", text=pattern(schedule), code=True),
        Fact(name="Time zone", text=schedule.time_zone),
        Fact(name="Source", text=schedule.source, href=visit.href("runs", source=schedule.source)),
        Fact(name="Dataset", text=source.dataset, href=visit.dataset_page(source.dataset)),
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
    why = "lets it fire again" if paused else "stops it from firing"
    return [
        Next(command=f"kfm schedule next {schedule.id}", why="shows its next scheduled times"),
        Next(command=f"kfm schedule {wanted} {schedule.id} --rationale TEXT", why=why),
    ]


def _actions(visit: Visit, schedule: Schedule, paused: bool) -> list[Offer]:
    return [
        offer(visit, "resumeSchedule" if paused else "pauseSchedule", schedule_id=schedule.id),
        offer(visit, "backfillSchedule", schedule_id=schedule.id),
        offer(visit, "startUpdate", "Run now", source=schedule.source),
    ]
