"""Arrivals that are gathered until their window closes, and then are requests: on every database."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from kfm.db.ledger import Ledger
from kfm.model.records import Window
from kfm.model.requests import Burst, Member, UpdateRequest, gathered
from kfm.model.windows import window_of
from tests.conformance.units.scene import START_MS, Scene, done, entry

DAY_MS = 86_400_000
FOLLOWED = (("hrrr", "daily"),)


def arrive(scene: Scene, name: str, at_ms: int = START_MS, *, downstream: Any = FOLLOWED) -> None:
    claimed = scene.claimed(name)
    told = entry(claimed, start_ms=at_ms, end_ms=at_ms + 1, at_ms=at_ms)
    assert scene.end(done(claimed, told), downstream=downstream).succeeded


def day_of(_source_id: str, at_ms: int) -> Window:
    return window_of("P1D", "UTC", at_ms)


def close(store: Ledger, window_ms: int = 0) -> int:
    """How many requests the windows that were open so long have made."""
    return store.bursts().close_due(window_ms, day_of, lambda _source_id: "levels", "kfm")


def asked(store: Ledger) -> list[UpdateRequest]:
    return sorted(store.requests().requests(), key=lambda one: (one.window_start_ms, one.request_id))


@pytest.mark.req("TRG-6")
def test_one_request_for_each_period(scene: Scene) -> None:
    """Whatever arrives within the window is handed on together; each period that it touches once."""
    for index in range(5):
        arrive(scene, f"n{index}", START_MS + (index % 2) * DAY_MS)
    assert close(scene.store) == 2
    made = asked(scene.store)
    assert [(one.window_start_ms, one.window_end_ms) for one in made] == [
        (START_MS, START_MS + DAY_MS),
        (START_MS + DAY_MS, START_MS + 2 * DAY_MS),
    ]
    assert {(one.kind, one.source_id, one.dataset_id, one.state) for one in made} == {
        ("upstream-event", "daily", "levels", "open")
    }
    assert [one.details for one in made] == [
        {"members": 3, "datasets": ["hrrr"]},
        {"members": 2, "datasets": ["hrrr"]},
    ]
    assert close(scene.store) == 0


@pytest.mark.req("TRG-6", "RS-12")
def test_what_a_request_gathers_stays_with_it(scene: Scene) -> None:
    """Each arrival is found by the request that it led to, and the request by each of its arrivals; the
    gathering is empty."""
    for index in range(3):
        arrive(scene, f"n{index}", START_MS + index)
    close(scene.store)
    (request,) = asked(scene.store)
    reader = scene.store.requests()
    members = reader.members(request.request_id)
    assert sorted(one.start_ms or 0 for one in members) == [START_MS, START_MS + 1, START_MS + 2]
    assert {one.dataset for one in members} == {"hrrr"}
    assert [reader.asked_by(one.member) for one in members] == [[request]] * 3
    assert scene.sql("SELECT COUNT(*) FROM burst_members")[0][0] == 0


def test_a_window_stays_open_for_its_time(scene: Scene) -> None:
    """Nothing is handed on before."""
    arrive(scene, "one")
    assert close(scene.store, window_ms=60_000) == 0
    assert asked(scene.store) == []
    assert close(scene.store) == 1


def test_only_what_a_source_follows_is_gathered(scene: Scene) -> None:
    """Datasets that no source waits for cost nothing."""
    arrive(scene, "one", downstream=())
    arrive(scene, "two", downstream=(("gfs", "daily"),))
    assert scene.sql("SELECT COUNT(*) FROM burst_members")[0][0] == 0


@pytest.mark.req("TRG-6")
def test_late_data_open_their_period_again(scene: Scene) -> None:
    """Another burst of the same period has another key, so it is another request."""
    arrive(scene, "early")
    close(scene.store)
    arrive(scene, "late")
    close(scene.store)
    first, second = asked(scene.store)
    assert (first.window_start_ms, first.window_end_ms) == (second.window_start_ms, second.window_end_ms)
    assert first.key != second.key


@pytest.mark.req("TRG-2")
def test_an_arrival_asks_once(scene: Scene) -> None:
    """The same arrival, gathered again after its request has ended, makes no second one."""
    arrive(scene, "one")
    kept = scene.sql("SELECT source_id, dataset, member, start_ms, end_ms, at_ms FROM burst_members")
    close(scene.store)
    (request,) = asked(scene.store)
    assert scene.store.requests().cancel(request.request_id, "not this one")
    values = ", ".join("NULL" if value is None else repr(value) for value in kept[0])
    scene.sql(
        f"INSERT INTO burst_members (source_id, dataset, member, start_ms, end_ms, at_ms) VALUES ({values})"
    )
    assert close(scene.store) == 0
    (ended,) = asked(scene.store)
    assert ended.state == "cancelled"
    assert scene.sql("SELECT COUNT(*) FROM burst_members")[0][0] == 0


def test_two_that_close_the_same_windows(open_store: Callable[[], Ledger], kind: str) -> None:
    """Each arrival is in one request, whichever process closes its window."""
    if kind == "memory":
        pytest.skip("a ledger in memory has one connection")
    scene = Scene(open_store())
    for index in range(6):
        arrive(scene, f"n{index}", START_MS + index * DAY_MS)
    made: list[int] = []
    gate = threading.Barrier(2)

    def work(store: Ledger) -> None:
        gate.wait(60)
        made.append(close(store))

    threads = [threading.Thread(target=work, args=(open_store(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sum(made) == len(asked(scene.store)) == 6
    assert scene.sql("SELECT COUNT(*) FROM request_members")[0][0] == 6


def test_a_burst_is_known_by_its_members() -> None:
    """The same members in any order are the same burst; a member without a time counts when it came."""

    def member(name: str, start_ms: int | None = START_MS) -> Member:
        return Member(dataset="hrrr", member=name, start_ms=start_ms, end_ms=None, at_ms=START_MS + DAY_MS)

    def made(*members: Member, source_id: str = "daily") -> list[Burst]:
        return gathered(source_id, members, lambda at_ms: window_of("P1D", "UTC", at_ms))

    (one,) = made(member("a/1"), member("b/1"))
    assert made(member("b/1"), member("a/1"))[0].key == one.key
    assert made(member("a/1"))[0].key != one.key
    assert made(member("a/2"), member("b/1"))[0].key != one.key
    assert made(member("a/1"), member("b/1"), source_id="hourly")[0].key != one.key
    assert made(member("a/1", None))[0].window.start_ms == START_MS + DAY_MS
