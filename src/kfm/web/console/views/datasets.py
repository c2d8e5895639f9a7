"""Pages of datasets: how each is, and every window of one with its state and the next step."""

from __future__ import annotations

from collections.abc import Sequence

from kfm.datasets.completeness import DatasetCoverage
from kfm.model.completeness import ASKED_FOR, WINDOW_STATES, DatasetHealth, WindowVerdict
from kfm.model.dataset_changes import Withdrawal, active, lift_command, span_words
from kfm.model.errors import UsageError
from kfm.model.plan_cells import WindowCell, cell_text
from kfm.model.quantities import counted, span
from kfm.model.records import Record
from kfm.reports.coverage import cause_text, why
from kfm.reports.datasets import StoredObjects, version_documents
from kfm.reports.window_steps import cause_command, dismiss_command, feed_commands, window_command
from kfm.web.console.actions import Offer, offer
from kfm.web.console.page_templates import day
from kfm.web.console.state_words import Word, word
from kfm.web.console.views.coverage import DAY_MS, SPOTS_MAX, Calendar, Spot, calendar
from kfm.web.console.views.explanation import Next, allowed
from kfm.web.console.views.schedules import first_moment
from kfm.web.console.visit import (
    ROWS,
    Filter,
    Link,
    NotHere,
    Paging,
    TypedFilter,
    Visit,
    chosen,
    paged,
    short,
    typed,
)

FILTERS = ("page",)
ONE_FILTERS = ("from", "days", "state", "page")
DAYS = ("7", "28", "91", "364")
DAYS_DEFAULT = 28
FEED_DAYS_DEFAULT = 7
STRIP = 14  # windows that a row shows
OPEN_SHOWN_MAX = 20
VERSIONS_SHOWN_MAX = 10
_MADE_BY = {
    "withdraw": "withdrawal",
    "retire": "retirement",
    "lift": "lifted withdrawal",
    "rename": "renaming",
}


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
    windows: int
    watermark_ms: int | None
    version: int | None
    strip: tuple[Spot, ...]


class DatasetsView(Record, frozen=True):
    rows: tuple[DatasetLine, ...]
    paging: Paging


def view(visit: Visit) -> DatasetsView:
    """Every dataset that is declared, and every feed that is looked at."""
    completeness = visit.completeness()
    heads = {head.dataset_id: head.sequence for head in visit.reader.heads()}
    found, feeds = completeness.names()[(visit.page() - 1) * ROWS :], completeness.feeds()
    rows = []
    for name in found[:ROWS]:
        coverage = completeness.coverage(name)
        health = coverage.health
        rows.append(
            DatasetLine(
                dataset_id=name,
                href=visit.dataset_page(name),
                word=word(health.state),
                causes=_causes(health, is_feed=name in feeds),
                windows=health.expected,
                watermark_ms=health.watermark_ms,
                version=heads.get(name),
                strip=tuple(_spot(visit, one) for one in _timed(coverage.windows)[-STRIP:]),
            )
        )
    return DatasetsView(rows=tuple(rows), paging=paged(visit, len(found), "datasets"))


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


class ListedVersion(Record, frozen=True):
    version: int
    at_ms: int
    by: str
    href: str | None
    files: int
    bytes: int
    note: str


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
    paging: Paging
    versions: tuple[ListedVersion, ...]
    runs_href: str
    commands: tuple[Next, ...]
    actions: tuple[Offer, ...]


def view_one(visit: Visit) -> DatasetView:
    completeness = visit.completeness()
    name = _wanted(visit, completeness.names())
    allowed(visit, name)
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
    listed = sorted(listed, key=lambda one: (one.end_ms, one.source_id), reverse=True)
    first = (visit.page() - 1) * ROWS
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
            Link(text=f"{health.counts[one]} {one}", href=visit.with_query(state=one, page=None))
            for one in WINDOW_STATES
            if one in health.counts
        ),
        all_href=visit.with_query(state=None, page=None),
        chosen_state=state or "",
        withdrawn=tuple(map(_withdrawn, withdrawals)),
        open=tuple(map(row, to_act[:OPEN_SHOWN_MAX])),
        open_count=len(to_act),
        calendars=tuple(_calendars(visit, coverage, inside, start_ms, end_ms)),
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
        rows=tuple(map(row, listed[first : first + ROWS])),
        rows_about=f"Every window that is {state}, the newest first"
        if state
        else "Windows of this span, the newest first",
        paging=paged(visit, max(len(listed) - first, 0), "windows"),
        versions=tuple(_versions(visit, name)),
        runs_href=visit.href("runs", dataset=name),
        commands=tuple(_commands(name, to_act, withdrawals, coverage if is_feed else None)),
        actions=tuple(_actions(visit, name, withdrawals)),
    )


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


def _versions(visit: Visit, name: str) -> list[ListedVersion]:
    promotions = visit.reader.promotions(name, VERSIONS_SHOWN_MAX)
    rows: list[ListedVersion] = []
    with visit.context.objects() as has:
        stored = StoredObjects(visit.context.settings.limits.versions_kept, has)
        documents = version_documents(visit.reader, name, promotions, stored)
    for promotion, one in zip(promotions, documents, strict=True):
        by = f"run {short(one['run_id'])}" if one["run_id"] else f"{_MADE_BY.get(one['by'], one['by'])}"
        if one["actor"]:
            by = f"{by} by {one['actor']}"
        note = "can be put back" if one["can_roll_back"] else f"holds what was {one['held_back']}"
        if one["held_back"] == "collected":
            note = "its objects were collected"
        rows.append(
            ListedVersion(
                version=one["version"],
                at_ms=promotion.promoted_at_ms,
                by=by,
                href=visit.run(one["run_id"]) if one["run_id"] else None,
                files=one["files"],
                bytes=one["bytes"],
                note="the head" if not rows else note,
            )
        )
    return rows


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
