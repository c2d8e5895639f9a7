"""Calls of a run that was stopped: no further try is made, and no wait is waited out."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import kfm
from kfm.calls.guard import guarded
from kfm.calls.runtime import HERE
from kfm.model.errors import Cancelled, RunTimedOut, UpstreamUnavailable
from kfm.testing.driven_time import DrivenTime
from tests.unit.calls import slow_work

pytestmark = pytest.mark.req("GOV-1")

LOOKS_MAX = 100_000


class Stop:
    """The check of a run: raises once it was stopped."""

    def __init__(self, error: Callable[[], Exception] = lambda: Cancelled("enough")) -> None:
        self.is_set = False
        self._error = error

    def __call__(self) -> None:
        if self.is_set:
            raise self._error()


@pytest.fixture
def stop() -> Stop:
    return Stop()


def test_no_call_is_begun_after_the_stop(stop: Stop, kfm_time: DrivenTime) -> None:
    """Whatever its form is: plain, with a limit, a block, a coroutine."""
    made: list[str] = []

    @kfm.call(provider="gauges", idempotent=True)
    def plain() -> None:
        made.append("plain")

    @kfm.call(timeout=5, idempotent=True)
    def timed() -> None:
        made.append("timed")

    @kfm.call(timeout=5, idempotent=True)
    async def coroutine() -> None:
        made.append("coroutine")

    def block() -> None:
        for attempt in kfm.call(provider="gauges", idempotent=True):
            with attempt:
                made.append("block")

    calls = (plain, timed, block, lambda: asyncio.run(coroutine()))
    with HERE.stopped_by(stop):
        for one in calls:
            one()
        stop.is_set = True
        for one in calls:
            with pytest.raises(Cancelled, match="enough"):
                one()
    assert made == ["plain", "timed", "block", "coroutine"]


def test_a_wait_ends_with_the_stop(stop: Stop, kfm_time: DrivenTime) -> None:
    """A call that waits for its next try ends within a fraction of a second; its observers are told."""
    tries: list[int] = []

    @kfm.call(provider="gauges", idempotent=True, base=1.0)
    def fail() -> None:
        tries.append(1)
        stop.is_set = len(tries) == 2
        raise ConnectionError("reset")

    with HERE.stopped_by(stop), pytest.raises(ConnectionError):
        fail()
    assert len(tries) == 2, "the second try met the stop: its error is not tried again"
    assert [(one.outcome, one.error_class) for one in kfm_time.tried] == [
        ("retry", "network"),
        ("gave-up", "cancelled"),
    ]


def test_a_stop_is_no_failure_of_the_provider(kfm_time: DrivenTime) -> None:
    """Also where the stop itself is an error that passes: no circuit counts it."""
    stop = Stop(lambda: RunTimedOut("Its limit is 1 s."))

    @kfm.call(provider="gauges", idempotent=True)
    def work() -> None:
        stop.is_set = True
        stop()

    for _ in range(3):
        stop.is_set = False
        with HERE.stopped_by(stop), pytest.raises(RunTimedOut):
            work()
    assert HERE.breakers.circuit("gauges").wait_ms() == 0


def test_each_call_obeys_its_own_run(stop: Stop, kfm_time: DrivenTime) -> None:
    """Of two runs in one process the stop of one leaves the calls of the other alone; a thread without a
    run's context is refused only where it can't be another run's."""
    other, answers = Stop(), []

    @kfm.call(provider="gauges", idempotent=True)
    def ask() -> str:
        return "answered"

    def in_other_run() -> None:
        with HERE.stopped_by(other):
            answers.append(ask())

    with HERE.stopped_by(stop):
        stop.is_set = True
        contextvars.Context().run(in_other_run)
        with pytest.raises(Cancelled):
            contextvars.Context().run(ask)
    assert answers == ["answered"]
    assert HERE.runs == []


def test_code_in_a_thread_is_left_and_told(stop: Stop, kfm_time: DrivenTime) -> None:
    """The caller goes on with the stop; calls that the thread makes are refused."""
    began, release = threading.Event(), threading.Event()
    ended: list[object] = []

    @kfm.call(provider="gauges", idempotent=True)
    def inner() -> None:
        raise AssertionError("not made")

    @kfm.call(timeout=30, isolation="thread", idempotent=True)
    def outer() -> None:
        began.set()
        release.wait(10)
        try:
            inner()
        except Cancelled as error:
            ended.append(error)
        finally:
            done.set()

    def cancel() -> None:
        began.wait(10)
        stop.is_set = True

    done, helper = threading.Event(), threading.Thread(target=cancel)
    with HERE.stopped_by(stop):
        helper.start()
        with pytest.raises(Cancelled):
            outer()
        release.set()
        assert done.wait(10)
    helper.join()
    assert len(ended) == 1


def test_code_in_a_process_is_killed(tmp_path: Path) -> None:
    """With everything that it has started, and long before its limit."""
    told = tmp_path / "pids"

    def check() -> None:
        if told.exists() and told.read_text():
            raise Cancelled("enough")

    with HERE.stopped_by(check), pytest.raises(Cancelled):
        slow_work.hang(str(told))
    for pid in map(int, told.read_text().split()):
        with pytest.raises(ProcessLookupError):
            for _ in range(LOOKS_MAX):  # it was killed, and is gone once the system has come to it
                _still(pid)
                os.sched_yield()


def _still(pid: int) -> None:
    """Raises if it is gone, or only its entry is left."""
    os.kill(pid, 0)
    try:
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        raise ProcessLookupError from None
    if status == "Z":
        raise ProcessLookupError


def test_the_kernels_own_calls_stop_too(stop: Stop, kfm_time: DrivenTime) -> None:
    """A fetch that waits for upstream does not wait out its back-off."""

    def fail(_timeout_ms: int) -> None:
        stop.is_set = True
        raise UpstreamUnavailable("down", transient=True)

    with HERE.stopped_by(stop), pytest.raises(Cancelled):
        guarded(fail, clock=kfm_time, rng=kfm_time)
    assert kfm_time.monotonic_ms() == 0
