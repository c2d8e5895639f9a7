"""Pages of datasets: how each is, and every window of one with its state and the next step."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import cast

from kfm.datasets.completeness import DatasetCoverage
from kfm.model.completeness import (
    ASKED_FOR,
    HEALTH_RANK,
    WINDOW_STATES,
    DatasetHealth,
    HealthState,
    WindowVerdict,
)
from kfm.model.dataset_changes import Withdrawal, active, lift_command, span_words
from kfm.model.errors import UsageError
from kfm.model.patterns import late
from kfm.model.plan_cells import WindowCell, cell_text
from kfm.model.quantities import counted, span
from kfm.model.records import Record
from kfm.reports.coverage import cause_text, why
from kfm.reports.dataset_lists import (
    ORDERS,
    ListedDataset,
    ListFilter,
    ListOrder,
    complete_percent,
    domains,
    holes,
    listed_datasets,
)
from kfm.reports.window_steps import cause_command, dismiss_command, feed_commands, window_command
from kfm.web.console.actions import Offer, offer
from kfm.web.console.page_templates import day
from kfm.web.console.state_words import Word, word
from kfm.web.console.views import dataset_facts, dataset_versions
from kfm.web.console.views.coverage import DAY_MS, SPOTS_MAX, Calendar, Spot, calendar
from kfm.web.console.views.explanation import Next, allowed
from kfm.web.console.views.schedules import first_moment
from kfm.web.console.visit import (
    ROWS,
    Filter,
    Link,
    NotHere,
    Option,
    Paging,
    TypedFilter,
    Visit,
    before_position,
    chosen,
    short,
    typed,
)

FILTERS = ("state", "domain", "order", "find", "after")
TABS: dict[str, str] = {
    "coverage": "Coverage",
    "versions": "Versions",
    "schema": "Schema",
    "extent": "Extent",
    "rights": "Rights",
    "runs": "Runs",
    "trend": "Durations",
    "lineage": "Lineage",
    "contract": "Contract",
    "targets": "Targets",
}
CHARTS = ("trend",)
_PLACE = late(r"-?\d{1,18}\.-?\d{1,18}\.\d{1,6}", re.ASCII)
ONE_FILTERS = ("tab", "from", "days", "state", *dataset_versions.FILTERS)
DAYS = ("7", "28", "91", "364")
DAYS_DEFAULT = 28
FEED_DAYS_DEFAULT = 7
LISTED = 25  # datasets of one page of the list
STRIP = 14  # windows that a row shows
OPEN_SHOWN_MAX = 20


class Cause(Record, frozen=True):
    word: Word
    text: str
    since_ms: int | None
    command: str


class DatasetLine(Record, frozen=True):
    dataset_id: str
    href: str
    word: Word
    causes: tuple[Cause, ...]
    newest_ms: int | None
    lag_ms: int | None
    due: str  # when windows are due
    holes: int
    holes_href: str | None
    complete: str
    windows: int
    version: int | None
    strip: tuple[Spot, ...]


class DatasetsView(Record, frozen=True):
    filters: tuple[Filter | TypedFilter, ...]
    rows: tuple[DatasetLine, ...]
    paging: Paging
    clear: str
    is_filtered: bool


def view(visit: Visit) -> DatasetsView:
    """Every dataset that is declared, and every feed that is looked at."""
    completeness, settings = visit.completeness(), visit.context.settings
    heads = {head.dataset_id: head.sequence for head in visit.reader.heads()}
    feeds = completeness.feeds()

    def shown(name: str) -> str:
        return visit.visibility.in_address(name, "dataset")

    known = domains(settings, visit.visibility.hides)
    wanted = ListFilter(
        state=cast("HealthState | None", visit.choice("state", HEALTH_RANK)),
        domain=visit.choice("domain", known),
        find=visit.query.get("find"),
        order=cast("ListOrder", visit.choice("order", ORDERS) or ORDERS[0]),
        after=before_position(visit.query.get("after")),
    )
    coverages: dict[str, DatasetCoverage] = {}

    def judge(name: str) -> DatasetHealth:
        coverages[name] = completeness.coverage(name)
        return coverages[name].health

    found, more = listed_datasets(completeness.names(), judge, settings, wanted, LISTED, shown)
    last = found[-1].position if more else None
    return DatasetsView(
        filters=(
            chosen("state", "Health", HEALTH_RANK, wanted.state),
            chosen("domain", "Domain", known, wanted.domain),
            Filter(name="order", label="First", options=_orders(wanted.order)),
            typed("find", "Name", wanted.find),
        ),
        rows=tuple(
            _line(visit, one, coverages[one.dataset_id], heads, is_feed=one.dataset_id in feeds)
            for one in found
        ),
        paging=Paging(
            newer=visit.with_query(after=None) if wanted.after is not None else None,
            older=visit.with_query(after=f"{last[0]}.{last[1]}") if last is not None else None,
            summary=f"{counted(len(found), 'dataset')}" if found else "no datasets",
            first=True,
        ),
        clear=visit.clean(),
        is_filtered=any(name in visit.query for name in FILTERS),
    )


def _orders(now: str) -> tuple[Option, ...]:
    return tuple(
        Option(value="" if each == ORDERS[0] else each, text=text, chosen=each == now)
        for each, text in zip(
            ORDERS, ("by name", "the worst", "the latest", "most holes", "oldest data"), strict=True
        )
    )


def _line(
    visit: Visit,
    row: ListedDataset,
    coverage: DatasetCoverage,
    heads: dict[str, int],
    *,
    is_feed: bool,
) -> DatasetLine:
    name = row.dataset_id
    health, page = coverage.health, visit.dataset_page(name)
    percent, missing = complete_percent(health), holes(health)
    dues = list(dict.fromkeys(coverage.objectives.values()))
    masked = visit.visibility.hides(name)
    return DatasetLine(
        dataset_id=name,
        href=page,
        word=word(health.state),
        causes=_causes(health, is_feed=is_feed),
        newest_ms=health.newest_ms,
        lag_ms=health.lag_ms,
        due=dues[0] if len(dues) == 1 else counted(len(dues), "rule") if dues else "",
        holes=missing,
        holes_href=f"{page}#open" if missing and not masked else None,
        complete="–" if percent is None else f"{percent} %",
        windows=health.expected,
        version=heads.get(name),
        strip=tuple(_spot(visit, one) for one in _timed(coverage.windows)[-STRIP:]),
    )


def _causes(health: DatasetHealth, *, is_feed: bool) -> tuple[Cause, ...]:
    return tuple(
        Cause(
            word=word(cause.state or cause.health),
            text=cause_text(cause),
            since_ms=cause.since_ms,
            command=cause_command(health, cause, is_feed=is_feed),
        )
        for cause in health.causes
    )


def _timed(windows: Sequence[WindowVerdict]) -> list[WindowVerdict]:
    """Without the one window of a source that has none."""
    return [one for one in windows if not one.is_all_time]


def _cell(visit: Visit, one: WindowVerdict) -> str:
    """What a plan takes: a window of a source. Of a feed it is its objects that come back."""
    settings = visit.context.settings
    if one.is_all_time or settings.source_named(one.source_id) is None or one.start_ms > visit.now_ms:
        return ""
    return cell_text(WindowCell(source_id=one.source_id, start_ms=one.start_ms))


def _spot(visit: Visit, one: WindowVerdict) -> Spot:
    mark, reason = word(one.state), why(one)
    return Spot(
        at_ms=one.start_ms,
        word=mark,
        start_ms=one.start_ms,
        end_ms=one.end_ms,
        reason=reason,
        href=_record(visit, one),
        title=f"{span(one.start_ms, one.end_ms)}: {mark.text}{f' ({reason})' if reason else ''}",
        cell=_cell(visit, one),
    )


def _record(visit: Visit, one: WindowVerdict) -> str | None:
    if one.run_id is not None:
        return visit.run(one.run_id)
    return visit.at("requests", one.request_id) if one.request_id is not None else None


# --- one dataset -----------------------------------------------------------------------


class WindowRow(Record, frozen=True):
    window: str
    word: Word
    source_id: str
    due_ms: int
    is_late: bool
    why: str
    href: str | None
    link: str
    command: str
    dismiss: str
    cell: str = ""  # as a plan takes it


class SourceCalendar(Record, frozen=True):
    source_id: str
    anchor: str
    due: str
    calendar: Calendar | None  # None: it has no windows, or none in this span


class WithdrawnRow(Record, frozen=True):
    what: str
    word: Word
    reason: str
    since_version: int
    since_ms: int
    command: str


class DatasetView(Record, frozen=True):
    title: str
    dataset_id: str
    word: Word
    version: int | None
    promoted_ms: int | None
    watermark_ms: int | None
    lag_ms: int | None
    causes: tuple[Cause, ...]
    counts: tuple[Link, ...]
    all_href: str
    chosen_state: str
    withdrawn: tuple[WithdrawnRow, ...]
    open: tuple[WindowRow, ...]
    open_count: int
    calendars: tuple[SourceCalendar, ...]
    start: str
    end: str
    cut: str
    filters: tuple[Filter | TypedFilter, ...]
    clear: str
    earlier: str
    later: str
    rows: tuple[WindowRow, ...]
    rows_about: str
    paging: Paging | None
    tab: str
    tabs: tuple[tuple[str, str, bool], ...]  # name, address, is it this one?
    versions: dataset_versions.Versions | None
    schema: dataset_facts.SchemaTab | None
    extent: dataset_facts.ExtentTab | None
    rights: dataset_facts.RightsTab | None
    runs: dataset_facts.RunsTab | None
    trend: dataset_facts.TrendTab | None
    lineage: dataset_facts.LineageTab | None
    contract: dataset_facts.ContractTab | None
    targets: dataset_facts.TargetsTab | None
    commands: tuple[Next, ...]
    actions: tuple[Offer, ...]


def view_one(visit: Visit) -> DatasetView:
    completeness = visit.completeness()
    name = _wanted(visit, completeness.names())
    allowed(visit, name)
    tab = visit.choice("tab", tuple(TABS)) or next(iter(TABS))
    head, is_feed = visit.reader.head(name), name in completeness.feeds()
    coverage = completeness.coverage(name)
    health, state = coverage.health, visit.choice("state", WINDOW_STATES)
    withdrawals = active(visit.reader.change_reader().withdrawals(name))
    start_ms, days = _span(visit, coverage, FEED_DAYS_DEFAULT if is_feed else DAYS_DEFAULT)
    end_ms = start_ms + days * DAY_MS
    if is_feed:
        coverage = completeness.coverage(name, start_ms, end_ms)
    inside = [one for one in coverage.windows if _touches(one, start_ms, end_ms)]
    listed = [one for one in coverage.windows if one.state == state] if state else inside
    is_shown = tab == next(iter(TABS))
    listed, paging = _page_of(visit, listed) if is_shown else ([], None)
    to_act = [one for one in coverage.windows if _is_open(one)]

    def row(one: WindowVerdict) -> WindowRow:
        return _row(visit, name, one, withdrawals, coverage)

    return DatasetView(
        title=f"Dataset {name}",
        dataset_id=name,
        word=word(_life(withdrawals) or health.state),
        version=head[0].sequence if head else None,
        promoted_ms=head[0].promoted_at_ms if head else None,
        watermark_ms=health.watermark_ms,
        lag_ms=health.lag_ms,
        causes=_causes(health, is_feed=is_feed),
        counts=tuple(
            Link(text=f"{health.counts[one]} {one}", href=visit.with_query(state=one, before=None))
            for one in WINDOW_STATES
            if one in health.counts
        ),
        all_href=visit.with_query(state=None, before=None),
        chosen_state=state or "",
        withdrawn=tuple(map(_withdrawn, withdrawals)),
        open=tuple(map(row, to_act[:OPEN_SHOWN_MAX])) if is_shown else (),
        open_count=len(to_act),
        calendars=tuple(_calendars(visit, coverage, inside, start_ms, end_ms)) if is_shown else (),
        start=day(start_ms),
        end=day(end_ms - 1),
        cut=f"Only {SPOTS_MAX:,} windows of a source are drawn." if len(inside) > SPOTS_MAX else "",
        filters=(
            typed("from", "From (UTC)", day(start_ms)),
            _days(days),
            chosen("state", "State", WINDOW_STATES, state),
        ),
        clear=visit.clean(),
        earlier=visit.with_query(**{"from": day(start_ms - days * DAY_MS), "page": None}),
        later=visit.with_query(**{"from": day(end_ms), "page": None}),
        rows=tuple(map(row, listed)),
        rows_about=f"Every window that is {state}, the newest first"
        if state
        else "Windows of this span, the newest first",
        paging=paging,
        tab=tab,
        tabs=tuple((text, _tab(visit, name, each), each == tab) for each, text in TABS.items()),
        versions=dataset_versions.versions(visit, name) if tab == "versions" else None,
        schema=dataset_facts.schema(visit, name) if tab == "schema" else None,
        extent=dataset_facts.extent(visit, name) if tab == "extent" else None,
        rights=dataset_facts.rights(visit, name) if tab == "rights" else None,
        runs=dataset_facts.dataset_runs(visit, name) if tab == "runs" else None,
        trend=dataset_facts.trend(visit, name) if tab == "trend" else None,
        lineage=dataset_facts.lineage(visit, name) if tab == "lineage" else None,
        contract=dataset_facts.contract(visit, name) if tab == "contract" else None,
        targets=dataset_facts.targets(visit, name) if tab == "targets" else None,
        commands=tuple(_commands(name, to_act, withdrawals, coverage if is_feed else None)),
        actions=tuple(_actions(visit, name, withdrawals)),
    )


def _page_of(visit: Visit, windows: Sequence[WindowVerdict]) -> tuple[list[WindowVerdict], Paging]:
    """The newest first, from the last of the page before on."""
    sources = sorted({one.source_id for one in windows})
    before = _place(visit.query.get("before"))

    def place(one: WindowVerdict) -> tuple[int, int, int]:
        return one.end_ms, one.start_ms, sources.index(one.source_id)

    found = sorted((one for one in windows if before is None or place(one) < before), key=place, reverse=True)
    shown = found[:ROWS]
    more = ".".join(map(str, place(shown[-1]))) if len(found) > ROWS else None
    return shown, Paging(
        newer=visit.with_query(before=None) if before is not None else None,
        older=visit.with_query(before=more) if more is not None else None,
        summary=f"{counted(len(shown), 'window')} of {len(windows):,}" if shown else "no windows",
        newest=True,
    )


def _place(text: str | None) -> tuple[int, int, int] | None:
    if text is None:
        return None
    if _PLACE.fullmatch(text) is None:
        raise UsageError("`before` is not from a link to older ones.")
    end_ms, start_ms, number = map(int, text.split("."))
    return end_ms, start_ms, number


def _tab(visit: Visit, name: str, tab: str) -> str:
    address = visit.dataset_page(name)
    return address if tab == next(iter(TABS)) else f"{address}?tab={tab}"


def _wanted(visit: Visit, declared: Sequence[str]) -> str:
    """The dataset of the address: declared, a feed, or published once."""
    published = [one.dataset_id for one in visit.reader.heads()]
    name = visit.visibility.known(visit.params["dataset_id"], [*declared, *published])
    if name not in declared and name not in published:
        raise NotHere("No dataset has that name. `kfm dataset list` has them.")
    return name


def _life(withdrawals: Sequence[Withdrawal]) -> str | None:
    """The word for a dataset of which nothing is left."""
    whole = [one for one in withdrawals if one.is_whole]
    return ("retired" if any(one.retires for one in whole) else "withdrawn") if whole else None


def _is_open(one: WindowVerdict) -> bool:
    return one.state in ASKED_FOR or one.waiting_for == "approval"


def _touches(one: WindowVerdict, start_ms: int, end_ms: int) -> bool:
    return one.is_all_time or (one.end_ms > start_ms and one.start_ms < end_ms)


def _span(visit: Visit, coverage: DatasetCoverage, days_default: int) -> tuple[int, int]:
    """The first day that is shown, and how many: by default those that end with the newest window."""
    days = int(visit.choice("days", DAYS) or days_default)
    start_ms = first_moment(visit)
    if start_ms is not None:
        return start_ms // DAY_MS * DAY_MS, days
    newest_ms = max((one.end_ms for one in _timed(coverage.windows)), default=visit.now_ms)
    start_ms = (-(-newest_ms // DAY_MS) - days) * DAY_MS
    if start_ms < 0:
        raise UsageError("`from` lies between 1970 and 2200.")
    return start_ms, days


def _days(days: int) -> Filter:
    options = chosen("days", "Span", DAYS, str(days), [f"{each} days" for each in DAYS]).options
    return Filter(name="days", label="Span", options=options[1:])


def _calendars(
    visit: Visit,
    coverage: DatasetCoverage,
    inside: Sequence[WindowVerdict],
    start_ms: int,
    end_ms: int,
) -> list[SourceCalendar]:
    found = []
    for number, (source_id, due) in enumerate(coverage.objectives.items()):
        mine = [one for one in _timed(inside) if one.source_id == source_id][-SPOTS_MAX:]
        spots = [_spot(visit, one) for one in mine]
        drawn = calendar(spots, start_ms, end_ms, visit.now_ms, "windows") if spots else None
        found.append(SourceCalendar(source_id=source_id, anchor=f"source-{number}", due=due, calendar=drawn))
    return found


def _row(
    visit: Visit,
    name: str,
    one: WindowVerdict,
    withdrawals: Sequence[Withdrawal],
    coverage: DatasetCoverage,
) -> WindowRow:
    settings, of_feed = visit.context.settings, feed_commands(name, one, coverage)
    command: str | None
    if of_feed is None:
        dismissed = dismiss_command(name, one)
        command = window_command(visit.reader, settings, name, one, visit.now_ms, withdrawals)
    else:
        listing, dismissed = of_feed
        command = f"{dismissed} --undo --rationale TEXT" if one.state == "dismissed" else ""
        command = listing if one.state in ASKED_FOR else command
    return WindowRow(
        window=span(one.start_ms, one.end_ms).removesuffix(" UTC"),
        word=word(one.state),
        source_id=one.source_id,
        due_ms=one.due_ms,
        is_late=one.is_late,
        why=why(one),
        href=_record(visit, one),
        link=f"run {short(one.run_id)}" if one.run_id else "request" if one.request_id else "",
        command=command or "",
        dismiss=f"{dismissed} --rationale TEXT" if one.state in ASKED_FOR else "",
        cell=_cell(visit, one),
    )


def _withdrawn(one: Withdrawal) -> WithdrawnRow:
    return WithdrawnRow(
        what=span_words(one),
        word=word("retired" if one.retires else "withdrawn"),
        reason=one.reason,
        since_version=one.since_sequence,
        since_ms=one.withdrawn_at_ms,
        command=lift_command(one),
    )


def _commands(
    name: str,
    to_act: Sequence[WindowVerdict],
    withdrawals: Sequence[Withdrawal],
    feed: DatasetCoverage | None,
) -> list[Next]:
    found = []
    if feed is not None:
        found = [Next(command=one.command, why="a listing may fill the gap") for one in feed.reconcile]
        return [*found, Next(command=f"kfm coverage {name}", why="prints the same")]
    if to_act and not _life(withdrawals):
        many = counted(len(to_act), "window")
        found.append(Next(command=f"kfm run --missing {name}", why=f"lists and asks for {many}"))
    found.append(Next(command=f"kfm coverage {name}", why="prints the same"))
    found.append(Next(command=f"kfm dataset show {name}", why="every version, and what is withdrawn"))
    return found


def _actions(visit: Visit, name: str, withdrawals: Sequence[Withdrawal]) -> list[Offer]:
    sources = [each.id for each in visit.context.settings.sources if each.dataset == name]
    paused = any(
        each.scope == f"dataset:{name}" and each.position != "running" for each in visit.reader.switches()
    )
    found = [
        offer(visit, "startUpdate", f"Run {each}" if sources[1:] else "Run", source=each) for each in sources
    ]
    switched = {"scope": f"dataset:{name}", "position": "running" if paused else "paused"}
    found.append(offer(visit, "setSwitch", "Resume" if paused else "Pause", **switched))
    if visit.reader.head(name) is not None:
        found += [offer(visit, each, dataset_id=name) for each in ("rollBack", "withdraw", "projectAgain")]
    if withdrawals:
        found.append(offer(visit, "lift", dataset_id=name))
    return [*found, *(offer(visit, each, dataset_id=name) for each in ("dismissWindows", "silenceDataset"))]
