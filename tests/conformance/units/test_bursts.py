"""Arrivals that are gathered, closed as bursts, and handed on: on every database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kfm.db.ledger import Ledger
from kfm.model.errors import BackendUnavailable
from kfm.model.requests import Burst, Member, gathered
from kfm.model.settings import SourceSettings
from kfm.model.windows import window_of
from kfm.nodd.downstream import CLAIM_MS, FanOut
from tests.conformance.units.scene import START_MS, Scene, done, entry

DAY_MS = 86_400_000
FOLLOWED = (("hrrr", "daily"),)


def arrive(scene: Scene, name: str, at_ms: int = START_MS, *, downstream: Any = FOLLOWED) -> None:
    claimed = scene.claimed(name)
    told = entry(claimed, start_ms=at_ms, end_ms=at_ms + 1, at_ms=at_ms)
    assert scene.end(done(claimed, told), downstream=downstream).succeeded


class Report:
    def __init__(self, outcome: str) -> None:
        self.outcome = self.word = outcome
        self.reason = "Because."
        self.run = None


class Runs:
    """Answers requests to run, and keeps them."""

    def __init__(self, scene: Scene, *answers: str | Exception, window_ms: int = 0) -> None:
        self.asked: list[Any] = []
        self.drained = 0
        self._answers = list(answers)
        self._now_ms = scene.store.now_ms()
        sources = {"daily": SourceSettings(id="daily", dataset="levels", kind="files", window="P1D")}
        self.fan = FanOut(
            scene.store.bursts(),
            sources.get,
            self._run,
            scene.store.now_ms,
            window_ms=window_ms,
            actor="kfm",
            before_run=self._drain,
        )

    def _drain(self) -> None:
        self.drained += 1

    def _run(self, request: Any) -> Any:
        assert self.drained > len(self.asked), "nothing is held while a run goes on"
        self.asked.append(request)
        answer = self._answers.pop(0) if self._answers else "success"
        if isinstance(answer, Exception):
            raise answer
        return Report(answer)


def due(scene: Scene) -> None:
    scene.sql("UPDATE bursts SET not_before_ms = 0 WHERE state = 'open'")


@pytest.mark.req("TRG-6")
def test_one_run_for_each_period(scene: Scene) -> None:
    """Whatever arrives within the window is handed on together; each period that it touches once."""
    for index in range(5):
        arrive(scene, f"n{index}", START_MS + (index % 2) * DAY_MS)
    runs = Runs(scene)
    assert runs.fan.step() == 2
    assert [request.window_spec for request in runs.asked] == [
        "2026-01-01T00:00:00Z/2026-01-02T00:00:00Z",
        "2026-01-02T00:00:00Z/2026-01-03T00:00:00Z",
    ]
    assert {request.trigger_type for request in runs.asked} == {"upstream-event"}
    assert runs.fan.step() == 0
    assert [burst.members for burst in reversed(scene.store.bursts().recent())] in ([3, 2], [2, 3])


def test_a_window_stays_open_for_its_time(scene: Scene) -> None:
    """Nothing is handed on before."""
    arrive(scene, "one")
    waiting = Runs(scene, window_ms=60_000)
    assert waiting.fan.step() == 0
    assert waiting.asked == []
    assert Runs(scene).fan.step() == 1


def test_only_what_a_source_follows_is_gathered(scene: Scene) -> None:
    """Datasets that no source waits for cost nothing."""
    arrive(scene, "one", downstream=())
    arrive(scene, "two", downstream=(("gfs", "daily"),))
    assert scene.sql("SELECT COUNT(*) FROM burst_members")[0][0] == 0


@pytest.mark.req("TRG-6")
def test_late_data_open_their_period_again(scene: Scene) -> None:
    """Another burst of the same period has another key, so it is another run."""
    arrive(scene, "early")
    first, second = Runs(scene), Runs(scene)
    first.fan.step()
    arrive(scene, "late")
    second.fan.step()
    assert first.asked[0].window_spec == second.asked[0].window_spec
    assert first.asked[0].message_id != second.asked[0].message_id


@pytest.mark.req("TRG-2")
def test_a_burst_that_was_not_settled_is_asked_for_by_the_same_key(scene: Scene) -> None:
    """After a crash between run and settlement the run's key prevents a second run."""
    arrive(scene, "one")
    bursts = scene.store.bursts()
    killed = Runs(scene)
    killed.fan._bursts = _Unsettled(bursts)
    killed.fan.step()
    assert Runs(scene).fan.step() == 0, "his claim lasts for a while"
    due(scene)
    again = Runs(scene, "noop")
    assert again.fan.step() == 1
    assert again.asked[0].message_id == killed.asked[0].message_id


