"""What becomes of an instant, case by case: late, paused, overlapping, redefined."""

from __future__ import annotations

from typing import get_args

import pytest
from msgspec.structs import replace

from kfm.model.scheduled_times import (
    BACKFILL,
    INSTANTS_MAX,
    account,
    backfill,
    coverage,
    definition_of,
    next_due_ms,
    request_for,
)
from kfm.model.schedules import Instant, MissedPolicy, Overlap, Schedule, due_ms, instants
from tests.schedules.book import (
    DAY_MS,
    HOUR_MS,
    LATE_MS,
    MINUTE_MS,
    NOW_MS,
    SECOND_MS,
    SOURCE,
    every,
    seen,
)

pytestmark = pytest.mark.req("UPD-13", "TRG-2")

# --- first sight, restarts, clocks --------------------------------------------------------


def test_nothing_before_the_first_sight() -> None:
    """A schedule that is new promises nothing of the past, and says so of every instant before it."""
    schedule = every(HOUR_MS)
    book = seen(schedule)
    assert book.became(schedule, NOW_MS - DAY_MS + 1, NOW_MS + 1) == ["redefined"] * 24
    assert not book.requests
    assert book.look(schedule, NOW_MS) is None
    assert account(replace(schedule, enabled=False), SOURCE, None, [], NOW_MS, late_ms=0, actor="a") is None


def test_seconds_of_a_year_in_one_step() -> None:
    """Thirty million missed instants are one row, not thirty million."""
    schedule = every(SECOND_MS, missed=MissedPolicy(run="none"))
    book = seen(schedule)
    step = book.look(schedule, NOW_MS + 365 * DAY_MS)
    assert step is not None
    assert [row.became for row in step.instants] == ["missed", "request", "skipped"]


def test_a_clock_that_is_set_back() -> None:
    """Instants that have fired don't fire again, and those after the cursor do."""
    schedule = every(MINUTE_MS)
    book = seen(schedule)
    assert book.look(schedule, NOW_MS + 10 * MINUTE_MS) is not None
    assert book.look(schedule, NOW_MS - DAY_MS) is None
    assert book.look(schedule, NOW_MS + 9 * MINUTE_MS) is None
    assert book.look(replace(schedule, every_ms=2 * MINUTE_MS), NOW_MS + 9 * MINUTE_MS) is not None
    assert len(book.requests) == 1


def test_passes_in_slices() -> None:
    """More on time than one step takes: the next steps take the rest, and none is lost."""
    schedule = every(SECOND_MS)
    book, late_ms = seen(schedule), 2 * HOUR_MS
    steps = 0
    while book.look(schedule, NOW_MS + HOUR_MS, late_ms) is not None:
        steps += 1
    assert steps == 3_600 // INSTANTS_MAX + 1
    assert len(book.became(schedule, NOW_MS + 1, NOW_MS + HOUR_MS + 1)) == 3_600


# --- jitter -------------------------------------------------------------------------------


def test_jitter_delays_and_moves_no_window() -> None:
    """An instant with jitter waits for its delay, counts as on time from then, and keeps its window."""
    schedule = every(HOUR_MS, jitter_ms=30 * MINUTE_MS)
    at_ms = next(iter(instants(schedule, NOW_MS + 1)))
    begins_ms = due_ms(schedule, at_ms)
    assert begins_ms > at_ms + LATE_MS  # or this example shows nothing
    book = seen(schedule)
    assert book.look(schedule, begins_ms - 1) is None
    step = book.look(schedule, begins_ms)
    assert step is not None
    assert step.instants[0].reason is None  # not caught up: on time
    (request,) = step.requests
    assert (request.window_start_ms, request.window_end_ms) == (
        request_for(schedule, SOURCE, at_ms, 0, "").window_start_ms,
        request_for(schedule, SOURCE, at_ms, 0, "").window_end_ms,
    )


# --- pauses -------------------------------------------------------------------------------


def test_held_while_paused() -> None:
    """What comes during a pause waits, and counts as missed when it is over."""
    schedule = every(HOUR_MS, missed=MissedPolicy(run="all", cap=3))
    book = seen(schedule)
    book.pause(NOW_MS)
    end_ms = NOW_MS + 5 * HOUR_MS + 30 * MINUTE_MS
    assert book.look(schedule, end_ms) is None
    assert book.state is not None
    assert next_due_ms(schedule, book.state) is None
    shown = coverage(schedule, SOURCE, book.rows, NOW_MS + 1, end_ms, state=book.state, now_ms=end_ms)
    assert {one.fate for one in shown} == {"held"}
    book.pause(None)
    book.look(schedule, end_ms)
    became = book.became(schedule, NOW_MS + 1, end_ms)  # 21 to 23 h share a window, as 0 and 1 h do
    assert became == ["request", "missed", "missed", "request", "missed"]


