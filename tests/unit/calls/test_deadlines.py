"""Limits: handed to functions, to coroutines and inward."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import kfm
from kfm.model.errors import CallTimedOut
from kfm.testing.driven_time import DrivenTime


@pytest.mark.req("RET-4")
@pytest.mark.parametrize("wrapper", ["sync", "async"])
def test_the_limit_is_handed_to_functions_that_take_one(wrapper: str, kfm_time: DrivenTime) -> None:
    """`timeout` gets seconds, `timeout_ms` milliseconds, another name if told; shorter ones stay."""

    def declare(fn: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        if wrapper == "sync":
            return kfm.call(timeout=10, **options)(fn)

        async def seconds(timeout: float = 99) -> Any:
            return fn(timeout=timeout)

        async def ms(timeout_ms: int) -> Any:
            return fn(timeout_ms=timeout_ms)

        async def free(**kwargs: Any) -> Any:
            return fn(**kwargs)

        chosen = free if options else ms if "timeout_ms" in fn.__code__.co_varnames else seconds
        wrapped = kfm.call(timeout=10, **options)(chosen)
        return lambda *a, **k: asyncio.run(wrapped(*a, **k))

    def takes_s(timeout: float = 99) -> float:
        return timeout

    def takes_ms(timeout_ms: int) -> int:
        return timeout_ms

    def takes_any(**kwargs: Any) -> Any:
        return kwargs

    assert declare(takes_s)() == 10.0
    assert declare(takes_s)(timeout=3) == 3
    assert declare(takes_s)(3) == 3
    assert declare(takes_s)(30) == 10.0
    assert declare(takes_ms)() == 10_000
    assert declare(takes_any, pass_timeout="read_timeout")() == {"read_timeout": 10.0}


@pytest.mark.req("RET-4")
def test_what_is_left_shrinks_from_try_to_try(kfm_time: DrivenTime) -> None:
    """Each try gets what the tries and waits before it have left."""
    seen: list[tuple[float, float | None]] = []

    @kfm.call(timeout=10, idempotent=True)
    def fetch(timeout: float) -> None:
        seen.append((timeout, kfm.deadline()))
        kfm_time.advance(4)
        raise TimeoutError

    with pytest.raises(TimeoutError):
        fetch()  # type: ignore[call-arg]
    assert seen == [(10.0, 10.0), (5.75, 5.75), (1.25, 1.25)]
    assert kfm_time.tried[-1].reason == "deadline-spent"


@pytest.mark.req("RET-4")
def test_one_try_can_have_a_limit_of_its_own(kfm_time: DrivenTime) -> None:
    """`attempt_timeout` leaves time for another try."""
    seen: list[float] = []

    @kfm.call(timeout=10, attempt_timeout=3, idempotent=True)
    def fetch(timeout: float) -> str:
        seen.append(timeout)
        kfm_time.advance(timeout)
        if len(seen) < 3:
            raise TimeoutError
        return "done"

    assert fetch() == "done"  # type: ignore[call-arg]
    assert seen == [3.0, 3.0, 3.0]


@pytest.mark.req("RET-4")
@pytest.mark.parametrize("own", [{"timeout": 60}, {}])
def test_a_call_inside_never_outlives_the_one_around(own: dict[str, float], kfm_time: DrivenTime) -> None:
    """The inner deadline is the outer one where that is nearer, whatever the inner call asks for."""

    @kfm.call(idempotent=True, **own)  # type: ignore[arg-type]
    def inner() -> float | None:
        return kfm.deadline()

    @kfm.call(timeout=5)
    def outer() -> float | None:
        kfm_time.advance(2)
        return inner()

    assert outer() == 3.0
    assert kfm.deadline() is None


@pytest.mark.req("RET-4")
@pytest.mark.parametrize("own", [{"timeout": 60}, {}])
def test_nothing_is_begun_after_the_deadline(own: dict[str, float], kfm_time: DrivenTime) -> None:
    """Where nothing is left, a call is not made, and the error names whose limit it was."""
    calls = []

    @kfm.call(idempotent=True, **own)  # type: ignore[arg-type]
    def inner() -> None:
        calls.append(1)

    with kfm.within(5):
        kfm_time.advance(6)
        assert kfm.deadline() == 0.0
        with pytest.raises(CallTimedOut, match="not made") as caught:
            inner()
    assert caught.value.facts["expired"] == "outer-deadline"
    assert calls == []


@pytest.mark.req("RET-4")
def test_a_function_that_takes_no_limit_sees_the_one_around_it(kfm_time: DrivenTime) -> None:
    """The default limit, which can't be kept there, is not made up: at no try, in no state of the circuit."""
    seen: list[float | None] = []

    @kfm.call(provider="usgs", idempotent=True)
    def fetch() -> None:
        seen.append(kfm.deadline())
        kfm_time.advance(100)
        if len(seen) in (1, 3):
            raise ConnectionResetError

    fetch()
    with kfm.within(600):
        fetch()
    assert seen == [None, None, 600.0, pytest.approx(499.75)]


