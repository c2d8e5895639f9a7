"""Window lengths: a source that merges windows gets another length by a planned migration. Pure.

Windows of the new length count from then on. One that is covered by published windows of other lengths counts
as published, and their data stays; one that is not is asked for, and replaces those that lie in it, in one
promotion. A window that lies in a published one, or across its edge, is refused: readers would see something
twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kfm.model.records import Item, Record
from kfm.model.settings import SourceSettings
from kfm.model.templates import named_unit_ms
from kfm.model.times import MS_MIN, rfc3339
from kfm.model.windows import NO_WINDOW, next_window, parse_instant, window_of

WINDOWS_MAX = 100_000  # of the new length, that one plan looks at


class WindowSpan(Record, frozen=True, order=True):
    """A span of time, half open."""

    start_ms: int
    end_ms: int

    def holds(self, other: WindowSpan) -> bool:
        return self.start_ms <= other.start_ms and other.end_ms <= self.end_ms

    def overlaps(self, other: WindowSpan) -> bool:
        return self.start_ms < other.end_ms and other.start_ms < self.end_ms

    def __str__(self) -> str:
        return f"{rfc3339(self.start_ms)}/{rfc3339(self.end_ms)}"


class Replacement(Record, frozen=True):
    """A window of the new length, and the published windows that it takes the place of."""

    window: WindowSpan
    replaces: tuple[WindowSpan, ...]


class RewindowPreview(Record, frozen=True):
    """What another window length makes of the windows of a source."""

    old: str | None  # None: none is on record
    new: str
    time_zone: str
    covered: tuple[WindowSpan, ...]
    asked_again: tuple[Replacement, ...]
    later: Replacement | None  # the window that is not over yet
    lasting: int  # published windows of other lengths that stay until something replaces them
    cancels: tuple[str, ...] = ()  # requests that wait for windows of the earlier length


class Rewindow(Record, frozen=True):
    """Another window length of a source, to be applied in one transaction."""

    source_id: str
    old: str | None
    new: str
    time_zone: str
    expected_before: str  # the rule that its windows are expected by, and the one from now on
    expected_after: str
    look_from_ms: int | None  # windows from here on are looked at for being overdue
    cancels: tuple[str, ...] = ()


class AcrossEdge(Exception):
    """A published window lies across the edge of a window that would have to be asked for."""

    def __init__(self, window: WindowSpan, published: WindowSpan) -> None:
        super().__init__(f"{published} lies across {window}")
        self.window = window
        self.published = published


class TooManyWindows(Exception):
    """The history has more windows of this length than one plan looks at."""


def merges_windows(source: SourceSettings) -> bool:
    """Has it windows that stand beside each other?"""
    return source.mode == "merge" and source.window != NO_WINDOW


def spans_of(items: Iterable[Item], source: SourceSettings) -> list[WindowSpan]:
    """The windows that a version shows of a source, by whichever of its names, in order."""
    return sorted(
        WindowSpan(start_ms=item.window_start_ms, end_ms=item.window_end_ms)
        for item in items
        if item.source_id in source.names and item.partition == source.partition
    )


def never_expected(source: SourceSettings) -> list[WindowSpan]:
    """The time before `expect.from`: nothing is asked for there, so it opens no window that reaches into
    it."""
    declared = source.expect.since if source.expect is not None else None
    if declared is None:
        return []
    return [WindowSpan(start_ms=MS_MIN, end_ms=parse_instant(declared, source.time_zone))]


def is_window(span: WindowSpan, length: str, zone: str) -> bool:
    """Is this a window of this length?"""
    found = window_of(length, zone, span.start_ms)
    return (found.start_ms, found.end_ms) == (span.start_ms, span.end_ms)


def is_covered(window: WindowSpan, spans: Iterable[WindowSpan]) -> bool:
    """Is every moment of the window in one of the spans?"""
    reached_ms = window.start_ms
    for span in sorted(one for one in spans if one.overlaps(window)):
        if span.start_ms > reached_ms:
            return False
        reached_ms = max(reached_ms, span.end_ms)
    return reached_ms >= window.end_ms


def across(window: WindowSpan, published: Iterable[WindowSpan]) -> WindowSpan | None:
    """The first published window that this one can't take the place of: it lies across its edge or around
    it."""
    return next((one for one in published if one.overlaps(window) and not window.holds(one)), None)


def replaced(window: WindowSpan, published: Iterable[WindowSpan]) -> tuple[WindowSpan, ...]:
    """The published windows of other lengths that this one takes the place of."""
    return tuple(one for one in published if window.holds(one) and one != window)


def preview(
    old: str | None,
    new: str,
    zone: str,
    published: Sequence[WindowSpan],
    settled: Sequence[WindowSpan],
    now_ms: int,
) -> RewindowPreview:
    """What becomes of the windows of a source. `settled`: spans that are dismissed or withdrawn; nothing is
    asked for there. Raises where a window could not be asked for without a hole or a second copy."""
    covered: list[WindowSpan] = []
    again: list[Replacement] = []
    later: Replacement | None = None
    published_at, settled_at = _Overlapping(published), _Overlapping(settled)
    for window in _windows(new, zone, published, now_ms):
        there = published_at(window)
        if window in there or not there:
            continue
        if is_covered(window, (*there, *settled_at(window))):
            covered.append(window)
            continue
        edge = across(window, there)
        if edge is not None:
            raise AcrossEdge(window, edge)
        made = Replacement(window=window, replaces=tuple(there))
        if window.end_ms <= now_ms:
            again.append(made)
        else:
            later = made
    others = [one for one in published if not is_window(one, new, zone)]
    return RewindowPreview(
        old=old,
        new=new,
        time_zone=zone,
        covered=tuple(covered),
        asked_again=tuple(again),
        later=later,
        lasting=len(others),
    )


class _Overlapping:
    """The spans that overlap a window, in their order; windows come with rising starts, each span is passed
    once."""

    def __init__(self, spans: Sequence[WindowSpan]) -> None:
        self._waiting = sorted(spans, reverse=True)
        self._there: list[WindowSpan] = []

    def __call__(self, window: WindowSpan) -> list[WindowSpan]:
        while self._waiting and self._waiting[-1].start_ms < window.end_ms:
            self._there.append(self._waiting.pop())
        self._there = [one for one in self._there if one.end_ms > window.start_ms]
        return list(self._there)


def _windows(length: str, zone: str, published: Sequence[WindowSpan], now_ms: int) -> Iterable[WindowSpan]:
    """Every window of this length from the first published one to the present one."""
    if not published:
        return
    last_ms = max(now_ms, published[-1].end_ms - 1)
    window = window_of(length, zone, published[0].start_ms)
    for _ in range(WINDOWS_MAX):
        yield WindowSpan(start_ms=window.start_ms, end_ms=window.end_ms)
        if window.end_ms > last_ms:
            return
        window = next_window(window, zone)
    raise TooManyWindows(length)


def narrow_names(source: SourceSettings, length: str, now_ms: int) -> tuple[str, ...]:
    """The settings that name a shorter span than a window of this length: what they find may be a part of
    it."""
    window = window_of(length, source.time_zone, now_ms)
    written = {"pattern": source.pattern, "url": source.url or "", "prefix": source.prefix}
    written |= {f"params.{name}": text for name, text in source.params.items()}
    units = {name: named_unit_ms(text) for name, text in written.items()}
    found = {name: unit_ms for name, unit_ms in units.items() if unit_ms is not None}
    long_ms = window.end_ms - window.start_ms - 3_600_000  # the day of 25 hours is one
    return tuple(name for name, unit_ms in found.items() if unit_ms < long_ms)


def rewindow_command(source_id: str, length: str) -> str:
    """The command that shows what another length makes of the windows; with `--yes` it is applied."""
    return f"kfm source rewindow {source_id} --window {length}"


def rewindow_remedy(source_id: str, configured: str, recorded: str) -> str:
    """What a person does about a length in the configuration that is not the one on record."""
    return (
        f"`{rewindow_command(source_id, configured)}` shows what becomes of each window, and with "
        f"`--yes --rationale TEXT` applies it; or write `window: {recorded}`."
    )
