"""What a scheduled run covers: its own window, and what earlier instants have left."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kfm.db.ledger import Ledger
from kfm.model.records import GovernanceEntry
from kfm.model.requests import RequestOutcome
from kfm.model.schedules import MissedPolicy, Schedule, Which
from kfm.model.settings import SourceSettings
from kfm.model.windows import parse_duration
from kfm.service.scheduler import Scheduler

Open = Callable[[], Ledger]
pytestmark = pytest.mark.req("TRG-6")

DAY_MS = 86_400_000
MIDNIGHT_MS = 20_000 * DAY_MS
SOURCE = SourceSettings(id="s", dataset="d", kind="files", folder="f")
HOURLY = SourceSettings(id="s", dataset="d", kind="files", folder="f", window="PT1H")
DAILY = Schedule(id="daily", source="s", cron="0 6 * * *", missed=MissedPolicy(run="last"))


class World:
    """A ledger, a clock, and a scheduler that is not always there."""

    def __init__(self, store: Ledger, schedule: Schedule = DAILY, source: SourceSettings = SOURCE) -> None:
        self.store = store
        self.now_ms = MIDNIGHT_MS
        self.touched: set[int] = set()
        self.outcome = "success"  # of requests
        self.grounds = "as they are"
        self._length_ms = parse_duration(source.window).time_ms or DAY_MS
        self._scheduler = Scheduler(
            store.schedule_states(),
            store.requests(),
            [schedule],
            {"s": source},
            now_ms=lambda: self.now_ms,
            late_ms=60_000,
            actor="serve",
            is_touched=lambda _source, start_ms, _end_ms: self._day(start_ms) in self.touched,
            grounds=lambda: lambda _source: self.grounds,
        )
        self._scheduler.step()

    def _day(self, at_ms: int) -> int:
        return (at_ms - MIDNIGHT_MS) // self._length_ms

    def at(self, days: float, settle: bool = True) -> list[int]:
        """Which windows are asked for, by number, when the scheduler looks at this time."""
        self.now_ms = MIDNIGHT_MS + round(days * DAY_MS)
        before = {one.request_id for one in self.store.requests().requests(limit=1000)}
        self._scheduler.step()
        made = [one for one in self.store.requests().requests(limit=1000) if one.request_id not in before]
        requests = self.store.requests()
        while settle and (one := requests.claim("w", DAY_MS * 100, lambda _worker: False)):
            if self.outcome != "refused":
                self.touched.add(self._day(one.window_start_ms))
            requests.settle(one, RequestOutcome(state="done", outcome=self.outcome, reason="ok"))
        return sorted(self._day(one.window_start_ms) for one in made)


def test_what_was_missed_comes_with_the_next(open_store: Open) -> None:
    """After four days away one instant is caught up, and it asks for the windows of the others, too."""
    world = World(open_store())
    assert world.at(0.3) == [-1]
    assert world.at(4.3) == [0, 1, 2, 3]
    assert world.at(5.3) == [4]


def test_what_a_run_has_touched_is_not_asked_for_again(open_store: Open) -> None:
    """Windows that a run has covered meanwhile, whatever came of it, are not left."""
    world = World(open_store())
    world.at(0.3)
    world.touched |= {1, 2}
    assert world.at(4.3) == [0, 3]


def test_what_was_skipped_comes_with_the_next(open_store: Open) -> None:
    """An instant that found its predecessor at work leaves its window to the one after it."""
    world = World(open_store())
    assert world.at(0.3, settle=False) == [-1]
    assert world.at(1.2502, settle=False) == []
    world.at(1.3)
    assert world.at(2.2502) == [0, 1]


def test_bounds(open_store: Open) -> None:
    """No more windows at once than the schedule's cap, the oldest first; the rest comes with the next."""
    capped = World(
        open_store(),
        Schedule(id="c", source="s", cron="0 6 * * *", missed=MissedPolicy(run="last", cap=2)),
    )
    capped.at(0.3)
    assert capped.at(5.3) == [0, 1, 4]
    assert capped.at(6.3) == [2, 3, 5]
    assert capped.at(7.3) == [6]


def test_what_is_too_old_is_let_go_once(open_store: Open) -> None:
    """How old a window may be is judged when it is found missed: what waits for its turn is not let go."""
    short = World(
        open_store(),
        Schedule(
            id="o", source="s", cron="0 6 * * *", missed=MissedPolicy(run="last", within_ms=3 * DAY_MS, cap=1)
        ),
    )
    short.at(0.3)
    assert short.at(6.3) == [3, 5]  # missed at 4.25 (window 3), 5.25 (4), 6.25 (5): the first two are left
    assert short.at(7.3) == [4, 6]
    assert short.at(8.3) == [7]


@pytest.mark.req("DAT-2")
def test_a_day_of_hours_leaves_no_hole(open_store: Open) -> None:
    """An hourly schedule, its service away for a day, with the defaults: each hour is asked for, once."""
    world = World(open_store(), Schedule(id="h", source="s", cron="5 * * * *"), HOURLY)
    world.at(0.01)
    asked = world.at(1.01)
    assert len(asked) == 1 + MissedPolicy().cap
    for hour in range(3):
        asked += world.at(1.01 + (hour + 1) / 24)
    assert sorted(asked) == list(range(27))


