"""Clock, randomness, breakers, hooks and deadlines of every `kfm.call` in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, Protocol

import msgspec

from kfm.calls.breakers import Breakers, Circuit, LocalBreakers, NoCircuit
from kfm.model.errors import KfmError
from kfm.ports import Clock, Rng

DEADLINE_MS: ContextVar[int | None] = ContextVar("kfm_deadline_ms", default=None)  # monotonic
STOP_POLL_MS = 200  # how often a wait in a run looks whether the run was stopped
Check = Callable[[], None]  # raises once the run was stopped
_CHECK: ContextVar[Check | None] = ContextVar("kfm_check", default=None)


def deadline() -> float | None:
    """Seconds that are left to the code that asks, never below 0; None where nothing limits it."""
    until_ms = DEADLINE_MS.get()
    return None if until_ms is None else max(0, until_ms - HERE.clock.monotonic_ms()) / 1000


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Limit everything inside; a wider limit than the one around has no effect."""
    until_ms = HERE.clock.monotonic_ms() + round(seconds * 1000)
    outer_ms = DEADLINE_MS.get()
    token = DEADLINE_MS.set(until_ms if outer_ms is None else min(until_ms, outer_ms))
    try:
        yield
    finally:
        DEADLINE_MS.reset(token)


def own_check() -> Check | None:
    """The check of the run in whose context this is called."""
    return _CHECK.get()


def stop_in(check: Check | None) -> KfmError | None:
    """What has stopped the run of this check."""
    if check is not None:
        try:
            check()
        except KfmError as error:
            return error
    return None


def parts_ms(delay_ms: int, check: Check | None) -> Iterator[int]:
    """The parts of a wait, which ends early after a stop."""
    if check is None:
        yield delay_ms
        return
    while delay_ms > 0 and stop_in(check) is None:
        yield min(delay_ms, STOP_POLL_MS)
        delay_ms -= STOP_POLL_MS


_MARK = "__kfm_handed_up__"
_ORIGIN = "__kfm_handed_up_by__"

Outcome = Literal["retry", "gave-up", "recovered"]


class FailedTry(msgspec.Struct, frozen=True, kw_only=True):
    """One failed try. A recovery repeats the last one that failed before the success."""

    call: str  # the function's name
    provider: str | None
    attempt: int  # of this try, from 1
    outcome: Outcome
    reason: str  # retry, or why there is no further try
    error_class: str
    retryable: bool  # by its class, whatever was decided
    delay_ms: int
    not_before_ms: int | None
    circuit_open: bool
    error: Exception
    sequence: int = 0  # the tries of one call share it, and no two calls of a process do


class HandedUp(msgspec.Struct, frozen=True, kw_only=True):
    """Why a call gave up, for the tier above. `not_before_ms` is when trying again makes sense, by this
    machine's clock; `wait_ms` is how long that is."""

    call: str
    provider: str | None
    attempts: int
    reason: str
    error_class: str
    retryable: bool
    not_before_ms: int | None
    wait_ms: int | None = None


def handed_up(error: BaseException) -> HandedUp | None:
    """What the call tier says of an error that it let through; None if it never saw it."""
    found = getattr(error, _MARK, None)
    return found if isinstance(found, HandedUp) else None


def mark(error: BaseException, handed: HandedUp, origin: object) -> None:
    with contextlib.suppress(AttributeError, TypeError):  # an exception with slots keeps its secret
        setattr(error, _MARK, handed)
        setattr(error, _ORIGIN, origin)


def handed_up_inside(error: BaseException, origin: object) -> HandedUp | None:
    """As `handed_up`, if another declaration did it: an error object that is raised again and again
    may still bear the mark of an earlier call of the same one."""
    return None if getattr(error, _ORIGIN, None) == origin else handed_up(error)


async def _pause(delay_ms: int) -> None:
    import asyncio

    await asyncio.sleep(delay_ms / 1000)


class Line:
    """Where a declared call finds its provider's present circuit."""

    __slots__ = ("circuit", "provider")

    def __init__(self, provider: str | None, circuit: Circuit) -> None:
        self.provider = provider
        self.circuit = circuit


class CallWatch(Protocol):
    """What a run sees of the calls of its pipeline, from any thread."""

    def observe(self, tried: FailedTry) -> None: ...
    def acts(self, call: str) -> None:
        """A call that must not be repeated is about to be made; raises if that can't be made durable."""


