"""Circuit breakers of providers: in this process, and shared by a fleet through the ledger."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

from kfm.model.breaker import (
    PROBE_LEASE_MS,
    USUAL_LIMITS,
    Breaker,
    BreakerLimits,
    may_call,
    on_failure,
    on_success,
    probe_given_up,
    probe_put_off,
    probe_renewed,
    probe_started,
    release_at_ms,
    share_of,
    wait_ms,
)
from kfm.model.errors import CircuitOpen, KfmError
from kfm.model.quantities import moment
from kfm.ports import Clock

if TYPE_CHECKING:
    from kfm.db.ledger import Ledger
    from kfm.db.ledger_reader import LedgerReader


class Circuit(Protocol):
    """One provider's circuit."""

    @property
    def quiet(self) -> bool:
        """Closed, and no failure counted: a call need not ask, and a success need not be told."""

    def before(self) -> int | None:
        """Permission for one try; a probe gets its fence. Raises CircuitOpen instead of waiting."""

    def after(self, ok: bool, fence: int | None = None) -> None:
        """How the try went, as far as the provider is to be thanked or blamed for it."""

    def put_off(self, fence: int, asked_ms: int) -> None:
        """The probe was answered with a time to come back: the next one is due then."""

    def wait_ms(self) -> int:
        """How long until the next trial call; 0 if now."""


class Breakers(Protocol):
    """The circuits of all providers."""

    def circuit(self, provider: str) -> Circuit: ...


Limits = Callable[[str], BreakerLimits]  # of a provider's circuit


def usual_limits(_provider: str) -> BreakerLimits:
    return USUAL_LIMITS


class LocalCircuit:
    """A circuit that this process alone knows of."""

    __slots__ = ("_clock", "_guard", "_limits", "_state", "quiet")

    def __init__(self, provider: str, clock: Clock, limits: BreakerLimits = USUAL_LIMITS) -> None:
        self._clock = clock
        self._limits = limits
        self._guard = Lock()
        self._state = Breaker(provider=provider)
        self.quiet = True

    def before(self) -> int | None:
        with self._guard:
            now_ms = self._clock.now_ms()
            permission = may_call(self._state, now_ms, self._limits)
            if permission == "refuse":
                left_ms = wait_ms(self._state, now_ms, self._limits)
                raise circuit_open(self._state.provider, now_ms, left_ms)
            if permission == "call":
                return None
            self._state = probe_started(self._state, now_ms, limits=self._limits)
            return self._state.fence

    def after(self, ok: bool, fence: int | None = None) -> None:
        with self._guard:
            if ok:
                self._state = on_success(self._state, fence)
            else:
                self._state = on_failure(self._state, self._clock.now_ms(), fence, self._limits)
            self.quiet = self._state.state == "closed" and not self._state.failures

    def put_off(self, fence: int, asked_ms: int) -> None:
        with self._guard:
            self._state = probe_put_off(self._state, self._clock.now_ms(), fence, asked_ms)

    def wait_ms(self) -> int:
        return wait_ms(self._state, self._clock.now_ms(), self._limits)


class LocalBreakers:
    """The default: circuits of this process."""

    def __init__(self, clock: Clock, limits: Limits = usual_limits) -> None:
        self._clock = clock
        self._limits = limits
        self._circuits: dict[str, LocalCircuit] = {}

    def circuit(self, provider: str) -> LocalCircuit:
        made = LocalCircuit(provider, self._clock, self._limits(provider))
        return self._circuits.setdefault(provider, made)


class NoCircuit:
    """No circuit: for calls that name no provider."""

    __slots__ = ("quiet",)  # in the instance, where it is read fastest

    def __init__(self) -> None:
        self.quiet = True

    def before(self) -> int | None:
        return None

    def after(self, ok: bool, fence: int | None = None) -> None:
        pass

    def put_off(self, fence: int, asked_ms: int) -> None:
        pass

    def wait_ms(self) -> int:
        return 0


def circuit_open(provider: str, now_ms: int, left_ms: int) -> CircuitOpen:
    return CircuitOpen(
        f"{provider} is tried again in {-(-left_ms // 1000)} s; this call was not made.",
        provider=provider,
        not_before_ms=now_ms + left_ms,
        wait_ms=left_ms,
    )


FRESH_MS = 1_000  # what happened elsewhere is known here within this time
CIRCUITS_MAX = 10_000


