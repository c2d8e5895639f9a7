"""Accounting for scheduled times: each gets one fate, in any process, however often and however late."""

from __future__ import annotations

from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kfm.model.scheduled_times import INSTANTS_MAX, account, backfill, coverage, next_due_ms
from kfm.model.schedules import (
    Accounting,
    MissedPolicy,
    Overlap,
    Schedule,
    Which,
    due_ms,
    instants,
    missed_instants,
)
from tests.schedules.book import (
    HOUR_MS,
    LATE_MS,
    MINUTE_MS,
    NOW_MS,
    SECOND_MS,
    SOURCE,
    Book,
    every,
    seen,
)

pytestmark = pytest.mark.req("UPD-13", "TRG-2")

SCHEDULES = st.builds(
    lambda pattern, jitter, overlap, run, within, cap, paused: Schedule(
        id="i",
        source="s",
        **pattern,
        jitter_ms=jitter * SECOND_MS,
        overlap=overlap,
        missed=MissedPolicy(run=run, within_ms=within * MINUTE_MS, cap=cap),
        while_paused=paused,
    ),
    st.one_of(
        st.builds(lambda seconds: {"every_ms": seconds * SECOND_MS}, st.integers(10, 7_200)),
        st.sampled_from(
            [
                {"cron": "*/5 * * * *"},
                {"cron": "30 * * * *", "time_zone": "Australia/Lord_Howe"},
                {"cron": "*/20 1-3 * * *", "time_zone": "America/Chicago"},
            ]
        ),
    ),
    st.sampled_from([0, 0, 5, 600]),
    st.sampled_from(get_args(Overlap)),
    st.sampled_from(get_args(Which)),
    st.integers(0, 1_000),
    st.integers(1, 12),
    st.sampled_from(["hold", "drop"]),
)
# What happens: time passes (or a clock is set back), a request ends, a person pauses or resumes.
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("pass"), st.one_of(st.integers(-300, 900), st.integers(0, 40_000))),
        st.tuples(st.just("settle"), st.integers(0, 3)),
        st.tuples(st.just("run"), st.integers(0, 3)),
        st.tuples(st.sampled_from(["pause", "resume"]), st.just(0)),
    ),
    max_size=25,
)


def act(book: Book, event: str, amount: int, now_ms: int) -> None:
    unsettled = book.unsettled()
    if event == "settle" and unsettled:
        book.settle(unsettled[amount % len(unsettled)].request_id)
    elif event == "run" and unsettled:
        one = unsettled[amount % len(unsettled)]
        book.requests[one.request_id] = replace(one, state="running")
    elif event in ("pause", "resume"):
        book.pause(now_ms if event == "pause" else None)


@settings(max_examples=250, deadline=None)
@given(SCHEDULES, EVENTS)
def test_every_instant_has_one_fate(schedule: Schedule, events: list[tuple[str, int]]) -> None:
    """Whatever happens, each instant up to the cursor is in one row, none after it is in any; a request has
    its row and a row its request."""
    book, now_ms = seen(schedule), NOW_MS
    for event, amount in events:
        if event == "pass":
            now_ms += amount * SECOND_MS
        act(book, event, amount, now_ms)
        book.look(schedule, now_ms)
        while book.look(schedule, now_ms) is not None:
            pass  # a pass has a limit
    assert book.state is not None
    cursor_ms = book.state.cursor_ms
    assert all(len(rows) == 1 for rows in book.fates(schedule, NOW_MS + 1, cursor_ms + 1).values())
    assert all(row.last_ms <= cursor_ms for row in book.rows)
    ordered = sorted(book.rows, key=lambda row: row.instant_ms)
    assert all(earlier.last_ms < later.instant_ms for earlier, later in pairwise(ordered))
    assert {row.request_id for row in book.rows if row.became == "request"} == set(book.requests)
    if book.state.paused_at_ms is None or schedule.while_paused == "drop":
        due = [at for at in instants(schedule, cursor_ms + 1, now_ms + 1) if due_ms(schedule, at) <= now_ms]
        assert due == []
        following = next_due_ms(schedule, book.state)
        assert following is not None
        assert following > now_ms


@settings(max_examples=150, deadline=None)
@given(
    st.lists(SCHEDULES, min_size=2, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 200), st.booleans()), max_size=40),
)
def test_processes_that_disagree(files: list[Schedule], looks: list[tuple[int, int, bool]]) -> None:
    """Processes with different files, which also write late what they saw long ago, never give an instant
    two fates, and those that all of them expect have one."""
    files = [*files, replace(files[0], enabled=False)]
    book, now_ms = seen(files[0]), NOW_MS
    stale: Accounting | None = None
    for which, seconds, keeps in looks:
        now_ms += seconds * SECOND_MS
        schedule = files[which % len(files)]
        step = account(schedule, SOURCE, book.state, book.unsettled(), now_ms, late_ms=LATE_MS, actor="serve")
        if stale is not None:
            book.account(stale)
        stale = None
        if step is not None and keeps:
            stale = step
        elif step is not None:
            book.account(step)
    ordered = sorted(book.rows, key=lambda row: row.instant_ms)
    assert all(earlier.last_ms < later.instant_ms for earlier, later in pairwise(ordered))
    assert book.state is not None
    common = set.intersection(
        *(set(instants(one, NOW_MS + 1, book.state.cursor_ms + 1)) for one in files[:-1] if one.enabled)
    )
    for at_ms in common:
        assert len([row for row in book.rows if row.instant_ms <= at_ms <= row.last_ms]) <= 1


