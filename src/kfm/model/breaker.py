"""The circuit breaker of one provider: closed, open, half-open. Pure; the ledger shares its state."""

import math
from collections.abc import Callable, Mapping
from typing import Literal

import msgspec
from msgspec.structs import replace

from kfm.model.contracts import check_transition
from kfm.model.errors import IllegalTransition
from kfm.model.patterns import late
from kfm.model.settings import ProviderSettings, SourceSettings, Target
from kfm.model.times import holds

FAILURES_MAX = 3
COOLDOWN_MS = 300_000
ASKED_MAX_MS = 86_400_000  # a provider that asks for more is probed once a day
PROBE_LEASE_MS = 60_000
RECOVERY_STRETCH = 1.5  # what waited comes back at two thirds of the rate at which it piled up
RECOVERY_MAX_MS = 86_400_000

BreakerState = Literal["closed", "open", "half-open"]
Permission = Literal["call", "probe", "refuse"]


class BreakerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many failures in a row open a circuit, and for how long."""

    failures_max: int = FAILURES_MAX
    cool_down_ms: int = COOLDOWN_MS


USUAL_LIMITS = BreakerLimits()


class Breaker(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    provider: str
    state: BreakerState = "closed"
    failures: int = 0  # in a row
    opened_at_ms: int | None = None
    probe_until_ms: int | None = None
    fence: int = 0  # rises with every probe
    tripped_at_ms: int | None = None  # when the outage began; kept until what waited has been released
    closed_at_ms: int | None = None  # when the last outage ended


def may_call(breaker: Breaker, now_ms: int, limits: BreakerLimits = USUAL_LIMITS) -> Permission:
    """`call` freely; `probe` only after `probe_started` was stored; `refuse` without spending an attempt."""
    if breaker.state == "closed":
        return "call"
    return "refuse" if wait_ms(breaker, now_ms, limits) > 0 else "probe"


def wait_ms(breaker: Breaker, now_ms: int, limits: BreakerLimits = USUAL_LIMITS) -> int:
    """How long until the provider may be tried again."""
    if breaker.state == "open":
        left_ms, longest_ms = (breaker.opened_at_ms or 0) + limits.cool_down_ms - now_ms, limits.cool_down_ms
    elif breaker.state == "half-open":
        left_ms, longest_ms = (breaker.probe_until_ms or 0) - now_ms, ASKED_MAX_MS
    else:
        return 0
    return left_ms if holds(now_ms + left_ms, now_ms, longest_ms) else 0


def probe_started(
    breaker: Breaker, now_ms: int, lease_ms: int = PROBE_LEASE_MS, limits: BreakerLimits = USUAL_LIMITS
) -> Breaker:
    """Claim the single probe. The process whose write lands holds its fence; a dead prober's lease lapses."""
    if may_call(breaker, now_ms, limits) != "probe":
        raise IllegalTransition(f"breaker {breaker.provider}: no probe is due while it is {breaker.state}.")
    event = "probe_started" if breaker.state == "open" else "probe_taken_over"
    check_transition("breaker", breaker.state, "half-open", event)
    return replace(breaker, state="half-open", probe_until_ms=now_ms + lease_ms, fence=breaker.fence + 1)


def probe_renewed(breaker: Breaker, now_ms: int, fence: int, lease_ms: int = PROBE_LEASE_MS) -> Breaker:
    """The prober is still at it. Nothing changes if the probe has passed to another."""
    if breaker.state != "half-open" or fence != breaker.fence:
        return breaker
    return replace(breaker, probe_until_ms=now_ms + lease_ms)


def probe_given_up(breaker: Breaker, now_ms: int, fence: int) -> Breaker:
    """The prober will not call after all: the next one may at once."""
    if breaker.state != "half-open" or fence != breaker.fence:
        return breaker
    return replace(breaker, probe_until_ms=now_ms)


