"""What a process remembers of windows is what it would find by judging them anew."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from kfm.datasets.completeness import CompletenessReader, DatasetCoverage
from kfm.datasets.verdict_memory import VerdictMemory
from kfm.db.ledger import Ledger
from kfm.model import completeness as model
from kfm.model.completeness import Expectation, expected_windows, until_ms
from kfm.model.schedules import Schedule
from kfm.model.settings import Expect, Settings
from tests.conformance.db.ledgers import START_MS, Desk, memory_store, new_run
from tests.conformance.db.test_completeness import NOW_MS, SETTINGS, History
from tests.conformance.db.test_windows import DATASET, SOURCE
from tests.stand_ins import FakeClock

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
(WITHIN,) = SETTINGS.sources
SINCE = "2026-01-03"
EVERY_MORNING = Schedule(id="morning", source=SOURCE, cron="30 6 * * *", time_zone="America/New_York")
RULES = {
    "within": (WITHIN, ()),
    "by": (replace(WITHIN, expect=Expect(since=SINCE, by="08:00", within="P2D")), ()),
    "shorter": (replace(WITHIN, expect=Expect(since=SINCE, every="PT6H")), ()),
    "schedule": (replace(WITHIN, expect=Expect(since=SINCE)), (EVERY_MORNING,)),
    "nothing": (replace(WITHIN, expect=None), ()),
}


def found(
    store: Ledger, rule: str, now_ms: int, alive: frozenset[str], memory: VerdictMemory | None
) -> DatasetCoverage:
    source, schedules = RULES[rule]
    reader = CompletenessReader(
        Settings(datasets=SETTINGS.datasets, sources=(source,)),
        store,
        now_ms,
        schedules=lambda: schedules,
        is_dead=lambda _: False,
        latency_ms=lambda _: None,
        memory=memory,
    )
    reader.__dict__["_alive"] = alive
    return reader.coverage(DATASET)


@pytest.mark.req("DAT-1")
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(4))
def test_remembered_verdicts_are_those_of_a_fresh_look(seed: int, rule: str) -> None:
    """Over random histories with time going by, by minutes and by days and sometimes back, with leases that
    end: coverage and health are the same with and without what was remembered."""
    clock, rng = FakeClock(NOW_MS - DAY_MS), random.Random(seed)
    store, memory = memory_store(clock), VerdictMemory()
    history, now_ms = History(store, seed, lambda: clock.sleep_ms(1000)), NOW_MS - DAY_MS
    for _ in range(16):
        history.play(rng.choice((0, 0, 1, 3)))
        running = [run.run_id for run in store.runs(status="running", limit=1000)]
        for _ in range(2):
            now_ms += rng.choice((0, 60_000, HOUR_MS, 7 * HOUR_MS, DAY_MS, -HOUR_MS))
            alive = frozenset(one for one in running if rng.random() < 0.7)
            fresh = found(store, rule, now_ms, alive, None)
            assert found(store, rule, now_ms, alive, memory) == fresh
            assert found(store, rule, now_ms, alive, memory) == fresh
    store.close()


def test_what_is_unchanged_is_not_judged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second look judges no window; one at a changed ledger, or past the next deadline, judges them all."""
    clock, judged, states = FakeClock(NOW_MS), list[Any](), list[str]()
    store, memory = memory_store(clock), VerdictMemory()
    real = model.verdict

    def counted(*given: Any) -> Any:
        judged.append(given)
        return real(*given)

    monkeypatch.setattr("kfm.datasets.completeness.verdict", counted)

    def judging(now_ms: int) -> bool:
        judged.clear()
        states.append(found(store, "within", now_ms, frozenset(), memory).health.state)
        return bool(judged)

    assert judging(NOW_MS)
    assert not judging(NOW_MS)
    assert not judging(NOW_MS + HOUR_MS)
    desk = Desk(store)
    run = new_run("today", window_start_ms=START_MS, window_end_ms=START_MS + DAY_MS)
    desk.fail(desk.admit(run).run)
    assert judging(NOW_MS + HOUR_MS)
    assert states[-2:] == ["late", "failing"]
    assert not judging(NOW_MS + 2 * HOUR_MS)
    assert judging(NOW_MS + DAY_MS)
    assert judging(NOW_MS), "time went back"
    store.close()


def test_no_more_than_so_many_windows_are_kept() -> None:
    """A ledger with more is read as without a memory."""
    store, memory = memory_store(FakeClock(NOW_MS)), VerdictMemory(kept_max=3)
    for _ in range(2):
        assert found(store, "within", NOW_MS, frozenset(), memory) == found(
            store, "within", NOW_MS, frozenset(), None
        )
    assert memory._judged == {}
    store.close()


@pytest.mark.parametrize("rule", [name for name in RULES if name != "nothing"])
@pytest.mark.parametrize("seed", range(3))
def test_the_same_windows_are_expected_up_to_that_moment(seed: int, rule: str) -> None:
    """At random moments before it, none more and none less; at it another, where no schedule asks."""
    source, schedules = RULES[rule]
    expectation = Expectation(source=source, since_ms=START_MS, schedules=schedules)
    rng = random.Random(seed)
    now_ms = NOW_MS + rng.randrange(30 * DAY_MS)
    end_ms = until_ms(expectation, now_ms)
    windows = list(expected_windows(expectation, now_ms))
    for at_ms in (now_ms, end_ms - 1, *(rng.randrange(now_ms, end_ms) for _ in range(5))):
        assert list(expected_windows(expectation, at_ms)) == windows
    assert len(list(expected_windows(expectation, end_ms))) > len(windows) or rule == "schedule"


def test_expectations_beyond_what_is_looked_at_are_never_remembered() -> None:
    """The oldest windows fall out as time goes by."""
    source = replace(WITHIN, window="PT1M", expect=Expect(every="PT1M"))
    now_ms = START_MS + 100_000 * 60_000
    assert until_ms(Expectation(source=source, since_ms=START_MS), now_ms) == now_ms
    assert until_ms(Expectation(source=source, since_ms=now_ms - DAY_MS), now_ms) == now_ms + 60_000
