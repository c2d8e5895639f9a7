"""Limits for code that takes none."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

import kfm
from kfm.calls import isolation
from kfm.model.errors import CallTimedOut, LimitExceeded, UsageError, WorkFailed
from kfm.testing.driven_time import DrivenTime
from tests.unit.calls import slow_work


@pytest.mark.req("RET-4")
def test_a_thread_is_abandoned_and_says_so(kfm_time: DrivenTime) -> None:
    """The caller goes on in time; the error says that the work may go on, and it is not tried again."""
    release, calls = threading.Event(), []

    @kfm.call(timeout=30, attempt_timeout=0.02, isolation="thread", idempotent=True)
    def hang() -> None:
        calls.append(1)
        release.wait(30)

    try:
        with pytest.raises(CallTimedOut, match="abandoned and may still be at work") as caught:
            hang()
    finally:
        release.set()
    assert (calls, caught.value.facts["abandoned"]) == ([1], True)
    assert kfm_time.tried[-1].reason == "abandoned"


@pytest.mark.req("RET-4")
def test_a_thread_gives_its_answer_its_error_and_knows_the_deadline(kfm_time: DrivenTime) -> None:
    """In a thread a function does what it would do here, with the caller's context."""

    @kfm.call(timeout=5, isolation="thread")
    def work(value: int) -> tuple[int, float | None, bool]:
        if not value:
            raise KeyError("nothing")
        return value, kfm.deadline(), threading.current_thread() is threading.main_thread()

    assert work(3) == (3, 5.0, False)
    with pytest.raises(KeyError, match="nothing"):
        work(0)


def test_abandoned_threads_are_limited(monkeypatch: pytest.MonkeyPatch, kfm_time: DrivenTime) -> None:
    """Hanging threads don't pile up: beyond the limit nothing is begun, and ended ones free their place."""
    release = threading.Event()
    monkeypatch.setattr(isolation, "ABANDONED_MAX", 2)
    monkeypatch.setattr(isolation, "_abandoned", [])
    hang = kfm.call(timeout=0.01, isolation="thread")(lambda: release.wait(30))
    for _ in range(2):
        with pytest.raises(CallTimedOut):
            hang()
    with pytest.raises(LimitExceeded, match="no more are begun"):
        hang()
    release.set()
    for thread in isolation._abandoned:
        thread.join()
    assert hang() is True


@pytest.mark.req("RET-4")
def test_a_process_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    """At expiry neither the process nor its children are left."""
    told = tmp_path / "ids"
    with pytest.raises(CallTimedOut, match="its process was killed"):
        slow_work.hang(str(told))
    for number in told.read_text().split():
        assert _gone(int(number))


def _gone(pid: int) -> bool:
    """An orphan is collected by init a little later; until then it is a zombie."""
    for _ in range(200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


@pytest.mark.req("RET-4")
def test_a_process_gives_its_answer_and_its_error() -> None:
    """Answers and errors come back; what can't travel is told in words."""
    total, pid, limited = slow_work.add(2, 3)
    assert (total, pid != os.getpid(), limited) == (5, True, True)
    with pytest.raises(kfm.CircuitOpen) as caught:
        slow_work.fail("known")
    assert str(caught.value) == caught.value.message
    assert caught.value.message.endswith("as said")
    assert caught.value.facts["provider"] == "x"
    with pytest.raises(WorkFailed, match="Untold: one"):
        slow_work.fail("untold")
    with pytest.raises(WorkFailed, match="answer can't be sent back"):
        slow_work.fail("lambda")
    with pytest.raises(WorkFailed, match="exit code 7"):
        slow_work.fail("exit")


def test_what_cannot_be_sent_is_said() -> None:
    """A function that another process can't find is a mistake in the declaration."""
    with pytest.raises(UsageError, match="can't be sent to another process"):
        kfm.call(lambda: 1, isolation="process", timeout=5)
    assert kfm.call(slow_work.plain, 4, isolation="process", timeout=20) == 4
