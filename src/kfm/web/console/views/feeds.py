"""Pages of announced datasets: how far each has come, its hours by product, its failures by cause."""

from __future__ import annotations

from collections.abc import Sequence

from kfm.datasets.completeness import CompletenessReader
from kfm.model.completeness import WindowVerdict
from kfm.model.feeds import HOUR_MS
from kfm.model.quantities import counted, duration, moment, span
from kfm.model.records import UNIT_STATUSES, Record
from kfm.model.times import rfc3339
from kfm.model.units import UnitCause
from kfm.reports.coverage import cause_text, why
from kfm.reports.feeds import (
    INCIDENTS_MAX,
    FeedFailure,
    FeedHours,
    FeedStanding,
    feed_failures,
    feed_hours,
    feed_standings,
    feeds_known,
    flow_sums,
    gap_verdicts,
    watermark_documents,
)
from kfm.reports.window_steps import cause_command, feed_commands
from kfm.web.console import state_words, time_range
from kfm.web.console.actions import Offer, offer
from kfm.web.console.state_words import Word, word
from kfm.web.console.views.explanation import Fact, Next, allowed
from kfm.web.console.views.feed_grid import STANDING_WORDS, Chart, Grid, charts, grid, typed_time
from kfm.web.console.visit import (
    ROWS,
    VALUE_CHARS_MAX,
    Filter,
    NotHere,
    Paging,
    TypedFilter,
    Visit,
    paged,
)

FILTERS = ("page",)
ONE_FILTERS = (*time_range.FILTERS, "product", "rows", "before")
CAUSES_SHOWN_MAX = 50
HOURS_MAX = 36
GAPS_SHOWN = 20


class Amount(Record, frozen=True):
    """A number, and the list that it counts."""

    count: int
    href: str
    tone: str
    text: str = ""


class FailureRow(Record, frozen=True):
    unit_dataset: str
    dataset_href: str
    error_code: str
    word: Word
    units: Amount
    since_ms: int
    last_ms: int
    due_ms: int | None
    message: str
    then: str
    command: str
    incident_href: str | None
    example: str
    example_href: str


class DeadRow(Record, frozen=True):
    error_code: str
    queue: str
    count: int
    href: str
    times: int
    first_ms: int
    last_ms: int


class FeedLine(Record, frozen=True):
    unit_dataset: str
    href: str
    word: Word | None
    newest_ms: int | None
    lag: str
    expected: int | None
    arrived: int | None
    share: str
    objects: int
    gaps: Amount | None
    backlog: tuple[Amount, ...]
    trend: str
    per_hour: str
    stuck: tuple[Amount, ...]
    units: Amount


class FeedsView(Record, frozen=True):
    rows: tuple[FeedLine, ...]
    paging: Paging
    failures: tuple[FailureRow, ...]
    failures_left: int
    dead: tuple[DeadRow, ...]
    dead_count: int
    dead_href: str


def view(visit: Visit) -> FeedsView:
    """Every announced dataset: those that the configuration expects, and those of which anything came."""
    completeness, reader = visit.completeness(), visit.reader.unit_reader()
    names = [
        name
        for name in feeds_known(completeness, reader.totals())
        if not visit.visibility.hides_units(name) or name in completeness.feeds()
    ]
    skipped = (visit.page() - 1) * ROWS
    causes = [each for each in reader.causes() if each.dataset in names]
    found = feed_standings(completeness, visit.reader, names[skipped : skipped + ROWS], visit.now_ms, causes)
    failures = _failures(visit, causes)
    dead = _dead(visit)
    return FeedsView(
        rows=tuple(_line(visit, each) for each in found),
        paging=paged(visit, len(names) - skipped, "feeds"),
        failures=tuple(_failure(visit, each) for each in failures[:CAUSES_SHOWN_MAX]),
        failures_left=max(len(failures) - CAUSES_SHOWN_MAX, 0),
        dead=tuple(dead),
        dead_count=sum(each.count for each in dead),
        dead_href=visit.href("messages"),
    )


def _failures(visit: Visit, causes: Sequence[UnitCause]) -> list[FeedFailure]:
    incidents = visit.reader.incidents(state="open", limit=INCIDENTS_MAX)
    return feed_failures(causes, incidents, visit.context.settings.ingest)