class BreakerAccess:
    """The store, from whichever thread: a connection serves the thread that opened it only.

    `another` opens a second one; of the same kind as the first, so that a dry-run stays one.
    """

    def __init__(self, ledger: LedgerReader, writer: Ledger | None, another: Callable[[], Any]) -> None:
        self._ledger = ledger
        self._writer = writer
        self._another = another
        self._home = threading.get_ident()
        self._spare: Any = None
        self._turn = threading.RLock()

    @property
    def can_write(self) -> bool:
        return self._writer is not None

    @contextmanager
    def reading(self) -> Iterator[LedgerReader]:
        if threading.get_ident() == self._home:
            yield self._ledger
        else:
            with self._elsewhere() as store:
                yield store

    @contextmanager
    def writing(self) -> Iterator[Ledger]:
        if self._writer is not None and threading.get_ident() == self._home:
            yield self._writer
        else:
            with self._elsewhere() as store:
                yield store

    @contextmanager
    def _elsewhere(self) -> Iterator[Any]:
        with self._turn:
            if self._spare is None:
                self._spare = self._another()
            yield self._spare

    def close(self) -> None:
        with self._turn:
            if self._spare is not None:
                self._spare.close()
                self._spare = None


class SharedCircuit:
    """One provider's shared circuit; implements `kfm.calls.breakers.Circuit`."""

    def __init__(
        self,
        provider: str,
        access: BreakerAccess,
        clock: Clock,
        lease_ms: int = PROBE_LEASE_MS,
        limits: BreakerLimits = USUAL_LIMITS,
    ) -> None:
        self._provider = provider
        self._access = access
        self._clock = clock
        self._lease_ms = lease_ms
        self._limits = limits
        self._guard = threading.RLock()
        self._state = Breaker(provider=provider)
        self._seen_ms: int | None = None  # when it was last read, on the monotonic clock
        self._ahead_ms = 0  # how far the ledger's time is before the clock that nothing sets
        self._reserved: int | None = None  # the fence of a probe that was asked for and not made yet

    # --- as every call uses it ---------------------------------------------------------

    @property
    def quiet(self) -> bool:
        """Looked at within the last second, closed, and no failure counted."""
        return self._is_fresh() and self._state.state == "closed" and not self._state.failures

    def before(self) -> int | None:
        """Permission for one try; a probe gets its fence. Raises CircuitOpen instead of waiting."""
        with self._guard:
            fence, self._reserved = self._reserved, None
            if fence is not None and self._is_still_ours(fence):
                return fence
            self._look()
            if self._state.state == "closed":
                return None
            return self._probe()

    def after(self, ok: bool, fence: int | None = None) -> None:
        """How the try went, as far as the provider is to be thanked or blamed for it."""
        with self._guard:
            if not ok:
                self._change(partial(on_failure, fence=fence, limits=self._limits))
            elif fence is not None or not self.quiet:
                self._change(lambda breaker, now_ms: on_success(breaker, fence, now_ms))

    def wait_ms(self) -> int:
        return wait_ms(self._state, self._now_ms(), self._limits)

    # --- of probes ---------------------------------------------------------------------

    def reserve(self) -> None:
        """Raises CircuitOpen while the circuit is open. A probe that is due is claimed by this process."""
        with self._guard:
            if self._reserved is None:
                self._reserved = self.before()

    def put_back(self) -> None:
        """A probe that was reserved and not made is anybody's again."""
        with self._guard:
            fence, self._reserved = self._reserved, None
            if fence is not None:
                self.give_up(fence)

    def give_up(self, fence: int) -> None:
        """The probe told nothing about the provider."""
        with self._guard:
            self._change(lambda breaker, now_ms: probe_given_up(breaker, now_ms, fence))

    def put_off(self, fence: int, asked_ms: int) -> None:
        """The probe was answered with a time to come back."""
        with self._guard:
            self._change(lambda breaker, now_ms: probe_put_off(breaker, now_ms, fence, asked_ms))

    def renew(self, fence: int) -> None:
        """The probe takes its time, and is still under way."""
        with self._guard:
            known = self._state
            if not self._change(
                lambda breaker, now_ms: probe_renewed(breaker, now_ms, fence, self._lease_ms)
            ):
                self._state = known  # a lease that was not written is none

    def _is_still_ours(self, fence: int) -> bool:
        """Has a probe that was reserved not passed to another? While the ledger is away, the lease that was
        written last decides: once it has lapsed, another process may probe."""
        self.renew(fence)
        held = self._state.state == "half-open" and self._state.fence == fence
        return held and wait_ms(self._state, self._now_ms(), self._limits) > 0

    def due_ms(self, due_ms: int, name: str) -> int:
        """When a piece of waiting work may begin; see `kfm.model.breaker.release_at_ms`."""
        with self._guard:
            self._look()
            return release_at_ms(self._state, due_ms, share_of(name), self._now_ms(), self._limits)

    def _probe(self) -> int:
        """Claim the probe, or raise."""
        if may_call(self._state, self._now_ms(), self._limits) == "refuse" or not self._access.can_write:
            raise self._refusal()
        claimed = partial(_claimed, lease_ms=self._lease_ms, limits=self._limits)
        with self._access.writing() as store:
            seen, kept = store.change_breaker(self._provider, claimed)
            self._keep(kept, store)
        if kept.fence > seen.fence:
            return kept.fence
        raise self._refusal()

    def _refusal(self) -> CircuitOpen:
        now_ms = self._now_ms()
        at_ms = now_ms + wait_ms(self._state, now_ms, self._limits)
        when = f"is tried again at {moment(at_ms)}"
        if self._state.state == "half-open" and at_ms - now_ms > self._lease_ms:  # no probe's lease
            when = f"has asked not to be called before {moment(at_ms)}"
        elif self._state.state == "half-open":
            when = f"is being tried by another call, until {moment(at_ms)} at most"
        elif at_ms == now_ms:
            when = "is tried by the next run that is no dry-run"
        return CircuitOpen(
            f"{self._provider} {when}; this call was not made.",
            provider=self._provider,
            not_before_ms=at_ms,
            wait_ms=at_ms - now_ms,
            circuit_open=True,
            # For the call tier: to wait for it is the run's business.
            transient=False,
            cause="circuit-open",
        )

    # --- the row -----------------------------------------------------------------------

    def _is_fresh(self) -> bool:
        return self._seen_ms is not None and 0 <= self._clock.monotonic_ms() - self._seen_ms < FRESH_MS

    def _now_ms(self) -> int:
        return self._clock.monotonic_ms() + self._ahead_ms

    def _look(self) -> None:
        if self._is_fresh():
            return
        try:
            with self._access.reading() as ledger:
                self._keep(ledger.breaker(self._provider), ledger)
        except KfmError:
            self._seen_ms = self._clock.monotonic_ms()  # what was known stands for another second

    def _keep(self, breaker: Breaker, ledger: LedgerReader) -> None:
        self._state = breaker
        self._ahead_ms = ledger.now_ms() - self._clock.monotonic_ms()
        self._seen_ms = self._clock.monotonic_ms()

    def _change(self, decide: Callable[[Breaker, int], Breaker]) -> bool:
        """False where it could not be written: then this process goes by what it would have become."""
        if not self._access.can_write:  # a dry-run leaves no trace, here neither
            return False
        try:
            with self._access.writing() as store:
                _, kept = store.change_breaker(self._provider, decide)
                self._keep(kept, store)
        except KfmError:
            self._state = decide(self._state, self._now_ms())
            return False
        return True


