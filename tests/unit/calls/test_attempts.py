"""`for attempt in kfm.call(…)`: a block of code that is tried again."""

from __future__ import annotations

import asyncio

import pytest

import kfm
from kfm.model.errors import CallTimedOut, UsageError
from kfm.testing.driven_time import DrivenTime


@pytest.mark.req("RET-4")
def test_an_attempt_knows_its_number_and_its_time(kfm_time: DrivenTime) -> None:
    """The block can hand on what is left; it is also the deadline of calls inside."""
    seen = []
    for attempt in kfm.call(timeout=10, idempotent=True):
        with attempt:
            kfm_time.advance(1)
            seen.append((attempt.number, attempt.timeout, kfm.deadline()))
            if attempt.number < 3:
                raise TimeoutError
    assert seen == [(1, 9.0, 9.0), (2, 7.75, 7.75), (3, 6.25, 6.25)]
    assert kfm.deadline() is None


def test_leaving_the_block_early_is_a_success(kfm_time: DrivenTime) -> None:
    """`return`, `break` and `continue` end the loop as its last line does."""

    def early() -> str:
        for attempt in kfm.call(idempotent=True):
            with attempt:
                return "early"
        raise AssertionError("never here")

    assert early() == "early"
    count = 0
    for attempt in kfm.call(idempotent=True):
        with attempt:
            count += 1
            continue
    for attempt in kfm.call(idempotent=True):
        with attempt:
            count += 1
            break
    assert count == 2
    assert kfm.deadline() is None


def test_a_loop_without_its_attempt_is_refused(kfm_time: DrivenTime) -> None:
    """Forgetting the `with` is said, instead of looping for ever or succeeding by mistake."""
    with pytest.raises(UsageError, match="without its attempt"):
        for _ in kfm.call(idempotent=True):
            pass
    for attempt in kfm.call(idempotent=True):
        with attempt, pytest.raises(UsageError, match="entered once"):
            attempt.__enter__()
    with pytest.raises(UsageError, match="for functions"):
        list(kfm.call(isolation="process"))


def test_a_with_block_alone_is_tried_once(kfm_time: DrivenTime) -> None:
    """It has the limit, the breaker and the notes, but can't be run again, and does not pretend to."""
    with kfm.call(provider="usgs", timeout=5) as attempt:
        assert (attempt.number, kfm.deadline()) == (1, 5.0)
    with pytest.raises(TimeoutError) as caught, kfm.call(provider="usgs"):
        raise TimeoutError
    assert "not declared idempotent" in caught.value.__notes__[0]
    with pytest.raises(UsageError, match="for attempt in"):
        try:
            with kfm.call(idempotent=True):
                raise AssertionError("never here")
        except UsageError as error:
            raise UsageError(error.way_out) from None


def test_an_async_with_block_alone_is_tried_once(kfm_time: DrivenTime) -> None:
    """The same for coroutines, and it is cut short."""

    async def main() -> None:
        async with kfm.call(timeout=5) as attempt:
            assert (attempt.number, kfm.deadline()) == (1, 5.0)
        async with kfm.call(timeout=0.01):
            await asyncio.sleep(30)

    with pytest.raises(CallTimedOut):
        asyncio.run(main())


def test_a_declaration_can_be_looped_over_again(kfm_time: DrivenTime) -> None:
    """Each loop counts for itself."""
    declared = kfm.call(idempotent=True)
    for _ in range(2):
        numbers = []
        for attempt in declared:
            with attempt:
                numbers.append(attempt.number)
                if attempt.number < 5:
                    raise TimeoutError
        assert numbers == [1, 2, 3, 4, 5]


@pytest.mark.req("RET-4")
def test_an_async_block_is_cut_short(kfm_time: DrivenTime) -> None:
    """A block that hangs is cancelled at its limit and tried again, or ends with the error that says so."""

    async def main() -> list[int]:
        numbers = []
        async for attempt in kfm.call(timeout=30, attempt_timeout=0.01, idempotent=True):
            async with attempt:
                numbers.append(attempt.number)
                if attempt.number < 3:
                    await asyncio.sleep(30)
        return numbers

    assert asyncio.run(main()) == [1, 2, 3]

    async def once() -> None:
        async for attempt in kfm.call(timeout=0.01, idempotent=True):
            async with attempt:
                kfm_time.advance(1)
                await asyncio.sleep(30)

    with pytest.raises(CallTimedOut, match=r"its limit, 0\.01 s"):
        asyncio.run(once())