def _failure(visit: Visit, found: FeedFailure) -> FailureRow:
    cause = found.cause
    return FailureRow(
        unit_dataset=cause.dataset,
        dataset_href=visit.at("feeds", cause.dataset),
        error_code=cause.error_code or "",
        word=word(STANDING_WORDS[cause.standing]),
        units=Amount(
            count=cause.count,
            href=visit.href("units", dataset=cause.dataset, status=cause.standing, error=cause.error_code),
            tone="",
        ),
        since_ms=cause.first_ms,
        last_ms=cause.last_ms,
        due_ms=cause.due_ms or None,
        message=cause.message or "",
        then=found.then,
        command=found.command,
        incident_href=visit.at("incidents", found.incident_id) if found.incident_id else None,
        example=cause.example,
        example_href=visit.at("units", cause.example),
    )


def _dead(visit: Visit) -> list[DeadRow]:
    return [
        DeadRow(
            error_code=each.error_code,
            queue=each.queue,
            count=each.count,
            href=visit.href("messages", error=each.error_code, queue=queue_filter(each.queue)),
            times=each.times,
            first_ms=each.first_ms,
            last_ms=each.last_ms,
        )
        for each in visit.reader.unit_reader().dead_causes()
    ]


def queue_filter(queue: str) -> str | None:
    """A queue's name as a filter takes it; of one that is too long none."""
    return queue if len(queue) <= VALUE_CHARS_MAX else None


def _line(visit: Visit, one: FeedStanding) -> FeedLine:
    gaps = one.gaps
    share = f"{one.arrived * 100 // one.expected} %" if one.expected and one.arrived is not None else ""
    return FeedLine(
        unit_dataset=one.dataset,
        href=visit.at("feeds", one.dataset),
        word=None if one.health is None else word(one.health.state),
        newest_ms=one.newest_ms if one.newest_ms is not None else one.covered_ms,
        lag="" if one.lag_ms is None else duration(one.lag_ms),
        expected=one.expected,
        arrived=one.arrived,
        share=share,
        objects=one.objects,
        gaps=None
        if gaps is None
        else Amount(
            count=gaps, href=f"{visit.at('feeds', one.dataset)}#gaps", tone="warn" if gaps else "none"
        ),
        backlog=_backlog(visit, one),
        trend=_trend(one.trend),
        per_hour=_rate(one.per_hour),
        stuck=tuple(
            _amount(visit, one.dataset, status, one.counts.get(status, 0))
            for status in ("failed", "quarantined")
        ),
        units=Amount(
            count=sum(one.counts.values()), href=visit.href("units", dataset=one.dataset), tone="none"
        ),
    )


def _amount(visit: Visit, dataset: str, status: str, count: int, text: str = "") -> Amount:
    tone = state_words.of_unit(status).tone if count else "none"
    return Amount(count=count, href=visit.href("units", dataset=dataset, status=status), tone=tone, text=text)


def _backlog(visit: Visit, one: FeedStanding) -> tuple[Amount, ...]:
    return (
        _amount(visit, one.dataset, "waiting", one.waiting, "waiting"),
        _amount(visit, one.dataset, "in_progress", one.running, "running"),
        _amount(visit, one.dataset, "retrying", one.retrying, "retrying"),
    )


def _trend(more: int) -> str:
    if not more:
        return "→ steady"
    return f"{'↑' if more > 0 else '↓'} {abs(more):,} in 6 h"


def _rate(per_hour: float) -> str:
    return f"{per_hour:,.0f}" if per_hour >= 10 or not per_hour else f"{per_hour:.1f}"


# --- one feed ---------------------------------------------------------------------------


class FlowRow(Record, frozen=True):
    at_ms: int
    taken_in: int
    ended: int
    open: int
    latency_ms: int | None


class TroubleRow(Record, frozen=True):
    """Why a feed is not fresh."""

    word: Word
    text: str
    since_ms: int | None
    command: str


class GapRow(Record, frozen=True):
    source_id: str
    window: str
    word: Word
    why: str
    due_ms: int
    href: str
    dismiss: str


class FeedView(Record, frozen=True):
    title: str
    unit_dataset: str
    word: Word | None
    lead: str
    dataset_href: str | None
    units_href: str
    causes: tuple[TroubleRow, ...]
    backlog: tuple[Amount, ...]
    facts: tuple[Fact, ...]
    actions: tuple[Offer, ...]
    filters: tuple[Filter | TypedFilter, ...]
    clear: str
    span: str
    grid: Grid | None
    charts: tuple[Chart, ...]
    flow: tuple[FlowRow, ...]
    gaps: tuple[GapRow, ...]
    listings: tuple[Next, ...]
    gaps_paging: Paging
    failures: tuple[FailureRow, ...]
    dead: tuple[DeadRow, ...]
    commands: tuple[Next, ...]


