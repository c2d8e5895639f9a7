"""Timeline of a run: its attempts and their nodes, to scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from kfm.model.quantities import counted, duration
from kfm.model.records import Record
from kfm.model.runs import Attempt, CallRetry
from kfm.reports.state_words import is_refusal
from kfm.web.console import state_words
from kfm.web.console.state_words import Word

ROWS_MAX = 120
LABEL, WIDTH, ROW, TOP = 190, 620, 24, 26
BAR_MIN = 3
TICKS = 5


class TimelineBar(Record, frozen=True):
    y: int
    label: str
    whole: bool  # the attempt, not one of its nodes
    x: float
    width: float
    took: str
    took_x: float
    end: bool  # is what it took written before its end, for lack of room after it?
    word: Word
    title: str
    retries: tuple[float, ...]


class Tick(Record, frozen=True):
    x: float
    text: str


class AttemptRow(Record, frozen=True):
    attempt: int
    node: str
    word: Word
    started_ms: int
    delay_ms: int
    took_ms: int | None
    error: str
    retries: int


class Timeline(Record, frozen=True):
    width: int
    height: int
    bars: tuple[TimelineBar, ...]
    ticks: tuple[Tick, ...]
    rows: tuple[AttemptRow, ...]
    summary: str


def timeline(attempts: Sequence[Attempt], retries: Sequence[CallRetry], now_ms: int) -> Timeline:
    shown = attempts[:ROWS_MAX]
    tried: dict[tuple[int, str], list[int]] = {}
    for retry in retries:
        tried.setdefault((retry.attempt, retry.node), []).append(retry.at_ms)
    start = min((each.started_at_ms for each in shown), default=now_ms)
    end = max((each.ended_at_ms or now_ms for each in shown), default=now_ms)
    scale = WIDTH / max(end - start, 1)
    bars = [
        _bar(each, index, start, scale, now_ms, tried.get((each.attempt, each.node), []))
        for index, each in enumerate(shown)
    ]
    count = max((each.attempt for each in attempts), default=0)
    return Timeline(
        width=LABEL + WIDTH + 60,
        height=TOP + ROW * len(shown) + 8,
        bars=tuple(bars),
        ticks=_ticks(start, end) if shown else (),
        rows=tuple(_row(each, now_ms, len(tried.get((each.attempt, each.node), []))) for each in attempts),
        summary=f"{counted(count, 'attempt')} in {duration(end - start)}, "
        f"{counted(len(retries), 'failed call')}",
    )


class Span(NamedTuple):
    """A node as long as it ran."""

    name: str
    word: Word
    started_ms: int
    took_ms: int


def gantt(spans: Sequence[Span], count: int) -> Timeline:
    """`spans` in the order in which they began, of `count` that ran."""
    start = min(each.started_ms for each in spans)
    end = max(each.started_ms + each.took_ms for each in spans)
    scale = WIDTH / max(end - start, 1)
    shown = (
        f"the {len(spans)} longest of {counted(count, 'node')}"
        if count > len(spans)
        else counted(count, "node")
    )
    return Timeline(
        width=LABEL + WIDTH + 60,
        height=TOP + ROW * len(spans) + 8,
        bars=tuple(_span_bar(each, index, start, scale) for index, each in enumerate(spans)),
        ticks=_ticks(start, end),
        rows=(),
        summary=f"{shown}, {duration(end - start)} in all",
    )


def _ticks(start: int, end: int) -> tuple[Tick, ...]:
    return tuple(
        Tick(x=LABEL + WIDTH * number / TICKS, text=f"+{duration(round((end - start) * number / TICKS))}")
        for number in range(TICKS + 1)
    )


def _span_bar(each: Span, index: int, start: int, scale: float) -> TimelineBar:
    title = f"{each.name}: {each.word.text}, {duration(each.took_ms)}"
    return _drawn(each.name, each.word, each.started_ms - start, each.took_ms, index, scale, title)


def _drawn(
    name: str, word: Word, after_ms: int, took: int, index: int, scale: float, title: str
) -> TimelineBar:
    x = LABEL + after_ms * scale
    width = max(took * scale, BAR_MIN)
    late = x + width > LABEL + WIDTH - 30
    return TimelineBar(
        y=TOP + index * ROW,
        label=name if len(name) <= 24 else f"{name[:11]}…{name[-12:]}",
        whole=False,
        x=round(x, 1),
        width=round(width, 1),
        took=duration(took),
        took_x=round(x - 6 if late and x > LABEL + 80 else x + width + 6, 1),
        end=late and x > LABEL + 80,
        word=word,
        title=title,
        retries=(),
    )


def _bar(each: Attempt, index: int, start: int, scale: float, now_ms: int, tried: list[int]) -> TimelineBar:
    took = (each.ended_at_ms or now_ms) - each.started_at_ms
    name = each.node or f"attempt {each.attempt}"
    word = word_of(each)
    title = f"{name}: {word.text}, {duration(took)}" + (f", {each.error_code}" if each.error_code else "")
    return msgspec.structs.replace(
        _drawn(name, word, each.started_at_ms - start, took, index, scale, title),
        whole=not each.node,
        retries=tuple(round(LABEL + (at_ms - start) * scale, 1) for at_ms in tried),
    )


def _row(each: Attempt, now_ms: int, retries: int) -> AttemptRow:
    return AttemptRow(
        attempt=each.attempt,
        node=each.node or "whole attempt",
        word=word_of(each),
        started_ms=each.started_at_ms,
        delay_ms=each.delay_ms,
        took_ms=(each.ended_at_ms or now_ms) - each.started_at_ms,
        error=": ".join(part for part in (each.error_code, each.error_message) if part),
        retries=retries,
    )


def word_of(each: Attempt) -> Word:
    if each.ending is None:
        return state_words.word("running")
    if each.ending == "abort":
        return state_words.word("interrupted")
    if each.ending == "fail" and is_refusal(each.error_code):
        return state_words.word("refused")
    return state_words.of_node(each.outcome or ("success" if each.ending == "complete" else "failed"))
