"""Pipeline runs and the kill switches: refused, stopped at work, stopped before the commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest

import kfm
from kfm.db.ledger import Ledger
from kfm.model.errors import Cancelled, KfmError, LostLease, RunTimedOut, SwitchThrown
from kfm.model.records import Justification, Switch, governance_entry
from kfm.pipelines.declaration import Pipeline
from kfm.pipelines.options import PipelineReport
from tests.workshop import Workshop, chain

pytestmark = pytest.mark.req("GOV-1")


class Beats:
    """A heartbeat that beats when the test asks it to."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._beat: Callable[[Ledger], None] = lambda _ledger: None

    def start(self, beat: Callable[[Ledger], None], interval_ms: int) -> Callable[[], None]:
        del interval_ms
        self._beat = beat
        return lambda: None

    def __call__(self) -> None:
        self._beat(self._ledger)


class Watched(Workshop):
    """A workshop whose pipeline runs have a heartbeat and switches."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(self.database)
        self.beats = Beats(self.ledger)

    def watched(self, pipeline: Pipeline, *, jobs: int = 1, **kernel: Any) -> PipelineReport:
        made = self.kernel(ledger=self.ledger, heartbeat=self.beats, **kernel)
        return self.run(pipeline, kernel=made, jobs=jobs)

    def throw(self, position: Literal["paused", "stopped"] = "stopped", scope: str = "all") -> None:
        at_ms = self.clock.now_ms()
        switch = Switch(scope=scope, position=position, rationale="flood", actor="ada", set_at_ms=at_ms)
        why = Justification(actor="ada", rationale="flood")
        self.ledger.set_switch(switch, governance_entry("switch", scope, at_ms, why))

    def passes(self) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.database.session.all("passes.list", pipeline_id="", row_limit=9)]

    def head(self) -> str | None:
        found = self.branches.branch("main")
        return found.head if found else None


@pytest.fixture
def shop() -> Watched:
    return Watched()


def two(first: Callable[[Any], Any]) -> tuple[Pipeline, list[str]]:
    """A pipeline of two nodes, and which have begun."""
    pipeline, began = Pipeline("two"), []

    @pipeline.node("first")
    def one(ctx: Any) -> Any:
        began.append("first")
        return first(ctx)

    @pipeline.node("second", needs={"value": "first"})
    def second(value: Any) -> Any:
        began.append("second")
        return value

    return pipeline, began


@pytest.mark.parametrize("position", ["paused", "stopped"])
def test_a_switch_keeps_it_from_starting(shop: Watched, position: Literal["paused", "stopped"]) -> None:
    """Nothing is recorded; once it is lifted, the same call runs."""
    shop.throw(position)
    with pytest.raises(SwitchThrown, match="flood"):
        shop.watched(chain("a"))
    assert shop.head() is None
    assert shop.ledger.locks() == [lock for lock in shop.ledger.locks() if lock.holder is None]


def test_a_switch_for_one_dataset_is_none_for_pipelines(shop: Watched) -> None:
    """They belong to none."""
    shop.throw(scope="dataset:a")
    assert shop.watched(chain("a")).state == "success"


def test_a_stop_reaches_a_node_at_work(shop: Watched) -> None:
    """Its check raises, its calls are refused, the next node does not begin, and nothing is committed."""
    seen: list[KfmError] = []

    def first(ctx: Any) -> None:
        shop.throw()
        shop.beats()
        with pytest.raises(SwitchThrown) as caught:
            kfm.call(len, "", provider="gauges", idempotent=True)
        seen.append(caught.value)
        ctx.check()

    pipeline, began = two(first)
    report = shop.watched(pipeline)
    assert (report.state, type(report.error), report.commit) == ("cancelled", SwitchThrown, None)
    assert isinstance(report.nodes["first"].error, Cancelled)
    assert began == ["first"]
    assert len(seen) == 1
    assert shop.head() is None
    found = shop.states.get(report.run_id)
    assert found is not None
    assert (found.state, found.error_code) == ("cancelled", "CANCELLED")


@pytest.mark.parametrize(("position", "state"), [("stopped", "cancelled"), ("paused", "success")])
def test_a_switch_that_no_beat_has_seen_decides_about_the_commit(
    shop: Watched, position: Literal["paused", "stopped"], state: str
) -> None:
    """The transaction that commits compares the policy epoch: stopped keeps it from main, paused does not."""

    def first(_ctx: Any) -> str:
        shop.throw(position)
        return "made"

    pipeline, began = two(first)
    report = shop.watched(pipeline)
    assert began == ["first", "second"]
    assert report.state == state
    assert (report.commit is None) == (position == "stopped")
    assert (shop.head() is None) == (position == "stopped")


def test_it_has_a_bound_in_time(shop: Watched) -> None:
    """Past its limit it is stopped, and has failed."""

    def first(ctx: Any) -> None:
        shop.clock.sleep_ms(60_000)
        ctx.check()

    pipeline, began = two(first)
    report = shop.watched(pipeline, run_ms=60_000)
    assert (report.state, type(report.error), began) == ("failed", RunTimedOut, ["first"])
    assert shop.head() is None


def test_a_pipeline_run_that_does_not_end_is_abandoned(shop: Watched) -> None:
    """Its record says so, its lock is free, and what it makes later is not recorded."""
    after: list[Any] = []

    def first(_ctx: Any) -> str:
        shop.throw()
        shop.beats()
        with pytest.raises(KeyboardInterrupt):  # this is the main thread
            shop.beats()
            [shop.clock.monotonic_ms() for _ in range(100_000)]
        after.append([lock for lock in shop.ledger.locks() if lock.holder is not None])
        return "late"

    pipeline, began = two(first)
    with pytest.raises(LostLease):
        shop.watched(pipeline, grace_ms=0)
    assert (began, after) == (["first"], [[]])
    assert shop.head() is None


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_lost_lease_stops_it(shop: Watched, jobs: int) -> None:
    """The lock has passed to another process: this one's nodes are told, and it records nothing."""

    def first(ctx: Any) -> None:
        shop.clock.sleep_ms(60_001)
        shop.ledger.reap(lambda _worker_id: True)
        shop.beats()
        ctx.check()

    pipeline, began = two(first)
    with pytest.raises(LostLease):
        shop.watched(pipeline, jobs=jobs)
    assert began == ["first"]