def view_one(visit: Visit) -> FeedView:
    completeness, reader = visit.completeness(), visit.reader.unit_reader()
    name = _wanted(visit, completeness)
    start_ms, end_ms, span_text, filters = _span(visit)
    causes = reader.causes(name)
    (standing,) = feed_standings(completeness, visit.reader, [name], visit.now_ms, causes)
    hours = feed_hours(completeness, reader, name, start_ms, end_ms)
    last_ms = min(end_ms, visit.now_ms) - 1
    flow = flow_sums(
        reader.flow(name, start_ms, end_ms), start_ms // HOUR_MS * HOUR_MS, last_ms // HOUR_MS * HOUR_MS
    )
    gaps = gap_verdicts(hours.coverage)
    shown, gaps_paging = _gap_page(visit, gaps)
    is_declared = name in completeness.feeds()
    return FeedView(
        title=f"Feed {name}",
        unit_dataset=name,
        word=None if standing.health is None else word(standing.health.state),
        lead=_lead(standing),
        dataset_href=visit.dataset_page(name) if is_declared else None,
        units_href=visit.href("units", dataset=name),
        causes=tuple(_troubles(standing)),
        backlog=(
            *_backlog(visit, standing),
            *(
                _amount(visit, name, status, standing.counts.get(status, 0), status)
                for status in ("failed", "quarantined")
            ),
        ),
        facts=tuple(_facts(visit, name, standing)),
        actions=tuple(_actions(visit, name, is_declared=is_declared)),
        filters=filters,
        clear=visit.clean(),
        span=span_text,
        grid=grid(visit, name, hours, start_ms, end_ms),
        charts=charts(flow, hours),
        flow=tuple(
            FlowRow(
                at_ms=each.hour_ms,
                taken_in=each.taken_in,
                ended=each.ended,
                open=each.open,
                latency_ms=hours.delays.get(each.hour_ms),
            )
            for each in reversed(flow)
        ),
        gaps=tuple(_gap(visit, name, each, hours) for each in shown),
        listings=tuple(
            Next(
                command=one.command, why="compares the bucket with what came; --open takes in what is missing"
            )
            for one in hours.coverage.reconcile
        ),
        gaps_paging=gaps_paging,
        failures=tuple(_failure(visit, each) for each in _failures(visit, causes)),
        dead=tuple(_dead(visit)),
        commands=tuple(_commands(name, standing)),
    )


def _wanted(visit: Visit, completeness: CompletenessReader) -> str:
    """The feed of the address: expected, or one of which an object was announced."""
    names = feeds_known(completeness, visit.reader.unit_reader().totals())
    name = visit.visibility.known(visit.params["feed_id"], names)
    if name not in names:
        raise NotHere("No feed has that name. `kfm nodd watermarks` lists them.")
    if visit.visibility.hides_units(name):
        allowed(visit, name)
    return name


