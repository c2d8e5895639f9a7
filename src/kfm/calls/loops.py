"""`for attempt in kfm.call(…): with attempt: …`, for a block of code instead of a function.

A `with` block alone can't be run twice: Python gives its context manager no way to do so. The loop
repeats the block, the context judges how it ended.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING

from kfm.calls.deadlines import DEADLINE_MS
from kfm.calls.plan import Plan
from kfm.calls.surroundings import HERE
from kfm.calls.tries import Tries
from kfm.core.errors import UsageError

if TYPE_CHECKING:
    from asyncio import Timeout


class Attempt:
    """One run of the block. Leaving it without an error ends the loop."""

    __slots__ = ("_limit", "_token", "_tries", "delay_ms", "state")

    def __init__(self, tries: Tries) -> None:
        self._tries = tries
        self._token: Token[int | None] | None = None
        self._limit: Timeout | None = None
        self.state = "new"  # → entered → done | again
        self.delay_ms = 0

    @property
    def number(self) -> int:
        return self._tries.attempt

    @property
    def timeout(self) -> float:
        """Seconds that this attempt may still take: what to hand to a library."""
        return max(1, (self._tries.until_ms or 0) - HERE.clock.monotonic_ms()) / 1000

    def __enter__(self) -> Attempt:
        if self.state != "new":
            raise UsageError("An attempt is entered once; the loop gives a new one for the next try.")
        self.state = "entered"
        self._token = DEADLINE_MS.set(self._tries.until_ms)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._token is not None:
            with suppress(ValueError):  # a generator may be closed in another context than it ran in
                DEADLINE_MS.reset(self._token)
        self.state = "done"
        if error is None:
            self._tries.succeeded()
            return False
        if not isinstance(error, Exception):
            return False
        delay_ms = self._tries.failed(error)
        if delay_ms is None:
            return False
        self.state, self.delay_ms = "again", delay_ms
        return True

    async def __aenter__(self) -> Attempt:
        from asyncio import timeout

        self.__enter__()
        self._limit = timeout(self._tries.limit_ms / 1000)
        await self._limit.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        limit = self._limit
        if limit is None:
            raise AssertionError("entered before it is left")
        try:
            await limit.__aexit__(kind, error, trace)
        except TimeoutError:
            late = self._tries.timed_out("it was cut short")
            if self.__exit__(type(late), late, None):
                return True
            raise late from None
        return self.__exit__(kind, error, trace)


def attempts(plan: Plan) -> Iterator[Attempt]:
    tries = Tries(plan)
    while True:
        tries.open()
        attempt = Attempt(tries)
        yield attempt
        if not _again(attempt):
            return
        HERE.clock.sleep_ms(attempt.delay_ms)


async def attempts_async(plan: Plan) -> AsyncIterator[Attempt]:
    tries = Tries(plan)
    while True:
        tries.open()
        attempt = Attempt(tries)
        yield attempt
        if not _again(attempt):
            return
        await HERE.pause(attempt.delay_ms)


def _again(attempt: Attempt) -> bool:
    if attempt.state in ("new", "entered"):
        raise UsageError(
            "The loop went on without its attempt.",
            remedy="Put the code into the attempt: `for attempt in kfm.call(…): with attempt: …`.",
        )
    return attempt.state == "again"
