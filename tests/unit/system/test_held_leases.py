"""Leases that heartbeats renew and watch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from kfm.model.errors import BackendUnavailable, Cancelled, KfmError, LostLease, SwitchThrown
from kfm.periodic import HeldLease, LeaseHeartbeat
from tests.stand_ins import FakeClock

pytestmark = pytest.mark.req("GOV-1", "UPD-8")


class Ledger:
    """Answers a lease's questions, and remembers them."""

    def __init__(self) -> None:
        self.epoch = 1
        self.reason: str | None = None  # of a cancellation
        self.is_lost = False
        self.is_away = False
        self.asked: list[str] = []
        self.abandoned: list[tuple[Any, ...]] = []

    def renew(self, _scope: str, _fence: int, _lease_ms: int) -> tuple[int, str | None] | None:
        self._ask("renew")
        return None if self.is_lost else (self.epoch, self.reason)

    def cancelled(self, _run_id: str) -> str | None:
        return self.reason

    def policy_epoch(self) -> int:
        self._ask("look")
        return self.epoch

    def abandon(self, *what: Any, retryable: bool) -> bool:
        self._ask("abandon")
        self.abandoned.append((*what, retryable))
        return True

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.is_away:
            raise BackendUnavailable("gone")


class Beats:
    """A heartbeat that beats when the test asks it to."""

    def __init__(self) -> None:
        self.beat: Callable[[Any], None] = lambda _ledger: None
        self.is_over = False

    def start(self, beat: Callable[[Any], None], interval_ms: int) -> Callable[[], None]:
        del interval_ms
        self.beat = beat

        def finish() -> None:
            self.is_over = True

        return finish


class Desk:
    def __init__(self) -> None:
        self.clock, self.ledger, self.beats = FakeClock(), Ledger(), Beats()
        self.stopped: KfmError | None = None

    def lease(self, **changes: Any) -> HeldLease:
        options: dict[str, Any] = {
            "clock": self.clock,
            "lease_ms": 60_000,
            "renew_ms": 20_000,
            "policy_epoch": 1,
            "gate": lambda _ledger: self.stopped,
            "heartbeat": self.beats,
        }
        return HeldLease("dataset:levels", 7, "run-1", **{**options, **changes})


@pytest.fixture
def desk() -> Desk:
    return Desk()


def elsewhere(call: Callable[[], None]) -> Exception | None:
    """What a call raises in another thread."""
    raised: list[Exception] = []

    def work() -> None:
        try:
            call()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return raised[0] if raised else None


def test_a_beat_looks_and_renews_when_due(desk: Desk) -> None:
    """Every beat looks; only what is due is written."""
    lease = desk.lease()
    with lease.beating():
        for _ in range(11):
            desk.clock.sleep_ms(2_000)
            desk.beats.beat(desk.ledger)
    assert desk.ledger.asked == ["look"] * 9 + ["renew"] + ["look"]
    assert desk.beats.is_over


def test_any_thread_reads_the_verdict_and_none_asks_the_ledger(desk: Desk) -> None:
    """A database connection belongs to one thread: only the heartbeat uses its own."""
    lease = desk.lease(store=desk.ledger)
    assert elsewhere(lease.check) is None
    desk.ledger.epoch, desk.stopped = 2, SwitchThrown("flood", gate="switch")
    lease.check()
    assert desk.ledger.asked == []
    lease.beat(desk.ledger)  # type: ignore[arg-type]
    first, second = elsewhere(lease.check), elsewhere(lease.check)
    assert isinstance(first, SwitchThrown)
    assert first is not second, "each raises its own"
    assert (first.detail, first.facts) == ("flood", {"gate": "switch"})


def test_without_a_heartbeat_the_thread_itself_renews(desk: Desk) -> None:
    """Between its steps, and no other thread for it."""
    lease = desk.lease(heartbeat=None, store=desk.ledger)
    desk.clock.sleep_ms(20_000)
    assert elsewhere(lease.check) is None
    assert desk.ledger.asked == []
    lease.check()
    lease.check()
    assert desk.ledger.asked == ["renew"]


def test_a_lost_lease_outweighs_a_stop(desk: Desk) -> None:
    """The run is another's: nothing about it is recorded, and nothing is abandoned."""
    lease = desk.lease(grace_ms=0)
    desk.ledger.reason = "enough"
    lease.look(desk.ledger)  # type: ignore[arg-type]
    with pytest.raises(Cancelled):
        lease.check()
    desk.ledger.is_lost = True
    desk.clock.sleep_ms(20_000)
    lease.look(desk.ledger)  # type: ignore[arg-type]
    with pytest.raises(LostLease):
        lease.check()


def test_a_ledger_that_is_away_keeps_no_one_from_stopping(desk: Desk) -> None:
    """A cancellation that is known here is noticed; what needs the ledger is tried again."""
    lease = desk.lease(grace_ms=0)
    desk.ledger.reason = "enough"
    with lease.beating():
        desk.beats.beat(desk.ledger)
        desk.ledger.is_away = True
        assert isinstance(elsewhere(lease.check), Cancelled)
        desk.beats.beat(desk.ledger)
        desk.ledger.is_away = False
        assert isinstance(elsewhere(lease.check), Cancelled), "it could not be abandoned yet"
        with pytest.raises(KeyboardInterrupt):  # the work is in the main thread
            desk.beats.beat(desk.ledger)
            threading.Event().wait(5)
    assert [row[:5] for row in desk.ledger.abandoned] == [
        (
            "dataset:levels",
            7,
            "run-1",
            "CANCELLED",
            "The run was cancelled. enough It was abandoned: its function did not end within 0 s after the "
            "stop.",
        )
    ]
    assert desk.ledger.abandoned[0][5:] == ("cancelled", False)


def test_an_interruption_of_ours_is_told_from_a_persons(desk: Desk) -> None:
    """Ctrl-C stays Ctrl-C; after an abandonment the lease is lost."""
    lease = desk.lease(grace_ms=0)
    desk.ledger.reason = "enough"
    with pytest.raises(KeyboardInterrupt), lease.beating():
        desk.beats.beat(desk.ledger)
        raise KeyboardInterrupt
    with pytest.raises(LostLease), lease.beating():
        desk.beats.beat(desk.ledger)
        threading.Event().wait(5)


def test_a_heartbeat_goes_on_after_trouble() -> None:
    """With a new connection, until it is told to finish."""
    opened, beats, enough = [], [], threading.Event()

    class Closing:
        def close(self) -> None:
            beats.append("closed")

    def open_ledger() -> Any:
        opened.append(1)
        return Closing()

    def beat(_ledger: Any) -> None:
        beats.append("beat")
        if len(beats) == 1:
            raise OSError("away")
        enough.set()

    finish = LeaseHeartbeat(open_ledger).start(beat, 1)
    assert enough.wait(10)
    finish()
    assert len(opened) == 2
    assert beats[-1] == "closed"
