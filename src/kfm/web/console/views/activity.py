"""Activity: every trigger with its outcome, unchanged and refused ones too, as a list and as a timeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kfm.model.errors import UsageError
from kfm.model.quantities import counted, duration, moment
from kfm.model.records import Invocation, Record, Run
from kfm.web.console import state_words, time_range
from kfm.web.console.state_words import Word
from kfm.web.console.time_range import TimeRange
from kfm.web.console.views.requests import KINDS
from kfm.web.console.visit import (
    PLACE_DIGITS_MAX,
    ROWS,
    Filter,
    Link,
    Paging,
    TypedFilter,
    Visit,
    chosen,
    short,
    typed,
)

FILTERS = (*time_range.FILTERS, "outcome", "dataset", "source", "trigger", "text", "view", "before")
OUTCOMES = ("running", "success", "noop", "failed", "refused", "busy")
TRIGGERS = {**KINDS, "retry": "retry"}
VIEWS = ("list", "timeline")
USUAL: dict[str, dict[str, str]] = {
    "Last 24 h": {"last": "24h", "view": "timeline"},
    "Failed": {"last": "7d", "outcome": "failed"},
    "Refused": {"last": "7d", "outcome": "refused"},
    "Running": {"last": "all", "outcome": "running"},
    "By people": {"last": "30d", "trigger": "manual"},
}
LOOKED_MAX = 2000  # rows that one page reads to find those that match
BARS_MAX = 500
LABEL, WIDTH, ROW, TOP = 190, 900, 26, 26
BAR_MIN = 3
TICKS = 6


class ActivityRow(Record, frozen=True):
    at_ms: int
    href: str
    invocation_id: str
    word: Word
    dataset_id: str
    dataset_href: str
    source_id: str
    start_ms: int | None
    end_ms: int | None
    trigger: str
    actor: str
    took_ms: int | None
    run_id: str
    run_href: str | None
    reason: str
    ticket: str


class ActivityBar(Record, frozen=True):
    x: float
    y: int
    width: float
    word: Word
    href: str
    title: str


class TimelineLabel(Record, frozen=True):
    y: int
    text: str
    href: str
    dataset_id: str


class TimeTick(Record, frozen=True):
    x: float
    text: str


class ActivityTimeline(Record, frozen=True):
    width: int
    height: int
    labels: tuple[TimelineLabel, ...]
    bars: tuple[ActivityBar, ...]
    ticks: tuple[TimeTick, ...]
    summary: str


class ActivityView(Record, frozen=True):
    filters: tuple[Filter | TypedFilter, ...]
    views: tuple[Link, ...]
    saved: tuple[Link, ...]
    rows: tuple[ActivityRow, ...]
    timeline: ActivityTimeline | None
    paging: Paging
    clear: str
    span: str


class _Asked(NamedTuple):
    """What rows must be like."""

    outcome: str | None
    dataset: str | None
    source: str | None
    trigger: str | None
    text: str

    def takes(self, visit: Visit, call: Invocation) -> bool:
        if self.dataset not in (None, call.dataset_id) or self.source not in (None, call.source_id):
            return False
        if self.outcome not in (None, call.outcome or "running"):
            return False
        return self.trigger in (None, call.trigger_type) and (not self.text or self._tells(visit, call))

    def _tells(self, visit: Visit, call: Invocation) -> bool:
        """Is the text in what the caller may see of it?"""
        if visit.visibility.hides(call.dataset_id):
            return False
        told = (call.ticket, call.rationale, call.reason, call.reason_code, call.actor, call.dataset_id)
        return any(self.text in part.lower() for part in (*told, call.source_id, call.run_id) if part)


def view(visit: Visit) -> ActivityView:
    span = time_range.time_range(visit)
    settings = visit.context.settings
    asked = _Asked(
        visit.choice("outcome", OUTCOMES),
        visit.dataset(),
        visit.source(),
        visit.choice("trigger", tuple(TRIGGERS)),
        visit.query.get("text", "").lower(),
    )
    shape = visit.choice("view", VIEWS) or "list"
    words = [state_words.of_invocation(each if each != "running" else None).text for each in OUTCOMES]
    filters = (
        *span.filters,
        chosen("outcome", "Outcome", OUTCOMES, asked.outcome, words),
        chosen("dataset", "Dataset", [each.id for each in settings.datasets], asked.dataset),
        chosen("source", "Source", [each.id for each in settings.sources], asked.source),
        chosen("trigger", "Trigger", tuple(TRIGGERS), asked.trigger, tuple(TRIGGERS.values())),
        typed("text", "Ticket, person, error or text", visit.query.get("text")),
    )
    found, paging = _page(visit, span, asked, BARS_MAX if shape == "timeline" else ROWS)
    runs = {run_id: run for run_id in _run_ids(found) if (run := visit.reader.run(run_id)) is not None}
    drawn = _timeline(visit, span, found, runs) if shape == "timeline" else None
    return ActivityView(
        filters=filters,
        views=tuple(
            Link(text=each, href="" if each == shape else visit.with_query(view=each, before=None))
            for each in VIEWS
        ),
        saved=tuple(_usual(visit)),
        rows=tuple(_row(visit, call, runs) for call in found) if drawn is None else (),
        timeline=drawn,
        paging=paging,
        clear=visit.href("activity"),
        span=span.text,
    )


def _usual(visit: Visit) -> Iterator[Link]:
    """Views that are asked for most; those of one's own are kept by the browser."""
    asked = {name: value for name, value in visit.query.items() if name != "before"}
    for text, query in USUAL.items():
        yield Link(text=text, href="" if query == asked else visit.href("activity", **query))


