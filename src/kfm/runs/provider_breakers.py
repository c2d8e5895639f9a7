"""Circuit breakers around clients of sources and targets and calls of pipelines; their reset by people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from msgspec.structs import replace

from kfm.calls.breakers import SharedBreakers
from kfm.calls.guarded_clients import CircuitGuard, GuardedBucket, GuardedHttp
from kfm.model.breaker import (
    ASKED_MAX_MS,
    Breaker,
    held_open,
    probe_asked,
    provider_of,
    provider_of_target,
    reset,
)
from kfm.model.errors import UsageError
from kfm.model.records import Justification, Record, governance_entry
from kfm.model.settings import SourceSettings, Target
from kfm.model.times import rfc3339
from kfm.ports import Bucket, Clock, Rng
from kfm.sources.source_kinds import Tools

if TYPE_CHECKING:
    from kfm.app import App
    from kfm.runs.observers import OwnCalls

T = TypeVar("T")


def guard_tools(source: SourceSettings, tools: Tools, breakers: SharedBreakers, clock: Clock) -> Tools:
    """The tools of one source, whose every request passes its provider's circuit."""
    provider = provider_of(source)
    if provider is None:
        return tools
    circuit_guard = CircuitGuard(breakers.circuit(provider), clock)

    def open_bucket(address: str, options: Mapping[str, str]) -> Bucket:
        return GuardedBucket(tools.open_bucket(address, options), circuit_guard)

    return replace(tools, http=GuardedHttp(tools.http, circuit_guard), open_bucket=open_bucket)


def guard_target(target: Target, bucket: Bucket, breakers: SharedBreakers, clock: Clock) -> Bucket:
    """A target's bucket, whose every request passes its provider's circuit."""
    provider = provider_of_target(target)
    if provider is None:
        return bucket
    return GuardedBucket(bucket, CircuitGuard(breakers.circuit(provider), clock))


def call_target(target: Target, work: Callable[[], T], breakers: SharedBreakers, clock: Clock) -> T:
    """One request to a target, through its provider's circuit."""
    provider = provider_of_target(target)
    return work() if provider is None else CircuitGuard(breakers.circuit(provider), clock).call(work)


def share_calls(breakers: SharedBreakers, clock: Clock, rng: Rng) -> Callable[[], None]:
    """Let every `kfm.call` of this process pass these circuits, until the returned function is called."""
    from kfm.calls.runtime import HERE

    HERE.equip(clock, rng)
    return HERE.share(breakers)


@contextmanager
def observe_calls(by: OwnCalls, left_ms: int) -> Iterator[None]:
    """Let a run see every `kfm.call` inside, with this long until its deadline."""
    from kfm.calls.runtime import HERE, within

    with HERE.watched_by(by), within(left_ms / 1000):
        yield


class BreakerDecision(Record, frozen=True):
    """What a person decides about a provider's circuit."""

    kind: Literal["reset", "probe", "hold"]
    until_ms: int = 0  # of a hold


def decide_breaker(
    app: App, provider: str, decision: BreakerDecision, by: Justification
) -> tuple[Breaker, Breaker]:
    """Close a circuit, have it tried now, or hold it open: what it was, and what it is now. The decision is
    kept in the audit log."""
    store, until_ms = app.kernel.store, decision.until_ms
    seen, now_ms = store.breaker(provider), store.now_ms()
    facts: dict[str, Any] = {"state": seen.state, "failures": seen.failures}
    if decision.kind == "probe" and seen.state == "closed":
        raise UsageError(f"The circuit of {provider} is closed: every call is made already.")
    if decision.kind == "hold":
        if not now_ms < until_ms <= now_ms + ASKED_MAX_MS:
            raise UsageError(
                "A circuit is held open until a time in the future, at most a day ahead.",
                remedy="Name such a time; hold it again later, if need be.",
            )
        facts["until"] = rfc3339(until_ms)
    entry = governance_entry(f"breaker-{decision.kind}", f"provider:{provider}", now_ms, by, **facts)
    made: dict[str, Callable[[Breaker, int], Breaker]] = {
        "reset": reset,
        "probe": probe_asked,
        "hold": lambda breaker, at_ms: held_open(breaker, at_ms, until_ms),
    }
    return store.change_breaker(provider, made[decision.kind], [entry])