def _span(visit: Visit) -> tuple[int, int, str, tuple[Filter | TypedFilter, ...]]:
    """The hours that are shown: of a long span the newest."""
    chosen = time_range.time_range(visit)
    last_ms = -(-min(chosen.until_ms, visit.now_ms) // HOUR_MS) * HOUR_MS
    first_ms = max(-(-chosen.from_ms // HOUR_MS) * HOUR_MS, last_ms - HOURS_MAX * HOUR_MS)
    if chosen.from_ms and chosen.until_ms == time_range.FAR_MS and "from" not in visit.query:
        first_ms = max(chosen.from_ms // HOUR_MS * HOUR_MS + HOUR_MS, last_ms - HOURS_MAX * HOUR_MS)
    elif "from" in visit.query and "to" not in visit.query and "last" not in visit.query:
        first_ms = -(-chosen.from_ms // HOUR_MS) * HOUR_MS  # from there on
        last_ms = min(last_ms, first_ms + HOURS_MAX * HOUR_MS)
    last_ms = max(last_ms, 2 * HOURS_MAX * HOUR_MS)  # nothing announced is of a time before
    first_ms = min(max(first_ms, last_ms - HOURS_MAX * HOUR_MS), last_ms - HOUR_MS)
    return first_ms, last_ms, span(first_ms, last_ms).removesuffix(" UTC"), chosen.filters


def _troubles(one: FeedStanding) -> list[TroubleRow]:
    if one.health is None:
        return []
    return [
        TroubleRow(
            word=word(cause.state or cause.health),
            text=cause_text(cause),
            since_ms=cause.since_ms,
            command=cause_command(one.health, cause, is_feed=True),
        )
        for cause in one.health.causes
    ]


def _lead(one: FeedStanding) -> str:
    parts = []
    if one.newest_ms is not None:
        parts.append(f"Newest data {moment(one.newest_ms)}, {duration(one.lag_ms or 0)} behind now")
    elif one.covered_ms is not None:
        parts.append(f"Nothing within a day; the catalogue covers up to {moment(one.covered_ms)}")
    else:
        parts.append("Nothing has come yet")
    if one.expected:
        parts.append(f"{one.arrived:,} of {one.expected:,} expected objects of the last 24 h")
    parts.append(f"{_rate(one.per_hour)} an hour")
    parts.append(f"backlog {one.backlog:,} ({_trend(one.trend)})")
    return "; ".join(parts) + "."


def _facts(visit: Visit, name: str, one: FeedStanding) -> list[Fact]:
    """The watermarks, as the command prints them."""
    found = watermark_documents(visit.reader.unit_reader(), visit.now_ms, [name])
    oldest = found[0]["oldest_open"] if found else None
    facts = [
        Fact(name="Catalogue covers up to (UTC)", text="", at_ms=one.covered_ms)
        if one.covered_ms is not None
        else Fact(name="Catalogue covers up to (UTC)", text="nothing yet"),
        Fact(
            name="Oldest open unit",
            text=oldest["wal_id"] if oldest else "none is open",
            href=visit.at("units", oldest["wal_id"]) if oldest else None,
            code=False,
        ),
    ]
    facts += [
        Fact(
            name=f"Units {state_words.of_unit(status).text}",
            text=f"{one.counts.get(status, 0):,}",
            href=visit.href("units", dataset=name, status=status),
        )
        for status in UNIT_STATUSES
    ]
    return facts


def _actions(visit: Visit, name: str, *, is_declared: bool) -> list[Offer]:
    found = [offer(visit, "reconcileFeed", feed_id=name)]
    if is_declared:
        found += [offer(visit, each, dataset_id=name) for each in ("dismissWindows", "silenceDataset")]
    return found


def _commands(name: str, standing: FeedStanding) -> list[Next]:
    found = []
    if standing.health is not None:
        found.append(Next(command=f"kfm coverage {name}", why="prints the hours"))
    return [*found, Next(command=f"kfm nodd watermarks {name}", why="prints how far it has come")]


# --- gaps ---------------------------------------------------------------------------------


def _gap_page(visit: Visit, gaps: Sequence[WindowVerdict]) -> tuple[list[WindowVerdict], Paging]:
    """Behind the last row of the page before."""
    before = visit.query.get("before")
    left = list(gaps) if before is None else [one for one in gaps if _place(one) < before]
    shown = left[:GAPS_SHOWN]
    older = _place(shown[-1]) if len(left) > GAPS_SHOWN else None
    return shown, Paging(
        newer=visit.with_query(before=None) if before is not None else None,
        older=visit.with_query(before=older) if older else None,
        summary=f"{len(shown)} of {counted(len(gaps), 'hour')}, newest first" if shown else "no gaps",
        newest=True,
    )


def _place(one: WindowVerdict) -> str:
    return f"{rfc3339(one.start_ms)} {one.source_id}"


def _gap(visit: Visit, name: str, one: WindowVerdict, hours: FeedHours) -> GapRow:
    _, dismiss = feed_commands(name, one, hours.coverage) or ("", "")
    row = next(each for each in hours.coverage.products if each.source_id == one.source_id)
    return GapRow(
        source_id=one.source_id.removeprefix(f"{name} "),
        window=span(one.start_ms, one.end_ms).removesuffix(" UTC"),
        word=word(one.state),
        why=why(one),
        due_ms=one.due_ms,
        href=visit.href(
            "units",
            dataset=name,
            product=row.product,
            platform=row.platform,
            **{"from": typed_time(one.start_ms), "to": typed_time(one.end_ms)},
        ),
        dismiss=f"{dismiss} --rationale TEXT" if dismiss else "",
    )