def _run_ids(calls: Sequence[Invocation]) -> Iterator[str]:
    return (call.run_id for call in calls if call.run_id and call.outcome in (None, "success", "failed"))


def _page(visit: Visit, span: TimeRange, asked: _Asked, rows: int) -> tuple[list[Invocation], Paging]:
    """So many that match, of at most LOOKED_MAX that are read; the link to older ones goes on behind the last
    that was read, so nothing is left out, however rarely one matches."""
    until_ms, number = _before(visit.query.get("before"), span.until_ms)
    most = LOOKED_MAX if any(asked) else min(rows, LOOKED_MAX)  # without a filter each row is shown
    looked = visit.reader.invocations_before(span.from_ms, until_ms, number, most + 1)
    found: list[Invocation] = []
    last: tuple[int, Invocation] | None = None
    for each in looked[:most]:
        if len(found) == rows:
            break
        last = each
        if asked.takes(visit, each[1]):
            found.append(each[1])
    more = last is not None and last[0] != looked[-1][0]
    summary = f"{counted(len(found), 'trigger')}, newest first" if found else "no triggers"
    if more and last is not None and len(found) < rows:
        summary += f"; looked back to {moment(last[1].requested_at_ms)}"
    paging = Paging(
        newer=visit.with_query(before=None) if "before" in visit.query else None,
        older=visit.with_query(before=f"{last[1].requested_at_ms}.{last[0]}") if more and last else None,
        summary=summary,
        newest=True,
    )
    return found, paging


def _before(text: str | None, until_ms: int) -> tuple[int, int]:
    if text is None:
        return until_ms, 0
    at_ms, _, number = text.partition(".")
    for part in (at_ms, number):
        if not part.isascii() or not part.isdigit() or len(part) > PLACE_DIGITS_MAX:
            raise UsageError("`before` is not from a link to older ones.")
    return min(int(at_ms), until_ms), int(number)


def _word(visit: Visit, call: Invocation, runs: dict[str, Run]) -> Word:
    run = runs.get(call.run_id or "") if call.outcome == "success" else None
    return state_words.of_invocation(call.outcome) if run is None else state_words.of_run(visit.reader, run)


def _took(visit: Visit, call: Invocation, runs: dict[str, Run]) -> int | None:
    """From the call to the end of the attempt that it began; one that began none took no time to speak of."""
    run = runs.get(call.run_id or "")
    if run is None:
        return None
    end_ms = visit.now_ms if call.outcome is None else run.end_time_ms
    if run.attempts > 1:
        later = (each for each in visit.reader.attempts(run.run_id) if not each.node)
        own = next((each for each in later if each.started_at_ms >= call.requested_at_ms), None)
        end_ms = own.ended_at_ms or visit.now_ms if own is not None else end_ms
    return max(end_ms - call.requested_at_ms, 0) if end_ms is not None else None


def _row(visit: Visit, call: Invocation, runs: dict[str, Run]) -> ActivityRow:
    return ActivityRow(
        at_ms=call.requested_at_ms,
        href=visit.at("calls", call.invocation_id),
        invocation_id=short(call.invocation_id),
        word=_word(visit, call, runs),
        dataset_id=call.dataset_id,
        dataset_href=visit.dataset_page(call.dataset_id),
        source_id=call.source_id,
        start_ms=call.window_start_ms,
        end_ms=call.window_end_ms,
        trigger=TRIGGERS.get(call.trigger_type, call.trigger_type),
        actor=call.actor,
        took_ms=_took(visit, call, runs),
        run_id=short(call.run_id) if call.run_id else "",
        run_href=visit.run(call.run_id) if call.run_id else None,
        reason=call.reason or call.rationale or "",
        ticket=call.ticket or "",
    )


def _timeline(
    visit: Visit, span: TimeRange, calls: Sequence[Invocation], runs: dict[str, Run]
) -> ActivityTimeline:
    """A row for each dataset, a bar for each call: as long as the run that it began, or a mark."""
    start = span.from_ms or min((call.requested_at_ms for call in calls), default=visit.now_ms)
    end = min(span.until_ms, visit.now_ms)
    scale = WIDTH / max(end - start, 1)
    names = sorted({call.dataset_id for call in calls})
    rows = {name: TOP + index * ROW for index, name in enumerate(names)}

    def bar(call: Invocation) -> ActivityBar:
        took, word = _took(visit, call, runs) or 0, _word(visit, call, runs)
        x = LABEL + max(call.requested_at_ms - start, 0) * scale
        length = f", {duration(took)}" if took else ""
        return ActivityBar(
            x=round(x, 1),
            y=rows[call.dataset_id],
            width=round(max(min(took * scale, LABEL + WIDTH - x), BAR_MIN), 1),
            word=word,
            href=visit.run(call.run_id) if call.run_id else visit.at("calls", call.invocation_id),
            title=f"{moment(call.requested_at_ms)}: {word.text}{length}",
        )

    ticks = [
        TimeTick(
            x=LABEL + WIDTH * number / TICKS,
            text=moment(round(start + (end - start) * number / TICKS)).removesuffix(" UTC")[5:],
        )
        for number in range(TICKS + 1)
    ]
    return ActivityTimeline(
        width=LABEL + WIDTH + 60,
        height=TOP + ROW * len(names) + 8,
        labels=tuple(
            TimelineLabel(
                y=y,
                text=name if len(name) <= 24 else f"{name[:23]}…",
                href=visit.dataset_page(name),
                dataset_id=name,
            )
            for name, y in rows.items()
        ),
        bars=tuple(map(bar, reversed(calls))),
        ticks=tuple(ticks) if names else (),
        summary=f"{counted(len(calls), 'trigger')} of {counted(len(names), 'dataset')}, {span.text}",
    )
