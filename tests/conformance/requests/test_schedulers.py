"""What is promised of schedules, by every ledger and with any number of processes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise

import pytest
from msgspec.structs import replace

from kfm.db.ledger import Ledger
from kfm.model.records import GovernanceEntry
from kfm.model.requests import RequestOutcome
from kfm.model.scheduled_times import account, backfill, coverage, request_for
from kfm.model.schedules import Instant, MissedPolicy, Schedule, ScheduleState, instants
from kfm.service.scheduler import Scheduler
from tests.schedules.book import HOUR_MS, LATE_MS, MINUTE_MS, NOW_MS, SECOND_MS, SOURCE, every

Open = Callable[[], Ledger]
pytestmark = pytest.mark.req("UPD-13", "TRG-2")


class FakeClock:
    """One time for all threads; it moves when the test says so."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS


def scheduler(store: Ledger, schedules: list[Schedule], clock: FakeClock, **more: object) -> Scheduler:
    given = {"now_ms": lambda: clock.now_ms, "late_ms": LATE_MS, "actor": "serve", **more}
    return Scheduler(
        store.schedule_states(),
        store.requests(),
        schedules,
        {"s": SOURCE},
        **given,  # type: ignore[arg-type]
    )


def requests_of(store: Ledger) -> list[int]:
    return sorted(one.instant_ms or 0 for one in store.requests().requests(limit=10_000))


def entry(kind: str = "schedule-paused") -> GovernanceEntry:
    return GovernanceEntry(kind=kind, subject="i", actor="jane", recorded_at_ms=NOW_MS)