@pytest.mark.req("RET-4")
@pytest.mark.parametrize("outer", [None, 6000.0])
def test_without_a_limit_the_tries_still_end(outer: float | None, kfm_time: DrivenTime) -> None:
    """Sixty seconds after the first failure there is no further try, however much is left around it."""
    began: list[float] = []

    @kfm.call(idempotent=True)
    def fetch() -> None:
        began.append(kfm_time.passed)
        kfm_time.advance(61)
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        if outer is None:
            fetch()
        else:
            with kfm.within(outer):
                fetch()
    assert began == [0.0, 61.25]


@pytest.mark.req("RET-4")
def test_a_wider_limit_inside_has_no_effect(kfm_time: DrivenTime) -> None:
    """Limits only get nearer on the way in."""
    with kfm.within(5), kfm.within(50):
        assert kfm.deadline() == 5.0


@pytest.mark.req("RET-4")
def test_a_coroutine_is_cut_short(kfm_time: DrivenTime) -> None:
    """A coroutine that hangs is cancelled at its limit, its clean-up runs, and a retry may follow."""
    tries: list[str] = []

    @kfm.call(provider="slow", timeout=30, attempt_timeout=0.02, idempotent=True, base=0.5)
    async def fetch() -> str:
        tries.append("begun")
        try:
            if len(tries) < 3:
                await asyncio.sleep(30)
        finally:
            tries.append("ended")
        return "done"

    assert asyncio.run(fetch()) == "done"
    assert tries == ["begun", "ended", "begun", "ended"]


@pytest.mark.req("RET-4")
@pytest.mark.parametrize(
    ("options", "outer", "expired"),
    [
        ({"timeout": 0.01}, 9, "timeout"),
        ({"timeout": 9, "attempt_timeout": 0.01}, 9, "attempt-timeout"),
        ({"timeout": 9}, 0.01, "outer-deadline"),
    ],
)
def test_expiry_names_its_cause(options: Any, outer: float, expired: str, kfm_time: DrivenTime) -> None:
    """The error of a limit says whose limit it was, and is a TimeoutError for those who don't ask."""

    @kfm.call(provider="slow", **options)
    async def hang() -> None:
        await asyncio.sleep(30)

    async def main() -> None:
        with kfm.within(outer):
            await hang()

    with pytest.raises(TimeoutError) as caught:
        asyncio.run(main())
    assert isinstance(caught.value, CallTimedOut)
    assert (caught.value.facts["expired"], caught.value.facts["provider"]) == (expired, "slow")
    assert kfm_time.tried[-1].error_class == "timeout"


def test_a_functions_own_timeout_is_not_taken_for_ours(kfm_time: DrivenTime) -> None:
    """A TimeoutError that the function raises stays what it is."""

    @kfm.call(timeout=5)
    async def fetch() -> None:
        raise TimeoutError("the server said so")

    with pytest.raises(TimeoutError, match="the server said so") as caught:
        asyncio.run(fetch())
    assert not isinstance(caught.value, CallTimedOut)


def test_threads_do_not_share_deadlines(kfm_time: DrivenTime) -> None:
    """A thread that was started plainly has no deadline of the call that started it."""
    seen: list[float | None] = []
    with kfm.within(5):
        thread = threading.Thread(target=lambda: seen.append(kfm.deadline()))
        thread.start()
        thread.join()
    assert seen == [None]
