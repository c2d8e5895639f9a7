"""Circuit breakers around clients of sources and targets and calls of pipelines; their reset by people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from kfm.calls.breakers import SharedBreakers
from kfm.calls.guarded_clients import CircuitGuard, GuardedBucket, GuardedHttp
from kfm.model.breaker import Breaker, provider_of, provider_of_target, reset
from kfm.model.records import governance_entry, justified
from kfm.model.settings import SourceSettings, Target
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


def reset_breaker(
    app: App,
    provider: str,
    *,
    rationale: str,
    actor: str,
    claimed_actor: str | None = None,
    ticket: str | None = None,
) -> tuple[Breaker, Breaker]:
    """Close a provider's circuit by a person's decision: what it was, and what it is now."""
    store = app.kernel.store
    seen = store.breaker(provider)
    entry = governance_entry(
        "breaker-reset",
        f"provider:{provider}",
        store.now_ms(),
        justified(app.loaded.discretion.said, actor, rationale, ticket, claimed_actor),
        state=seen.state,
        failures=seen.failures,
    )
    return store.change_breaker(provider, reset, [entry])
