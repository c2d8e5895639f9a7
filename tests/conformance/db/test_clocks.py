"""Only the ledger's clock counts, and after it was ahead for a moment nothing waits for that time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from kfm.calls.breakers import BreakerAccess, SharedBreakers
from kfm.calls.guard import guarded
from kfm.db.ledger import Ledger
from kfm.model.breaker import COOLDOWN_MS, on_failure
from kfm.model.errors import CircuitOpen, UpstreamUnavailable
from kfm.model.incidents import Silence
from kfm.model.records import GovernanceEntry
from kfm.model.requests import PutOff, UpdateRequest
from kfm.model.schedules import Schedule
from kfm.model.times import WAIT_MAX_MS, holds
from kfm.runs.outcome import asked_ms
from kfm.service.scheduler import Scheduler
from kfm.system import SystemClock
from tests.conformance.db.ledgers import Desk
from tests.conformance.db.test_settlement import state_of
from tests.conformance.requests.test_requests import CLAIM_MS, claimed, made, none_dead
from tests.conformance.requests.test_schedulers import settle_all
from tests.conformance.units.scene import Scene
from tests.conformance.units.test_bursts import arrive, close
from tests.conformance.units.test_replica_items import FAR
from tests.conformance.units.test_replica_items import arrive as owe
from tests.schedules.book import HOUR_MS, LATE_MS, SOURCE, every
from tests.stand_ins import FixedRng

pytestmark = pytest.mark.req("FLT-1")
YEARS_MS = 3_652 * WAIT_MAX_MS
Jump = Callable[[int], None]


@pytest.fixture
def jump(store: Ledger, monkeypatch: pytest.MonkeyPatch) -> Jump:
    """Sets the ledger's own clock so far ahead, for all its processes."""
    session, right = type(store._database.session), type(store._database.session).now_ms
    return lambda ahead_ms: monkeypatch.setattr(session, "now_ms", lambda self: right(self) + ahead_ms)


def test_the_rule() -> None:
    """Over: what has come, and what lies further ahead than twice its length. A clock that was set back by
    less than the length ends nothing."""
    assert [holds(until_ms, 0, 10) for until_ms in (-1, 0, 1, 10, 20, 21)] == [
        False, False, True, True, True, False,
    ]  # fmt: skip


def test_requests_that_were_put_off_are_due(store: Ledger, jump: Jump) -> None:
    """Also their claims, and the turns of their datasets; what a freeze keeps waiting is left to its date."""
    requests = store.requests()
    requests.accept([made("a"), made("b", dataset_id="lakes")])
    jump(YEARS_MS)
    frozen_ms = store.now_ms() + YEARS_MS
    for blocked_by, until_ms in (("retry", store.now_ms() + 60_000), ("freeze", frozen_ms)):
        one = claimed(requests, "w1")
        assert requests.reopen(one, PutOff(not_before_ms=until_ms, blocked_by=blocked_by, reason="later"))
    jump(0)
    assert requests.claim("w2", CLAIM_MS, none_dead) is None
    assert requests.make_due() == 1
    assert requests.make_due() == 0
    assert claimed(requests, "w2").blocked_by is None
    assert requests.claim("w2", CLAIM_MS, none_dead) is None
    (waiting,) = requests.requests(state="open")
    assert (waiting.blocked_by, waiting.not_before_ms) == ("freeze", frozen_ms)


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, WAIT_MAX_MS], ids=["an hour", "a day"])
def test_requests_do_not_wait_for_a_clock_that_was_a_little_ahead(
    store: Ledger, jump: Jump, ahead_ms: int
) -> None:
    """The last turn of their dataset tells, where the wait is one that there could be. What was put off by
    the right clock goes on waiting."""
    requests = store.requests()
    requests.accept([made("a", dataset_id="lakes")])
    minute = PutOff(not_before_ms=store.now_ms() + 60_000, blocked_by="retry", reason="later")
    assert requests.reopen(claimed(requests, "w"), minute)
    requests.accept([made("b")])
    jump(ahead_ms)
    late = replace(minute, not_before_ms=store.now_ms() + 60_000)
    assert requests.reopen(claimed(requests, "w"), late)
    jump(0)
    assert requests.make_due() == 1
    assert claimed(requests, "w").dataset_id == "rivers"
    assert requests.make_due() == 0


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, WAIT_MAX_MS], ids=["an hour", "a day"])
def test_a_promised_attempt_does_not_wait_for_a_clock_that_was_a_little_ahead(
    store: Ledger, desk: Desk, jump: Jump, ahead_ms: int
) -> None:
    """Nor does its request, when its dataset has had a turn since; and where the attempt is not made after
    all, it is not looked at again and again."""
    requests = store.requests()
    jump(ahead_ms)
    run = desk.admitted("one")
    due_ms = store.now_ms() + 60_000
    state = replace(state_of(run), not_before_ms=due_ms, updated_at_ms=store.now_ms())
    assert desk.fail(run, retry=state)
    requests.accept([made("a", run_id=run.run_id, not_before_ms=due_ms, blocked_by="retry")])
    jump(0)
    assert requests.make_due() == 1
    soon = PutOff(not_before_ms=store.now_ms() + 15_000, blocked_by="switch", reason="later")
    assert requests.reopen(claimed(requests, "w"), soon)
    assert requests.make_due() == 0