def _claimed(breaker: Breaker, now_ms: int, lease_ms: int, limits: BreakerLimits) -> Breaker:
    if may_call(breaker, now_ms, limits) != "probe":
        return breaker
    return probe_started(breaker, now_ms, lease_ms, limits)


class SharedBreakers:
    """The circuits of all providers, shared through the ledger: `kfm.calls.breakers.Breakers`."""

    def __init__(
        self,
        access: BreakerAccess,
        clock: Clock,
        lease_ms: int = PROBE_LEASE_MS,
        limits: Limits = usual_limits,
    ) -> None:
        self._access = access
        self._clock = clock
        self._lease_ms = lease_ms
        self._limits = limits
        self._circuits: dict[str, SharedCircuit] = {}

    def circuit(self, provider: str) -> SharedCircuit:
        found = self._circuits.get(provider)
        if found is None:
            if len(self._circuits) >= CIRCUITS_MAX:
                self._circuits.clear()  # names that vary without end: their state is in the ledger
            limits = self._limits(provider)
            found = SharedCircuit(provider, self._access, self._clock, self._lease_ms, limits)
            found = self._circuits.setdefault(provider, found)
        return found

    def ask(self, providers: Sequence[str]) -> None:
        """Raises CircuitOpen if one circuit is open. Probes that are due are claimed by this process."""
        for provider in providers:
            try:
                self.circuit(provider).reserve()
            except CircuitOpen:
                self.give_back()
                raise

    def released_ms(self, providers: Sequence[str], name: str, due_ms: int = 0) -> int:
        """When a piece of waiting work may begin: not while a circuit is open, nor all at once after it.
        `due_ms` is when it first fell due; without it its name gives it a place among those that wait.
        See `model.breaker.release_at_ms`."""
        return max((self.circuit(each).due_ms(due_ms, name) for each in providers), default=due_ms)

    def give_back(self) -> None:
        """Let others make the probes that were asked for and not made."""
        for circuit in list(self._circuits.values()):
            circuit.put_back()

    def close(self) -> None:
        self._access.close()
