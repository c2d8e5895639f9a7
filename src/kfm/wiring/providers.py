"""Circuits in their places: around what sources read with, around a pipeline's own calls, for operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from kfm.core.breaker import Breaker, reset
from kfm.core.providers import provider_of
from kfm.core.records import GovernanceEntry
from kfm.core.settings import Source
from kfm.ports import Bucket, Clock, Rng, Store
from kfm.recovery.breakers import SharedBreakers
from kfm.recovery.shields import Shield, ShieldedBucket, ShieldedHttp
from kfm.sources.registry import Tools


def shielded(source: Source, tools: Tools, breakers: SharedBreakers, clock: Clock) -> Tools:
    """The tools of one source, whose every request passes its provider's circuit."""
    provider = provider_of(source)
    if provider is None:
        return tools
    shield = Shield(breakers.circuit(provider), clock)

    def open_bucket(address: str, options: Mapping[str, str]) -> Bucket:
        return ShieldedBucket(tools.open_bucket(address, options), shield)

    return replace(tools, http=ShieldedHttp(tools.http, shield), open_bucket=open_bucket)


def share_calls(breakers: SharedBreakers, clock: Clock, rng: Rng) -> Callable[[], None]:
    """Let every `kfm.call` of this process pass these circuits, until the returned function is called."""
    from kfm.calls.surroundings import HERE

    HERE.equip(clock, rng)
    former = HERE.replace(breakers=breakers)

    def leave() -> None:
        if HERE.breakers is breakers:
            HERE.replace(**former)

    return leave


def reset_breaker(
    store: Store,
    provider: str,
    discreet: Callable[[str | None], str | None],
    *,
    rationale: str,
    actor: str,
    claimed_actor: str | None = None,
    ticket: str | None = None,
) -> tuple[Breaker, Breaker]:
    """What it was, and what it is now; the decision is kept in the governance ledger."""
    seen = store.breaker(provider)
    entry = GovernanceEntry(
        kind="breaker-reset",
        subject=f"provider:{provider}",
        actor=actor,
        recorded_at_ms=store.now_ms(),
        rationale=discreet(rationale),
        ticket=discreet(ticket),
        details={"state": seen.state, "failures": seen.failures, "claimed_actor": discreet(claimed_actor)},
    )
    return store.change_breaker(provider, reset, [entry])
