"""`kfm.call` around functions: what is tried again, how often, and what is said when it is not."""

from __future__ import annotations

import asyncio
import errno
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import pytest

import kfm
from kfm.model.errors import GateDenied, UpstreamUnavailable
from kfm.testing.driven_time import START_MS, DrivenTime
from tests.unit.calls.forms import KINDS, declared, failing


@pytest.mark.req("RET-3")
@pytest.mark.parametrize("kind", KINDS)
def test_passing_trouble_is_waited_out(kind: str, kfm_time: DrivenTime) -> None:
    """In each of its forms, a call that fails four times for a passing reason succeeds at the fifth."""
    fetch, calls = failing(4, ConnectionResetError)
    assert declared(kind, fetch, idempotent=True)() == "done"
    assert len(calls) == 5
    assert kfm_time.delays == [0.25, 0.5, 1.0, 2.0]


@pytest.mark.req("RET-3")
@pytest.mark.parametrize("kind", KINDS)
def test_five_attempts_and_no_more(kind: str, kfm_time: DrivenTime) -> None:
    """The fifth failure is raised as it is, with a note that counts."""
    fetch, calls = failing(99, ConnectionResetError)
    with pytest.raises(ConnectionResetError) as caught:
        declared(kind, fetch, idempotent=True)()
    assert len(calls) == 5
    assert caught.value.__notes__ == ["Not tried again: 5 attempts were made."]
    assert kfm_time.tried[-1].reason == "attempts-spent"


@pytest.mark.req("RET-1")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", [ValueError, GateDenied, lambda: OSError(errno.ENOSPC, "full")])
def test_what_does_not_pass_is_raised_at_once(kind: str, error: Any, kfm_time: DrivenTime) -> None:
    """Neither unknown errors nor refused ones are tried again, and nothing is added to them."""
    fetch, calls = failing(99, error)
    with pytest.raises(Exception) as caught:  # noqa: PT011 (of three kinds)
        declared(kind, fetch, idempotent=True)()
    assert (len(calls), kfm_time.delays) == (1, [])
    assert not hasattr(caught.value, "__notes__")


@pytest.mark.req("RET-6")
@pytest.mark.parametrize("kind", KINDS)
def test_undeclared_is_never_tried_again(kind: str, kfm_time: DrivenTime) -> None:
    """What is not declared idempotent runs once; the error says why, and how to declare it."""
    fetch, calls = failing(1, TimeoutError)
    with pytest.raises(TimeoutError) as caught:
        declared(kind, fetch, provider="usgs")()
    assert (len(calls), kfm_time.delays) == (1, [])
    (note,) = caught.value.__notes__
    assert "not declared idempotent" in note
    assert "idempotent=True" in note
    handed = kfm.handed_up(caught.value)
    assert handed is not None
    assert (handed.reason, handed.retryable) == ("not-idempotent", True)


@pytest.mark.req("RET-5")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "said", ["7", format_datetime(datetime.fromtimestamp(START_MS / 1000 + 7, UTC), usegmt=True)]
)
def test_retry_after_is_obeyed(kind: str, said: str, kfm_time: DrivenTime) -> None:
    """Seconds or a date: the wait is as long as upstream asks, if that is longer than ours."""
    fetch, _ = failing(1, lambda: UpstreamUnavailable("busy", status=429, retry_after=said))
    assert declared(kind, fetch, idempotent=True)() == "done"
    assert kfm_time.delays == [7.0]


@pytest.mark.req("RET-5")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("seconds", "reason"), [(31, "retry-after-for-run-tier"), (12, "deadline-spent")])
def test_a_wait_that_does_not_fit_is_handed_up(
    kind: str, seconds: int, reason: str, kfm_time: DrivenTime
) -> None:
    """More than 30 s, or more than is left: the call ends now and says when to come back."""
    fetch, calls = failing(1, lambda: UpstreamUnavailable("busy", status=503, retry_after=str(seconds)))
    with pytest.raises(UpstreamUnavailable) as caught:
        declared(kind, fetch, idempotent=True, timeout=10)()
    assert (len(calls), kfm_time.delays) == (1, [])
    handed = kfm.handed_up(caught.value)
    assert handed is not None
    assert (handed.reason, handed.not_before_ms) == (reason, START_MS + seconds * 1000)
    assert caught.value.facts["not_before_ms"] == START_MS + seconds * 1000
    assert f"asks for {seconds} s" in caught.value.__notes__[0]