def probe_put_off(breaker: Breaker, now_ms: int, fence: int, asked_ms: int) -> Breaker:
    """The provider answered, and said when to come back: the next probe is due then."""
    if breaker.state != "half-open" or fence != breaker.fence:
        return breaker
    return replace(breaker, probe_until_ms=now_ms + min(asked_ms, ASKED_MAX_MS))


def reset(breaker: Breaker, now_ms: int) -> Breaker:
    """A person says that the provider is well. A probe that is under way does not count any more."""
    if breaker.state == "closed":
        return replace(breaker, failures=0) if breaker.failures else breaker
    check_transition("breaker", breaker.state, "closed", "reset")
    return replace(_closed(breaker, now_ms), fence=breaker.fence + 1)


def probe_asked(breaker: Breaker, now_ms: int) -> Breaker:
    """A person wants it tried now: the next call is the probe, and one that is under way counts no more."""
    if breaker.state == "closed":
        return breaker
    check_transition("breaker", breaker.state, "half-open", "probe_asked")
    return replace(breaker, state="half-open", probe_until_ms=now_ms, fence=breaker.fence + 1)


def held_open(breaker: Breaker, now_ms: int, until_ms: int) -> Breaker:
    """A person wants no call of it until then, at most a day; the call after that is the probe."""
    check_transition("breaker", breaker.state, "half-open", "held_open")
    return replace(
        breaker,
        state="half-open",
        probe_until_ms=min(until_ms, now_ms + ASKED_MAX_MS),
        fence=breaker.fence + 1,
        tripped_at_ms=now_ms if breaker.state == "closed" else breaker.tripped_at_ms,
        closed_at_ms=None,
    )


def on_success(breaker: Breaker, fence: int | None = None, now_ms: int | None = None) -> Breaker:
    """A call went well. While open or half-open only the probe's own result counts.

    Without a time the end of the outage is not known, and waiting work is not spread.
    """
    if breaker.state == "closed":
        return replace(breaker, failures=0) if breaker.failures else breaker
    if breaker.state == "open" or fence != breaker.fence:
        return breaker
    check_transition("breaker", breaker.state, "closed", "probe_succeeded")
    return _closed(breaker, now_ms)


def _closed(breaker: Breaker, now_ms: int | None) -> Breaker:
    return replace(
        breaker,
        state="closed",
        failures=0,
        opened_at_ms=None,
        probe_until_ms=None,
        tripped_at_ms=None if now_ms is None else breaker.tripped_at_ms,
        closed_at_ms=now_ms,
    )


def on_failure(
    breaker: Breaker, now_ms: int, fence: int | None = None, limits: BreakerLimits = USUAL_LIMITS
) -> Breaker:
    """A call failed. A late failure of an older call neither re-opens nor prolongs."""
    if breaker.state == "closed":
        failures = breaker.failures + 1
        if failures < limits.failures_max:
            return replace(breaker, failures=failures)
        check_transition("breaker", "closed", "open", "tripped")
        again = now_ms < recovered_at_ms(breaker)  # work of the last outage still waits: it is the same one
        return replace(
            breaker,
            state="open",
            failures=failures,
            opened_at_ms=now_ms,
            tripped_at_ms=breaker.tripped_at_ms if again else now_ms,
            closed_at_ms=None,
        )
    if breaker.state == "open" or fence != breaker.fence:
        return breaker
    check_transition("breaker", breaker.state, "open", "probe_failed")
    return replace(
        breaker, state="open", failures=breaker.failures + 1, opened_at_ms=now_ms, probe_until_ms=None
    )


# --- after an outage -----------------------------------------------------------------


def recovered_at_ms(breaker: Breaker) -> int:
    """When all that waited for the last outage has been released; 0 if there was none."""
    if breaker.tripped_at_ms is None or breaker.closed_at_ms is None:
        return 0
    return breaker.closed_at_ms + _spread_ms(breaker.tripped_at_ms, breaker.closed_at_ms)