@pytest.mark.req("DAT-2")
@pytest.mark.parametrize("run", ["last", "all"])
def test_many_times_of_one_window_leave_no_hole(open_store: Open, run: Which) -> None:
    """A schedule of every quarter of an hour over days, three days away: each day is asked for, whichever
    policy catches up."""
    schedule = Schedule(id=run, source="s", cron="*/15 * * * *", missed=MissedPolicy(run=run, cap=2))
    world = World(open_store(), schedule)
    world.at(0.3)
    assert {*world.at(3.3), *world.at(3.4)} >= {0, 1, 2}


@pytest.mark.req("DAT-2")
def test_what_a_gate_refused_comes_when_the_reason_is_gone(open_store: Open) -> None:
    """Refused windows wait as long as the next one is refused, too; once one passes they are asked for
    again, oldest first, no more than the cap at once."""
    world = World(
        open_store(), Schedule(id="r", source="s", cron="0 6 * * *", missed=MissedPolicy(run="last", cap=2))
    )
    world.outcome = "refused"
    assert [world.at(day + 0.2502) for day in range(4)] == [[-1], [0], [1], [2]]
    world.outcome = "success"
    assert world.at(4.2502) == [3]
    assert world.at(5.2502) == [-1, 0, 4]
    assert world.at(6.2502) == [1, 2, 5]
    assert world.at(7.2502) == [6]


@pytest.mark.req("DAT-2")
def test_what_a_gate_refused_comes_when_its_grounds_change(open_store: Open) -> None:
    """A change of rights, policies or switches asks for refused windows at once, by one of several services,
    once for each change."""
    store = open_store()
    world = World(store, Schedule(id="r", source="s", cron="0 6 * * *"))
    other = World(store, Schedule(id="r", source="s", cron="0 6 * * *"))
    world.outcome = "refused"
    for day in range(3):
        world.at(day + 0.2502)
    assert world.at(2.3) == []
    world.grounds = other.grounds = "other rights"
    assert world.at(2.31) == [-1, 0, 1]  # refused again
    assert other.at(2.32) == []
    assert world.at(2.33) == []
    world.grounds, world.outcome = "a licence", "success"
    assert world.at(2.34) == [-1, 0, 1]
    world.grounds = "a switch"
    assert world.at(2.35) == []


@pytest.mark.req("DAT-2")
def test_what_a_person_rejected_does_not_come_back(open_store: Open) -> None:
    """A window whose approval a person rejected is not asked for by itself, whatever was refused since."""
    world = World(open_store(), Schedule(id="r", source="s", cron="0 6,12 * * *"))
    world.outcome = "rejected"
    assert world.at(0.2502) == [-1]
    world.touched.clear()
    world.outcome = "refused"
    assert world.at(0.5002) == [-1]
    world.grounds, world.outcome = "other rights", "success"
    assert world.at(0.6) == []


@pytest.mark.req("DAT-2")
def test_what_was_overtaken_comes_again(open_store: Open) -> None:
    """A request that a newer scheduled time cancelled leaves its window to the next; one that a person
    cancelled does not come back by itself."""
    world = World(open_store(), Schedule(id="x", source="s", cron="0 6 * * *", overlap="cancel-older"))
    assert world.at(0.2502, settle=False) == [-1]
    assert world.at(1.2502) == [0]  # ends the first
    assert world.at(2.2502) == [-1, 1]
    assert world.at(3.2502, settle=False) == [2]
    (waiting,) = world.store.requests().requests(state="open")
    entry = GovernanceEntry(kind="request-cancelled", subject="d", actor="jane", recorded_at_ms=0)
    assert world.store.requests().cancel(waiting.request_id, "not today", entry)
    assert world.at(4.2502) == [3]


def test_no_catch_up(open_store: Open) -> None:
    """A schedule without catch-up leaves nothing to its next run."""
    world = World(
        open_store(), Schedule(id="n", source="s", cron="0 6 * * *", missed=MissedPolicy(run="none"))
    )
    world.at(0.3)
    assert world.at(4.2502) == [3]


def test_instants_that_share_a_window(open_store: Open) -> None:
    """Where instants are more frequent than windows, what one left is usually the next one's own."""
    world = World(
        open_store(), Schedule(id="q", source="s", cron="*/15 * * * *", missed=MissedPolicy(run="last"))
    )
    world.at(0.3)
    assert world.at(0.9) == [-1]
    assert world.at(1.5) == [0]


def test_no_more_than_are_worked_off(open_store: Open) -> None:
    """While windows that were left still wait, no others are asked for: what is slow is not buried."""
    world = World(open_store())
    world.at(0.3)
    assert world.at(4.3, settle=False) == [0, 1, 2, 3]
    assert world.at(5.2502, settle=False) == []
    world.at(5.3)
    assert world.at(6.2502) == [4, 5]