_WATCH: ContextVar[CallWatch | None] = ContextVar("kfm_call_watch", default=None)


class CallRuntime:
    """What calls are made with; `HERE` is the only one."""

    clock: Clock
    rng: Rng
    breakers: Breakers
    _own: Breakers  # of this process, while an application shares its own
    pause: Callable[[int], Awaitable[None]]
    observer: Callable[[FailedTry], None] | None  # of every failed try and every recovery

    def __init__(self) -> None:
        self._lines: dict[str | None, Line] = {}
        self.runs: list[Check] = []  # those at work in this process: one list, which wrappers look at
        self._watches: list[CallWatch] = []  # of their pipelines
        self._shared: list[Breakers] = []  # of applications, the newest last: calls pass its circuits

    def equip(self, clock: Clock, rng: Rng) -> None:
        """Real time and chance, unless others have been set before."""
        if not hasattr(self, "clock"):
            self.clock, self.rng = clock, rng
            self.breakers = LocalBreakers(clock)
            self.pause = _pause
            self.observer = None

    def line(self, provider: str | None) -> Line:
        if not hasattr(self, "clock"):
            raise RuntimeError("Calls have no clock yet: use `kfm.call`, which brings one.")
        found = self._lines.get(provider)
        if found is None:
            circuit = NoCircuit() if provider is None else self.breakers.circuit(provider)
            found = self._lines.setdefault(provider, Line(provider, circuit))
        return found

    def share(self, breakers: Breakers) -> Callable[[], None]:
        """Let calls pass these circuits until the returned function is called.

        Applications of one process end in any order: then holds the newest left, or the process's own.
        """
        if not self._shared:
            self._own = self.breakers
        self._shared.append(breakers)
        self.replace(breakers=breakers)

        def leave() -> None:
            self._shared = [one for one in self._shared if one is not breakers]
            if self.breakers is breakers:
                self.replace(breakers=self._shared[-1] if self._shared else self._own)

        return leave

    @contextmanager
    def watched_by(self, watch: CallWatch) -> Iterator[None]:
        """Let a run see every call inside: several runs share a process."""
        token = _WATCH.set(watch)
        self._watches.append(watch)
        try:
            yield
        finally:
            self._watches.remove(watch)
            _WATCH.reset(token)

    @property
    def watches(self) -> list[CallWatch]:
        """That of the run around the code that asks. A thread that was started without the run's context may
        belong to any run at work."""
        own = _WATCH.get() if self._watches else None
        return [own] if own is not None else list(self._watches)

    def acts(self, call: str) -> None:
        """Before each try of a call that says idempotent=False."""
        for watch in self.watches:
            watch.acts(call)

    def observe(self, tried: FailedTry) -> None:
        """A try failed, or a call succeeded after failures."""
        watches = self.watches
        if len(watches) == 1:
            watches[0].observe(tried)
        if self.observer is not None:
            self.observer(tried)

    @contextmanager
    def stopped_by(self, check: Check) -> Iterator[None]:
        """Make no further try inside once `check` raises; it is called from any thread."""
        token = _CHECK.set(check)
        self.runs.append(check)
        try:
            yield
        finally:
            self.runs.remove(check)
            _CHECK.reset(token)

    @property
    def check(self) -> Check | None:
        """That of the run around the code that asks.

        A thread that was started without the run's context belongs to the only run, if there is one.
        """
        return own_check() or (self.runs[0] if len(self.runs) == 1 else None)

    @property
    def stop(self) -> KfmError | None:
        return stop_in(self.check) if self.runs else None

    def sleep_ms(self, delay_ms: int) -> None:
        for part_ms in parts_ms(delay_ms, self.check):
            self.clock.sleep_ms(part_ms)

    async def sleep_async(self, delay_ms: int) -> None:
        for part_ms in parts_ms(delay_ms, self.check):
            await self.pause(part_ms)

    def replace(self, **changes: Any) -> dict[str, Any]:
        """Set some of them for good; what they were is returned."""
        former = {name: getattr(self, name) for name in changes}
        for name, value in changes.items():
            setattr(self, name, value)
        if "breakers" in changes:
            for provider, line in list(self._lines.items()):
                if provider is not None:
                    line.circuit = self.breakers.circuit(provider)
        return former

    @contextmanager
    def replaced(self, **changes: Any) -> Iterator[None]:
        former = self.replace(**changes)
        try:
            yield
        finally:
            self.replace(**former)


HERE = CallRuntime()