def test_three_at_once(open_store: Open, kind: str) -> None:
    """Three schedulers at once over schedules of every second, also with a file that differs: each instant
    becomes one request, and all that the ledger knows of it is one row."""
    if kind == "memory":
        pytest.skip("no other process sees it")
    seconds, clock = 30, FakeClock()
    fast = [every(SECOND_MS, overlap="queue-one"), Schedule(id="j", source="s", every_ms=2 * SECOND_MS)]
    files = [fast, fast, [fast[0], replace(fast[1], every_ms=SECOND_MS)]]
    gate = threading.Barrier(len(files))
    failures: list[BaseException] = []

    def keep(schedules: list[Schedule], number: int) -> None:
        try:
            store = stores[number]
            mine = scheduler(store, schedules, clock)
            for _ in range(seconds + 1):
                gate.wait(60)
                mine.step()
                mine.step()
                gate.wait(60)
                if number == 0:
                    settle_all(store)
                    clock.now_ms += SECOND_MS
        except BaseException as error:
            failures.append(error)
            gate.abort()

    stores = [open_store() for _ in files]
    threads = [threading.Thread(target=keep, args=(one, at)) for at, one in enumerate(files)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures
    store = stores[0]
    every_second = list(instants(fast[0], NOW_MS + 1, NOW_MS + seconds * SECOND_MS + 1))
    for schedule_id in ("i", "j"):
        rows = store.schedule_states().instants(schedule_id, NOW_MS + 1, NOW_MS + HOUR_MS)
        assert all(earlier.last_ms < later.instant_ms for earlier, later in pairwise(rows))
        made = [one.instant_ms for one in rows if one.became == "request"]
        assert set(made) >= set(every_second[1::2] if schedule_id == "j" else every_second)
    asked = [(one.schedule_id, one.instant_ms) for one in store.requests().requests(limit=1_000)]
    assert len(set(asked)) == len(asked)


def settle_all(store: Ledger) -> None:
    requests = store.requests()
    while one := requests.claim("w", MINUTE_MS, lambda _worker: False):
        assert requests.settle(one, RequestOutcome(state="done", outcome="success", reason="ok"))


def test_one_bad_schedule(open_store: Open, caplog: pytest.LogCaptureFixture) -> None:
    """A schedule whose source is gone is told once, and stops no other."""
    store, clock = open_store(), FakeClock()
    bad = Schedule(id="a-bad", source="nowhere", every_ms=SECOND_MS)
    mine = scheduler(store, [bad, every(SECOND_MS)], clock)
    for _ in range(20):
        mine.step()
        clock.now_ms += SECOND_MS
    assert requests_of(store)[0] == NOW_MS + SECOND_MS
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("schedule a-bad: ")


def test_when_to_look_again(open_store: Open) -> None:
    """A scheduler says when it has something to do next, and does nothing before."""
    store, clock = open_store(), FakeClock()
    mine = scheduler(store, [every(HOUR_MS), replace(every(HOUR_MS), id="off", enabled=False)], clock)
    assert mine.step() == 0
    assert mine.next_due_ms() == NOW_MS + HOUR_MS
    before = store.schedule_states().states()
    clock.now_ms = NOW_MS + HOUR_MS - 1
    assert mine.step() == 0
    assert store.schedule_states().states() == before
    assert "off" not in before
    clock.now_ms += 1
    assert mine.step() == 1
    assert mine.next_due_ms() == NOW_MS + 2 * HOUR_MS


def test_definitions_take_turns(open_store: Open, caplog: pytest.LogCaptureFixture) -> None:
    """Two processes with different files don't write for ever: each writes when something of its own is due,
    and each says once that there is another."""
    store, clock = open_store(), FakeClock()
    one = scheduler(store, [every(HOUR_MS)], clock)
    other = scheduler(store, [every(HOUR_MS, anchor_ms=MINUTE_MS)], clock)
    for _ in range(50):
        one.step()
        other.step()
        clock.now_ms += SECOND_MS
    assert store.schedule_states().states()["i"].version < 5
    for _ in range(2 * 60):
        one.step()
        other.step()
        settle_all(store)
        clock.now_ms += MINUTE_MS // 2
    assert requests_of(store) == [NOW_MS + MINUTE_MS, NOW_MS + HOUR_MS]
    assert caplog.messages == ["schedule i: another process has another definition of it"] * 2


def test_a_clock_that_was_ahead(open_store: Open, caplog: pytest.LogCaptureFixture) -> None:
    """A schedule that is accounted for until a time that has not come goes on from now, and says so."""
    store, clock = open_store(), FakeClock()
    clock.now_ms = NOW_MS + 24 * HOUR_MS
    scheduler(store, [every(HOUR_MS)], clock).step()
    clock.now_ms = NOW_MS
    mine = scheduler(store, [every(HOUR_MS)], clock)
    for _ in range(3):
        mine.step()
    assert len(caplog.messages) == 1
    assert "a clock that was ahead" in caplog.messages[0]
    assert mine.next_due_ms() == NOW_MS + HOUR_MS


def test_paused_and_resumed(open_store: Open) -> None:
    """A pause is in the ledger, where every process sees it at its next step; so is its end."""
    store, clock = open_store(), FakeClock()
    schedule = every(24 * HOUR_MS, missed=MissedPolicy(run="all"))
    mine, states = scheduler(store, [schedule], clock), store.schedule_states()
    mine.step()
    seen = states.states()["i"]
    paused = replace(seen, paused_at_ms=NOW_MS, paused_by="jane", rationale="x", version=seen.version + 1)
    assert states.set_paused(seen, paused, entry())
    assert not states.set_paused(seen, paused, entry("again"))
    clock.now_ms += 72 * HOUR_MS + MINUTE_MS * 5
    assert mine.step() == 0
    assert mine.next_due_ms() is None
    assert states.set_paused(paused, replace(seen, version=paused.version + 1), entry("schedule-resumed"))
    assert mine.step() == 3


def test_backfilled(open_store: Open) -> None:
    """An instant that was let go gets its request by hand, once; the rest of its span stays as it was."""
    store, clock = open_store(), FakeClock()
    schedule = every(HOUR_MS, missed=MissedPolicy(run="none"))
    mine, states = scheduler(store, [schedule], clock), store.schedule_states()
    mine.step()
    clock.now_ms += 5 * HOUR_MS + MINUTE_MS * 5
    mine.step()
    state = states.states()["i"]
    wanted = [NOW_MS + HOUR_MS, NOW_MS + 3 * HOUR_MS]  # the first of the span, and one within

    def shown() -> list[str]:
        rows = states.instants("i", NOW_MS + 1, clock.now_ms)
        span = coverage(schedule, SOURCE, rows, NOW_MS + 1, clock.now_ms, state=state, now_ms=clock.now_ms)
        return [one.fate for one in span]

    assert shown() == ["missed"] * 5
    made = [request_for(schedule, SOURCE, at_ms, clock.now_ms, "jane") for at_ms in wanted]
    rows = [
        Instant(
            schedule_id="i",
            instant_ms=one.instant_ms or 0,
            last_ms=one.instant_ms or 0,
            became="backfilled",
            request_id=one.request_id,
            at_ms=clock.now_ms,
        )
        for one in made
    ]
    assert states.backfill(rows, made, entry("backfill")) == made
    assert states.backfill(rows, made, entry("backfill-2")) == []
    assert shown() == ["backfilled", "missed", "backfilled", "missed", "missed"]
    left = backfill(
        schedule,
        SOURCE,
        NOW_MS + 1,
        clock.now_ms,
        states.instants("i", NOW_MS + 1, clock.now_ms),
        only_missed=True,
        state=state,
        now_ms=clock.now_ms,
    )
    assert [one.instant_ms for one in left] == [NOW_MS + hour * HOUR_MS for hour in (2, 4, 5)]


def test_rows_of_a_span(open_store: Open) -> None:
    """Rows that touch a span are found, also one that began long before it and one among many."""
    store = open_store()
    states = store.schedule_states()
    schedule = every(SECOND_MS, missed=MissedPolicy(run="none"))
    step = account(schedule, SOURCE, None, [], NOW_MS, late_ms=LATE_MS, actor="a")
    assert step is not None
    assert states.account(step)
    later = account(schedule, SOURCE, step.state, [], NOW_MS + HOUR_MS, late_ms=LATE_MS, actor="a")
    assert later is not None
    assert states.account(later)
    assert not states.account(later)
    found = states.instants("i", NOW_MS + HOUR_MS // 2, NOW_MS + HOUR_MS // 2 + 1)
    assert [one.became for one in found] == ["missed"]
    assert [one.became for one in states.instants("i", NOW_MS - 1, NOW_MS)] == ["redefined"]
    assert len(states.instants("i", 0, NOW_MS + HOUR_MS + 1)) == 1 + len(later.instants)
    assert isinstance(states.states()["i"], ScheduleState)