@pytest.mark.req("RET-5")
@pytest.mark.parametrize("said", ["9" * 12, 1e12, float("inf")])
def test_a_wait_beyond_all_clocks_is_handed_up(said: Any, kfm_time: DrivenTime) -> None:
    """A provider that asks for a wait of centuries is not called again in a moment."""
    fetch, calls = failing(1, lambda: UpstreamUnavailable("busy", status=503, retry_after=said))
    with pytest.raises(UpstreamUnavailable) as caught:
        kfm.call(fetch, idempotent=True)
    handed = kfm.handed_up(caught.value)
    assert handed is not None
    assert (len(calls), handed.reason) == (1, "retry-after-for-run-tier")


# --- what must pass ------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_interrupts_pass(kind: str, stop: type[BaseException], kfm_time: DrivenTime) -> None:
    """Ctrl-C is not an error of the call: it goes through at once, at any try, and no observer is told."""
    for kinds in ([stop], [ConnectionResetError, stop]):
        calls: list[int] = []

        def fetch(kinds: Any = kinds, calls: Any = calls) -> None:
            calls.append(1)
            raise kinds[len(calls) - 1]

        with pytest.raises(stop):
            declared(kind, fetch, idempotent=True)()
        assert len(calls) == len(kinds)
    assert [each.outcome for each in kfm_time.tried] == ["retry"]


def test_cancellation_is_never_swallowed() -> None:
    """A cancelled task ends as cancelled, while it works and while it waits for the next try."""

    async def main() -> list[bool]:
        began = asyncio.Event()
        ends = []

        @kfm.call(timeout=30, idempotent=True)
        async def hangs() -> None:
            began.set()
            await asyncio.sleep(30)

        @kfm.call(timeout=30, idempotent=True)
        async def fails() -> None:
            began.set()
            raise ConnectionResetError

        async def loops() -> None:
            async for attempt in kfm.call(timeout=30, idempotent=True):
                async with attempt:
                    await hangs()

        for fn in (hangs, fails, loops):
            began.clear()
            task = asyncio.create_task(fn())
            await began.wait()
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            ends.append(task.cancelled())
        return ends

    assert asyncio.run(main()) == [True, True, True]


def test_errors_are_not_hidden_behind_earlier_ones(kfm_time: DrivenTime) -> None:
    """A defect that shows at the second try is not taken for the passing trouble of the first."""
    errors: list[Exception] = [ConnectionResetError("first"), ValueError("second")]

    @kfm.call(idempotent=True)
    def fetch() -> None:
        raise errors.pop(0)

    with pytest.raises(ValueError, match="second") as caught:
        fetch()
    assert caught.value.__context__ is None


# --- tiers are not multiplied --------------------------------------------------------


@pytest.mark.req("RET-3")
def test_what_was_retried_inside_is_not_retried_outside(kfm_time: DrivenTime) -> None:
    """Two declared calls, one in the other, make five attempts and not twenty-five."""
    inner, calls = failing(99, ConnectionResetError)
    inner = kfm.call(idempotent=True)(inner)

    @kfm.call(idempotent=True)
    def outer() -> str:
        return inner()

    @kfm.call(idempotent=True)
    def outermost() -> str:
        return outer()

    for expected, call in ((5, outer), (10, outer), (15, outermost)):
        with pytest.raises(ConnectionResetError) as caught:
            call()
        assert len(calls) == expected
        handed = kfm.handed_up(caught.value)
        assert handed is not None
        assert (handed.attempts, handed.reason) == (5, "attempts-spent")
        assert kfm_time.tried[-1].reason == "retried-inside"


@pytest.mark.parametrize("kind", ["decorator", "function", "async decorator"])
def test_an_error_object_that_is_raised_again_is_a_new_failure(kind: str, kfm_time: DrivenTime) -> None:
    """Mocks raise one object for ever: its mark from an earlier call means nothing to the next."""
    error = ConnectionResetError()
    fetch, calls = failing(99, lambda: error)
    call = declared(kind, fetch, idempotent=True)
    for expected in (5, 10):
        with pytest.raises(ConnectionResetError):
            call()
        assert len(calls) == expected
    error = ConnectionResetError()
    call = declared(kind, fetch, provider="usgs")
    for opened in (False, False, True):
        with pytest.raises(ConnectionResetError):
            call()
        assert kfm_time.tried[-1].circuit_open is opened


def test_the_outer_call_may_retry_what_the_inner_was_not_allowed_to(kfm_time: DrivenTime) -> None:
    """An undeclared call inside a declared one is tried again by the declared one."""
    inner, calls = failing(2, ConnectionResetError)
    inner = kfm.call()(inner)
    assert kfm.call(lambda: inner(), idempotent=True) == "done"
    assert len(calls) == 3