def test_nothing_is_put_off_by_more_than_a_day_at_once(store: Ledger) -> None:
    """Then it is looked at again: so what lies further ahead was not meant."""
    requests = store.requests()
    requests.accept([made("a")])
    month_ms = store.now_ms() + 30 * WAIT_MAX_MS
    later = PutOff(not_before_ms=month_ms, blocked_by="next-run", reason="later")
    assert requests.reopen(claimed(requests, "w"), later)
    (waiting,) = requests.requests(state="open")
    assert 0 < waiting.not_before_ms - store.now_ms() <= WAIT_MAX_MS
    assert requests.make_due() == 0


def test_datasets_take_turns_after_a_clock_was_ahead(store: Ledger, jump: Jump) -> None:
    """A dataset that had its turn then does not have to let all others go first for ever."""
    requests = store.requests()
    requests.accept([made("a")])
    jump(YEARS_MS)
    requests.give_back(claimed(requests, "w").claimed_by or "")
    jump(0)
    requests.make_due()
    requests.accept([made("b", dataset_id="lakes")])
    order = []
    for _ in range(3):
        order.append(claimed(requests, "w").dataset_id)
        requests.give_back("w")
    assert order.count("rivers") > 0


def test_messages_are_delivered(store: Ledger, desk: Desk, jump: Jump) -> None:
    """Those that were claimed or put off then, and what follows them on their subject."""
    desk.promote(desk.admitted("one"))
    jump(YEARS_MS)
    (first,) = store.claim_messages("openlineage", 1, 60_000)
    store.messages_put_back([first.number], store.now_ms() + 60_000)
    jump(0)
    found = store.claim_messages("openlineage", 10, 60_000)
    assert [one.number for one in found] == [first.number, *(one.number for one in found[1:])]
    assert len(found) == 2
    assert store.claim_messages("openlineage", 10, 60_000) == [], "their claims last"


def test_hooks_get_their_changes(store: Ledger, jump: Jump) -> None:
    """The same for incidents."""
    for _ in range(3):
        store.change_breaker("p", on_failure)
    jump(YEARS_MS)
    (first,) = store.claim_for_hook("h", 10, 60_000)
    jump(0)
    assert [one.number for one in store.claim_for_hook("h", 10, 60_000)] == [first.number]
    assert store.claim_for_hook("h", 10, 60_000) == []


def test_silences_end(store: Ledger, jump: Jump) -> None:
    """A silence of an hour lasts an hour, not until an hour after the false time."""
    entry = GovernanceEntry(kind="k", subject="s", actor="a", recorded_at_ms=1)

    def silence(scope: str) -> None:
        now_ms = store.now_ms()
        silence = Silence(scope=scope, set_at_ms=now_ms, until_ms=now_ms + HOUR_MS, set_by="a", rationale="r")
        store.silence(silence, entry)

    silence("dataset:right")
    jump(YEARS_MS)
    silence("dataset:wrong")
    jump(0)
    assert store.end_lapsed_silences() == 1
    assert [one.scope for one in store.silences()] == ["dataset:right"]


def test_replicas_get_their_items(store: Ledger, jump: Jump) -> None:
    """The same for external catalogues; who delivers by the false claim wants it once more."""
    scene = Scene(store)
    owe(scene, "a")
    replicas = store.replicas()
    jump(YEARS_MS)
    (stale,) = replicas.claim(FAR, 10, 60_000)
    jump(0)
    (owed,) = replicas.claim(FAR, 10, 60_000)
    assert replicas.claim(FAR, 10, 60_000) == [], "its claim lasts"
    replicas.delivered(FAR, [(stale, 1)])
    replicas.delivered(FAR, [(owed, 1)])
    assert replicas.backlog(FAR) == 1


def test_bursts_close(store: Ledger, jump: Jump) -> None:
    """What arrived then is handed on; what arrived just now is still gathered."""
    scene = Scene(store)
    arrive(scene, "now")
    assert close(store, HOUR_MS) == 0
    assert close(store) == 1
    jump(YEARS_MS)
    arrive(scene, "then")
    jump(0)
    assert close(store, HOUR_MS) == 1


# --- schedules ---------------------------------------------------------------------------