def test_dropped_while_paused() -> None:
    """With `drop` what comes during a pause is let go, and said so."""
    schedule = every(HOUR_MS, while_paused="drop")
    book = seen(schedule)
    book.pause(NOW_MS)
    end_ms = NOW_MS + 5 * HOUR_MS
    book.look(schedule, end_ms)
    book.pause(None)
    book.look(schedule, end_ms + HOUR_MS)
    assert book.became(schedule, NOW_MS + 1, end_ms + HOUR_MS + 1) == ["dropped"] * 5 + ["request"]


def test_switched_off_in_the_file() -> None:
    """While a schedule is off it has no scheduled times: switched on again, it catches up none of them."""
    schedule = every(HOUR_MS, missed=MissedPolicy(run="all"))
    book, end_ms = seen(schedule), NOW_MS + 5 * HOUR_MS + 30 * MINUTE_MS
    book.look(replace(schedule, enabled=False), NOW_MS + SECOND_MS)
    assert book.look(replace(schedule, enabled=False), end_ms - HOUR_MS) is None
    book.look(schedule, end_ms)
    assert book.became(schedule, NOW_MS + 1, end_ms) == ["redefined"] * 5
    assert not book.requests


# --- overlaps -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [
        ("skip", ["request", "skipped", "skipped", "skipped"]),
        ("queue-one", ["request", "request", "skipped", "skipped"]),
        ("cancel-older", ["request", "request", "request", "request"]),
    ],
)
def test_while_the_first_goes_on(overlap: Overlap, expected: list[str]) -> None:
    """The first of four runs all the time: the others are skipped, one is queued, or each ends the last."""
    schedule = every(HOUR_MS, overlap=overlap)
    book = seen(schedule)
    first = next(iter(instants(schedule, NOW_MS + 1)))
    for hour in range(4):
        book.look(schedule, first + hour * HOUR_MS)
        request_id = next(iter(book.requests))
        book.requests[request_id] = replace(book.requests[request_id], state="running")
    assert book.became(schedule, first, first + 4 * HOUR_MS) == expected
    cancelled = [one.cancel is not None for one in book.requests.values()]
    assert cancelled == ([True, True, True, False] if overlap == "cancel-older" else [False] * len(cancelled))
    skipped = [row.reason or "" for row in book.rows if row.became == "skipped"]
    assert all(any(request_id in reason for request_id in book.requests) for reason in skipped)


@pytest.mark.parametrize("overlap", ["skip", "queue-one", "cancel-older"])
def test_while_each_waits_for_a_retry(overlap: Overlap) -> None:
    """A request whose attempt failed, and that waits for the next, keeps no scheduled time from coming."""
    schedule = every(HOUR_MS, overlap=overlap)
    book = seen(schedule)
    first = next(iter(instants(schedule, NOW_MS + 1)))
    for hour in range(4):
        book.look(schedule, first + hour * HOUR_MS)
        for request_id, request in book.requests.items():
            book.requests[request_id] = replace(request, run_id=f"run of {request_id}")
    assert book.became(schedule, first, first + 4 * HOUR_MS) == ["request"] * 4
    assert [one.cancel for one in book.requests.values()] == [None] * 4


@pytest.mark.req("DAT-2")
@pytest.mark.parametrize("overlap", ["skip", "queue-one", "cancel-older"])
def test_while_data_has_not_come(overlap: Overlap) -> None:
    """A window that is waited for is not asked for twice by its own schedule, and keeps no other waiting."""
    schedule = every(HOUR_MS, overlap=overlap)
    book = seen(schedule)  # at 20 h: windows are days
    for hour in range(1, 7):
        book.look(schedule, NOW_MS + hour * HOUR_MS)
        for request_id, request in book.requests.items():
            book.requests[request_id] = replace(request, blocked_by="not-yet")
    became = book.became(schedule, NOW_MS + 1, NOW_MS + 6 * HOUR_MS + 1)
    assert became == ["request", "skipped", "skipped", "request", "skipped", "skipped"]
    assert [one.cancel for one in book.requests.values()] == [None, None]


def test_several_on_time_at_once() -> None:
    """After a hiccup of some seconds, overlap holds among what comes together, too."""
    for overlap, expected in [
        ("skip", ["request", "skipped", "skipped"]),
        ("queue-one", ["request", "request", "skipped"]),
        ("cancel-older", ["skipped", "skipped", "request"]),
    ]:
        schedule = every(SECOND_MS, overlap=overlap)
        book = seen(schedule)
        book.look(schedule, NOW_MS + 3 * SECOND_MS)
        assert book.became(schedule, NOW_MS + 1, NOW_MS + 3 * SECOND_MS + 1) == expected


def test_caught_up_although_another_goes_on() -> None:
    """The policy for missed instants has its way whatever the one for overlaps, up to its cap in all, the
    oldest windows first."""
    schedule = every(DAY_MS, missed=MissedPolicy(run="all", cap=3))
    book = seen(schedule)
    first = next(iter(instants(schedule, NOW_MS + 1)))
    book.look(schedule, first)
    book.look(schedule, first + 4 * DAY_MS + HOUR_MS)
    assert book.became(schedule, first, first + 5 * DAY_MS) == ["request"] * 3 + ["missed"] * 2
    book.look(schedule, first + 8 * DAY_MS + HOUR_MS)
    assert len(book.requests) == 3


