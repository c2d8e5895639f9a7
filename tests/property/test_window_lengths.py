"""Windows of several lengths: whatever is asked for in whichever order, readers see no hole and nothing
twice."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm.model.gates import length_gates
from kfm.model.records import Item, Window
from kfm.model.settings import Care, DatasetSettings, Rights, SourceSettings
from kfm.model.versions import Version
from kfm.model.window_rules import (
    AcrossEdge,
    RewindowPreview,
    WindowSpan,
    _Overlapping,
    across,
    is_covered,
    is_window,
    preview,
    replaced,
    spans_of,
)
from kfm.model.windows import window_of
from kfm.publish.manifest import merge

pytestmark = pytest.mark.req("DAT-5")

LENGTHS = ("PT6H", "P1D", "P2D", "P1W", "P1M")
ZONES = ("UTC", "Europe/Berlin")
HOUR_MS = 3_600_000
BEGIN_MS = 1_773_446_400_000  # 2026-03-14: a change of the clocks lies ahead
DATASET = DatasetSettings(id="d", rights=Rights(license="CC0-1.0", care=Care(label="Public")))

Step = tuple[str, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(["run", "stale", "rewindow"]), st.integers(0, 40 * 24), st.sampled_from(LENGTHS)
    ),
    min_size=1,
    max_size=30,
)


def item(source: SourceSettings, window: Window) -> Item:
    return Item(
        id="",
        source_id=source.id,
        window_start_ms=window.start_ms,
        window_end_ms=window.end_ms,
        partition=None,
        assets=(),
    )


def covered_ms(spans: list[WindowSpan]) -> set[int]:
    return {at_ms for one in spans for at_ms in range(one.start_ms, one.end_ms, HOUR_MS)}


def planned_for(
    source: SourceSettings, length: str, shown: list[WindowSpan], now_ms: int
) -> RewindowPreview | AcrossEdge:
    try:
        return preview(source.window, length, source.time_zone, shown, (), now_ms)
    except AcrossEdge as edge:
        return edge


@given(steps, st.sampled_from(ZONES), st.sampled_from(LENGTHS))
@settings(deadline=None, max_examples=150)
def test_no_hole_and_no_second_copy(todo: list[tuple[str, int, str]], zone: str, first: str) -> None:
    """Over any sequence of windows of earlier and later lengths: what is published stays disjoint, what it
    covers never shrinks, and every window of the length in force is covered, can be asked for, or its plan
    was refused."""
    source = SourceSettings(id="s", dataset="d", kind="files", window=first, time_zone=zone)
    recorded: tuple[str, str | None] = (first, None)
    head: Version | None = None
    lengths, latest_ms = [first], BEGIN_MS
    for what, hours, length in todo:
        shown = spans_of(head.items(), source) if head else []
        at_ms = BEGIN_MS + hours * HOUR_MS
        if what == "rewindow":
            if length == source.window or not shown:
                continue
            planned = planned_for(source, length, shown, latest_ms)
            if isinstance(planned, AcrossEdge):
                assert not planned.window.holds(planned.published)
                assert planned.window.overlaps(planned.published)
                continue
            for one in (*planned.asked_again, *([planned.later] if planned.later else ())):
                assert one.replaces == replaced(one.window, shown)
                assert across(one.window, shown) is None, "what is asked for can be published"
            for window in planned.covered:
                assert is_covered(window, shown)
            source = SourceSettings(id="s", dataset="d", kind="files", window=length, time_zone=zone)
            recorded = (length, "change")
            lengths.append(length)
            continue
        asked = window_of(lengths[hours % len(lengths)] if what == "stale" else source.window, zone, at_ms)
        if recorded[1] is None and asked.spec != first:
            continue
        if any(not one.allowed for one in length_gates(source, asked, recorded, shown)):
            blocked = WindowSpan(start_ms=asked.start_ms, end_ms=asked.end_ms)
            assert any(one.overlaps(blocked) for one in shown), "nothing stands in its place"
            continue
        before = covered_ms(shown)
        head = merge(head, DATASET, item(source, asked), "merge", rewindowed=recorded[1] is not None)
        after = spans_of(head.items(), source)
        latest_ms = max(latest_ms, asked.end_ms)
        assert all(left.end_ms <= right.start_ms for left, right in itertools.pairwise(after))
        assert before <= covered_ms(after)
        assert WindowSpan(start_ms=asked.start_ms, end_ms=asked.end_ms) in after


@given(st.sampled_from(LENGTHS), st.sampled_from(ZONES), st.integers(0, 400 * 24))
def test_a_window_is_one_of_its_length_alone(length: str, zone: str, hours: int) -> None:
    """A window is recognized by its edges; one that is an hour longer is none."""
    window = window_of(length, zone, BEGIN_MS + hours * HOUR_MS)
    assert is_window(WindowSpan(start_ms=window.start_ms, end_ms=window.end_ms), length, zone)
    assert not is_window(WindowSpan(start_ms=window.start_ms, end_ms=window.end_ms + HOUR_MS), length, zone)


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 8)), max_size=8),
    st.integers(0, 30),
    st.integers(1, 9),
)
def test_covered_is_every_moment(found: list[tuple[int, int]], start: int, length: int) -> None:
    """A window is covered if each of its moments is, by a recount."""
    spans = [WindowSpan(start_ms=at, end_ms=at + long) for at, long in found]
    window = WindowSpan(start_ms=start, end_ms=start + length)
    recount = all(
        any(one.start_ms <= at < one.end_ms for one in spans) for at in range(window.start_ms, window.end_ms)
    )
    assert is_covered(window, spans) == recount


spans = st.builds(
    lambda start, length: WindowSpan(start_ms=start, end_ms=start + length),
    st.integers(0, 200),
    st.integers(1, 40),
)


@given(st.lists(spans, max_size=40), st.lists(spans, max_size=40))
def test_what_overlaps_is_found_in_one_pass(there: list[WindowSpan], windows: list[WindowSpan]) -> None:
    """For windows that follow each other, whatever lies beside, across or around them: as by a look at all,
    and each is looked at only while it can overlap."""
    at_ms, overlapping = 0, _Overlapping(there)
    for one in windows:
        window = WindowSpan(start_ms=at_ms, end_ms=at_ms + one.end_ms - one.start_ms)
        assert overlapping(window) == sorted(other for other in there if other.overlaps(window))
        at_ms = window.end_ms