def test_a_common_instant_is_never_lost() -> None:
    """Two processes whose files differ: what both expect is run once, and neither waits for ever."""
    often, seldom = every(10 * SECOND_MS), every(30 * SECOND_MS)
    book, start_ms = seen(often), NOW_MS
    for second in range(1, 301):
        for one in (often, seldom) if second % 2 else (seldom, often):
            step = book.look(one, start_ms + second * SECOND_MS)
            for made in step.requests if step else ():
                book.settle(made.request_id)
    assert set(book.became(often, start_ms + 1, start_ms + 300 * SECOND_MS)) == {"request"}


@pytest.mark.parametrize("disagree", [False, True])
def test_all_interleavings(disagree: bool) -> None:
    """Three processes, each of which reads and then writes twice, in every order: no instant twice."""
    first = every(10 * SECOND_MS, overlap="cancel-older")
    files = [first, first, every(20 * SECOND_MS) if disagree else first]
    now_ms = NOW_MS + 45 * SECOND_MS

    def orders(left: tuple[int, ...]) -> list[tuple[int, ...]]:
        if not any(left):
            return [()]
        found = []
        for who, steps in enumerate(left):
            if steps:
                rest = tuple(n - (who == at) for at, n in enumerate(left))
                found += [(who, *order) for order in orders(rest)]
        return found

    seen_orders = orders((4, 4, 2))  # read, write, read, write; the third once
    assert len(seen_orders) == 3_150
    for order in seen_orders:
        book, held = seen(first), [None, None, None]  # type: tuple[Book, list[Accounting | None]]
        has_read = [False, False, False]
        for at, who in enumerate(order):
            if has_read[who]:
                has_read[who] = False
                if held[who] is not None:
                    book.account(held[who])  # type: ignore[arg-type]
                continue
            has_read[who] = True
            held[who] = account(
                files[who],
                SOURCE,
                book.state,
                book.unsettled(),
                now_ms + at * 3 * SECOND_MS,
                late_ms=LATE_MS,
                actor=str(who),
            )
        ordered = sorted(book.rows, key=lambda row: row.instant_ms)
        assert all(earlier.last_ms < later.instant_ms for earlier, later in pairwise(ordered))
        assert book.state is not None
        if not disagree:
            fates = book.fates(first, NOW_MS + 1, book.state.cursor_ms + 1)
            assert fates
            assert all(len(rows) == 1 for rows in fates.values())


@settings(max_examples=60, deadline=None)
@given(SCHEDULES, st.integers(2, 5_000))
def test_after_a_long_absence(schedule: Schedule, minutes: int) -> None:
    """What was missed is treated as its policy says at that moment, in one bounded step."""
    now_ms = NOW_MS + minutes * MINUTE_MS
    book = seen(schedule)
    step = book.look(schedule, now_ms)
    if step is None:
        return
    assert len(step.instants) <= schedule.missed.cap + INSTANTS_MAX + 2
    made = [one.instant_ms for one in step.requests if one.instant_ms is not None]
    late = [at for at in made if due_ms(schedule, at) < now_ms - LATE_MS]
    on_time = [at for at in made if at not in late]
    edge_ms = now_ms - LATE_MS
    every_late = [at for at in instants(schedule, NOW_MS + 1, edge_ms) if due_ms(schedule, at) < edge_ms]
    if schedule.missed.run == "last" and on_time:
        assert late == []
    elif every_late:
        expected = missed_instants(schedule, SOURCE, NOW_MS, every_late[-1], now_ms).run_ms
        assert tuple(late) == expected
    assert all(at >= now_ms - schedule.missed.within_ms for at in late)


@settings(max_examples=60, deadline=None)
@given(SCHEDULES, EVENTS)
def test_coverage_and_backfill(schedule: Schedule, events: list[tuple[str, int]]) -> None:
    """Coverage has each expected instant once with what it became; a backfill offers what became no request,
    each with the id that its request has for good, and nothing that the schedule will still see to."""
    book, now_ms = seen(schedule), NOW_MS
    for event, amount in events:
        if event == "pass":
            now_ms += abs(amount) * SECOND_MS
        act(book, event, amount, now_ms)
        while book.look(schedule, now_ms) is not None:
            pass
    state = book.state
    assert state is not None
    start_ms, end_ms = NOW_MS - HOUR_MS, now_ms + HOUR_MS
    shown = coverage(schedule, SOURCE, book.rows, start_ms, end_ms, state=state, now_ms=now_ms)
    assert [one.instant_ms for one in shown] == list(instants(schedule, start_ms, end_ms))[: len(shown)]
    assert "unaccounted" not in {one.fate for one in shown}
    offered = backfill(
        schedule, SOURCE, start_ms, end_ms, book.rows, only_missed=True, state=state, now_ms=now_ms
    )
    let_go = ("missed", "skipped", "dropped", "redefined")
    assert [one.instant_ms for one in offered] == [one.instant_ms for one in shown if one.fate in let_go][
        :1_000
    ]
    everything = backfill(
        schedule, SOURCE, start_ms, end_ms, book.rows, only_missed=False, state=state, now_ms=now_ms
    )
    assert {one.request_id for one in everything if one.has_request} <= set(book.requests)
    assert not {one.request_id for one in everything if not one.has_request} & set(book.requests)
    assert all(one.instant_ms <= state.cursor_ms for one in everything)