class Timeline:
    """One schedule of every hour, and the ledger's clock for it."""

    def __init__(self, store: Ledger, **more: Any) -> None:
        self.store, self.schedule = store, every(HOUR_MS, **more)
        start_ms = store.now_ms()
        self.base_ms = self.now_ms = start_ms - start_ms % HOUR_MS
        self.step()

    def step(self) -> list[int]:
        """In a process of its own; which hours were asked for, counted from the first."""
        before = {one.request_id for one in self.asked()}
        schedules: list[Schedule] = [self.schedule]
        scheduler = Scheduler(
            self.store.schedule_states(),
            self.store.requests(),
            schedules,
            {"s": SOURCE},
            now_ms=lambda: self.now_ms,
            late_ms=LATE_MS,
            actor="serve",
        )
        scheduler.step()
        fresh = [one for one in self.asked() if one.request_id not in before]
        settle_all(self.store)
        return sorted(((one.instant_ms or 0) - self.base_ms) // HOUR_MS for one in fresh)

    def at(self, hours: float) -> list[int]:
        self.now_ms = self.base_ms + int(hours * HOUR_MS)
        return self.step()

    def asked(self) -> list[UpdateRequest]:
        return self.store.requests().requests(limit=1_000)


@pytest.mark.req("UPD-13")
@pytest.mark.parametrize("ahead", [6, 24 * 3_652], ids=["six hours", "ten years"])
def test_schedules_go_on_after_a_clock_was_ahead(store: Ledger, ahead: int) -> None:
    """From the present: each hour is asked for when it comes, also one that the false time had asked for
    before; and once."""
    hourly = Timeline(store)
    assert hourly.at(1) == [1]
    assert hourly.at(ahead + 0.5) == [ahead]
    assert hourly.at(1.5) == []
    assert hourly.at(2) == [2]
    assert hourly.at(2) == []
    for hour in range(3, 9):
        assert hourly.at(hour) == [hour]
    assert hourly.at(8.5) == []


@pytest.mark.req("UPD-13")
@pytest.mark.parametrize("run", ["last", "all"])
@pytest.mark.parametrize("behind", [3, 24 * 3_652], ids=["three hours", "ten years"])
def test_a_clock_that_was_behind_repeats_nothing(store: Ledger, behind: int, run: Any) -> None:
    """What was asked for in its time stands."""
    hourly = Timeline(store)
    hourly.schedule = replace(hourly.schedule, missed=replace(hourly.schedule.missed, run=run))
    for hour in range(1, 6):
        assert hourly.at(hour) == [hour]
    assert hourly.at(5.5 - behind) == []
    assert hourly.at(5.5) == []
    assert hourly.at(6) == [6]
    assert len(hourly.asked()) == 6


# --- workers whose own clock is wrong ----------------------------------------------------------


class WrongClock(SystemClock):
    """A worker's own clock, set by hand. The one that nothing sets goes on."""

    def __init__(self, ahead_ms: int = 0) -> None:
        self.ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


wrong = pytest.mark.parametrize(
    "ahead_ms", [-HOUR_MS, HOUR_MS, YEARS_MS], ids=["an hour behind", "an hour ahead", "ten years ahead"]
)


@wrong
@pytest.mark.req("RET-5")
def test_a_wait_that_upstream_asked_for_is_as_long_by_any_clock(ahead_ms: int) -> None:
    """The call tier tells the run tier how long, not until when: the run's times are the ledger's."""

    def refused(_timeout_ms: int) -> None:
        raise UpstreamUnavailable(status=503, retry_after="120")

    with pytest.raises(UpstreamUnavailable) as found:
        guarded(refused, clock=WrongClock(ahead_ms), rng=FixedRng())
    assert asked_ms(found.value) == 120_000


@wrong
@pytest.mark.req("RET-8")
def test_a_circuit_is_judged_by_the_ledger_s_time(store: Ledger, ahead_ms: int) -> None:
    """Also between two looks, whatever happens to the worker's clock meanwhile: neither does it refuse for
    longer, nor is a probe made before its time."""
    clock = WrongClock(ahead_ms)
    access = BreakerAccess(store, store, lambda: store)
    circuit = SharedBreakers(access, clock).circuit("p")
    for _ in range(3):
        circuit.after(False)
    for now_ahead_ms in (ahead_ms, 0, -ahead_ms):
        clock.ahead_ms = now_ahead_ms
        assert COOLDOWN_MS - HOUR_MS // 60 < circuit.wait_ms() <= COOLDOWN_MS
        with pytest.raises(CircuitOpen) as found:
            circuit.before()
        assert COOLDOWN_MS - HOUR_MS // 60 < found.value.facts["wait_ms"] <= COOLDOWN_MS
    opened_ms = store.breaker("p").opened_at_ms
    assert opened_ms is not None
    assert abs(opened_ms - store.now_ms()) < HOUR_MS // 60
