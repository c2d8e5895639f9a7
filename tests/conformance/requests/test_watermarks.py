"""What a scheduled run covers: its own window, and what earlier instants have left."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kfm.db.ledger import Ledger
from kfm.model.requests import RequestOutcome
from kfm.model.schedules import MissedPolicy, Schedule
from kfm.model.settings import SourceSettings
from kfm.service.scheduler import Scheduler

Open = Callable[[], Ledger]
pytestmark = pytest.mark.req("TRG-6")

DAY_MS = 86_400_000
MIDNIGHT_MS = 20_000 * DAY_MS
SOURCE = SourceSettings(id="s", dataset="d", kind="files", folder="f")
DAILY = Schedule(id="daily", source="s", cron="0 6 * * *", missed=MissedPolicy(run="last"))


class World:
    """A ledger, a clock, and a scheduler that is not always there."""

    def __init__(self, store: Ledger, schedule: Schedule = DAILY) -> None:
        self.store = store
        self.now_ms = MIDNIGHT_MS
        self.touched: set[int] = set()
        self._scheduler = Scheduler(
            store.schedule_states(),
            store.requests(),
            [schedule],
            {"s": SOURCE},
            now_ms=lambda: self.now_ms,
            late_ms=60_000,
            actor="serve",
            is_touched=lambda _source, start_ms, _end_ms: self._day(start_ms) in self.touched,
        )
        self._scheduler.step()

    def _day(self, at_ms: int) -> int:
        return (at_ms - MIDNIGHT_MS) // DAY_MS

    def at(self, days: float, settle: bool = True) -> list[int]:
        """Which days' windows are asked for when the scheduler looks at this time."""
        self.now_ms = MIDNIGHT_MS + round(days * DAY_MS)
        before = {one.request_id for one in self.store.requests().requests(limit=1000)}
        self._scheduler.step()
        made = [one for one in self.store.requests().requests(limit=1000) if one.request_id not in before]
        requests = self.store.requests()
        while settle and (one := requests.claim("w", DAY_MS * 100, lambda _worker: False)):
            self.touched.add(self._day(one.window_start_ms))
            requests.settle(one, RequestOutcome(state="done", outcome="success", reason="ok"))
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
    """No more windows than the schedule's cap, none older than it says, and none at all where it has no
    catch-up."""
    capped = World(
        open_store(),
        Schedule(id="c", source="s", cron="0 6 * * *", missed=MissedPolicy(run="last", cap=2)),
    )
    capped.at(0.3)
    assert capped.at(5.3) == [2, 3, 4]


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