class _Unsettled:
    """Dies before it settles."""

    def __init__(self, bursts: Any) -> None:
        self._bursts = bursts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bursts, name)

    def settle(self, *_: Any, **__: Any) -> None: ...


def test_a_busy_dataset_is_tried_later(scene: Scene) -> None:
    """Another run of it is under way; the burst waits, and is not lost."""
    arrive(scene, "one")
    runs = Runs(scene, "busy", "success")
    assert (runs.fan.step(), runs.fan.step()) == (0, 0)
    due(scene)
    assert runs.fan.step() == 1
    assert len(runs.asked) == 2


@pytest.mark.parametrize(("outcome", "state"), [("refused", "refused"), ("failed", "done"), ("noop", "done")])
def test_an_outcome_is_told_and_ends_the_burst(
    scene: Scene, outcome: str, state: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A refusal is said with its reason; a failed run is tried again by its own budget, not by the burst."""
    caplog.set_level("INFO", "kfm.nodd.downstream")
    arrive(scene, "one")
    runs = Runs(scene, outcome)
    runs.fan.step()
    due(scene)
    assert runs.fan.step() == 0
    assert [burst.state for burst in scene.store.bursts().recent()] == [state]
    assert caplog.messages[0].startswith(f"daily: {outcome} after 1 arrival")
    assert ("Because." in caplog.messages[0]) == (outcome == "refused")


def test_trouble_is_told_and_tried_ever_less(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """A ledger that is away, or a source that can't be run: later, at growing distances."""
    arrive(scene, "one")
    away = [BackendUnavailable("away") for _ in range(3)]
    runs = Runs(scene, *away)
    distances = []
    for _ in range(3):
        due(scene)
        runs.fan.step()
        ((not_before_ms,),) = scene.sql("SELECT not_before_ms FROM bursts")
        distances.append(round((not_before_ms - scene.store.now_ms()) / 15_000))
    assert distances == [1, 2, 4]
    assert "away" in caplog.messages[0]
    due(scene)
    assert runs.fan.step() == 1


def test_a_source_that_is_gone_ends_its_bursts(scene: Scene) -> None:
    """It was taken out of the configuration: no source follows it any more."""
    arrive(scene, "one", downstream=(("hrrr", "gone"),))
    runs = Runs(scene)
    assert runs.fan.step() == 0
    assert [burst.state for burst in scene.store.bursts().recent()] == ["refused"]


def test_a_settled_burst_stays_settled(scene: Scene) -> None:
    """A process whose claim has lapsed reopens nothing."""
    arrive(scene, "one")
    bursts = scene.store.bursts()
    bursts.close_due(0, lambda _source, at_ms: window_of("P1D", "UTC", at_ms))
    (burst,) = bursts.claim(10, CLAIM_MS)
    bursts.settle(burst, "done")
    bursts.settle(burst, "open", None, 0)
    assert bursts.claim(10, CLAIM_MS) == []


def test_two_that_hand_on_share_the_bursts(open_store: Callable[[], Ledger], kind: str) -> None:
    """Each burst is claimed by one of them."""
    if kind == "memory":
        pytest.skip("a ledger in memory has one connection")
    scene = Scene(open_store())
    for index in range(6):
        arrive(scene, f"n{index}", START_MS + index * DAY_MS)
    mine, theirs = scene.store.bursts(), open_store().bursts()
    mine.close_due(0, lambda _source, at_ms: window_of("P1D", "UTC", at_ms))
    first, second = mine.claim(4, CLAIM_MS), theirs.claim(4, CLAIM_MS)
    assert (len(first), len(second)) == (4, 2)
    assert not {burst.burst_id for burst in first} & {burst.burst_id for burst in second}


def test_a_burst_is_known_by_its_members() -> None:
    """The same members in any order are the same burst; a member without a time counts when it came."""

    def member(name: str, start_ms: int | None = START_MS) -> Member:
        return Member(dataset="hrrr", member=name, start_ms=start_ms, end_ms=None, at_ms=START_MS + DAY_MS)

    def made(*members: Member) -> list[Burst]:
        return gathered("daily", members, lambda at_ms: window_of("P1D", "UTC", at_ms), 5)

    (one,) = made(member("a/1"), member("b/1"))
    assert made(member("b/1"), member("a/1"))[0].burst_id == one.burst_id
    assert made(member("a/1"))[0].burst_id != one.burst_id
    assert made(member("a/2"), member("b/1"))[0].burst_id != one.burst_id
    assert made(member("a/1", None))[0].start_ms == START_MS + DAY_MS