def test_a_backfill_is_in_nobodys_way() -> None:
    """Requests that a person made for the past neither skip nor are cancelled by what is on time."""
    for overlap in get_args(Overlap):
        schedule = every(HOUR_MS, overlap=overlap)
        book = seen(schedule)
        past = request_for(schedule, SOURCE, NOW_MS - HOUR_MS, NOW_MS, "jane")
        book.requests[past.request_id] = replace(past, details={BACKFILL: True})
        step = book.look(schedule, next(iter(instants(schedule, NOW_MS + 1))))
        assert step is not None
        assert [row.became for row in step.instants] == ["request"]
        assert step.cancels == ()


# --- what it is and was -------------------------------------------------------------------


def test_definition() -> None:
    """A definition is what instants follow from: how they are treated, or by whom, is none of it."""
    schedule = every(HOUR_MS)
    assert definition_of(schedule) == definition_of(
        every(HOUR_MS, overlap="queue-one", jitter_ms=5, window="P1D")
    )
    assert definition_of(schedule) == definition_of(
        every(HOUR_MS, anchor_ms=5 * HOUR_MS, time_zone="Asia/Tokyo")
    )
    cron = Schedule(id="i", source="s", cron="0 * * * *")
    others = [every(HOUR_MS, anchor_ms=1), every(2 * HOUR_MS), replace(schedule, enabled=False), cron]
    others += [replace(cron, time_zone="Asia/Tokyo"), replace(cron, cron="1 * * * *")]
    assert len({definition_of(one) for one in [schedule, *others]}) == 7


def test_a_new_definition_begins_now() -> None:
    """After a change, what the new pattern would have had before is told as redefined, not caught up."""
    old, new = (
        every(HOUR_MS, missed=MissedPolicy(run="all")),
        every(HOUR_MS, anchor_ms=MINUTE_MS, missed=MissedPolicy(run="all")),
    )
    book, now_ms = seen(old), NOW_MS + 5 * HOUR_MS
    book.look(new, now_ms)
    assert set(book.became(new, NOW_MS + 1, now_ms - LATE_MS)) == {"redefined"}
    following = next(iter(instants(new, now_ms + 1)))
    book.look(new, following)
    assert [one.instant_ms for one in book.requests.values()] == [following]


def test_unaccounted_shows() -> None:
    """A scheduled time without a row is shown as such; so is the past where no process ever looked."""
    schedule = every(HOUR_MS)
    book = seen(schedule)
    first = next(iter(instants(schedule, NOW_MS + 1)))
    for hour in range(3):
        book.look(schedule, first + hour * HOUR_MS)
    book.rows = [row for row in book.rows if row.instant_ms != first + HOUR_MS]
    for state, now_ms, expected in [
        (book.state, first + 2 * HOUR_MS, ["request", "unaccounted", "skipped", "coming"]),
        (book.state, first + 3 * HOUR_MS, ["request", "unaccounted", "skipped", "pending"]),
        (book.state, first + 4 * HOUR_MS, ["request", "unaccounted", "skipped", "unaccounted"]),
    ]:
        shown = coverage(schedule, SOURCE, book.rows, first, first + 4 * HOUR_MS, state=state, now_ms=now_ms)
        assert [one.fate for one in shown] == expected
    shown = coverage(schedule, SOURCE, [], first, first + HOUR_MS, state=None, now_ms=first + DAY_MS)
    assert [one.fate for one in shown] == ["unaccounted"]


def test_limits() -> None:
    """Neither looks at a million instants: coverage ends, a backfill asks for a shorter span."""
    from kfm.model.errors import UsageError

    schedule = every(SECOND_MS)
    shown = coverage(schedule, SOURCE, [], 0, NOW_MS, state=None, now_ms=NOW_MS, limit=7)
    assert len(shown) == 7
    made = _requested(schedule, 100_001)
    with pytest.raises(UsageError):
        backfill(schedule, SOURCE, NOW_MS, 2 * NOW_MS, made, only_missed=True, state=None, now_ms=2 * NOW_MS)


def _requested(schedule: Schedule, count: int) -> list[Instant]:
    return [
        Instant(
            schedule_id=schedule.id,
            instant_ms=NOW_MS + second * SECOND_MS,
            last_ms=NOW_MS + second * SECOND_MS,
            became="request",
            request_id=str(second),
        )
        for second in range(count)
    ]


def test_comparing_is_what_keeps_them_apart() -> None:
    """Two processes that have seen the same want the same instant: only the comparison makes it one."""
    schedule = every(10 * SECOND_MS)
    book = seen(schedule)
    steps = [
        account(schedule, SOURCE, book.state, [], NOW_MS + 45 * SECOND_MS, late_ms=LATE_MS, actor=who)
        for who in "ab"
    ]
    first, second = (step.requests[0].request_id for step in steps if step is not None)
    assert first == second
    assert [book.account(step) for step in steps if step is not None] == [True, False]
