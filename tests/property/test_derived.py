"""Stale and affected windows of derived datasets, against a recount that knows no cleverness."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm.db.derived import DerivedSources
from kfm.db.queries import migrate
from kfm.db.sqlite import MemoryDatabase
from kfm.model.derived import (
    DerivedWindow,
    affected,
    inputs_digest,
    items_read,
    part_of,
    stale_windows,
    unasked,
    wanted_windows,
)
from kfm.model.records import Asset, Item, Manifest
from kfm.model.settings import Care, Rights, SourceSettings
from kfm.model.versions import Version, version_of
from kfm.model.windows import SNAPSHOT, window_of
from tests.stand_ins import FakeClock

pytestmark = pytest.mark.req("DAT-7")

HOUR_MS = 3_600_000
BEGIN_MS = 1_767_225_600_000  # 2026-01-01
RIGHTS = Rights(license="CC0-1.0", care=Care(label="Public"))
SOURCE = SourceSettings(
    id="made",
    dataset="made",
    kind="dataset",
    window="P1D",
    datasets={"hourly": "window", "six": "window", "zones": "current"},
)
LENGTHS = {"hourly": 1, "six": 6}  # hours of a window
HOURS = 48

Content = dict[tuple[str, int], str]  # dataset and hour → what it holds; the zones at hour -1
changes = st.lists(
    st.tuples(
        st.sampled_from(["hourly", "six", "zones"]),
        st.integers(0, HOURS - 1),
        st.sampled_from(["", "a", "b"]),
    ),
    max_size=12,
)


def item(dataset: str, hour: int, content: str) -> Item:
    length = LENGTHS.get(dataset)
    start = BEGIN_MS + hour * HOUR_MS if length else SNAPSHOT.start_ms
    end = start + length * HOUR_MS if length else SNAPSHOT.end_ms
    asset = Asset(path=f"{dataset}-{hour}.csv", sha256=content * 64, size=1, media_type="text/csv")
    return Item(
        id=f"{dataset}-{hour}",
        source_id=dataset,
        window_start_ms=start,
        window_end_ms=end,
        partition=None,
        assets=(asset,),
    )


def slot(dataset: str, hour: int) -> tuple[str, int]:
    return (dataset, hour - hour % LENGTHS[dataset]) if dataset in LENGTHS else (dataset, -1)


def version(dataset: str, items: Iterable[Item]) -> Version:
    in_order = tuple(sorted(items, key=lambda one: one.id))
    return version_of(
        Manifest(
            dataset_id=dataset,
            title="",
            description="",
            domain="",
            keywords=(),
            rights=RIGHTS,
            items=in_order,
        )
    )


def head_of(dataset: str, content: Content) -> Version | None:
    if not any(name == dataset for name, _ in content):
        return None
    return version(
        dataset,
        (item(name, hour, held) for (name, hour), held in content.items() if name == dataset and held),
    )


def heads(content: Content) -> dict[str, Version | None]:
    return {name: head_of(name, content) for name in SOURCE.datasets}


def read(content: Content, day: int) -> frozenset[tuple[tuple[str, int], str]]:
    """What a run of that day reads, slot by slot; empty where an input holds nothing."""
    held = {
        at: each
        for at, each in content.items()
        if each and (at[0] == "zones" or day * 24 <= at[1] < (day + 1) * 24)
    }
    return frozenset(held.items()) if {name for name, _ in held} == set(SOURCE.datasets) else frozenset()


def span(day: int) -> tuple[int, int]:
    return BEGIN_MS + day * 24 * HOUR_MS, BEGIN_MS + (day + 1) * 24 * HOUR_MS


steps = st.lists(
    st.one_of(
        st.tuples(st.just("change"), changes),
        st.tuples(st.just("run"), st.integers(0, 1)),
        st.tuples(st.just("pass"), st.none()),
    ),
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(steps)
def test_stale_windows_equal_a_recount(history: list[tuple[str, Any]]) -> None:
    """Over random promotions, runs and passes: affected, stale and newly asked are what a recount says."""
    content: Content = {}
    made: dict[int, frozenset[Any]] = {}  # day → what its last run that published something read
    asked: dict[int, frozenset[Any]] = {}  # day → what was asked for last, and has not been made
    database = MemoryDatabase(clock=FakeClock())
    migrate(database, "sqlite", 1)
    noted, requested = DerivedSources(database), 0
    before: str | None = None
    known: dict[tuple[int, int], DerivedWindow] = {}
    for number, (what, value) in enumerate(history):
        if what == "change":
            for dataset, hour, held in value:
                content[slot(dataset, hour)] = held
        elif what == "run":
            now = read(content, value)
            if now:
                made[value] = now
                if asked.get(value) == now:
                    del asked[value]
                pinned = inputs_digest(
                    {
                        name: part_of(items_read(head, span(value), SOURCE.datasets[name]))
                        for name, head in heads(content).items()
                        if head
                    }
                )
                _pin(database, span(value), pinned)
        else:
            wanted = wanted_windows(SOURCE, heads(content), [one.span for one in noted.windows("made")])
            expected = {
                day
                for day in (0, 1)
                if read(content, day) != made.get(day, frozenset()) and asked.get(day) != read(content, day)
            }
            found = noted.note(
                "made", before=before, seen=str(number), wanted=wanted, moved={"hourly": number}
            )
            before = str(number)
            assert found == len(expected)
            requested += len(expected)
            for day in (0, 1):
                if day in expected:
                    asked[day] = read(content, day)
                elif read(content, day) == made.get(day, frozenset()):
                    asked.pop(day, None)
        known = {one.span: one for one in noted.windows("made")}
        _compare(content, made, known)
    assert len(database.session.all("burst_members.waiting")) == min(requested, 1)
    rows = database.session.all("burst_members.take", source_id="made", row_limit=10_000)
    assert len(rows) == len({row[1] for row in rows}) == requested


def _pin(database: MemoryDatabase, window: tuple[int, int], pinned: str) -> None:
    change: Callable[[Any], None] = lambda session: session.all(  # noqa: E731
        "derived_windows.pin",
        source_id="made",
        window_start_ms=window[0],
        window_end_ms=window[1],
        pinned=pinned,
        run_id=None,
    )
    database.write(change)


def _compare(
    content: Content, made: dict[int, frozenset[Any]], known: dict[tuple[int, int], DerivedWindow]
) -> None:
    wanted = wanted_windows(SOURCE, heads(content), known)
    found = affected(wanted, known.values())
    assert set(found) == {span(day) for day in (0, 1) if read(content, day) != made.get(day, frozenset())}
    shown = version(
        "made",
        (
            Item(
                id=str(day),
                source_id="made",
                window_start_ms=span(day)[0],
                window_end_ms=span(day)[1],
                partition=None,
                assets=(),
            )
            for day in made
        ),
    )
    stale = stale_windows(SOURCE, heads(content), shown, list(known.values()))
    assert {(one.window_start_ms, one.window_end_ms) for one in stale} == {
        span(day) for day in made if read(content, day) != made[day]
    }
    assert all(bool(one.missing) == (not wanted[one.window_start_ms, one.window_end_ms]) for one in stale)
    assert set(unasked(found, ())) == set(found)


@given(
    st.integers(0, 10_000),
    st.sampled_from(["PT1H", "PT6H", "P1D", "P2D", "P1W", "P1M", "P3M", "P1Y"]),
    st.sampled_from(["PT1H", "PT6H", "P1D", "P2D", "P1W", "P2W", "P1M", "P3M", "P1Y", "P2Y"]),
)
def test_windows_that_fit_lie_in_one_window(hours: int, inner: str, outer: str) -> None:
    """Where one length fits into another, every window of it ends within the window that it begins in."""
    from kfm.model.windows import fits_into

    zone = "America/New_York"
    small = window_of(inner, zone, BEGIN_MS + hours * HOUR_MS)
    large = window_of(outer, zone, small.start_ms)
    if fits_into(inner, outer):
        assert small.end_ms <= large.end_ms