def release_at_ms(
    breaker: Breaker, due_ms: int, share: float, now_ms: int, limits: BreakerLimits = USUAL_LIMITS
) -> int:
    """When work of this provider that fell due at `due_ms` may begin. Not for what a person starts.

    While the circuit is open: when to look again. After an outage what fell due in it begins in
    the same order, over a span half as long again as the outage was: so, whatever the usual rate is,
    the backlog adds two thirds of it, and together they stay under twice the usual rate. Work that
    was late already when the outage began has its place by `share`, in [0, 1).
    """
    if breaker.state != "closed":
        # Where a probe is due it may begin at once: a time that is only just now would be later than what
        # was read from a clock a moment ago.
        left_ms = wait_ms(breaker, now_ms, limits)
        return max(due_ms, now_ms + left_ms) if left_ms else due_ms
    tripped_ms, closed_ms = breaker.tripped_at_ms, breaker.closed_at_ms
    if tripped_ms is None or closed_ms is None or due_ms >= closed_ms or closed_ms <= tripped_ms:
        return due_ms
    if closed_ms > now_ms:  # by a clock that was ahead: that outage is over
        return due_ms
    place = (due_ms - tripped_ms) / (closed_ms - tripped_ms) if due_ms > tripped_ms else share
    return closed_ms + math.floor(place * _spread_ms(tripped_ms, closed_ms))


def share_of(name: str) -> float:
    """A number in [0, 1) that is the same for the same piece of work, and even over many."""
    from hashlib import sha256  # late: most commands spread nothing

    return int.from_bytes(sha256(name.encode("utf-8", "replace")).digest()[:6]) / 2**48


def _spread_ms(tripped_ms: int, closed_ms: int) -> int:
    return min(RECOVERY_MAX_MS, math.floor(RECOVERY_STRETCH * max(0, closed_ms - tripped_ms)))


PROVIDER_CHARS_MAX = 200
_NAME = late(r"[!-~]+")  # one word of plain characters: it is typed on command lines


def is_provider_name(text: str) -> bool:
    return len(text) <= PROVIDER_CHARS_MAX and _NAME.fullmatch(text) is not None


def limits_of(provider: str, providers: Mapping[str, ProviderSettings]) -> BreakerLimits:
    """The configured limits of a provider's circuit, else the usual ones."""
    chosen = providers.get(provider)
    if chosen is None:
        return USUAL_LIMITS
    return BreakerLimits(failures_max=chosen.failures, cool_down_ms=round(chosen.cool_down_seconds * 1000))


def circuit_name(provider: str) -> str:
    """The circuit that all announced objects of a provider share."""
    return f"objects.{provider}"


def provider_of(source: SourceSettings) -> str | None:
    """Its own `provider`, else the host of its URL or its bucket; None where no provider is called.

    A host that a template decides is no name that can be known beforehand.
    """
    if source.provider is not None:
        return source.provider
    return provider_of_address(source.url or source.bucket or "")


def provider_of_address(address: str) -> str | None:
    """The host of a web address, or the bucket that an address is in."""
    return _host(address) if address.startswith(("http://", "https://")) else _bucket(address)


def provider_of_target(target: Target) -> str | None:
    """As of a source; a bucket that is read and written is one provider."""
    if target.provider is not None:
        return target.provider
    if not target.url:
        return None
    return _host(target.url) if target.url.startswith(("http://", "https://")) else _bucket(target.url)


def providers_of(source: SourceSettings, find: Callable[[str], SourceSettings]) -> tuple[str, ...]:
    """Every provider that is called for a source: of a sync, those of its members, each once."""
    members = [find(member) for member in source.members] if source.members else [source]
    named = [provider_of(member) for member in members]
    return tuple(dict.fromkeys(name for name in named if name is not None))


def _host(url: str) -> str | None:
    from urllib.parse import urlsplit  # late: most commands call no provider

    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not host or "{" in host:
        return None
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    return host if port is None or port == usual else f"{host}:{port}"


def _bucket(address: str) -> str | None:
    from urllib.parse import urlsplit

    parts = urlsplit(address)
    if parts.scheme == "file" or not parts.netloc or "{" in parts.netloc:
        return None
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
